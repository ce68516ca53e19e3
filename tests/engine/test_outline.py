"""From segments to token ids: drafts, healed edges, trimming."""

from collections.abc import Callable
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine import tiny

from midfill_engine.errors import RequestError
from midfill_engine.loading.runtime import WEIGHTS, Runtime
from midfill_engine.requests.outline import (
    Heal,
    encode_ends,
    heal_hole,
    needs_of_texts,
    no_healing,
    outline_request,
    share_budget,
    split_draft,
    split_segments,
    trim_context,
)
from midfill_engine.tokens.tokenizer import HealedEdges, Tokenizer, heal, read_embedded_tokenizer
from midfill_engine.wire import ErrorCode, HoleSegment, HoleSpec, Segment, TextSegment

SHIPPED = read_embedded_tokenizer(WEIGHTS / "embedded" / "tokenizer.json")


class Tokens(Tokenizer):
    """The model's tokenizer, to be changed."""

    def __init__(self, runtime: Runtime) -> None:
        self._whole = runtime.loaded.tokenizer

    def encode(self, text: str) -> list[int]:
        return self._whole.encode(text)

    def token_bytes(self, index: int) -> bytes:
        return self._whole.token_bytes(index)


def outline(runtime: Runtime, segments: list[Segment], max_context: int = 512) -> tuple[list[str], list[list[str]]]:
    """Context texts, and each hole's anchors as text with masked stretches as `?` and what they begin with."""
    tokenizer = runtime.loaded.tokenizer
    made = outline_request(segments, tokenizer, [], [], max_context)
    pieces = [tiny.decode(tokenizer, piece) for piece in made.pieces]
    holes = [
        [f"?{part.leading}" if part.ids is None else tiny.decode(tokenizer, part.ids) for part in hole.stretches]
        for hole in made.holes
    ]
    return pieces, holes


def around(before: str, spec: HoleSpec, behind: str) -> list[Segment]:
    return [TextSegment(text=before), HoleSegment(hole=spec), TextSegment(text=behind)]


@pytest.mark.parametrize(
    ("before", "behind", "pieces", "hole"),
    [
        ("x =", "", ["x =", ""], ["?"]),
        ("x = ", "", ["x =", ""], ["? "]),
        ("x =   ", "", ["x =", ""], ["  ", "? "]),
        ("def f():\n    ", "\n", ["def f():\n    ", "\n"], ["?"]),
        ("    ", "", ["    ", ""], ["?"]),
        ("a\t ", "", ["a\t ", ""], ["?"]),
        ("a\n", "b", ["a", "b"], ["?\n"]),
        ("a\n", "    b", ["a", "\n    b"], ["?\n"]),
    ],
)
def test_edges_are_healed_as_in_training(
    runtime: Runtime, before: str, behind: str, pieces: list[str], hole: list[str]
) -> None:
    assert outline(runtime, around(before, HoleSpec(), behind)) == (pieces, [hole])


def test_what_a_hole_forbids_is_not_asked_of_it(runtime: Runtime) -> None:
    segments = around("a\n", HoleSpec(forbid=["\n"]), "    b")
    assert outline(runtime, segments) == (["a\n", "    b"], [["?"]])


@pytest.mark.parametrize(
    ("max_tokens", "hole"), [(2, ["return", "? ", " +", "? ", " c"]), (1, ["return", "? ", " +", "  c"])]
)
def test_kept_parts_of_a_draft_become_anchors(runtime: Runtime, max_tokens: int, hole: list[str]) -> None:
    """A masked part for which the limit leaves no token stays empty."""
    spec = HoleSpec(draft="return foo + bar c", keep=[(0, 7), (10, 13), (16, 18)], max_tokens=max_tokens)
    _, holes = outline(runtime, around("", spec, ""))
    assert holes == [hole]


@pytest.mark.parametrize("change", [" {}".format, str.lower, lambda text: text.replace("A", "")])
@pytest.mark.parametrize("heal", [heal, no_healing])
def test_a_tokenizer_that_changes_a_kept_text_is_refused(
    runtime: Runtime, change: Callable[[str], str], heal: Heal
) -> None:
    class Changing(Tokens):
        def encode(self, text: str) -> list[int]:
            return super().encode(change(text))

    segments = around("b", HoleSpec(draft="A = 1  ", keep=[(0, 5)]), "c")
    with pytest.raises(RequestError, match="to be kept") as caught:
        outline_request(segments, Changing(runtime), [], [], 512, heal)
    assert caught.value.code is ErrorCode.BAD_REQUEST
    outline_request(around("A", HoleSpec(draft="A"), "A"), Changing(runtime), [], [], 512, heal)


def test_half_a_surrogate_is_kept_as_a_question_mark(runtime: Runtime) -> None:
    spec = HoleSpec.model_construct(draft="a\ud800é", keep=[(0, 3)], forbid=[], min_tokens=0, max_tokens=None)
    assert outline(runtime, around("", spec, ""))[1] == [["a?é"]]


def test_a_kept_line_break_at_a_healed_end_stays_outside_the_hole(runtime: Runtime) -> None:
    spec = HoleSpec(draft="x\ny\n", keep=[(2, 4)])
    pieces, holes = outline(runtime, around("a\n", spec, "    b"))
    assert pieces == ["a", "\n    b"]
    assert holes == [["?\n", "y"]]


def test_an_empty_draft_is_one_open_stretch_and_a_written_one_hints_its_length(runtime: Runtime) -> None:
    tokens = runtime.loaded.tokenizer
    made = outline_request(around("", HoleSpec(), ""), tokens, [], [], 512)
    assert [part.hint for part in made.holes[0].stretches] == [None]
    made = outline_request(around("", HoleSpec(draft="abc  ", keep=[(1, 2)]), ""), tokens, [], [], 512)
    assert [part.hint for part in made.holes[0].masked] == [1, 3]
    made = outline_request(around("", HoleSpec(draft="a  ", keep=[(0, 1)]), ""), tokens, [], [], 512)
    assert [part.hint for part in made.holes[0].masked] == [None]


def test_neighboring_texts_are_one() -> None:
    segments: list[Segment] = [TextSegment(text="a"), TextSegment(text="b"), HoleSegment(hole=HoleSpec())]
    assert split_segments(segments) == (["ab", ""], [HoleSpec()])
    started_s = process_time()
    assert split_segments([TextSegment(text="x" * 8000)] * 1000) == (["x" * 8_000_000], [])
    assert process_time() - started_s < 1


def test_trimming_keeps_what_is_nearest_to_the_holes() -> None:
    pieces = [list(range(100)), list(range(100)), list(range(100))]
    first, middle, last = trim_context(pieces, 40)
    assert first == list(range(90, 100))
    assert middle == [*range(10), *range(90, 100)]
    assert last == list(range(10))


def test_texts_far_beyond_the_budget_are_tokenised_at_their_ends_only(runtime: Runtime) -> None:
    seen: list[int] = []

    class Watched(Tokens):
        def encode(self, text: str) -> list[int]:
            seen.append(len(text))
            return super().encode(text)

    long = "".join(f"line {number}\n" for number in range(50_000))
    made = outline_request(around(long + "x", HoleSpec(), "y" + long), Watched(runtime), [], [], 100)
    assert tiny.decode(runtime.loaded.tokenizer, made.pieces[0]) == (long + "x")[-50:]
    assert tiny.decode(runtime.loaded.tokenizer, made.pieces[1]) == ("y" + long)[:50]
    assert max(seen) <= 3200


@given(st.data())
def test_what_is_tokenised_near_the_holes_is_what_all_of_it_would_leave(data: st.DataObject) -> None:
    lines = st.lists(st.sampled_from(["x = 1\n", "\n", "    return a\n", "é" * 40, "y" * 50 + "\n", "\t\n", "if x:\n"]))
    texts = data.draw(st.lists(lines.map(lambda parts: "".join(parts * 9)), min_size=2, max_size=4))
    budget = data.draw(st.integers(1, 60))
    encode = SHIPPED.encode
    near = [encode_ends(text, encode, *need) for text, need in zip(texts, needs_of_texts(texts, budget), strict=True)]
    assert trim_context(near, budget) == trim_context([encode(text) for text in texts], budget)


def test_a_text_of_few_long_tokens_is_not_read_twice() -> None:
    def encode(text: str) -> list[int]:
        return [ord(text[start]) for start in range(0, len(text), 24)]

    texts = ["a", "".join(chr(0x4E00 + index // 24) for index in range(2400)), "b"]
    near = [encode_ends(text, encode, *need) for text, need in zip(texts, needs_of_texts(texts, 110), strict=True)]
    assert near == list(map(encode, texts))


def test_megabytes_between_many_holes_are_hardly_tokenised(runtime: Runtime) -> None:
    seen: list[int] = []

    class Watched(Tokens):
        def encode(self, text: str) -> list[int]:
            seen.append(len(text))
            return super().encode(text)

    segments = around("a b\n" * 2000, HoleSpec(), "c\n" * 4000) * 300
    outline_request(segments, Watched(runtime), [], [], 512)
    assert sum(seen) < 512 * 300


def test_drafts_without_measure_are_refused_before_they_are_read(runtime: Runtime) -> None:
    class Never(Tokens):
        def encode(self, text: str) -> list[int]:
            raise AssertionError("it was read")

    segments = around("", HoleSpec(draft="x " * 30_000), "") * 3
    with pytest.raises(RequestError) as caught:
        outline_request(segments, Never(runtime), [], [], 512)
    assert caught.value.code is ErrorCode.TOO_LARGE


def test_long_texts_have_the_same_tokens_as_short_ones() -> None:
    encode, line = SHIPPED.encode, "def f(a):\n    return {1: 'é'}\n"
    assert encode(line * 400) == encode(line) * 400


def test_a_short_side_leaves_its_share_to_the_other() -> None:
    assert [len(piece) for piece in trim_context([[1] * 3, [2] * 100], 50)] == [3, 47]


@given(
    st.integers(0, 200),
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 2)), min_size=1, max_size=6),
)
def test_the_whole_budget_is_shared_and_no_more_than_wanted(budget: int, wants: list[tuple[int, int]]) -> None:
    shares = share_budget(budget, [want for want, _ in wants], [weight for _, weight in wants])
    assert sum(shares) == min(budget, sum(want for want, _ in wants))
    assert all(0 <= share <= want for share, (want, _) in zip(shares, wants, strict=True))


@given(st.data())
def test_the_parts_of_a_draft_are_the_draft(data: st.DataObject) -> None:
    draft = data.draw(st.text(min_size=1, max_size=20))
    cuts = sorted(set(data.draw(st.lists(st.integers(0, len(draft)), max_size=6))))
    keep = list(zip(cuts[::2], cuts[1::2], strict=False))
    parts = list(split_draft(HoleSpec(draft=draft, keep=keep)))
    assert "".join(text for text, _ in parts) == draft
    assert [is_kept for _, is_kept in parts] == [(index % 2 == 0) == parts[0][1] for index in range(len(parts))]
    assert all(text for text, _ in (parts[0], parts[-1]))
    assert [text for text, is_kept in parts if is_kept] == [draft[start:end] for start, end in keep]


def test_a_hole_whose_edges_cannot_be_healed_keeps_all_of_its_text() -> None:
    spec = HoleSpec(draft="x\n", keep=[(1, 2)], forbid=["\n"])
    healed, edges = heal_hole(spec, "a\n", "    b", heal)
    assert healed == spec and edges == HealedEdges("a\n", "    b")
