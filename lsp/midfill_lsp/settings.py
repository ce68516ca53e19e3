"""What the user can set, parsed once at the edge. Knows no editor: a bad value is reported and the default is used."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

DEVICES = ("auto", "cpu", "cuda", "mps")
MAX_STEPS = 1024
MAX_HOLE_TOKENS = 1024


@dataclass(frozen=True)
class Settings:
    """`model` is a name or a folder, None the one that ships. None elsewhere leaves the choice to the model."""

    model: str | None = None
    device: str = "auto"
    steps: int | None = None
    max_hole_tokens: int | None = None
    seed: int = 0


def _is_whole(low: int, high: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


# One row a setting: the editor's key, what is allowed, and how to say so.
_RULES: dict[str, tuple[str, Callable[[object], bool], str]] = {
    "model": ("model", lambda value: isinstance(value, str) and bool(value.strip()), "a model's name or folder"),
    "device": ("device", lambda value: value in DEVICES, "one of " + ", ".join(DEVICES)),
    "steps": ("steps", _is_whole(1, MAX_STEPS), f"a whole number from 1 to {MAX_STEPS}"),
    "max_hole_tokens": ("maxHoleTokens", _is_whole(1, MAX_HOLE_TOKENS), f"a whole number from 1 to {MAX_HOLE_TOKENS}"),
    "seed": ("seed", _is_whole(0, 2**63 - 1), "a whole number from 0"),
}
assert _RULES.keys() == {field.name for field in fields(Settings)}


def parse_settings(values: object) -> tuple[Settings, list[str]]:
    """Settings from an editor's JSON, and one sentence for each thing that is wrong with it."""
    if values is None:
        return Settings(), []
    if not isinstance(values, Mapping):
        return Settings(), [f"The settings of midfill must be an object, not {_describe(values)}."]
    known = {key: (name, allowed, expected) for name, (key, allowed, expected) in _RULES.items()}
    good: dict[str, object] = {}
    problems = []
    for key, value in values.items():
        if key not in known:
            problems.append(f"midfill.{key} is not a setting; known are {', '.join(known)}.")
        elif value is not None:
            name, allowed, expected = known[key]
            if allowed(value):
                good[name] = value
            else:
                problems.append(f"midfill.{key} must be {expected}, not {_describe(value)}; the default is used.")
    return Settings(**good), problems  # type: ignore[arg-type]


def _describe(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
