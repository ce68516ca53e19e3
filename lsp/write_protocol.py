"""Writes the tables of lsp/PROTOCOL.md from the code: `python lsp/write_protocol.py`. The test runs it too."""

import json
import re
from pathlib import Path
from typing import Any

from midfill_lsp import messages
from midfill_lsp.offers import KINDS, LENSES, TITLES
from midfill_lsp.settings import RULES, Settings

PAGE = Path(__file__).with_name("PROTOCOL.md")
_PART = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def render() -> dict[str, str]:
    """The generated parts of the page by name."""
    return {
        "requests": _table("request", messages.REQUESTS),
        "notifications": "".join(f"- `{name}`: {_link(kind)}\n" for name, kind in messages.NOTIFICATIONS.items()),
        "commands": _table("command", messages.COMMANDS),
        "actions": "".join(f"- `{kind}`: {TITLES[what]}\n" for what, kind in KINDS.items()),
        "lenses": "".join(f"- {title}: `{name}`\n" for name, title in LENSES.items()),
        "settings": _settings(),
        "shapes": "\n".join(map(_shape, sorted(messages.Payload.__subclasses__(), key=lambda kind: kind.__name__))),
    }


def fill_in(page: str) -> str:
    """The page with its generated parts as the code has them now."""
    parts = render()
    return _PART.sub(lambda match: match[1] + parts.pop(match[2]) + match[3], page)


def _table(what: str, rows: dict[str, tuple[type[messages.Payload], type[messages.Payload]]]) -> str:
    lines = [f"| {what} | takes | answers |", "|---|---|---|"]
    lines += [f"| `{name}` | {_link(takes)} | {_link(answers)} |" for name, (takes, answers) in rows.items()]
    return "\n".join(lines) + "\n"


def _link(kind: type[messages.Payload]) -> str:
    return f"[{kind.__name__}](#{kind.__name__.lower()})"


def _shape(kind: type[messages.Payload]) -> str:
    schema = kind.model_json_schema(by_alias=True)
    required = schema.get("required", [])
    words = " ".join((kind.__doc__ or "").split())
    lines = [f"### {kind.__name__}\n", *([f"{words}\n"] if words else []), "| key | type | default |", "|---|---|---|"]
    for key, value in schema.get("properties", {}).items():
        default = "required" if key in required else f"`{json.dumps(value.get('default'))}`"
        lines.append(f"| `{key}` | {_type(value)} | {default} |")
    return "\n".join(lines) + "\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return "string" if name == "What" else name
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"] if part.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f'`"{value}"`' for value in schema["enum"])
    if "prefixItems" in schema:
        return "[" + ", ".join(map(_type, schema["prefixItems"])) + "]"
    if schema.get("type") == "array":
        return f"{_type(schema.get('items', {}))}[]"
    return str(schema.get("type", "any"))


def _settings() -> str:
    lines = ["| setting | values | default | |", "|---|---|---|---|"]
    for name, rule in RULES.items():
        default = getattr(Settings(), name)
        lines.append(f"| `midfill.{rule.key}` | {rule.expected} | `{json.dumps(default)}` | {rule.help} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(fill_in(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
