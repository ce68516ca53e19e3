"""What a fill may ask for, against what a model heeds; another wish is refused, or left out if a setting makes it."""

from collections.abc import Collection, Mapping
from typing import Final, Literal

from midfill_engine.wire import MAX_HOLE_TOKENS, ModelInfo, Wish
from midfill_infill.errors import MidfillError

Length = Literal["same", "shorter", "longer"]
Bounds = Mapping[str, int]  # fields of a wire.HoleSpec

SHORTER: Final = 0.6  # times the tokens, where a model cannot search among lines
LONGER: Final = 1.6
# Source code has 3 to 4 characters per token; the engine truncates text that is still too long.
CHARS_PER_TOKEN: Final = 3
STEPS: Final = ("settles nothing in steps", "a diffusion model")
SEARCH: Final = ("does not choose how widely it searches", "a causal model")
WHY: Final[Mapping[str, tuple[str, str]]] = {"steps": STEPS, "quality": STEPS, "seconds": SEARCH}


def leave_out(model: ModelInfo, presets: Collection[Wish], **asked: object) -> list[str]:
    """The wishes among `asked` (those that are not None) that the model does not heed. Raises MidfillError `not_heeded`
    for one that a command can make, unless it is among the `presets`, which settings make.
    """
    unheeded = [wish for wish, value in asked.items() if value is not None and wish not in model.heeds]
    for wish in unheeded:
        if wish not in presets and wish != "seconds":
            why, other = WHY[wish]
            message = f"{model.id} {why}, so it does not heed --{wish}"
            raise MidfillError("not_heeded", message, f"leave out --{wish}, or choose {other}")
    return unheeded


def tell_left_out(model: str, wishes: Collection[str]) -> str | None:
    """A sentence about settings that were left out."""
    if not wishes:
        return None
    why, other = WHY[next(iter(wishes))]
    names = " and ".join(f"`{wish}`" for wish in wishes)
    return f"{model} {why}, so the setting {names} is left out: remove it, or choose {other}"


def can_lengthen(heeds: Collection[str]) -> bool:
    return "lines" in heeds or "min_tokens" in heeds


def bound_length(length: Length, model: ModelInfo, text: str, num_tokens: int | None, *, is_line: bool) -> Bounds:
    """The bounds of a hole that has `text` now, in `num_tokens` tokens if that is known. `is_line`: it takes no line
    break. Raises MidfillError `not_heeded` if there is nothing shorter, or the model cannot write more.
    """
    if length == "same":
        return {}
    num_lines = count_lines(text)
    tokens = num_tokens or max(1, len(text.strip()) // CHARS_PER_TOKEN)
    searches = "lines" in model.heeds
    if length == "longer":
        if not can_lengthen(model.heeds):
            message = f"{model.id} cannot be asked for a longer text"
            raise MidfillError("not_heeded", message, "type a line of it and reroll: what you type stays")
        if searches and not is_line:
            return {"min_lines": num_lines + 1}
        least = tokens + 1
        if not searches:
            least = max(least, round(tokens * LONGER))
        return {"min_tokens": min(MAX_HOLE_TOKENS, least)}
    if searches and not is_line and num_lines > 1:
        return {"max_lines": num_lines - 1}
    if tokens < 2:
        raise MidfillError("not_heeded", "this fill is a single token, and nothing is shorter", "type it yourself")
    most = tokens - 1
    if searches:
        return {"max_tokens": most, "max_lines": 1}
    return {"max_tokens": min(most, round(tokens * SHORTER))}


def count_lines(text: str) -> int:
    """Lines with text."""
    return sum(bool(line.strip()) for line in text.splitlines())


def is_within(bounds: Bounds, text: str) -> bool:
    lines = count_lines(text)
    return bounds.get("min_lines", 0) <= lines <= bounds.get("max_lines", lines)
