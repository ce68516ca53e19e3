"""Whose body goes in: the engine's, or that of a function alike, by how sure the engine is of its own."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from midfill_engine import wire
from midfill_infill import candidates
from midfill_infill.candidates import BODY_ODDS, DOUBTFUL, HOPELESS, Place
from midfill_infill.engines.client import EngineClient
from midfill_infill.fill import Filled, Options, fill
from midfill_infill.splicing.sight import Sight
from midfill_infill.syntax.holes import body_named
from midfill_infill.text.document import Document

OWN = "return total"
ALIKE = "def add_to_two(total, first):\n    return total + first\n\n\ndef add_to_one(total, first):\n    ...\n"
UNLIKE = "def show(window):\n    return window.title\n\n\ndef add_to_one(total, first):\n    ...\n"


class Answering:
    """An engine that is so sure of OWN, told as of a line."""

    endpoint = SimpleNamespace(is_outside=False)

    def __init__(self, certainty: float) -> None:
        odds = certainty / (1 - certainty) / BODY_ODDS
        self._hole = wire.FilledHole(
            text=OWN, tokens=[(0, len(OWN))], confidence=[0.9], certainty=odds / (1 + odds) if certainty else 0.0
        )

    def models(self) -> list[wire.ModelInfo]:
        return [
            wire.ModelInfo(
                id="m", family="f", parameters=1, device="cpu", dtype="fp32", max_context_tokens=512, max_hole_tokens=64
            )
        ]

    def infill(self, request: wire.InfillRequest) -> Iterator[wire.InfillResponse]:
        stats = wire.Stats(steps=1, forwards=1, tokens=2, ms=1.0)
        yield wire.InfillResponse(model="m", holes=[self._hole], stats=stats)


@pytest.mark.parametrize(
    "source, certainty, expected",
    [
        (ALIKE, DOUBTFUL * 1.01, OWN),
        (ALIKE, DOUBTFUL * 0.99, "return total + first"),
        (UNLIKE, DOUBTFUL * 0.99, OWN),
        (UNLIKE, HOPELESS * 1.01, OWN),
        (UNLIKE, HOPELESS * 0.99, "return window.title"),
        (UNLIKE, 0.0, "return window.title"),
    ],
)
def test_a_function_alike_is_asked_where_the_engine_doubts_itself(source: str, certainty: float, expected: str) -> None:
    document = Document(source.encode(), "python")
    client = cast(EngineClient, Answering(certainty))
    *_, filled = fill(document, [body_named(document, "add_to_one")], Options(repair=False), client)
    assert isinstance(filled, Filled) and filled.fills[0].text == expected


def test_without_another_function_the_engine_fills_whatever_it_thinks_of_it() -> None:
    document = Document(b"def add_to_one(total, first):\n    ...\n", "python")
    *_, filled = fill(document, [body_named(document, "add_to_one")], Options(), cast(EngineClient, Answering(0.0)))
    assert isinstance(filled, Filled) and filled.fills[0].text == OWN


def test_of_drafts_with_equal_faults_the_surest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "find_sieve", lambda *_: None)  # where no function tells them apart
    document = Document(ALIKE.encode(), "python")
    hole = body_named(document, "add_to_one")
    place = Place(document, (hole,), Sight((ALIKE,), frozenset({"return"})))
    own = wire.FilledHole(text="return nobody", tokens=[(0, 13)], confidence=[0.9], certainty=0.0)
    drafts = [wire.Draft(text=f"return {name}", certainty=sure) for name, sure in (("unseen", 0.2), ("strange", 0.1))]
    row = place.improve(place.row([own]), lambda index: drafts)
    assert row.candidate.fills[0].text == "return unseen" and row.candidate.num_unseen == 1
