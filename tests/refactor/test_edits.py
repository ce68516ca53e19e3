"""Regions of touching and empty holes stay where they are in the document, whatever goes in and out of them."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midfill_infill.refactor.writing.edits import Moved, Regions


@dataclass(frozen=True)
class History:
    """Spans of `data` that do not overlap, a fill for each, and which go in or out at each step."""

    data: bytes
    spans: tuple[tuple[int, int], ...]
    fills: tuple[bytes, ...]
    steps: tuple[tuple[bool, frozenset[int]], ...]

    def render(self, filled: frozenset[int]) -> bytes:
        pieces, position = [], 0
        for number, (start, end) in enumerate(self.spans):
            pieces += [self.data[position:start], self.fills[number] if number in filled else self.data[start:end]]
            position = end
        return b"".join([*pieces, self.data[position:]])


@st.composite
def histories(draw: Any) -> History:
    data = draw(st.binary(max_size=12))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), min_size=6, max_size=6)))
    spans: list[tuple[int, int]] = []
    for start, end in zip(cuts[::2], cuts[1::2], strict=True):
        if not spans or start != spans[-1][0]:
            spans.append((start, end))
    fills = draw(st.lists(st.sampled_from([b"", b"X", b"YY"]), min_size=len(spans), max_size=len(spans)))
    some = st.frozensets(st.integers(0, len(spans) - 1), min_size=1)
    steps = draw(st.lists(st.tuples(st.booleans(), some), min_size=1, max_size=6))
    return History(data, tuple(spans), tuple(fills), tuple(steps))


def play(history: History) -> None:
    places = {number: (start, end - start) for number, (start, end) in enumerate(history.spans)}
    regions, filled = Regions(history.data, places), frozenset[int]()
    for goes_in, chosen in history.steps:
        changed = chosen - filled if goes_in else chosen & filled
        filled = filled | changed if goes_in else filled - changed
        olds = {number: history.data[start:end] for number, (start, end) in enumerate(history.spans)}
        regions = regions.replace({number: history.fills[number] if goes_in else olds[number] for number in changed})
        assert regions.data == history.render(filled)
        assert [regions.text(number) for number in places] == [
            history.fills[number] if number in filled else olds[number] for number in places
        ]


@settings(max_examples=60)
@given(histories())
def test_a_region_is_where_its_text_is(history: History) -> None:
    play(history)


def test_touching_holes_that_are_empty_come_back_in_their_order() -> None:
    spans, both = ((6, 9), (9, 12)), frozenset({0, 1})
    steps = ((True, both), (False, frozenset({1})), (False, frozenset({0})))
    play(History(b"x = 1\nfoo(x)\n", spans, (b"", b""), steps))


OLD = b"TOP = 1\n\n\ndef f():\n    ...\n\n\ndef g():\n    ...\n"
BESIDE = b"\n\ndef h():\n    pass\n"


@pytest.mark.parametrize(
    "new",
    [
        OLD.replace(b"TOP = 1", b"TOP = 2").replace(b"f():\n    ...\n", b"f():\n    ...\n" + BESIDE),
        OLD.replace(b"TOP = 1", b"TOP = 2") + BESIDE,
        OLD.replace(b"\n\n\ndef f", b"\n" + BESIDE + b"\n\ndef f").replace(
            b"g():\n    ...\n", b"g():\n    ...\n\nEND = 1\n"
        ),
    ],
)
def test_a_function_that_is_written_beside_a_hole_does_not_lose_it(new: bytes) -> None:
    moved = Moved(OLD, new)
    for name in (b"f", b"g"):
        header = b"def " + name + b"():\n    "
        old_start, new_start = (data.index(header) + len(header) for data in (OLD, new))
        assert moved.find(old_start, 3) == new_start
