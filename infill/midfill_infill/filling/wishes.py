"""Compares the wishes of a fill with those that its model heeds: refuses others, or leaves out those of settings."""

from collections.abc import Collection, Mapping
from typing import Final, Literal

from midfill_engine.wire import MAX_HOLE_TOKENS, ModelInfo, Wish
from midfill_infill.errors import MidfillError

Length = Literal["same", "shorter", "longer"]
Bounds = Mapping[str, int]  # `min_tokens`, `max_tokens`, `min_lines` and `max_lines` of a wire.HoleSpec

# A shorter or longer text has so many times the present number of tokens, if the model heeds no bounds of lines.
SHORTER: Final = 0.6
LONGER: Final = 1.6
# Source code has 3 to 4 characters per token; the engine truncates text that is still too long.
CHARS_PER_TOKEN: Final = 3
STEPS: Final = ("settles nothing in steps", "a diffusion model")
SEARCH: Final = ("does not choose how widely it searches", "a causal model")
# For each wish why a model does not heed it, and which kind of model does.
WHY: Final[Mapping[str, tuple[str, str]]] = {"steps": STEPS, "quality": STEPS, "seconds": SEARCH}


def leave_out(model: ModelInfo, presets: Collection[Wish], **asked: object) -> list[str]:
    """The wishes that the model does not heed, among those of `asked` that are not None. Raises MidfillError
    `not_heeded` for one of these that is not in `presets`, the wishes that settings make. `seconds` is never refused,
    because no option of a command asks for it.
    """
    unheeded = [wish for wish, value in asked.items() if value is not None and wish not in model.heeds]
    for wish in unheeded:
        if wish not in presets and wish != "seconds":
            why, heeding = WHY[wish]
            message = f"{model.id} {why}, so it does not heed --{wish}"
            raise MidfillError("not_heeded", message, f"leave out --{wish}, or choose {heeding}")
    return unheeded


def tell_left_out(model: str, wishes: Collection[str]) -> str | None:
    """A message to the user about the wishes of settings that were left out; None if there are none."""
    if not wishes:
        return None
    names_by_reason: dict[tuple[str, str], list[str]] = {}
    for wish in wishes:
        names_by_reason.setdefault(WHY[wish], []).append(f"`{wish}`")
    parts: list[str] = []
    for (why, heeding), names in names_by_reason.items():
        left_out = f"the setting {names[0]} is left out: remove it"
        if len(names) > 1:
            left_out = f"the settings {' and '.join(names)} are left out: remove them"
        parts.append(f"{model} {why}, so {left_out}, or choose {heeding}")
    return "; ".join(parts)


def can_lengthen(heeds: Collection[str]) -> bool:
    """True if a model that heeds these wishes can be asked for a longer text."""
    return "lines" in heeds or "min_tokens" in heeds


def bound_length(length: Length, model: ModelInfo, text: str, num_tokens: int | None, *, is_line: bool) -> Bounds:
    """The bounds that make the text of a hole shorter or longer than its present `text`, which has `num_tokens` tokens,
    None if unknown; no bounds for `same`. A hole with `is_line` takes no line break, so its tokens are bounded instead
    of its lines. Raises MidfillError `not_heeded` if there is nothing shorter, or the model cannot write more.
    """
    if length == "same":
        return {}
    num_lines = count_lines(text)
    tokens = num_tokens or max(1, len(text.strip()) // CHARS_PER_TOKEN)
    heeds_lines = "lines" in model.heeds
    if length == "longer":
        if not can_lengthen(model.heeds):
            message = f"{model.id} cannot be asked for a longer text"
            raise MidfillError("not_heeded", message, "type a line of it and reroll: what you type stays")
        if heeds_lines and not is_line:
            return {"min_lines": num_lines + 1}
        min_tokens = tokens + 1
        if not heeds_lines:
            min_tokens = max(min_tokens, round(tokens * LONGER))
        return {"min_tokens": min(MAX_HOLE_TOKENS, min_tokens)}
    if heeds_lines and not is_line and num_lines > 1:
        return {"max_lines": num_lines - 1}
    if tokens < 2:
        raise MidfillError("not_heeded", "this fill is a single token, and nothing is shorter", "type it yourself")
    max_tokens = tokens - 1
    if heeds_lines:
        return {"max_tokens": max_tokens, "max_lines": 1}
    return {"max_tokens": min(max_tokens, round(tokens * SHORTER))}


def count_lines(text: str) -> int:
    """The number of lines that are not blank."""
    return sum(bool(line.strip()) for line in text.splitlines())


def is_within(bounds: Bounds, text: str) -> bool:
    """True if a text has as many lines as the bounds allow; their tokens are not checked."""
    num_lines = count_lines(text)
    return bounds.get("min_lines", 0) <= num_lines <= bounds.get("max_lines", num_lines)
