"""Engines that are no processes: what they answer is said beforehand, and what they are asked is kept."""

import sys
from collections import Counter
from collections.abc import Generator, Iterator
from types import FrameType, SimpleNamespace
from typing import Any

from midfill_engine import wire
from midfill_infill.languages import Language

WHOLE = "a whole file is parsed"
STATS = wire.Stats(steps=1, forwards=1, tokens=4, ms=1.0)


def answer(text: str) -> wire.InfillResponse:
    hole = wire.FilledHole(text=text, tokens=[(0, len(text))], confidence=[0.9])
    return wire.InfillResponse(model="m", holes=[hole], stats=STATS)


class Answering:
    """An engine that takes one step and answers, and counts the calls of functions from then on."""

    endpoint = SimpleNamespace(is_outside=False)

    def __init__(self, text: str) -> None:
        self._text, self.calls = text, Counter[str]()

    def models(self) -> list[wire.ModelInfo]:
        return [
            wire.ModelInfo(
                id="m", family="f", parameters=1, device="cpu", dtype="fp32", max_context_tokens=512, max_hole_tokens=64
            )
        ]

    def infill(self, request: wire.InfillRequest) -> Iterator[wire.StepEvent | wire.InfillResponse]:
        yield wire.StepEvent(step=0, num_steps=1, holes=[wire.HoleState(text="", settled=[], masked=4)])
        sys.setprofile(self.count)
        yield answer(self._text)

    def count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            is_whole = frame.f_code is Language.parse.__code__ and frame.f_locals["old"] is None
            self.calls[WHOLE if is_whole else frame.f_code.co_qualname] += 1
        elif event == "c_call":
            self.calls[argument.__qualname__] += 1


class Recorder:
    """An engine that refuses what its schema refuses, and otherwise repeats `text`."""

    def __init__(self, text: str = "pass") -> None:
        self.endpoint = SimpleNamespace(is_outside=False)
        self.requests: list[wire.InfillRequest] = []
        self._text = text

    def models(self) -> list[Any]:
        return [SimpleNamespace(id="m", max_context_tokens=2048, keeps="lines", heeds=())]

    def infill(self, request: wire.InfillRequest) -> Generator[wire.InfillResponse, None, None]:
        self.requests.append(read_again(request))
        num_holes = sum(isinstance(segment, wire.HoleSegment) for segment in request.segments)
        hole = wire.FilledHole(text=self._text, tokens=[], confidence=[])
        stats = wire.Stats(steps=1, forwards=1, tokens=1, ms=1.0)
        yield wire.InfillResponse(model="m", holes=[hole] * num_holes, stats=stats)


def read_again(request: wire.InfillRequest) -> wire.InfillRequest:
    data = request.model_dump_json(exclude_defaults=True).encode()
    assert len(data) <= wire.MAX_BODY_BYTES
    return wire.InfillRequest.model_validate_json(data)
