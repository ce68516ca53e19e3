"""Holes with anchors in a causal base: one search through all parts between them."""

import random
from collections.abc import Sequence

import pytest
import torch
from tests.engine.in_process import answer_of, complete, read_whole, run_together
from tests.engine.requests import TEXT, ask

from midfill_engine.causal.anchored import MORE_TOKENS, AnchoredFiller, Crossing, Part
from midfill_engine.causal.branches import read_prefix
from midfill_engine.causal.continuing import RequestFiller, fill_causally
from midfill_engine.causal.filler import Filler
from midfill_engine.causal.split import Split, find_unmatched, keep_breaks
from midfill_engine.causal.stretch import Stretch
from midfill_engine.causal.writing import Drawing, Edge
from midfill_engine.loading.runtime import Runtime
from midfill_engine.scheduling.work import Fill
from midfill_engine.wire import FilledHole, HoleSegment, HoleSpec, TextSegment


def spec_of(draft: str, *anchors: str, **limits: object) -> HoleSpec:
    """A hole that keeps these texts of its draft, each behind the one before."""
    keep, start = [], 0
    for anchor in anchors:
        start = draft.index(anchor, start)
        keep.append((start, start := start + len(anchor)))
    return HoleSpec(draft=draft, keep=keep, **limits)  # type: ignore[arg-type]


def list_fills(hole: FilledHole) -> list[str]:
    """The texts before, between and behind the anchors."""
    ends = [0, *(end for _, end in hole.anchors)]
    starts = [*(start for start, _ in hole.anchors), len(hole.text)]
    return [hole.text[end:start] for end, start in zip(ends, starts, strict=True)]


def test_requests_with_anchors_answer_beside_others_as_alone(base: Runtime) -> None:
    """Each with two holes of anchors, in passes that all of them share."""
    line, words = spec_of("total = item + other", " = ", " + "), spec_of("(a, b)", "(", ", ", ")")
    orders: list[tuple[HoleSpec, ...]] = [(line, words), (words, line), (line, line)]

    def fill(holes: tuple[HoleSpec, ...]) -> Fill:
        first, second = map(lambda hole: HoleSegment(hole=hole), holes)
        texts = TextSegment(text=TEXT), TextSegment(text="\nother = "), TextSegment(text="\nprint(1)\n")
        return fill_causally(base, ask(texts[0], first, texts[1], second, texts[2], n=2))

    alone = [run_together(base, [fill(holes)])[0] for holes in orders]
    together = run_together(base, [fill(holes) for holes in orders])
    for one, other, holes in zip(alone, together, orders, strict=True):
        assert [hole.text for hole in one.holes] == [hole.text for hole in other.holes]
        assert [hole.anchors for hole in one.holes] == [hole.anchors for hole in other.holes]
        for hole, spec in zip(other.holes, holes, strict=True):
            kept = [hole.text[start:end] for start, end in hole.anchors]
            assert "".join(kept) == "".join(spec.draft[start:end] for start, end in spec.keep)


@pytest.mark.parametrize("seed", range(12))
def test_anchors_stay_and_what_was_a_line_stays_one(base: Runtime, seed: int) -> None:
    rng = random.Random(seed)
    draft = rng.choice(["total = item + other", "    a = first(b)\n    return a or b\n", "é(x, y=1) -> str"])
    cuts = sorted(rng.sample(range(len(draft) + 1), 2 * rng.randint(1, 3)))
    keep = list(zip(cuts[::2], cuts[1::2], strict=True))
    limits = {"forbid": [")"]} if seed % 3 == 0 else {"max_tokens": 3} if seed % 3 == 1 else {}
    spec = HoleSpec(draft=draft, keep=keep, indent="    ", **limits)  # type: ignore[arg-type]
    answer = answer_of(base, ask(TextSegment(text=TEXT), HoleSegment(hole=spec), TextSegment(text="\nx = 1\n"), n=3))
    for (hole,) in (answer.holes, *answer.alternatives):
        assert "".join(hole.text[start:end] for start, end in hole.anchors) == "".join(draft[a:b] for a, b in keep)
        ranges = list(zip(hole.tokens, hole.confidence, strict=True))
        assert all(end <= start for ((_, end), _), ((start, _), _) in zip(ranges, ranges[1:], strict=False))
        assert all(
            (start, end) in hole.tokens and confidence == 1
            for start, end in hole.anchors
            for span, confidence in ranges
            if span == (start, end)
        )
        masked = draft
        for start, end in reversed(keep):
            masked = masked[:start] + masked[end:]
        if "\n" not in masked:
            assert not any("\n" in fill for fill in list_fills(hole))
        if seed % 3 == 0:
            assert not any(")" in fill for fill in list_fills(hole))


def cross(base: Runtime, filler: AnchoredFiller) -> list[Crossing]:
    prefix, _ = complete(base, read_prefix(base, filler.prompt.ids))
    return complete(base, filler.cross(prefix))


def test_a_path_through_all_parts_has_the_likelihood_of_its_tokens(base: Runtime) -> None:
    """Its own one alone, whatever else the search read."""
    stretch = Stretch(TEXT + "other", "\nprint(other)\n", single=True, max_tokens=9)
    filler = AnchoredFiller(base, stretch, parts=(" = it", "em + result + items + other", "su", "lt or ", "x"))
    ways = cross(base, filler)
    assert len(ways) > 1 and ways == sorted(ways, key=lambda way: -way.path.log)
    for way in ways:
        ids = [*filler.prompt.ids, *way.path.ids]
        logs = read_whole(base, ids)[len(filler.prompt.ids) - 1 :]
        exact = [*logs[torch.arange(len(way.path.ids)), torch.tensor(way.path.ids)].tolist()]
        exact.append(float(logs[-1][filler.ends].logsumexp(dim=0)))
        assert way.path.logs == pytest.approx(exact, abs=1e-3)
        assert way.nats > sum(exact) - 1e-3, "the anchors' tokens are some of them"


def test_an_anchor_decides_what_comes_before_it(base: Runtime) -> None:
    """The first part's likeliest fill by itself is another one than the likeliest together with the next anchor."""
    stretch = Stretch(TEXT + "other = ", "\n", single=True, max_tokens=6)
    changed = 0
    for anchor in ("items", "(", "result", ":", "+ 1", "return", "]", "for"):
        filler = AnchoredFiller(base, stretch, parts=("x", anchor, "y"))
        ways = cross(base, filler)
        first = [filler._bytes(way.path)[: way.starts[0]] for way in ways]
        alone = Filler(base, stretch)
        prefix, _ = complete(base, read_prefix(base, alone.prompt.ids))
        likeliest, _ = complete(base, alone.draft_lines(prefix))
        best = max(likeliest, key=lambda each: each.nats)
        changed += first[0] != alone.pending + best.text.encode()
    assert changed > 4


def joints(masked: str, anchor: str, fill: str, forbid: tuple[str, ...] = ()) -> Sequence[str]:
    edge = Edge.__new__(Edge)
    edge.forbid = forbid
    return Part(masked, anchor, b"", edge, 8).joints(fill.encode())


def test_a_part_ends_as_its_draft_does() -> None:
    assert joints(", ", "name", ": int,") == ["", " "], "a comma ends no word"
    assert joints(", ", "name", ": int") == [" "], "no word grows into an anchor that was none of its words"
    assert joints("_", "name", "_old") == ["", " "], "unless it did before"
    assert joints("", "name", "") == [" "] and joints("x", ")", "y ") == ["", " "]
    assert joints("a", "\n    b\n", "c") == [""], "a line break follows what it followed"
    assert joints("a", "\n    b\n", "c\n") == joints("a", "\n    b\n", "c ") == [] and joints("", "\nb", "") == [""]


def test_a_part_balances_its_brackets() -> None:
    def may_end(masked: str, fill: str) -> bool:
        return Part(masked, ")", b"", Edge.__new__(Edge), 8, balances=True).may_end(fill.encode())

    assert may_end("a", "f(b)") and not may_end("a", "f(b") and not may_end("a", "b)")
    assert may_end("f(a", "g(h[0]") and not may_end("f(a", "g") and may_end("a", "':('")


@pytest.mark.parametrize(
    ("text", "left"), [("f(a[0], {})", ""), ("]f((", "](("), ("(]", "(]"), ("'(' + \")\" + `[`", ""), ("# see (1", "(")]
)
def test_brackets_without_a_partner(text: str, left: str) -> None:
    assert find_unmatched(text) == left


@pytest.mark.parametrize(
    ("marked", "known"),
    [
        ("a\n    <b>", "a<\n    b>"),  # the break before a kept line
        ("a\n    <b>\n    c", "a<\n    b\n    >c"),  # and behind it
        ("a\n<    b\n>    c", "a<\n    b\n    >c"),  # and the indentation behind that
        ("a\n\n<b>\n\n  c\n", "a<\n\nb\n\n  >c\n"),
        ("if a:\n    <b>", "if a<:\n    b>"),  # and what opens its block
        ("if (a) {\n<b;\n>}", "if (a)< {\nb;\n>}"),
        ("{\n<b>", "{<\nb>"),
        ("a <b> c", "a <b> c"),
        ("<a>\n\n<b>", "<a\n><\nb>"),  # a line may come between them
        ("<a>\n  <b>", "<a><\n  b>"),
        ("<a\n>  <b>", "<a\n  b>"),
        ("<a><b>", "<a><b>"),
        ("  <a>", "  <a>"),
    ],
)
def test_line_breaks_beside_kept_text_are_kept(marked: str, known: str) -> None:
    draft, keep = _read_ranges(marked)
    assert keep_breaks(draft, keep) == _read_ranges(known)[1] and _read_ranges(known)[0] == draft
    split = Split.of(HoleSpec(draft=draft, keep=keep))
    stays = split.unchanged()
    assert stays.text == draft and "".join(draft[a:b] for a, b in stays.kept) == "".join(draft[a:b] for a, b in keep)


def _read_ranges(marked: str) -> tuple[str, list[tuple[int, int]]]:
    """The text without the marks `<` and `>`, and the ranges between them."""
    text, keep, start = "", [], 0
    for letter in marked:
        if letter == "<":
            start = len(text)
        elif letter == ">":
            keep.append((start, len(text)))
        else:
            text += letter
    return text, keep


BODIES: dict[str, str] = {
    "python": "if x in self.items:\n            self.items.remove(x)",
    "javascript": "const found = this.items.get(key);\n    return found ?? [];",
    "typescript": "this.items = items.filter((each) => each.id !== id);\n    return this;",
    "go": "s.mu.Lock()\n\tdefer s.mu.Unlock()",
    "rust": "let found = self.items.iter().find(|each| each.id == id);\n        found.map(|each| each.name.as_str())",
    "java": "int size = items.size();\n        return size > 0 ? items.get(size - 1) : null;",
    "c": "while (list->next) list = list->next;\n\treturn list;",
    "cpp": "std::lock_guard<std::mutex> lock(mutex_);\n  return items_.at(index);",
    "tsx": "const [open, setOpen] = useState<boolean>(false);\n  return <Dialog open={open} onClose={close} />;",
}


@pytest.mark.parametrize("kept", ["first", "second", "second, without its indent"])
@pytest.mark.parametrize("language", BODIES)
def test_rerolls_keep_line_breaks_and_balance_brackets(base: Runtime, language: str, kept: str) -> None:
    """Of bodies of two lines each line is filled in turn."""
    body = BODIES[language]
    first, _, second = body.partition("\n")
    own = {"first": first, "second": second}.get(kept, second.strip())
    spec = spec_of(body, own, indent=second[: -len(second.lstrip())])
    before, after = TextSegment(text=TEXT + "\n" + spec.indent), TextSegment(text="\n}\n")  # type: ignore[operator]
    for limits in ({}, {"indent": None}, {"forbid": ["\n"]}):
        asked = HoleSegment(hole=spec.model_copy(update=limits))
        answer = answer_of(base, ask(before, asked, after, n=4))
        for (hole,) in (answer.holes, *answer.alternatives):
            lines = hole.text.split("\n")
            assert lines[0 if kept == "first" else -1] == (first if kept == "first" else second)
            assert len(lines) == 2 and lines[1].startswith(second[: -len(second.lstrip())])
            assert not find_unmatched(hole.text)
            assert [hole.text[start:end] for start, end in hole.anchors] == [own]


def test_lines_between_kept_lines_keep_the_indent(base: Runtime) -> None:
    draft = "    first = 1\n    known()\n    other = 2\n    more()\n    last = 3\n"
    spec = spec_of(draft, "    known()\n", "    more()\n", indent="    ")
    answer = answer_of(
        base, ask(TextSegment(text="def f():\n"), HoleSegment(hole=spec), TextSegment(text="x = 1\n"), n=4)
    )
    for (hole,) in (answer.holes, *answer.alternatives):
        assert "\n    known()\n" in hole.text and "\n    more()\n" in hole.text and hole.text.endswith("\n")
        assert all(line.startswith("    ") for line in hole.text.split("\n")[1:] if line.strip())


def test_known_ends_of_a_hole_are_text_around_a_stretch(base: Runtime) -> None:
    spec = spec_of("[a, b]", "[", "]")
    split = Split.of(spec)
    assert split == Split("[", ("a, b",), "]") and split.has_anchors
    request = ask(TextSegment(text="x = "), HoleSegment(hole=spec), TextSegment(text="\n"))
    filler = RequestFiller(base, request)
    stretch, _ = filler.lay_stretch(0)
    assert (stretch.before, stretch.after, stretch.behind) == ("x = [", "]\n", "\n")
    assert stretch.single and stretch.max_tokens == MORE_TOKENS + 2 * len(base.loaded.tokenizer.encode("a, b"))
    assert type(filler.open_filler(0, stretch, Drawing())) is Filler
    (hole,) = answer_of(base, request).holes
    assert hole.text[0] == "[" and hole.text[-1] == "]" and len(hole.text) > 2
    assert hole.anchors == [(0, 1), (len(hole.text) - 1, len(hole.text))]
    assert Split.of(HoleSpec(draft="ab", keep=[(0, 1), (1, 2)])) == Split("a", ("",), "b"), "a place to insert"
    assert Split.of(HoleSpec()) == Split("", ("",), "") and not Split.of(HoleSpec(draft="x")).has_anchors


@pytest.mark.parametrize("bounds", [{}, {"min_lines": 1}, {"max_lines": 1}, {"min_tokens": 1}])
def test_anchors_alone_stand_where_nothing_was_found(base: Runtime, bounds: dict[str, int]) -> None:
    skipped = Split.of(spec_of("a = 1 + y", " = ", " + ")).only_known()
    assert (skipped.text, skipped.kept) == (" =  + ", ((0, 6),))
    whole = HoleSegment(hole=HoleSpec(draft="kept", keep=[(0, 4)], **bounds))  # type: ignore[arg-type]
    line = HoleSegment(hole=HoleSpec(forbid=["\n"], max_tokens=4))
    answer = answer_of(base, ask(TextSegment(text=TEXT), whole, TextSegment(text="\ny = "), line))
    first, second = answer.holes
    assert (first.text, first.anchors, first.certainty) == ("kept", [(0, 4)], None)
    assert second.text and "\n" not in second.text


def test_the_base_writes_what_the_next_anchor_follows(pretrained: Runtime) -> None:
    """Types between the names of a signature, and the unknown halves of a line."""
    draft = "width: , height: ) -> :"
    spec = spec_of(draft, "width: ", ", height: ", ") -> ", ":", forbid=["=", "(", ")", "\n"])
    body = TextSegment(text="\n    return width * height\n")
    (hole,) = answer_of(pretrained, ask(TextSegment(text="def area("), HoleSegment(hole=spec), body)).holes
    types = list_fills(hole)[1:-1]
    assert len(types) == 3 and set(types) <= {"int", "float"}
    spec = spec_of("    return sum(values)", "return", "(", ")", forbid=["\n"])
    before, after = TextSegment(text='def total(values):\n    """The sum of all values."""\n'), TextSegment(text="\n")
    (hole,) = answer_of(pretrained, ask(before, HoleSegment(hole=spec), after)).holes
    assert hole.text == "    return sum(values)"
