"""User settings, parsed once. Knows no editor: an invalid value is reported and its default used."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pydantic.alias_generators import to_camel

from midfill_infill.candidates import SHOWN

Schema = dict[str, Any]
_FLAG: tuple[Schema, str] = {"type": "boolean"}, "true or false"


def _strings(expected: str) -> tuple[Schema, str]:
    return {"type": "array", "items": {"type": "string"}}, expected


def _one_of(*names: str) -> tuple[Schema, str]:
    return {"type": "string", "enum": list(names)}, "one of " + ", ".join(names)


def _whole(low: int, high: int | None = None) -> tuple[Schema, str]:
    to = f" to {high}" if high is not None else ""
    return {"type": "integer", "minimum": low, "maximum": high or 2**53 - 1}, f"a whole number from {low}{to}"


def _setting(default: Any, values: tuple[Schema, str], help: str) -> Any:
    """A field with the JSON schema of its values, their description, and what it does."""
    schema, expected = values
    return field(default_factory=lambda: default, metadata={"schema": schema, "expected": expected, "help": help})


@dataclass(frozen=True)
class Settings:
    """`model` is a name or folder, None the default. None elsewhere leaves the choice to the model.

    `preview`, `confidence` and `server_command` are for editor plugins; the server only validates them.
    """

    model: str | None = _setting(None, ({"type": "string"}, "a model's name or folder"), "Model, by name or folder.")
    device: str = _setting("auto", _one_of("auto", "cpu", "cuda", "mps"), "Where the model runs.")
    steps: int | None = _setting(None, _whole(1, 1024), "At most so many denoise steps; by default the model decides.")
    max_hole_tokens: int | None = _setting(None, _whole(1, 1024), "At most so many tokens a hole.")
    seed: int = _setting(0, _whole(0), "0 takes the likeliest fill, any other number draws one.")
    trigger: str = _setting("auto", _one_of("auto", "manual"), "Ghost text while typing, or only when asked for.")
    languages: Mapping[str, bool] = _setting(
        {},
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "language ids with true or false each"),
        "Ghost text while typing by language, `*` for those not named; what is asked for works in all.",
    )
    debounce_ms: int = _setting(150, _whole(0, 5000), "Rest after a key before ghost text is made.")
    ghost_text_certainty: float = _setting(
        SHOWN,
        ({"type": "number", "minimum": 0, "maximum": 1}, "a number from 0 to 1"),
        "Unasked ghost text is shown from this certainty on, where the model tells it.",
    )
    exclude: tuple[str, ...] = _setting((), _strings("a list of patterns"), "Files to leave out, as in a .gitignore.")
    repository_context: bool = _setting(True, _FLAG, "Show the model text of other open and recent files.")
    next_edits: bool = _setting(True, _FLAG, "Show where a change that was made twice may be made again.")
    preview: str = _setting(
        "decoration", _one_of("decoration", "buffer", "off"), "How a fill is shown while it sharpens."
    )
    confidence: str = _setting("weak", _one_of("weak", "off"), "Whether the weakest tokens of a fill are underlined.")
    server_command: tuple[str, ...] = _setting((), _strings("a list of words"), "How the editor starts the server.")

    def suggests_in(self, language: str | None) -> bool:
        """Whether ghost text is on for a language."""
        return self.trigger == "auto" and self.languages.get(language or "", self.languages.get("*", True))


@dataclass(frozen=True)
class Rule:
    """One setting: the editor's key, JSON schema, a description of its values, and what it does."""

    key: str
    schema: Schema
    expected: str
    help: str

    def allows(self, value: object) -> bool:
        return _CHECKS[self.schema["type"]](value, self.schema)


RULES = {each.name: Rule(to_camel(each.name), **each.metadata) for each in fields(Settings)}


def _is_number(value: Any, schema: Schema) -> bool:
    return not isinstance(value, bool) and bool(schema["minimum"] <= value <= schema["maximum"])


_CHECKS: dict[str, Callable[[Any, Schema], bool]] = {
    "string": lambda value, schema: (
        isinstance(value, str) and bool(value.strip()) and value in schema.get("enum", [value])
    ),
    "integer": lambda value, schema: isinstance(value, int) and _is_number(value, schema),
    "number": lambda value, schema: isinstance(value, int | float) and _is_number(value, schema),
    "boolean": lambda value, schema: isinstance(value, bool),
    "object": lambda value, schema: (
        isinstance(value, Mapping) and all(isinstance(each, bool) for each in value.values())
    ),
    "array": lambda value, schema: isinstance(value, list | tuple) and all(isinstance(item, str) for item in value),
}


def parse_settings(values: object) -> tuple[Settings, list[str]]:
    """Settings from an editor's JSON, and one sentence for each problem."""
    if values is None:
        return Settings(), []
    if not isinstance(values, Mapping):
        return Settings(), [f"The settings of midfill must be an object, not {_describe(values)}."]
    known = {rule.key: (name, rule) for name, rule in RULES.items()}
    good: dict[str, Any] = {}
    problems = []
    for key, value in values.items():
        if key not in known:
            problems.append(f"midfill.{key} is not a setting; known are {', '.join(known)}.")
        elif value is not None:
            name, rule = known[key]
            if rule.allows(value):
                good[name] = tuple(value) if isinstance(value, list) else value
            else:
                problems.append(f"midfill.{key} must be {rule.expected}, not {_describe(value)}; the default is used.")
    return Settings(**good), problems


def _describe(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
