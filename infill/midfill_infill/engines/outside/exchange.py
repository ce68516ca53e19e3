"""Fills a request with another project's engine, one query per hole, until its line or block ends. Does no I/O."""

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from os.path import commonprefix
from typing import Final

from midfill_engine import wire
from midfill_infill.engines.outside.protocol import Call, HoleQuery, Piece, Protocol
from midfill_infill.errors import MidfillError

DEFAULT_TOKENS: Final = 256
DRAWN_TEMPERATURE: Final = 0.8  # for alternatives, which would otherwise all be the same

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
        head = spec.draft[: keep.pop(0)[1]] if keep and keep[0][0] == 0 else ""
        tail = spec.draft[keep.pop()[0] :] if keep and keep[-1][1] == len(spec.draft) else ""
        if keep:
            message = "this engine cannot keep text in the middle of a hole"
            raise MidfillError("bad_request", message, "fill the parts one by one")
        return cls(head, tail, spec)

    @property
    def is_line(self) -> bool:
        return self.spec.indent is None or "\n" in self.spec.forbid


class Exchange:
    """Talks to one engine, and does not repeat kinds of calls that it refused."""

    def __init__(self, protocol: Protocol, model: str, name: str, ask: Ask) -> None:
        self._protocol, self._model, self._name, self._ask = protocol, model, name, ask
        self._num_refused = 0

    def run(self, request: wire.InfillRequest) -> Generator[wire.StepEvent | wire.InfillResponse, None, None]:
        """Yields a step per piece, then the answer. Closing the generator closes the connection."""
        started_s, steps, tokens = time.perf_counter(), 0, 0
        places = [_Place.of(segment.hole) for segment in request.segments if isinstance(segment, wire.HoleSegment)]
        rows: list[list[wire.FilledHole]] = []
        model = request.model or self._model
        for number in range(request.n):
            middles: list[Piece] = []
            for place in places:
                query = self._query(request, places, middles, number, model)
                middles.append(Piece())
                last = tokens + query.max_tokens  # some engines exceed it
                with closing(self._pieces(query)) as pieces:
                    for piece in pieces:
                        model, steps, tokens = piece.model or model, steps + 1, tokens + max(1, len(piece.logprobs))
                        middles[-1], is_over = _add(middles[-1], piece, place, query.behind)
                        if not number:
                            yield _show(steps, places, middles)
                        if is_over or tokens >= last:
                            break
            rows.append([_filled(place, middle) for place, middle in zip(places, middles, strict=True)])
        ms = (time.perf_counter() - started_s) * 1000
        stats = wire.Stats(steps=steps, forwards=steps, tokens=tokens, ms=ms)
        name = f"{self._name}:{model}" if model else self._name
        yield wire.InfillResponse(model=name, holes=rows[0], alternatives=rows[1:], stats=stats)

    def _query(
        self, request: wire.InfillRequest, places: Sequence[_Place], middles: Sequence[Piece], number: int, model: str
    ) -> HoleQuery:
        before, behind = _around(request, places, [middle.text for middle in middles])
        place = places[len(middles)]
        temperature = request.temperature or (DRAWN_TEMPERATURE if number else 0.0)
        stops = ("\n",) if place.is_line else ()
        max_tokens = place.spec.max_tokens or DEFAULT_TOKENS
        return HoleQuery(before, behind, max_tokens, stops, temperature, (request.seed or 0) + number, model)

    def _pieces(self, query: HoleQuery) -> Generator[Piece, None, None]:
        ways = list(self._protocol.calls(query))
        for number, call in enumerate(ways):
            if number < self._num_refused and number < len(ways) - 1:
                continue
            try:
                pieces = self._read(call)
                yield from _swallow(pieces, query.before[len(query.left) :]) if call.goes_on else pieces
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


def _swallow(pieces: Iterator[Piece], white: str) -> Iterator[Piece]:
    """Drops leading white space that the document already has."""
    for piece in pieces:
        shared = len(commonprefix([white, piece.text]))
        white = white[shared:] if shared == len(piece.text) else ""
        first, *rest = piece.logprobs or (("", 0.0),)
        cut = ((first[0][shared:], first[1]), *rest) if piece.logprobs else ()
        yield replace(piece, text=piece.text[shared:], logprobs=cut)


def _add(middle: Piece, piece: Piece, place: _Place, behind: str) -> tuple[Piece, bool]:
    """Appends a piece to the text so far; True if the fill ends with it. Cuts the text after the end."""
    text = middle.text + piece.text
    end = find_end(text, place.spec.indent or "", behind, is_line=place.is_line)
    return Piece(text[:end], middle.logprobs + piece.logprobs), end is not None


def find_end(text: str, indent: str, behind: str, *, is_line: bool) -> int | None:
    """End of a fill: before a line that leaves its block or repeats the line after the hole; None if unfinished."""
    if is_line:
        at = text.find("\n", len(text) - len(text.lstrip("\n")))
        return at if at >= 0 else None
    following = next((line.strip() for line in behind.splitlines() if line.strip()), "")
    position = 0
    for line in text.splitlines(keepends=True):
        is_whole, said = line.endswith("\n"), line.strip()
        leaves = position > 0 and said and not line.startswith(indent) and (is_whole or not indent.startswith(line))
        if leaves or (position > 0 and is_whole and len(said) > 2 and said == following):
            return len(text[:position].rstrip())
        position += len(line)
    return None


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
        text = place.head + (middles[number].text if number < len(middles) else "") + place.tail
        settled = [(0, len(text))] if text else []
        states.append(wire.HoleState(text=text, settled=settled, masked=number >= len(middles)))
    most = sum(place.spec.max_tokens or DEFAULT_TOKENS for place in places)
    return wire.StepEvent(step=step, num_steps=max(step, most), holes=states)


def _filled(place: _Place, middle: Piece) -> wire.FilledHole:
    text = place.head + middle.text + place.tail
    tokens, confidence, position = [], [], 0
    for token, logprob in middle.logprobs:
        if position + len(token) > len(middle.text) or not middle.text.startswith(token, position):
            break
        if token:
            tokens.append((len(place.head) + position, len(place.head) + position + len(token)))
            confidence.append(min(1.0, math.exp(logprob)))
        position += len(token)
    anchors = [(0, len(place.head)), (len(text) - len(place.tail), len(text))]
    kept = [span for span in anchors if span[0] < span[1]]
    return wire.FilledHole(text=text, tokens=tokens, confidence=confidence, anchors=kept)
