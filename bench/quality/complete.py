"""Fills the gaps of a suite by an engine under a length condition. Knows the wire; neither tests nor scores.

Decoding is greedy: temperature 0, and one token a step unless a lower `quality` is asked for. The true number of tokens
is that of the model's tokenizer: the engine keeps the known text and returns its tokens.
"""

from dataclasses import dataclass
from typing import Final, Literal

from bench.quality.suite import Task
from midfill_engine.families import FAMILIES
from midfill_engine.tokens.tokenizer import HealedEdges, heal
from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest, InfillResponse, Segment, TextSegment
from midfill_infill.engines.client import EngineClient
from midfill_infill.errors import MidfillError

FIXED_LENGTHS: Final = (4, 8, 16, 32, 64)

Length = Literal["own", "oracle"] | int


@dataclass(frozen=True)
class Condition:
    """The hole's length (the model's choice, the true number of tokens, or a fixed one) and the visible context."""

    length: Length
    sees_suffix: bool = True

    @property
    def shown_length(self) -> str:
        return self.length if isinstance(self.length, str) else f"fixed {self.length}"

    @property
    def name(self) -> str:
        return self.shown_length if self.sees_suffix else f"{self.shown_length}, no suffix"


@dataclass(frozen=True)
class Completion:
    """A fill. `pieces` are its visible tokens with their `confidence`; `refusal` is the reason if there is none.

    `true_pieces` are this model's tokens of the true middle, for comparison; empty if not requested.
    """

    text: str
    pieces: tuple[str, ...] = ()
    confidence: tuple[float, ...] = ()
    true_pieces: tuple[str, ...] = ()
    ms: float = 0.0
    refusal: str | None = None


class Completer:
    """Asks one engine for fills; may be used from several threads."""

    def __init__(self, client: EngineClient, quality: float = 1.0) -> None:
        """Raises MidfillError."""
        self._client = client
        self.quality = quality
        self.info = client.models()[0]
        self._cuts: dict[str, list[str]] = {}
        family = self.info.family
        self._heals = family in FAMILIES and FAMILIES.find(family).heals

    def fill(self, task: Task, condition: Condition) -> Completion:
        """Raises MidfillError; if the gap is too large for the model, the completion has a refusal instead."""
        suffix = task.suffix if condition.sees_suffix else ""
        try:
            true_pieces, num_true = self._cut(task, suffix)
            answer = self._ask(task, suffix, bounds_of(condition.length, num_true))
        except MidfillError as error:
            if error.code != "hole_too_large":
                raise
            return Completion("", refusal=str(error))
        (hole,) = answer.holes
        pieces = tuple(hole.text[start:end] for start, end in hole.tokens)
        return Completion(hole.text, pieces, tuple(hole.confidence), true_pieces, answer.stats.ms)

    def count_tokens(self, text: str) -> int:
        """The number of the model's tokens in `text`, without any context.

        Tokens without a whole character (inside a non-ASCII character) are not counted.
        """
        return len(self._pieces(text))

    def _cut(self, task: Task, suffix: str) -> tuple[tuple[str, ...], int]:
        """The visible tokens of the true middle, and the number of positions it takes."""
        edges = heal(task.prefix, suffix) if self._heals else HealedEdges(task.prefix, suffix)
        pieces = self._pieces(edges.lead + task.middle.removesuffix(edges.tail))
        visible, start = [], -len(edges.lead)
        for piece in pieces:
            end = start + len(piece)
            if end > 0:
                visible.append(piece[max(0, -start) :])
            start = end
        return tuple(visible), max(1, len(pieces))

    def _pieces(self, text: str) -> list[str]:
        if not text:
            return []
        if text not in self._cuts:
            self._cuts[text] = self._cut_anew(text)
        return self._cuts[text]

    def _cut_anew(self, text: str) -> list[str]:
        hole = HoleSpec(draft=text, keep=[(0, len(text))])
        (filled,) = self._send(InfillRequest(segments=[HoleSegment(hole=hole)])).holes
        return [filled.text[start:end] for start, end in filled.tokens]

    def _ask(self, task: Task, suffix: str, hole: HoleSpec) -> InfillResponse:
        segments: list[Segment] = [TextSegment(text=task.prefix), HoleSegment(hole=hole), TextSegment(text=suffix)]
        quality = self.quality if "quality" in self.info.heeds else None
        request = InfillRequest(segments=segments, tag=task.language, temperature=0, quality=quality)
        return self._send(request)

    def _send(self, request: InfillRequest) -> InfillResponse:
        *_, answer = self._client.infill(request)
        assert isinstance(answer, InfillResponse)
        return answer


def bounds_of(length: Length, num_true: int) -> HoleSpec:
    """Equal bounds give every length policy one choice: a canvas of exactly that many positions, no deletions."""
    if length == "own":
        return HoleSpec()
    count = num_true if length == "oracle" else length
    return HoleSpec(min_tokens=count, max_tokens=count)
