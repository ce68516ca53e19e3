"""Where a draft begins to repeat itself, and true code that only looks alike."""

import ast
import sys
import sysconfig
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from string import ascii_letters

import pytest
import torch
from tests.engine import tiny
from tests.engine.in_process import complete

from midfill_engine.causal.branches import Path as Written
from midfill_engine.causal.branches import read_prefix
from midfill_engine.causal.filler import Filler
from midfill_engine.causal.stretch import MAX_LINES, GrowingText, Stretch
from midfill_engine.families import FAMILIES
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.loops import find_loop, is_endless

MAX_SHARE = 0.001  # of true bodies

LOOPS = {  # the lines that are kept, and those up to the one with which the loop is known
    "names that grow": (
        "self._path = path\nself._a_path = None",
        "self._a_path_path = None\nself._a_path_path_path = None",
    ),
    "one letter that grows": ("x = 1", "x_x = 1\nx_x_x = 1"),
    "items that grow without rule, in JavaScript": (
        "install(data, {\n  types: types,\n  typesArray: null,",
        "  typesArrayArrayArray: null,\n  typesArrayArray: null,",
    ),
    "attributes that grow, in Java": (
        "Node first = head;\nNode last = node.next;",
        "Node last = node.next.next;\nNode last = node.next.next.next;",
    ),
    "arguments that grow, in C": (
        "size_t buf_len = strlen(buf);\nsize_t buf_len_len = strlen(buf_len);",
        "size_t buf_len_len_len = strlen(buf_len_len);\nsize_t buf_len_len_len_len = strlen(buf_len_len_len);",
    ),
    "a line": ("items = []\nitems.append(item)", "items.append(item)\n\nitems.append(item)"),
    "a comment, in Go": (
        "buf := bufio.NewReader(in)\n// The package is the first entry.",
        "// The package is the first entry.\n// The package is the first entry.",
    ),
    "two lines, in Java": ("long a = start();\nlong b = end();", "long a = start();\nlong b = end();\n" * 2),
    "three lines, in Go": (
        "value, err := read(in)\nif err != nil {\n\treturn err\n}",
        "if err != nil {\n\treturn err\n}\n" * 2,
    ),
    "a long group, in JavaScript": (
        "const { timers } = this\nif (!timers.has(name)) {\n  return { timers }\n}",
        "\nconst { timers } = this\nif (!timers.has(name)) {\n  return { timers }\n}",
    ),
    "items of a list": (
        "colors = {\n    c: red,\n    c: green,\n    c: blue,\n    d: red,",
        "    c: red,\n    c: green,\n    c: blue,\n    d: red,",
    ),
    "a counter": ("if not items:\n    return\na_0 = items[0]", "\n".join(f"a_{n} = items[{n}]" for n in range(1, 12))),
    "a counter in a group, in C": (
        "case 0:\n    return 0;",
        "\n".join(f"case {n}:\n    return 0;" for n in range(1, 6)),
    ),
}

TRUE_CODE = {
    "assignments": "self.a = a\nself.b = b\nself.c = c\nself.path = path\nself.paths = paths\nself.d = d\n",
    "cases": "".join(f'case {number}: return "{name}";\n' for number, name in enumerate("abcdefghijklmnop")),
    "cases of two lines": "".join(
        f"case {number}:\n    return {name};\n" for number, name in enumerate("RED GREEN BLUE WHITE BLACK".split())
    ),
    "options": "".join(f'parser.add_argument("--{name}", default=None)\n' for name in "abcdefghijklmnop"),
    "asserts": "".join(f"assert square({number}) == {number * number}\n" for number in range(16)),
    "a table": "rows = [\n" + "".join(f"    ({number}, {number + 1}),\n" for number in range(24)) + "]\n",
    "equal items": "call(\n" + "    None,\n" * 5 + ")\n",
    "a dictionary": "{\n"
    + "".join(f'    "{name}": {number},\n' for number, name in enumerate("abcdefghij" * 2))
    + "}\n",
    "closing brackets": "        }\n      }\n    }\n  }\n}\n",
    "branches": "".join(f"if {name}:\n    go({name})\nelse:\n    return None\n" for name in "abcdef"),
    "errors in Go": "".join(f"{name} := f()\nif err != nil {{\n\treturn err\n}}\n" for name in "abcdef"),
    "few counted lines": "".join(f"register(r{number})\n" for number in range(8)),
    "escapes": "".join(f"check('u{'0' * number}')\n" for number in range(8)),
}


def first_loop(lines: list[str]) -> tuple[int, int] | None:
    """The number of lines after which a loop is known, and of those that are kept."""
    found = ((size, find_loop(lines[:size])) for size in range(1, len(lines) + 1))
    return next(((size, kept) for size, kept in found if kept is not None), None)


@pytest.mark.parametrize(("kept", "rest"), LOOPS.values(), ids=LOOPS)
def test_a_loop_is_known_at_the_end_of_its_last_round_and_its_first_round_is_kept(kept: str, rest: str) -> None:
    lines = f"{kept}\n{rest}".rstrip().split("\n")
    size, num_kept = first_loop(lines) or (0, 0)
    assert size == len(lines) and "\n".join(lines[:num_kept]).rstrip() == kept


@pytest.mark.parametrize("text", TRUE_CODE.values(), ids=TRUE_CODE)
def test_true_code_whose_lines_are_alike_is_no_loop(text: str) -> None:
    assert first_loop(text.split("\n")) is None


def count_calls(find: Callable[[], object]) -> int:
    """How many functions a call calls."""
    calls: list[str] = []
    sys.setprofile(lambda _frame, event, _argument: calls.append(event) if event.endswith("call") else None)
    try:
        find()
    finally:
        sys.setprofile(None)
    return len(calls)


def test_lines_and_letters_that_do_not_repeat_cost_as_much_as_they_are() -> None:
    lines = [f"{letter}{other} = call({other}.{letter})" for letter in ascii_letters for other in ascii_letters]
    few, many = (count_calls(lambda size=size: find_loop(lines[:size])) for size in (200, 400))
    assert many < 2.2 * few
    assert count_calls(lambda: is_endless(" ".join(lines))) < 5000


def list_bodies() -> Iterator[list[str]]:
    """The lines of each function of the standard library."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        source = path.read_text(encoding="utf-8")
        lines = source.split("\n")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                yield lines[node.body[0].lineno - 1 : node.end_lineno]


@pytest.mark.parametrize("num_bodies", [1000, pytest.param(3000, marks=pytest.mark.soak)])
def test_of_true_bodies_at_most_one_in_a_thousand_has_a_loop(num_bodies: int) -> None:
    bodies = list(islice(list_bodies(), num_bodies))
    found = sum(first_loop(body[:MAX_LINES]) is not None or any(map(is_endless, body)) for body in bodies)
    assert len(bodies) == num_bodies and found <= MAX_SHARE * num_bodies


@pytest.mark.parametrize(
    ("line", "is_loop"),
    [
        ("    numbers = [" + "0, " * 24, True),
        ('    return format("%r' + "; %s = %s" * 9, True),
        ("    numbers = [" + ", ".join(map(str, range(40))), False),
        ('    plural = "' + "2" * 90, False),
        ("    // " + "=" * 90, False),
        ("    call(a," + " " * 90, False),
        ("    if a.kind == A and b.kind == B or a.kind == C and b.kind == D or a.kind == E and b.kind == F:", False),
    ],
)
def test_a_line_is_endless_if_it_ends_with_equal_runs(line: str, is_loop: bool) -> None:
    assert is_endless(line) is is_loop


def write(stretch: Stretch, first: str, text: str) -> GrowingText:
    growing_text = GrowingText(stretch, first)
    for letter in text:
        if growing_text.is_open:
            growing_text.write(letter.encode())
    return growing_text


BODY = Stretch("def f():\n    ", "\n\n\ndef g():\n    pass\n", False, indent="    ")


def test_a_draft_ends_where_it_repeats_itself() -> None:
    grown = "".join("\n    self._a" + "_path" * number + " = None" for number in range(2, 9))
    growing_text = write(BODY, "self._a_path = None", grown)
    assert (growing_text.is_open, growing_text.is_whole, growing_text.loop) == (False, False, 1)
    assert growing_text.endings() == ["self._a_path = None"]
    assert growing_text.written.count("\n") == 3, "nothing is written after the third round"
    ended = write(BODY, "x = 1", "\n    go(x)\n\n    go(x)\n    go(x)\n\ndef h():")
    assert not ended.is_whole and ended.endings() == ["x = 1\n    go(x)"], "though it would end by itself"
    at_end = write(BODY, "x = 1", "\n    go(x)\n    go(x)\n    go(x)")
    at_end.end()
    assert not at_end.is_whole and at_end.endings() == ["x = 1\n    go(x)"], "a model's end of text"


def test_a_draft_goes_on_where_short_lines_come_again() -> None:
    """One of 25 true bodies has a line three times that is as short as `else:` or `return`."""
    text = "".join(f"\n    if {name}:\n        return {name}\n    else:\n        go()" for name in "abcde")
    growing_text = write(BODY, "x = 1", text + "\n\ndef")
    assert growing_text.is_whole and growing_text.endings() == ["x = 1" + text]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder = tmp_path_factory.mktemp("causal") / "tiny"
    tiny.make_random(folder, FAMILIES.find("causal"))
    return load_runtime(str(folder), "cpu", dtype="fp32")


LOOP = "".join("\n    self._a" + "_path" * number + " = None" for number in range(1, 20))
OPEN = "\n    total = [" + "".join(f"first{number * number} + " for number in range(40))


@pytest.mark.parametrize(
    ("scripts", "offered"),
    [
        ({"a = 1": LOOP, "b = 1": "\n    return b\n\ndef"}, {"b = 1\n    return b"}),
        ({"a = 1": LOOP, "b = 1": "\n    c = 2" + OPEN}, {"a = 1\n    self._a_path = None", "b = 1\n    c = 2"}),
        ({"a = 1": LOOP}, {"a = 1\n    self._a_path = None"}),
    ],
    ids=["behind one that ended", "beside one that is too long", "alone"],
)
def test_a_draft_that_repeats_itself_ends_early_and_ranks_behind_one_that_ended_by_itself(
    scripts: dict[str, str], offered: set[str], base: Runtime
) -> None:
    written: list[int] = []

    class Scripted(Filler):
        def _offer(self, path: Written, growing_text: GrowingText, logs: torch.Tensor) -> torch.Tensor:
            lead, text = next((lead, text) for lead, text in begun.items() if path.ids[: len(lead)] == lead)
            logs = torch.full((len(logs) + 1,), -torch.inf)
            logs[text[len(path.ids) - len(lead)]] = -0.1
            written.append(growing_text.written.count("_path"))
            return logs

    filler, encode = Scripted(base, BODY), base.loaded.tokenizer.encode
    begun = {tuple(encode(filler.pending.decode() + first)): encode(text) for first, text in scripts.items()}
    prefix, _ = complete(base, read_prefix(base, filler.prompt.ids))
    drafts = complete(base, filler.draft_bodies(prefix, list(scripts)))
    assert {each.text for each in filler.rank(drafts)} == offered
    assert max(written) < 7, "the third of the 19 rounds is the last"
