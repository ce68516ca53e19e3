"""Fills a request with another project's engine, one query per hole, until nothing of the hole can follow. Does no I/O.

Answers stay as they were written: `answers.reading` finds the text of the hole in them.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from os.path import commonprefix
from typing import Final

from midfill_engine import wire
from midfill_infill.answers.draft import DraftText
from midfill_infill.answers.ending import Extent, find_end, find_loop_end
from midfill_infill.answers.markers import JOINER, restore
from midfill_infill.answers.wrapping import is_wrapping, unwrap
from midfill_infill.context.origins import UNNAMED, Origins
from midfill_infill.engines.outside.protocol import BLOCK_TOKENS, Call, HoleQuery, Piece, Protocol, Sources
from midfill_infill.errors import MidfillError

LINE_TOKENS: Final = 256

Ask = Callable[[Call], Generator[str, None, None]]


class Refused(Exception):
    """The engine rejects this call; the protocol's next kind of call may work."""


@dataclass(frozen=True)
class _Place:
    """A hole. `head` and `tail` are the kept text at its edges."""

    head: str
    tail: str
    spec: wire.HoleSpec

    @classmethod
    def of(cls, spec: wire.HoleSpec) -> "_Place":
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

    def measure(self, before: str, behind: str) -> Extent:
        """How much the hole takes, by the text around it."""
        is_alone = not before.rpartition("\n")[2].strip() and not behind.partition("\n")[0].strip()
        if "\n" in self.spec.forbid or (self.spec.indent is None and not is_alone):
            return "rest"
        return "statement" if self.spec.indent is None else "block"


class Exchange:
    """Talks to one engine, and does not repeat kinds of calls that it refused. An engine that begins the rest of a line
    with a fence or a sentence is not stopped at line breaks any more, and asked again.

    `wanted`: so many tokens are to be sent. `limit`: so many the engine takes with its answer, None if it does not
    tell. `window`: so many are sent.
    """

    def __init__(
        self, protocol: Protocol, model: str, name: str, ask: Ask, wanted: int, limit: int | None = None
    ) -> None:
        self._protocol = protocol
        self._model = model
        self._name = name
        self._ask = ask
        self._limit = limit
        self.window = wanted
        if limit is not None:
            self.window = min(wanted, max(limit - BLOCK_TOKENS, limit // 2))
        self._num_refused = 0
        self._wraps = False

    def run(
        self, request: wire.InfillRequest, origins: Origins
    ) -> Generator[wire.StepEvent | wire.InfillResponse, None, None]:
        """Yields a step per piece, then the answer. Closing the generator closes the connection."""
        sources = _find_sources(request.excerpts, origins)
        started_s = time.perf_counter()
        steps = tokens = 0
        places = [_Place.of(segment.hole) for segment in request.segments if isinstance(segment, wire.HoleSegment)]
        rows: list[list[wire.FilledHole]] = []
        model = request.model or self._model
        for number in range(request.n):
            middles: list[Piece] = []
            for place in places:
                before, behind = _around(request, places, [_plain(middle.text) for middle in middles])
                extent = place.measure(before, behind)
                query = self._query(request, place, before, behind, extent, number, model)
                query = replace(query, sources=sources)
                middles.append(Piece())
                for middle, num_tokens in self._write(query, place, extent):
                    middles[-1] = middle
                    model = middle.model or model
                    steps += 1
                    tokens += num_tokens
                    if number == 0:
                        yield _show(steps, places, middles)
            rows.append([_filled(place, middle) for place, middle in zip(places, middles, strict=True)])
        ms = (time.perf_counter() - started_s) * 1000
        stats = wire.Stats(steps=steps, forwards=steps, tokens=tokens, ms=ms)
        name = f"{self._name}:{model}" if model else self._name
        yield wire.InfillResponse(model=name, holes=rows[0], alternatives=rows[1:], stats=stats)

    def _query(
        self,
        request: wire.InfillRequest,
        place: _Place,
        before: str,
        behind: str,
        extent: Extent,
        number: int,
        model: str,
    ) -> HoleQuery:
        temperature = request.temperature or 0.0
        if not temperature and number:
            temperature = wire.ALTERNATIVE_TEMPERATURE
        stops: tuple[str, ...] = ()
        if extent == "rest" and self._protocol.has_stops and not self._wraps:
            stops = ("\n",)
        return HoleQuery(
            before,
            behind,
            _limit(place, extent),
            stops,
            temperature,
            (request.seed or 0) + number,
            model,
            extent,
            limit=self._limit,
        )

    def _write(self, query: HoleQuery, place: _Place, extent: Extent) -> Iterator[tuple[Piece, int]]:
        """Yields the text so far with each piece, and the piece's number of tokens."""
        middle, tokens = Piece(), 0
        with closing(self._pieces(query)) as pieces:
            for piece in pieces:
                middle, is_over = _add(middle, piece, query, place, extent)
                yield middle, max(1, len(piece.logprobs))
                tokens += max(1, len(piece.logprobs))
                if is_over or tokens >= query.max_tokens:  # some engines exceed it
                    return
        if query.stops and is_wrapping(middle.text):
            self._wraps = True
            yield from self._write(replace(query, stops=()), place, extent)

    def _pieces(self, query: HoleQuery) -> Generator[Piece, None, None]:
        ways = list(self._protocol.calls(query))
        for number, call in enumerate(ways):
            if number < self._num_refused and number < len(ways) - 1:
                continue
            try:
                pieces = self._read(call)
                if call.goes_on:
                    pieces = _go_on(pieces, query.before[len(query.left) :])
                yield from pieces
                return
            except Refused as refusal:
                if number == len(ways) - 1:
                    raise MidfillError("engine_error", f"{self._name} refuses the request: {refusal}") from None
                self._num_refused = number + 1

    def _read(self, call: Call) -> Iterator[Piece]:
        with closing(self._ask(call)) as lines:
            for line in lines:
                try:
                    piece = self._protocol.read(line)
                except (ValueError, KeyError, TypeError, AttributeError):
                    message = f"{self._name} answers in a form that is not known"
                    raise MidfillError("engine_error", message, "check the protocol and the address") from None
                if piece is not None and piece.error:
                    raise MidfillError("engine_error", f"{self._name} says: {piece.error[:200]}")
                if piece is not None:
                    yield replace(piece, text=piece.text.replace("\r\n", "\n"))


def _find_sources(excerpts: Sequence[str], origins: Origins) -> Sources:
    """Excerpts of one file, which follow each other, as one text."""
    named = groupby(excerpts, key=lambda text: origins.files.get(text, UNNAMED))
    files = tuple((path, "\n\n".join(texts)) for path, texts in named)
    return Sources(files, origins.name, origins.path, origins.comment)


def _limit(place: _Place, extent: Extent) -> int:
    return place.spec.max_tokens or (LINE_TOKENS if extent == "rest" else BLOCK_TOKENS)


def _plain(text: str) -> str:
    """An answer as the next holes' context: the room `answers` will decide by the parser."""
    return next(unwrap(DraftText.of(restore(text)), "")).text


def _go_on(pieces: Iterator[Piece], white: str) -> Iterator[Piece]:
    """Drops leading white space that the document already has, and marks the pieces."""
    for piece in pieces:
        num_shared = len(commonprefix([white, piece.text]))
        white = white[num_shared:] if num_shared == len(piece.text) else ""
        logprobs = list(piece.logprobs)
        if logprobs:
            token, logprob = logprobs[0]
            logprobs[0] = (token[num_shared:], logprob)
        yield replace(piece, text=piece.text[num_shared:], logprobs=tuple(logprobs), goes_on=True)


def _add(middle: Piece, piece: Piece, query: HoleQuery, place: _Place, extent: Extent) -> tuple[Piece, bool]:
    """Appends a piece to the text so far; True if nothing of the hole can follow."""
    text = middle.text + piece.text
    indent = place.spec.indent or ""
    if extent == "statement":
        indent = query.before.rpartition("\n")[2]
    end = find_end(text, extent, indent, query.behind, goes_on=piece.goes_on)
    if end is None and extent != "rest":
        whole = text
        if "\n" in piece.text:
            whole = text[: text.rfind("\n") + 1]
        end = find_loop_end(whole)
    added = Piece(text[:end], middle.logprobs + piece.logprobs, piece.model or middle.model)
    return added, end is not None


def _around(request: wire.InfillRequest, places: Sequence[_Place], middles: Sequence[str]) -> tuple[str, str]:
    """The text before and behind the first hole without a middle; later holes show their kept text."""
    shown, texts = zip(places, [*middles, *[""] * len(places)], strict=False), []
    for segment in request.segments:
        if isinstance(segment, wire.HoleSegment):
            place, middle = next(shown)
            texts += [place.head + middle, place.tail]
        else:
            texts += ["", segment.text]
    holes = [2 * n for n, segment in enumerate(request.segments) if isinstance(segment, wire.HoleSegment)]
    at = holes[len(middles)] + 1
    return "".join(texts[:at]), "".join(texts[at:])


def _show(step: int, places: Sequence[_Place], middles: Sequence[Piece]) -> wire.StepEvent:
    states = []
    for number, place in enumerate(places):
        own = ""
        if number < len(middles):
            own = restore(middles[number].text).replace(JOINER, "")
        text = place.head + own + place.tail
        settled = [(0, len(text))] if text else []
        states.append(wire.HoleState(text=text, settled=settled, masked=number >= len(middles)))
    most = sum(place.spec.max_tokens or BLOCK_TOKENS for place in places)
    return wire.StepEvent(step=step, num_steps=max(step, most), holes=states)


def _filled(place: _Place, middle: Piece) -> wire.FilledHole:
    """The answer with the user's markers as they were; its tokens lose what `defuse` had put into them."""
    restored, places = restore(middle.text), [len(place.head)]
    for char in middle.text:
        at = places[-1] - len(place.head)
        places.append(places[-1] + (at < len(restored) and char == restored[at]))
    text = place.head + restored + place.tail
    tokens, confidence, position = [], [], 0
    for token, logprob in middle.logprobs:
        if position + len(token) > len(middle.text) or not middle.text.startswith(token, position):
            break
        span = places[position], places[position + len(token)]
        if span[0] < span[1]:
            tokens.append(span)
            confidence.append(min(1.0, math.exp(logprob)))
        position += len(token)
    anchors = [(0, len(place.head)), (len(text) - len(place.tail), len(text))]
    kept = [span for span in anchors if span[0] < span[1]]
    return wire.FilledHole(text=text, tokens=tokens, confidence=confidence, anchors=kept)
