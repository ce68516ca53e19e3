"""Where a change is made again, and where it is not: renames, arguments, other calls, and what a place adapts."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midfill_infill.languages import Language, get_language
from midfill_infill.repeats.change import Tokens, find_change
from midfill_infill.repeats.check import Check
from midfill_infill.repeats.judge import Trees
from midfill_infill.repeats.places import find_places
from midfill_infill.repeats.repeat import Repeat, find_repeats
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit, Patch

CASES = {
    "a renamed name": (
        "python",
        "def f(rows):\n    total = 0\n    for row in rows:\n        total += row\n    return total\n",
        ("total = 0", "amount = 0"),
        "def f(rows):\n    amount = 0\n    for row in rows:\n        amount += row\n    return amount\n",
    ),
    "another method": (
        "python",
        "self.assertEquals(a, 1)\nself.assertEquals(b, 2)\nself.assertTrue(c)\nself.assertEquals(d(1), 3)\n",
        ("assertEquals(a", "assertEqual(a"),
        "self.assertEqual(a, 1)\nself.assertEqual(b, 2)\nself.assertTrue(c)\nself.assertEqual(d(1), 3)\n",
    ),
    "a call that becomes a statement": (
        "python",
        "self.assertEqual(a, 1)\nself.assertEqual(b[0], f(2, 3))\nself.assertTrue(c)\n",
        ("self.assertEqual(a, 1)", "assert a == 1"),
        "assert a == 1\nassert b[0] == f(2, 3)\nself.assertTrue(c)\n",
    ),
    "an added argument": (
        "python",
        "get(url)\nget(other, 1)\nget()\npost(it)\nget(third, timeout=1)\n",
        ("get(url)", "get(url, timeout=5)"),
        "get(url, timeout=5)\nget(other, 1, timeout=5)\nget(timeout=5)\npost(it)\nget(third, timeout=1)\n",
    ),
    "a first argument": (
        "go",
        "package a\n\nfunc f() {\n\trun(a)\n\trun(b, c)\n\tran(b)\n}\n",
        ("run(a)", "run(ctx, a)"),
        "package a\n\nfunc f() {\n\trun(ctx, a)\n\trun(ctx, b, c)\n\tran(b)\n}\n",
    ),
    "a word of its own line": (
        "javascript",
        "const user = load(u);\nconst group = load(g);\nconst item = load(i);\n",
        ("load(u)", "load(u, user)"),
        "const user = load(u, user);\nconst group = load(g, group);\nconst item = load(i, item);\n",
    ),
    "an indented file with its own line ends": (
        "python",
        "def f():\r\n\treturn old(1)\r\n\r\n\r\ndef g():\r\n\treturn old(2)  # ß😀\r\n",
        ("old(1)", "new(1)"),
        "def f():\r\n\treturn new(1)\r\n\r\n\r\ndef g():\r\n\treturn new(2)  # ß😀\r\n",
    ),
}


def repeats(language: str, before: str, after: str, earlier: str | None = None) -> tuple[Repeat, ...]:
    versions = (earlier.encode(), before.encode()) if earlier is not None else None
    return find_repeats(Document.from_text(before, language), Document.from_text(after, language), versions)


def parse(text: str) -> Trees:
    tree = get_language("python").parse(text.encode())
    return Trees(tree, tree)


def apply(text: str, found: tuple[Repeat, ...]) -> str:
    return Patch.of(repeat.edit for repeat in found).apply(text.encode()).decode()


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_made_again(name: str) -> None:
    language, before, (old, new), wanted = CASES[name]
    after = before.replace(old, new, 1)
    assert apply(after, repeats(language, before, after)) == wanted


def test_what_was_done_twice_is_likely_behind_the_second_place_only() -> None:
    lines = [f"self.assertEquals(a{n}, {n})\n" for n in range(4)]
    changed = [line.replace("Equals", "Equal") for line in lines]
    texts = ["".join([*lines[:1], *changed[1:n], *lines[n:]]) for n in (1, 2, 3)]
    once, twice = repeats("python", *texts[:2]), repeats("python", *texts[1:], earlier=texts[0])
    assert len(once) == 3 and not any(repeat.is_likely for repeat in once)
    assert [repeat.is_likely for repeat in twice] == [False, True]
    assert all(second.certainty > first.certainty for first, second in zip(once[::2], twice, strict=True))


def test_an_edit_that_adds_an_error_is_not_proposed() -> None:
    before = "x = foo\n\n\ndef foo():\n    pass\n\n\ny = foo\n"
    after = before.replace("foo", "None", 1)
    assert apply(after, repeats("python", before, after)) == after.replace("y = foo", "y = None")


def test_only_the_statements_at_an_edit_are_compiled_and_both_sides_of_one_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[bytes] = []
    accepts = Language.accepts
    monkeypatch.setattr(Language, "accepts", lambda self, source: compiled.append(source) or accepts(self, source))
    before = "".join(f"def f{number}(x):\n    return old(x, {number})\n\n\n" for number in range(9))
    assert len(repeats("python", before, before.replace("old", "new", 1))) == 8
    assert max(map(len, compiled)) < len(before) / 8
    text = '"""A."""\n\nfrom __future__ import annotations\n'
    change = find_change(b"a\n", b"b\n")
    assert change is not None
    check = Check(get_language("python"), replace(change, new=Tokens(text.encode())), parse(text))
    inserted = Edit(text.index("\n\n") + 1, text.index("\n\n") + 1, b"import os\n")
    assert not check.adds_no_error([inserted]) and check.adds_no_error([replace(inserted, replacement=b"# b\n")])


@pytest.mark.parametrize("before, after, language", [
    ("a = 1\nb = 2\n", "a = 1\nb = 2\n", "python"),
    ("a = 1\nb = 2\n", "  a = 1\nb = 2\n", "python"),
    ("a = 1\nb = 1\n", "c = 1\nb = 1\n", "python"),
    ("", "a\n", "python"),
    ("a = 1\n" * 400, "b = 1\n" + "a = 1\n" * 399, "python"),
])  # fmt: skip
def test_nothing_is_proposed_without_a_change_or_where_it_fits_nowhere(before: str, after: str, language: str) -> None:
    assert not repeats(language, before, after)


def test_a_change_of_a_long_line_is_found_at_once() -> None:
    before = b";".join(b"var a%d=f(%d,g(b[%d]))" % (number % 50, number, number % 7) for number in range(1500))
    start_s = time.process_time()
    change = find_change(before, before.replace(b"f(700,", b"f(701,"))
    assert change is not None and [change.new_texts(part) for part in change.parts] == [[b"701"]]
    assert time.process_time() - start_s < 1


def test_a_document_without_a_grammar_has_no_repeats() -> None:
    one, other = (Document.from_text(text) for text in ("old\nold\n", "new\nold\n"))
    assert not find_repeats(one, other)


TEXT = st.lists(
    st.sampled_from(["a", "b", "f", "(", ")", "[", "]", ",", ".", "=", "\n", " ", "é", "'", "x1"]), max_size=60
)


@given(TEXT, TEXT, st.integers(0, 60), st.integers(0, 5))
def test_places_never_touch_each_other_or_the_change(source: list[str], new: list[str], at: int, size: int) -> None:
    before = "".join(source).encode()
    after = "".join([*source[:at], *new[:4], *source[at + size :]]).encode()
    change = find_change(before, after)
    places = find_places(change) if change else []
    spans = [place.span for place in places]
    assert all(0 <= start <= end <= len(after) for start, end in spans)
    assert all(first[1] <= second[0] for first, second in zip(spans, spans[1:], strict=False))
    assert sorted(spans) == spans
