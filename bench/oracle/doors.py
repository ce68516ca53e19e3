"""Stand-ins of engines that know the answer: clients of `fill` for every protocol, without sockets."""

import json
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import Any, Final

from bench.oracle.places import Place
from midfill_engine import wire
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.engines.outside import PROTOCOLS
from midfill_infill.engines.outside.chat import FILE
from midfill_infill.engines.outside.protocol import Call
from midfill_infill.errors import MidfillError

PIECE: Final = 7  # characters of an event of a stream
CONFIDENCE: Final = 0.9
LOW_CERTAINTY: Final = 0.2
SEEN: Final = 400  # characters around a hole by which a prompt tells which hole is asked for
_GAP: Final = re.compile(r"<GAP_\d+>")
_URL: Final = "http://127.0.0.1:9"  # of no server: nothing is sent
_TOKEN: Final = re.compile(r" ?\w{1,6}|\s+|[^\w\s]{1,2}")  # about as long as the tokens of models for code
MODEL: Final = wire.ModelInfo(
    id="oracle", family="oracle", parameters=0, device="cpu", dtype="", max_context_tokens=8192,
    max_hole_tokens=wire.MAX_HOLE_TOKENS,
)  # fmt: skip
_STATS: Final = wire.Stats(steps=1, forwards=1, tokens=1, ms=0.0)


@dataclass
class Answers:
    """What the engine writes into each hole of a place, and whether a server ended an answer early and why."""

    place: Place
    texts: list[str]
    cuts: list[str] = field(default_factory=list)
    num_asked: int = 0

    def find_hole(self, before: str, behind: str) -> int:
        """The hole that a prompt asks for: the one whose surroundings it shows; among equals the next in turn."""
        scores = [_score(self.place, index, before, behind) for index in range(len(self.texts))]
        turn = self.num_asked % len(scores)
        self.num_asked += 1
        return turn if scores[turn] == max(scores) else scores.index(max(scores))


def _score(place: Place, index: int, before: str, behind: str) -> int:
    """How many characters at both sides of a hole are those of a prompt, which has the answers to earlier holes."""
    document, gap = place.document, place.gaps[index]
    later = (edge for hole in place.holes[index + 1 :] for edge in (hole.start_byte, hole.end_byte))
    edges = [gap.hole.end_byte, *later, len(document.data)]
    texts = [document.visible_text(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True)]
    own_behind = (gap.hole.tail + "".join(texts))[:SEEN]
    return len(commonprefix([gap.before[-SEEN:][::-1], before[::-1]])) + len(commonprefix([own_behind, behind]))


def split_tokens(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in _TOKEN.finditer(text)]


def _fill_hole(text: str, spec: wire.HoleSpec, certainty: float | None) -> wire.FilledHole:
    """The text of a hole as an engine gives it; for a second try, with the kept parts where the text has them."""
    anchors, position = [], 0
    for start, end in spec.keep:
        at = text.find(spec.draft[start:end], position)
        if at < 0:
            raise MidfillError("bad_request", "the true text does not hold what is to be kept")
        anchors.append((at, position := at + end - start))
    tokens = split_tokens(text)
    confidence = [CONFIDENCE] * len(tokens)
    return wire.FilledHole(text=text, tokens=tokens, confidence=confidence, anchors=anchors, certainty=certainty)


class Client(EngineClient):
    """A client that sends nothing."""

    answers: Answers


class WireClient(Client):
    """Midfill's own protocol: tokens with confidences and no certainty, or with all compared texts."""

    def __init__(self, *, compares: bool) -> None:
        super().__init__(Endpoint(url=_URL))
        self._compares = compares

    def models(self) -> tuple[wire.ModelInfo, ...]:
        return (MODEL,)

    def infill(self, request: wire.InfillRequest) -> Generator[wire.StepEvent | wire.InfillResponse, None, None]:
        certainty = LOW_CERTAINTY if self._compares else None
        specs = [segment.hole for segment in request.segments if isinstance(segment, wire.HoleSegment)]
        holes = [_fill_hole(text, spec, certainty) for text, spec in zip(self.answers.texts, specs, strict=True)]
        shown = [wire.HoleState(text=hole.text, settled=[(0, len(hole.text))], masked=0) for hole in holes]
        yield wire.StepEvent(step=1, num_steps=1, holes=shown)
        compared = list(map(_compare, holes, specs)) if self._compares else []
        others = [holes] * (request.n - 1)
        yield wire.InfillResponse(model="oracle", holes=holes, alternatives=others, candidates=compared, stats=_STATS)


def _compare(hole: wire.FilledHole, spec: wire.HoleSpec) -> list[wire.FilledHole]:
    compared = [wire.FilledHole(text=hole.text, certainty=hole.certainty)]
    for given in spec.candidates:
        if given.text != hole.text:
            compared.append(wire.FilledHole(text=given.text, certainty=given.certainty))
    return compared


def _stream_llamacpp(parts: list[str]) -> Iterator[str]:
    for part in parts:
        told = [{"id": 1, "token": part, "bytes": [*part.encode()], "logprob": -0.1, "top_logprobs": []}]
        yield _event({"index": 0, "content": part, "tokens": [1], "stop": False, "completion_probabilities": told})
    yield _event({"index": 0, "content": "", "tokens": [], "stop": True, "model": "/models/m", "stop_type": "eos"})


def _stream_ollama(parts: list[str]) -> Iterator[str]:
    for part in parts:
        told = [{"token": part, "logprob": -0.1, "bytes": [*part.encode()]}]
        yield json.dumps({"model": "m", "response": part, "done": False, "logprobs": told})
    yield json.dumps({"model": "m", "response": "", "done": True, "done_reason": "stop", "eval_count": len(parts)})


def _stream_openai(parts: list[str]) -> Iterator[str]:
    for part in parts:
        told = {"text_offset": [0], "tokens": [part], "token_logprobs": [-0.1], "top_logprobs": [{}]}
        choice = {"index": 0, "text": part, "finish_reason": None, "logprobs": told}
        yield _event({"object": "text_completion", "model": "m", "choices": [choice]})
    yield _event({"object": "text_completion", "model": "m", "choices": [], "usage": {"total_tokens": len(parts)}})
    yield "data: [DONE]"


def _stream_fim(parts: list[str]) -> Iterator[str]:
    for part in parts:
        choice = {"index": 0, "delta": {"role": "assistant", "content": part}, "finish_reason": None}
        yield _event({"object": "chat.completion.chunk", "model": "m", "choices": [choice]})
    yield "data: [DONE]"


def _event(message: dict[str, Any]) -> str:
    return f"data: {json.dumps(message)}"


STREAMS: Final[dict[str, Callable[[list[str]], Iterator[str]]]] = {
    "llamacpp": _stream_llamacpp,
    "ollama": _stream_ollama,
    "openai": _stream_openai,
    "fim": _stream_fim,
    "chat": _stream_fim,
}


def stream(protocol: str, body: dict[str, Any], answers: Answers) -> Iterator[str]:
    """The lines that a server of a protocol answers a call with, at its stop strings and token limit."""
    options = body.get("options", {})
    before, behind = _read_prompt(body)
    index = answers.find_hole(before, behind)
    text, document, hole = answers.texts[index], answers.place.document, answers.place.holes[index]
    held = document.visible_text(0, hole.start_byte) + hole.lead
    if held.endswith(" ") and before.endswith(held[-SEEN:-1]):  # the call leaves the last space to the model
        text = f" {text}"
    most = body.get("n_predict") or body.get("max_tokens") or options.get("num_predict") or 0
    text = _stop(text, body.get("stop") or options.get("stop") or (), most, answers.cuts)
    yield from STREAMS[protocol]([text[start : start + PIECE] for start in range(0, len(text), PIECE)])


def _read_prompt(body: dict[str, Any]) -> tuple[str, str]:
    """The text before and behind the hole in a call."""
    if "messages" in body:
        system, user = (message["content"] for message in body["messages"])
        gap, file = _GAP.findall(system)[0], user.split(FILE, 1)[1].removesuffix("\n```")
        before, _, behind = file.partition(gap)
        return before, behind
    before = body.get("input_prefix") or body.get("prompt") or ""
    return before, body.get("input_suffix") or body.get("suffix") or ""


def _stop(text: str, stops: Sequence[str], most: int, cuts: list[str]) -> str:
    """What is left of an answer that ends before a stop string or after `most` tokens; adds the reason to `cuts`."""
    stops_in_text = [(at, stop) for stop in stops if (at := text.find(stop)) >= 0]
    if stops_in_text:
        end, stop = min(stops_in_text)
        text = text[:end]
        cuts.append(f"stopped at {stop!r}")
    tokens = split_tokens(text)
    if 0 < most < len(tokens):
        cuts.append(f"stopped after {most} tokens")
        text = text[: tokens[most - 1][1]]
    return text


class OutsideClient(Client):
    """The client of another project's engine, with the stand-in where a server would answer."""

    def __init__(self, protocol: str) -> None:
        super().__init__(Endpoint(url=_URL, protocol=protocol, model="m"))

    def _ask(self, call: Call) -> Generator[str, None, None]:
        yield from stream(self.endpoint.protocol, call.body, self.answers)


DOORS: Final = ("wire", "candidates", *STREAMS)
assert set(STREAMS) <= set(PROTOCOLS)


def open_client(door: str) -> Client:
    return OutsideClient(door) if door in STREAMS else WireClient(compares=door == "candidates")
