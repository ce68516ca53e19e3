"""Which lines of a document the model sees."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midfill_engine.wire import HoleSegment, TextSegment
from midfill_infill.context.segments import Segments, build_segments, with_intent
from midfill_infill.errors import MidfillError
from midfill_infill.syntax.holes import body_named, find_stubs, hole_at_cursor
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Anchor, Hole

NOISE = "".join(f"value_{number} = {number}\n" for number in range(60))
SOURCE = f"""import os
from a import (
    b,
)

{NOISE}
@final
class Store(Base):
    size = 1
{"".join(f"    field_{number} = {number}{chr(10)}" for number in range(60))}
    def near(self):
        return self.size

    def wanted(self, key):
        '''Doc.'''
        ...

    def behind(self):
        return 2

{NOISE}"""


def render(segments: Segments) -> str:
    return "".join(segment.text if isinstance(segment, TextSegment) else "<>" for segment in segments.in_turn)


def size(segments: Segments) -> int:
    return sum(len(segment.text) for segment in segments.in_turn if isinstance(segment, TextSegment))


def test_a_small_file_is_shown_whole() -> None:
    document = Document("\ufeffdef f():\r\n    ...\r\n\r\nx = 1".encode(), "python")
    assert render(build_segments(document, find_stubs(document), 1000)) == "def f():\n    <>\n\nx = 1"


def test_lead_and_tail_are_text() -> None:
    document = Document(b"class A {\n  void f() {}\n}\n", "java")
    segments = build_segments(document, find_stubs(document), 1000)
    assert render(segments) == "class A {\n  void f() {\n    <>\n  }\n}\n"


def test_imports_and_the_class_stay_and_the_nearest_comes_first() -> None:
    document = Document(SOURCE.encode(), "python")
    shown = render(build_segments(document, [body_named(document, "wanted")], 500))
    for line in (
        "import os\n",
        "from a import (\n    b,\n)\n",
        "class Store(Base):\n",
        "def wanted(self, key):\n",
        "return 2\n",
    ):
        assert line in shown
    assert "field_59" in shown
    assert "field_0 " not in shown
    assert "value_0" not in shown.partition("<>")[0]


def test_an_empty_method_at_the_end_still_shows_its_class() -> None:
    document = Document((SOURCE.partition("    def near")[0] + "    def last(self):").encode(), "python")
    assert "class Store(Base):" in render(build_segments(document, find_stubs(document), 300))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4000), st.lists(st.integers(0, len(SOURCE) - 1), min_size=1, max_size=4, unique=True))
def test_the_budget_is_kept_and_lines_are_the_files_own(budget_chars: int, places: list[int]) -> None:
    document = Document(SOURCE.encode(), "python")
    holes = [hole_at_cursor(document, place) for place in places]
    if len({hole.start_byte for hole in holes}) < len(holes):
        return
    segments = build_segments(document, holes, budget_chars)
    assert size(segments) <= budget_chars
    assert segments.holes == tuple(sorted(holes, key=lambda hole: hole.start_byte))
    assert sum(isinstance(segment, HoleSegment) for segment in segments.in_turn) == len(holes)
    for segment in segments.in_turn:
        if isinstance(segment, TextSegment) and budget_chars > 200:
            assert all(line in SOURCE for line in segment.text.split("\n"))


@settings(max_examples=30, deadline=None)
@given(st.integers(200, 3000))
def test_a_larger_budget_shows_no_less(budget_chars: int) -> None:
    document = Document(SOURCE.encode(), "python")
    hole = body_named(document, "wanted")
    smaller = render(build_segments(document, [hole], budget_chars)).split("\n")
    larger = render(build_segments(document, [hole], budget_chars + 300)).split("\n")
    assert len(smaller) <= len(larger)


def test_text_between_holes_comes_before_text_around_them() -> None:
    document = Document(SOURCE.encode(), "python")
    holes = [body_named(document, "near"), body_named(document, "behind")]
    shown = render(build_segments(document, holes, 420))
    between = document.text[holes[0].end_byte : holes[1].start_byte]
    assert f"<>{between}<>" in shown


def test_text_between_is_trimmed_in_its_middle() -> None:
    document = Document(("a = 1\n" + NOISE + "b = 2\n").encode(), "python")
    first, last = hole_at_cursor(document, 5), hole_at_cursor(document, len(document.data) - 2)
    between = render(build_segments(document, [first, last], 300)).split("<>")[1]
    assert between.startswith("\nvalue_0 = 0\nvalue_1")
    assert between.endswith("value_59 = 59\nb = ")
    assert "value_30" not in between


def test_a_line_longer_than_the_budget_is_cut() -> None:
    document = Document(b"x = '" + b"a" * 5000 + b"b" * 5000 + b"'\n", "python")
    segments = build_segments(document, [Hole(5005, 5005)], 100)
    assert render(segments) == "a" * 50 + "<>" + "b" * 50


def test_holes_on_one_line() -> None:
    document = Document(b"x = f(a, b)\n", "python")
    segments = build_segments(document, [Hole(9, 10), Hole(6, 7)], 100)
    assert render(segments) == "x = f(<>, <>)\n"
    assert [hole.start_byte for hole in segments.holes] == [6, 9]


def test_comments_stand_above_the_line_of_their_holes() -> None:
    document = Document(b"x = f(a, b)\n  y = c\n", "python")
    segments = build_segments(document, [Hole(6, 7), Hole(9, 10, note="why"), Hole(18, 19)], 100)
    assert render(with_intent(segments, "#", "to do")) == "# to do\n# why\nx = f(<>, <>)\n  # to do\n  y = <>\n"


def test_anchors_are_kept_of_a_draft() -> None:
    document = Document("é = 1\r\nfoo(é, x)\r\nbar\r\n".encode(), "python")
    start, word, last = (document.offset_at(*place) for place in ((2, 1), (2, 5), (3, 1)))
    hole = Hole(start, last + 3, (Anchor(word, word + 2), Anchor(last, last + 3)))
    (spec,) = (s.hole for s in build_segments(document, [hole], 100).in_turn if isinstance(s, HoleSegment))
    assert spec.draft == "foo(é, x)\nbar"
    assert [spec.draft[first:end] for first, end in spec.keep] == ["é", "bar"]


def test_what_a_hole_forbids_is_asked_for_with_and_without_anchors() -> None:
    document = Document(b"x = 1\n", "python")
    for anchors in ((), (Anchor(4, 5),)):
        segments = build_segments(document, [Hole(4, 5, anchors, forbid=("#",))], 100)
        assert segments.specs[0].forbid == ["#"]


def test_a_hole_says_nothing_of_what_it_replaces() -> None:
    document = Document(b"def f():\n    return secret\n", "python")
    segments = build_segments(document, [body_named(document, "f")], 100)
    assert "secret" not in str(segments)


def test_a_draft_that_is_too_large() -> None:
    document = Document(b"x" * 70000, "python")
    with pytest.raises(MidfillError) as caught:
        build_segments(document, [Hole(0, 70000, (Anchor(0, 1),))], 100)
    assert caught.value.code == "hole_too_large"


def test_too_many_anchors() -> None:
    anchors = tuple(Anchor(2 * number, 2 * number + 1) for number in range(1025))
    document = Document(b"a " * 1100)
    with pytest.raises(MidfillError, match="1025 anchors, at most 1024") as caught:
        build_segments(document, [Hole(0, 2200, anchors)], 100)
    assert caught.value.code == "hole_too_large"
    build_segments(document, [Hole(0, 2200, anchors[1:])], 100)


def test_without_a_language_the_nearest_lines_are_shown() -> None:
    document = Document(b"import one\ntwo\nthree\nfour\n", None)
    assert render(build_segments(document, [Hole(15, 20)], 10)) == "two\n<>\nfour\n"
