"""User settings, parsed once. Knows no editor: an invalid value is reported and its default used."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from midfill_infill.candidates import SHOWN

DEVICES = ("auto", "cpu", "cuda", "mps")
TRIGGERS = ("auto", "manual")
PREVIEWS = ("decoration", "buffer", "off")
CONFIDENCES = ("weak", "off")
MAX_STEPS = 1024
MAX_HOLE_TOKENS = 1024
MAX_DEBOUNCE_MS = 5000


@dataclass(frozen=True)
class Settings:
    """`model` is a name or folder, None the default. None elsewhere leaves the choice to the model.

    `preview`, `confidence` and `server_command` are for editor plugins; the server only validates them.
    """

    model: str | None = None
    device: str = "auto"
    steps: int | None = None
    max_hole_tokens: int | None = None
    seed: int = 0
    trigger: str = "auto"
    languages: Mapping[str, bool] = field(default_factory=dict)
    debounce_ms: int = 150
    ghost_text_certainty: float = SHOWN
    exclude: tuple[str, ...] = ()
    repository_context: bool = True
    next_edits: bool = True
    preview: str = "decoration"
    confidence: str = "weak"
    server_command: tuple[str, ...] = ()

    def suggests_in(self, language: str | None) -> bool:
        """Whether ghost text is on for a language."""
        return self.trigger == "auto" and self.languages.get(language or "", self.languages.get("*", True))


@dataclass(frozen=True)
class Rule:
    """One setting: the editor's key, JSON schema, a description of its values, and what it does."""

    key: str
    schema: dict[str, Any]
    expected: str
    help: str

    def allows(self, value: object) -> bool:
        return _CHECKS[self.schema["type"]](value, self.schema)


def _one_of(*names: str) -> tuple[dict[str, Any], str]:
    return {"type": "string", "enum": list(names)}, "one of " + ", ".join(names)


def _whole(low: int, high: int | None = None) -> tuple[dict[str, Any], str]:
    to = f" to {high}" if high is not None else ""
    return {"type": "integer", "minimum": low, "maximum": high or 2**53 - 1}, f"a whole number from {low}{to}"


def _is_number(value: Any, schema: dict[str, Any]) -> bool:
    return not isinstance(value, bool) and bool(schema["minimum"] <= value <= schema["maximum"])


_STRINGS = {"type": "array", "items": {"type": "string"}}
_CHECKS: dict[str, Callable[[Any, dict[str, Any]], bool]] = {
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

RULES: dict[str, Rule] = {
    "model": Rule("model", {"type": "string"}, "a model's name or folder", "Model, by name or folder."),
    "device": Rule("device", *_one_of(*DEVICES), "Where the model runs."),
    "steps": Rule("steps", *_whole(1, MAX_STEPS), "At most so many denoise steps; by default the model decides."),
    "max_hole_tokens": Rule("maxHoleTokens", *_whole(1, MAX_HOLE_TOKENS), "At most so many tokens a hole."),
    "seed": Rule("seed", *_whole(0), "0 takes the likeliest fill, any other number draws one."),
    "trigger": Rule("trigger", *_one_of(*TRIGGERS), "Ghost text while typing, or only when asked for."),
    "languages": Rule(
        "languages",
        {"type": "object", "additionalProperties": {"type": "boolean"}},
        "language ids with true or false each",
        "Ghost text while typing by language, `*` for those not named; what is asked for works in all.",
    ),
    "debounce_ms": Rule("debounceMs", *_whole(0, MAX_DEBOUNCE_MS), "Rest after a key before ghost text is made."),
    "ghost_text_certainty": Rule(
        "ghostTextCertainty",
        {"type": "number", "minimum": 0, "maximum": 1},
        "a number from 0 to 1",
        "Unasked ghost text is shown from this certainty on, where the model tells it.",
    ),
    "exclude": Rule("exclude", _STRINGS, "a list of patterns", "Files to leave out, as in a .gitignore."),
    "repository_context": Rule(
        "repositoryContext", {"type": "boolean"}, "true or false", "Show the model text of other open and recent files."
    ),
    "next_edits": Rule(
        "nextEdits", {"type": "boolean"}, "true or false", "Show where a change that was made twice may be made again."
    ),
    "preview": Rule("preview", *_one_of(*PREVIEWS), "How a fill is shown while it sharpens."),
    "confidence": Rule("confidence", *_one_of(*CONFIDENCES), "Whether the weakest tokens of a fill are underlined."),
    "server_command": Rule("serverCommand", _STRINGS, "a list of words", "How the editor starts the server."),
}
assert RULES.keys() == {field.name for field in fields(Settings)}


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
