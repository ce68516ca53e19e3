"""Inserts the user's intent as a comment above each hole. Fills never contain it. Knows no document."""

from dataclasses import replace

from midfill_engine.wire import Segment, TextSegment
from midfill_infill.context.segments import Segments


def with_intent(segments: Segments, mark: str, intent: str) -> Segments:
    """The segments with `intent` and each hole's note as line comments (starting with `mark`) above the hole's line."""
    shown: list[Segment] = []
    holes = iter(segments.holes)
    for segment in segments.segments:
        lines = () if isinstance(segment, TextSegment) else (intent, next(holes).note)
        if comments := [f"{mark} {line}" for text in lines for line in text.splitlines()]:
            before = shown.pop().text if shown and isinstance(shown[-1], TextSegment) else ""  # type: ignore[union-attr]
            shown.append(TextSegment(text=_above_last_line(before, comments)))
        shown.append(segment)
    return replace(segments, segments=tuple(shown))


def _above_last_line(text: str, comments: list[str]) -> str:
    head, newline, line = text.rpartition("\n")
    indent = line[: len(line) - len(line.lstrip())]
    return head + newline + "".join(f"{indent}{comment}\n" for comment in comments) + line
