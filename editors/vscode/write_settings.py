"""Writes the settings of package.json from the server's: `python editors/vscode/write_settings.py`, or `--check`."""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from midfill_lsp.settings import RULES, Settings

PACKAGE = Path(__file__).with_name("package.json")
# What chooses a program, or what code is run on, is never a workspace's to say.
MACHINE = ("serverCommand", "model", "device")
OWN = {
    "midfill.torchIndex": {
        "type": ["string", "null"],
        "default": None,
        "scope": "machine",
        "description": "The package index that the extension's own server takes torch from; empty, pip's usual one. By"
        " default, it is PyTorch's for CPUs on Linux without an NVIDIA GPU, else the usual one.",
    }
}


def render() -> dict[str, Any]:
    """The settings by their names, as VS Code's schema has them."""
    properties = {}
    schemas = TypeAdapter(Settings).json_schema()["properties"]
    for name, rule in RULES.items():
        default = getattr(Settings(), name)
        schema, *others = schemas[name].get("anyOf", [schemas[name]])
        schema = {key: value for key, value in schema.items() if key not in ("title", "description")}
        if others:
            schema["type"] = [schema["type"], "null"]
        scope = "machine" if rule.key in MACHINE else "resource"
        default = list(default) if isinstance(default, tuple) else default
        properties[f"midfill.{rule.key}"] = {**schema, "default": default, "scope": scope, "description": rule.help}
    return properties | OWN


if __name__ == "__main__":
    package = json.loads(PACKAGE.read_text(encoding="utf-8"))
    now = package["contributes"]["configuration"]["properties"]
    if "--check" in sys.argv:
        sys.exit(now != render() and "run: python editors/vscode/write_settings.py")
    package["contributes"]["configuration"]["properties"] = render()
    PACKAGE.write_text(json.dumps(package, indent=2) + "\n", encoding="utf-8")
