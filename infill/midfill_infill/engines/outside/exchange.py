"""Fills a request with another project's engine, one query per hole. Does no I/O.

A query ends as soon as nothing of its hole can follow; an answer that ends by itself before stays whole. But for what a
prompt demands around a text, answers stay as they were written: `answers.reading` finds the text of the hole in them.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from os.path import commonprefix
from pathlib import PurePath
from typing import Final

from midfill_engine import wire
from midfill_infill.answers.draft import DraftText
from midfill_infill.answers.ending import EndFinder, Extent
from midfill_infill.answers.markers import JOINER, restore
from midfill_infill.answers.openness import find_closing, leaves_open
from midfill_infill.answers.plain import is_prose
from midfill_infill.answers.wrapping import has_fence, is_wrapping, unwrap
from midfill_infill.context.origins import UNNAMED, Origins
from midfill_infill.engines.outside.protocol import (
    BLOCK_TOKENS,
    CUT,
    END,
    LIMIT,
    NEWER_LIMIT,
    THINKING_TOKENS,
    Call,
    HoleQuery,
    Piece,
    Protocol,
    Sources,
)
from midfill_infill.errors import MidfillError

LINE_TOKENS: Final = 256  # that the answer for a part of a line may take

Ask = Callable[[Call], Generator[str, None, None]]  # sends a call, yields the lines of the answer; raises Refused


class Refused(Exception):
    """The engine rejects a call; the next kind of call of its protocol may work."""


@dataclass(frozen=True)
class _Hole:
    """A hole of the request. `head` and `tail` are the kept text at its start and its end, around its middle."""

    head: str
    tail: str
    spec: wire.HoleSpec

    @classmethod
    def of(cls, spec: wire.HoleSpec) -> "_Hole":
        """Raises MidfillError `bad_request` if text is kept in the middle of the hole."""
        keep = list(spec.keep)
        head = tail = ""
        if keep and keep[0][0] == 0:
            _, end = keep.pop(0)
            head = spec.draft[:end]
        if keep and keep[-1][1] == len(spec.draft):
            start, _ = keep.pop()
            tail = spec.draft[start:]
        if keep:
            message = "this engine cannot keep text in the middle of a hole"
            raise MidfillError("bad_request", message, "fill the parts one by one")
        return cls(head, tail, spec)

    def find_extent(self, before: str, behind: str) -> Extent:
        """How much the hole takes, by the text before and behind it."""
        if "\n" in self.spec.forbid:
            return "line"
        if self.spec.indent is not None:
            return "block"
        is_alone = not before.rpartition("\n")[2].strip() and not behind.partition("\n")[0].strip()
        return "statement" if is_alone else "rest"


class Exchange:
    """Talks to one engine, and remembers what it refused: those kinds of calls are not repeated. An engine that begins
    a part of a line with a fence or a sentence is asked again, and from then on never stopped at line breaks. It is
    asked again too for a part of a line whose bracket or string is still open at the line's end, or whose first line is
    blank.

    `name` is the protocol's name, for messages. `wanted` is the number of tokens that should be sent; `limit` is the
    number that the engine takes together with its answer, None if it does not tell. `window` is the number of tokens
    that may be sent.
    """

    def __init__(
        self, protocol: Protocol, model: str, name: str, ask: Ask, wanted: int, limit: int | None = None
    ) -> None:
        self._protocol, self._model, self._name, self._ask = protocol, model, name, ask
        self._limit, self.window = limit, wanted
        if limit is not None:
            self.window = min(wanted, max(limit - protocol.answer_tokens, limit // 2))
        self._num_refused = 0  # the first kinds of calls, which the engine has refused
        self._renames_limit = False  # True once the engine has asked for NEWER_LIMIT
        self._wraps_code = False  # True once the engine has begun a part of a line with a fence or a sentence

    def run(
        self, request: wire.InfillRequest, origins: Origins
    ) -> Generator[wire.StepEvent | wire.InfillResponse, None, None]:
        """Yields a step per piece, which shows the first alternative, then the answer. If a later alternative fails,
        those before it are the answer. Closing the generator closes the connection.
        """
        sources = _find_sources(request.excerpts, origins)
        started_s = time.perf_counter()
        steps = tokens = 0
        holes = [_Hole.of(segment.hole) for segment in request.segments if isinstance(segment, wire.HoleSegment)]
        fills: list[list[wire.FilledHole]] = []
        model = request.model or self._model
        told_model = ""  # as the engine calls it, which may be no name to ask for
        shown: list[Piece] = []  # the middles of the first alternative
        for alternative in range(request.n):  # each with another seed, all but the first sampled
            temperature = request.temperature or (wire.ALTERNATIVE_TEMPERATURE if alternative else 0.0)
            seed = (request.seed or 0) + alternative
            common = HoleQuery("", "", 0, temperature=temperature, seed=seed, sources=sources, limit=self._limit)
            middles: list[Piece] = []
            shown = shown or middles
            codes: list[str] = []
            filled: list[wire.FilledHole] = []
            try:
                for hole in holes:
                    before, behind = _find_around(request, holes, codes)
                    query = replace(self._make_query(common, hole, before, behind), model=model or told_model)
                    middle = Piece()
                    middles.append(middle)
                    for middle, num_tokens in self._write(query, hole):
                        middles[-1] = replace(middle, text=self._protocol.uncover(middle.text))
                        told_model = middle.model or told_model
                        steps += 1
                        tokens += num_tokens
                        yield _make_step(steps, holes, shown)
                    code = next(unwrap(DraftText.of(restore(middle.text)), ""))  # `answers` finds it with a parser
                    codes.append(code.text)
                    filled.append(_make_filled(hole, middles[-1], query.max_tokens))
            except MidfillError:
                if not fills:
                    raise
                break
            fills.append(filled)
        ms = (time.perf_counter() - started_s) * 1000
        stats = wire.Stats(steps=steps, forwards=steps, tokens=tokens, ms=ms)
        name = ":".join(filter(None, (self._name, told_model or model)))
        yield wire.InfillResponse(model=name, holes=fills[0], alternatives=fills[1:], stats=stats)

    def _make_query(self, common: HoleQuery, hole: _Hole, before: str, behind: str) -> HoleQuery:
        """The query for a hole between two texts, with what all queries of an alternative have in `common`."""
        extent = hole.find_extent(before, behind)
        may_have_lines = extent != "line" and (extent != "rest" or bool(find_closing(before, behind)))
        max_tokens = hole.spec.max_tokens or (BLOCK_TOKENS if may_have_lines else LINE_TOKENS)
        has_stop = not may_have_lines and self._protocol.has_stops and not self._wraps_code
        stops = ("\n",) if has_stop else ()
        return replace(common, before=before, behind=behind, max_tokens=max_tokens, stops=stops, extent=extent)

    def _write(self, query: HoleQuery, hole: _Hole) -> Iterator[tuple[Piece, int]]:
        """Yields for each piece of the answer the whole middle so far, and the piece's number of tokens. The last
        middle has the ending of the answer, unless its hole ended before.
        """
        middle, num_tokens, ending, is_thinking = Piece(), 0, "", False
        indent = hole.spec.indent or ""
        if query.extent == "statement":
            indent = query.before.rpartition("\n")[2]
        knows_end = self._protocol.knows_end
        # A model that ends its answers has been asked for a fence.
        has_fences = is_prose(PurePath(query.sources.path)) and not knows_end
        finder = EndFinder(query.extent, indent, query.before, query.behind, knows_end=knows_end, is_prose=has_fences)
        with closing(self._read_accepted(query)) as pieces:
            for piece in pieces:
                max_tokens = query.max_tokens + (THINKING_TOKENS if is_thinking else 0)
                is_full = bool(piece.text) and num_tokens >= max_tokens  # some engines exceed it
                if is_full:
                    piece = replace(piece, text="", logprobs=(), ending=CUT)
                text = (middle.text + piece.text).replace("\r\n", "\n")  # two pieces may share a line end
                num_added = len(piece.logprobs) or int(bool(piece.text))
                num_tokens += num_added
                ending = ending or piece.ending
                start = self._protocol.find_answer(text)
                if is_thinking and start is not None:
                    num_tokens = 0
                text = text[start or 0 :]
                is_thinking = start is None
                end: int | None = None
                if not is_thinking or (ending and not has_fence(text)):
                    end = finder.find(text, is_continuation=piece.is_continuation)
                if end is None and ending == CUT:
                    end = finder.likely_end
                middle = Piece(text[:end], middle.logprobs + piece.logprobs, piece.model or middle.model)
                shown = middle if end is not None else replace(middle, ending=ending)
                yield Piece(model=middle.model) if is_thinking and not ending else shown, num_added
                if end is not None or is_full:
                    return
        if is_thinking and not ending:  # what might have been thoughts was the answer
            end = None if has_fence(middle.text) else finder.find(middle.text, is_continuation=False)
            yield replace(middle, text=middle.text[:end]), 0
        wraps_code = is_wrapping(middle.text)
        is_blank = not middle.text.strip()  # then it may go on behind the line break
        is_open = query.extent == "rest" and leaves_open(middle.text, query.before, query.behind)
        if query.stops and (wraps_code or is_blank or is_open):
            self._wraps_code = self._wraps_code or wraps_code
            yield from self._write(replace(query, stops=()), hole)

    def _read_accepted(self, query: HoleQuery) -> Generator[Piece, None, None]:
        """Yields the pieces of the answer to the first kind of call that the engine accepts. Raises MidfillError."""
        calls = list(self._protocol.calls(query))
        for index, call in enumerate(calls):
            is_last = index == len(calls) - 1
            if index < self._num_refused and not is_last:
                continue
            try:
                pieces = self._read_renamed(call)
                if call.is_continuation:
                    pieces = _drop_known_space(pieces, query.before[len(query.left) :])
                for piece in pieces:
                    self._num_refused = max(self._num_refused, index)  # a refusal of all kinds is one of this query
                    yield piece
                return
            except Refused as refusal:
                if is_last:
                    message = f"{self._name} refuses the request: {refusal}"
                    next_step = "check the protocol, the model and the address that `midfill config engine` shows"
                    raise MidfillError("engine_error", message, next_step) from None

    def _read_renamed(self, call: Call) -> Iterator[Piece]:
        """As `_read`. Asks again if the engine wants NEWER_LIMIT, which later calls use at once."""
        try:
            yield from self._read(call.renamed if self._renames_limit else call)
        except Refused as refusal:
            if self._renames_limit or LIMIT not in call.body or NEWER_LIMIT not in str(refusal):
                raise
            self._renames_limit = True
            yield from self._read(call.renamed)

    def _read(self, call: Call) -> Iterator[Piece]:
        """Yields the pieces of the answer to a call. A connection that is lost behind the end of the answer is no
        failure. Raises Refused and MidfillError.
        """
        is_known = is_whole = False
        message = f"{self._name} answers in a form that is not known"
        unknown = MidfillError("engine_error", message, "check the protocol and the address")
        with closing(self._ask(call)) as lines:
            try:
                for line in lines:
                    try:
                        piece = self._protocol.read(line)
                    except (ValueError, KeyError, TypeError, AttributeError):
                        next(lines, None)  # raises if the connection was lost in this line
                        raise unknown from None
                    if piece is not None and piece.error:
                        message = f"{self._name} says: {piece.error[:200]}"
                        raise MidfillError("engine_error", message, "see that engine's log")
                    if piece is not None:
                        is_known = True
                        is_whole = is_whole or bool(piece.ending)
                        if piece is not END:
                            yield piece
                if not is_known:  # such as the page of a web server
                    raise unknown
            except MidfillError as failure:
                if failure.code != "engine_unreachable" or not is_whole:
                    raise


def _find_sources(excerpts: Sequence[str], origins: Origins) -> Sources:
    """The excerpts by their files; those of one file that follow each other are joined to one text."""
    by_path = groupby(excerpts, key=lambda text: origins.files.get(text, UNNAMED))
    files = tuple((path, "\n\n".join(texts)) for path, texts in by_path)
    return Sources(files, origins.name, origins.path, origins.comment)


def _drop_known_space(pieces: Iterator[Piece], known_space: str) -> Iterator[Piece]:
    """Yields the pieces marked `is_continuation`, without their leading `known_space`, which the document has."""
    expected = known_space
    for piece in pieces:
        num_shared = len(commonprefix([expected, piece.text]))
        expected = expected[num_shared:] if num_shared == len(piece.text) else ""
        logprobs = list(piece.logprobs)
        if logprobs:
            token, logprob = logprobs[0]
            logprobs[0] = (token[num_shared:], logprob)
        yield replace(piece, text=piece.text[num_shared:], logprobs=tuple(logprobs), is_continuation=True)


def _find_around(request: wire.InfillRequest, holes: Sequence[_Hole], middles: Sequence[str]) -> tuple[str, str]:
    """The texts before and behind the first hole without a middle. Earlier holes show their middles, and all holes
    their kept text.
    """
    parts: list[str] = []
    gaps: list[int] = []  # for each hole the index of the part behind its middle
    for segment in request.segments:
        if isinstance(segment, wire.HoleSegment):
            index = len(gaps)
            middle = middles[index] if index < len(middles) else ""
            parts.append(holes[index].head + middle)
            gaps.append(len(parts))
            parts.append(holes[index].tail)
        else:
            parts.append(segment.text)
    gap = gaps[len(middles)]
    return "".join(parts[:gap]), "".join(parts[gap:])


def _make_step(step: int, holes: Sequence[_Hole], middles: Sequence[Piece]) -> wire.StepEvent:
    """The event that shows the middles so far; holes without a middle count as one masked position."""
    states: list[wire.HoleState] = []
    for index, hole in enumerate(holes):
        middle = ""
        if index < len(middles):
            middle = restore(middles[index].text).replace(JOINER, "")
        text = hole.head + middle + hole.tail
        settled = [(0, len(text))] if text else []
        states.append(wire.HoleState(text=text, settled=settled, masked=index >= len(middles)))
    max_steps = sum(hole.spec.max_tokens or BLOCK_TOKENS for hole in holes)
    return wire.StepEvent(step=step, num_steps=max(step, max_steps), holes=states)


def _make_filled(hole: _Hole, middle: Piece, max_tokens: int) -> wire.FilledHole:
    """The answer for a hole, with the markers in the user's code as they were before `defuse`. It may have had
    `max_tokens`.
    """
    restored = restore(middle.text)
    text = hole.head + restored + hole.tail
    positions = [len(hole.head)]  # in `text`, of each character of the middle and of its end; `restore` drops some
    for char in middle.text:
        index = positions[-1] - len(hole.head)
        is_kept = index < len(restored) and char == restored[index]
        positions.append(positions[-1] + is_kept)
    tokens: list[tuple[int, int]] = []
    confidence: list[float] = []
    position = 0
    for token, logprob in middle.logprobs:
        if position + len(token) > len(middle.text) or not middle.text.startswith(token, position):
            break  # the middle was cut here, or the tokens are not those of its text
        start, end = positions[position], positions[position + len(token)]
        if start < end:
            tokens.append((start, end))
            confidence.append(min(1.0, math.exp(logprob)))
        position += len(token)
    edges = [(0, len(hole.head)), (len(text) - len(hole.tail), len(text))]
    anchors = [(start, end) for start, end in edges if start < end]
    cut_at = max_tokens if middle.ending == CUT else None
    cut = cut_at is not None
    return wire.FilledHole(text=text, tokens=tokens, confidence=confidence, anchors=anchors, cut=cut, cut_at=cut_at)
