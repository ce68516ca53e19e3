"""JSON. Its files have no functions, so there is no grammar: Python's parser tells whether a text is valid."""

import json
from pathlib import PurePath
from typing import Final

_EXTENSIONS: Final = (".json", ".geojson", ".webmanifest")
# Files that may have comments and trailing commas, whatever they hold now.
_WITH_COMMENTS: Final = ("tsconfig*.json", "jsconfig*.json", ".vscode/*.json", "*.code-workspace", "devcontainer.json")
# A member, an element or a value, the last one or not: what can stand for a hole.
STAND_INS: Final = ("", '"midfill": 0', '"midfill": 0,', "0", "0,", ', "midfill": 0', ", 0", "midfill")


def is_json(path: PurePath) -> bool:
    """True for a file that is JSON without comments."""
    return path.suffix.lower() in _EXTENSIONS and not any(map(path.match, _WITH_COMMENTS))


def compiles(source: str) -> bool:
    """True if `source` is valid JSON."""
    try:
        json.loads(source, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    """Refuses `NaN` and `Infinity`, which only Python takes."""
    raise ValueError(constant)
