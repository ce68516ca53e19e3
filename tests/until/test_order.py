"""What waits is ordered by what has failed; the line at fault is found and opened anew."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from midfill_engine.wire import Stats
from midfill_infill.filling.candidates import Alternative, Answer, CandidateSelector
from midfill_infill.filling.fill import Filled, Options
from midfill_infill.sandbox.failures import Failure, Frame, read_output
from midfill_infill.sandbox.runner import Ran
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_infill.until.anew import find_fault, put_together, reopen
from midfill_infill.until.order import Queue
from midfill_infill.until.trying import Tried, fill_until

DOCUMENT = Document(b"import json\n\n\ndef f(a):\n    ...\n\n\ndef g(a):\n    ...\n", "python", Path("m.py"))
HOLES = tuple(find_stubs(DOCUMENT))
PLACE = CandidateSelector(DOCUMENT, HOLES[:1])


def candidate(*texts: str) -> Alternative:
    selector = CandidateSelector(DOCUMENT, HOLES[: len(texts)])
    return selector.splice([Answer.of(text, None, "drafted") for text in texts]).candidate


def failed(message: str, *frames: Frame, kind: str = "AssertionError", code: int | None = 1) -> Ran:
    return Ran(code, "", 0.1, 0, (Failure("t", kind, message, frames),) if message else ())


def order(queue: Queue) -> list[str]:
    taken = []
    while (each := queue.take()) is not None:
        taken.append(each.fills[0].text)
    return taken


@pytest.mark.parametrize(("other", "first"), [("return a", "return a"), ("assert a\n    return a", "assert a > 0")])
def test_an_assertion_in_a_file_without_any_is_tried_last(other: str, first: str) -> None:
    document = Document(DOCUMENT.data.replace(b"...", other.encode(), 1), "python", Path("m.py"))
    queue = Queue(document)
    queue.add(map(candidate, ("assert a > 0\n    return a + 1", "return a")))
    assert order(queue)[0].startswith(first)


@pytest.mark.parametrize(
    ("first", "ran", "waiting", "expected"),
    [
        ("return a.x", failed("'X' has no attribute 'x'", kind="AttributeError"), ["return a.x + 1", "return a"], 1),
        ("return b", failed("name 'b' is not defined", kind="NameError"), ["return b + 1", "return a"], 1),
        ("return len(a)", failed("assert 3 == [3]"), ["return sum(a)", "return [a]"], 1),
        ("print(a)", failed("assert None == 3"), ["print(a, a)", "return 3"], 1),
        ("return str(a)", failed("assert '3' == 3"), ["return f'{a}'", "return int(a)"], 1),
        ("while a:\n        pass", failed("", code=None), ["while a:\n        a = a", "return a"], 1),
    ],
)  # fmt: skip
def test_what_would_fail_the_same_way_goes_to_the_end(first: str, ran: Ran, waiting: list[str], expected: int) -> None:
    queue = Queue(DOCUMENT)
    queue.add([candidate(first), *map(candidate, waiting)])
    taken = queue.take()
    assert taken is not None and taken.fills[0].text == first
    queue.learn(taken, ran, None)
    assert order(queue)[0] == waiting[expected]


def test_the_same_faulty_line_goes_to_the_end() -> None:
    queue = Queue(DOCUMENT)
    first = candidate("b = a / 0\n    return b")
    queue.add([first, candidate("b = a / 0\n    return b + 1"), candidate("return a")])
    queue.take()
    ran = failed("division by zero", Frame("m.py", 5, "f"), kind="ZeroDivisionError")
    queue.learn(first, ran, find_fault(DOCUMENT, first, ran, lambda path: path == "m.py"))
    assert order(queue) == ["return a", "b = a / 0\n    return b + 1"]


def test_a_line_is_at_fault_by_the_failure_that_points_at_it() -> None:
    queue = Queue(DOCUMENT)
    first = candidate("b = a / 0\n    return b")
    queue.add([first, candidate("b = a / 0\n    return b + 1"), candidate("return a")])
    queue.take()
    failures = (
        Failure("t", "AssertionError", "assert 1 == 2", (Frame("test_m.py", 2, "t"),)),
        Failure("u", "ZeroDivisionError", "division by zero", (Frame("m.py", 5, "f"),)),
    )
    ran = Ran(1, "", 0.1, 0, failures)
    queue.learn(first, ran, find_fault(DOCUMENT, first, ran, lambda path: path == "m.py"))
    assert order(queue) == ["return a", "b = a / 0\n    return b + 1"]


def test_where_no_candidate_of_several_holes_is_worth_a_try_none_is_tried() -> None:
    def make(document: Document, holes: Sequence[Hole], options: Options) -> Iterator[Filled]:
        yield Filled(candidate("pass", "pass"), (), Stats(steps=1, forwards=1, tokens=1, ms=1.0), "m")

    def run(_: Alternative) -> Ran:
        raise AssertionError("nothing is worth a try")

    (tried,) = fill_until(DOCUMENT, HOLES, Options(), make, run, where=str.isalpha, num_tries=3)  # type: ignore[arg-type]
    assert isinstance(tried, Tried) and tried.tries == () and not tried.passed


def test_equal_but_for_white_space_and_comments_is_one() -> None:
    queue = Queue(DOCUMENT)
    added = queue.add(map(candidate, ["return a+1", "return a + 1  # one more", "return a + 2", "pass"]))
    assert added == 3 and order(queue) == ["return a+1", "return a + 2"]
    assert queue.add([candidate("return a +  1")]) == 0


def test_what_is_no_body_is_not_tried() -> None:
    queue = Queue(DOCUMENT)
    texts = ['"""Says it."""', "def f(a):\n        return a", "assert f(1) == 2", 'return f"""{a}"""', "x = 'def f'"]
    queue.add(map(candidate, texts))
    assert order(queue) == ["return a", *texts[3:]], "a header that is written again is no part of a body"


def test_syntax_errors_come_last() -> None:
    queue = Queue(DOCUMENT)
    queue.add([candidate("return (a"), candidate("return a")])
    assert order(queue)[0] == "return a"


def test_the_line_of_a_traceback_is_opened_and_the_rest_stays() -> None:
    both = candidate("b = 1\n    b = json.x\n    return b", "return a")
    ran = failed("no x", Frame("t.py", 3, "t"), Frame("m.py", 6, "f"), Frame("json.py", 6, "x"), kind="AttributeError")
    fault = find_fault(DOCUMENT, both, ran, lambda path: path == "m.py")
    assert fault is not None and (fault.hole_index, fault.line) == (0, "b = json.x")
    opened, hole = reopen(DOCUMENT, both, fault.hole_index, fault.span)
    assert opened.data == b"import json\n\n\ndef f(a):\n    b = 1\n    b = json.x\n    return b\n\n\n" + (
        b"def g(a):\n    return a\n"
    )
    anchors = [opened.data[each.start_byte : each.end_byte] for each in hole.anchors]
    assert anchors == [b"b = 1\n    ", b"\n    return b"]
    new = put_together(CandidateSelector(DOCUMENT, HOLES), both, 0, both.fills[1])
    assert new is not None and new.fills[0].text == "return a" == new.fills[1].text


def test_of_a_later_hole_lines_are_counted_in_the_filled_document() -> None:
    both = candidate("b = 1\n    return b", "c = 1\n    c = c / 0\n    return c")
    ran = failed("division", Frame("m.py", 11, "g"), kind="ZeroDivisionError")
    fault = find_fault(DOCUMENT, both, ran, lambda path: path == "m.py")
    assert fault is not None and (fault.hole_index, fault.line) == (1, "c = c / 0")
    opened, hole = reopen(DOCUMENT, both, 1, None)
    assert opened.data[hole.start_byte : hole.end_byte] == b"..." and b"    return b\n" in opened.data


def test_of_a_wrong_value_the_only_return_is_at_fault() -> None:
    ran, here = failed("assert 3 == 4"), lambda path: path == "m.py"
    fault = find_fault(DOCUMENT, candidate("b = a\n    return b"), ran, here)
    assert fault is not None and fault.line == "return b"
    assert find_fault(DOCUMENT, candidate("return a"), ran, here) is None
    two = "if a:\n        return a\n    return 1"
    assert find_fault(DOCUMENT, candidate(two), ran, here) is None


OUTPUTS = {
    "pytest": (
        "____ test_a ____\n\n    def test_a():\n>       assert f(1) == 2\nE       assert 3 == 2\n"
        "E        +  where 3 = f(1)\n\ntests/test_m.py:5: AssertionError\n"
        "___ test_b ___\nm.py:7: in f\n    x\nE   NameError: name 'x' is not defined\n"
        "=========================== short test summary info ============================\n"
        "FAILED tests/test_m.py::test_a - assert 3 == 2\n2 failed, 4 passed in 0.02s\n",
        4,
        [
            ("AssertionError", "assert 3 == 2", ("tests/test_m.py", 5)),
            ("NameError", "name 'x' is not defined", ("m.py", 7)),
        ],
    ),
    "python": (
        'Traceback (most recent call last):\n  File "/r/check.py", line 2, in <module>\n    f(1)\n'
        '  File "/r/m.py", line 5, in f\n    return a / 0\nZeroDivisionError: division by zero\n',
        None, [("ZeroDivisionError", "division by zero", ("/r/m.py", 5))],
    ),
    "node": (
        "/r/m.js:3\n    return b;\n    ^\n\nReferenceError: b is not defined\n    at f (/r/m.js:3:5)\n",
        None, [("ReferenceError", "b is not defined", ("/r/m.js", 3))],
    ),
    "unittest, with reasons": (
        f"{'=' * 70}\nERROR: test_b (t.T.test_b)\n{'-' * 70}\nTraceback (most recent call last):\n"
        '  File "/r/m.py", line 2, in f\n    return 1 / a\nZeroDivisionError: division by zero\n\n'
        f"{'=' * 70}\nFAIL: test_a (t.T.test_a)\n{'-' * 70}\nTraceback (most recent call last):\n"
        '  File "/r/t.py", line 6, in test_a\n    self.assertEqual(f(1), 2)\nAssertionError: 1 != 2\n\n'
        f"{'-' * 70}\nRan 3 tests in 0.001s\n\nFAILED (failures=1, errors=1)\n",
        1,
        [("ZeroDivisionError", "division by zero", ("/r/m.py", 2)), ("AssertionError", "1 != 2", ("/r/t.py", 6))],
    ),
    "go": (
        "--- FAIL: TestAdd (0.00s)\n    m_test.go:8: got 1, want 2\n--- FAIL: TestSub (0.00s)\n"
        "    --- FAIL: TestSub/zero (0.00s)\n        m_test.go:18: got 3\nFAIL\nFAIL\tx.org/m\t0.002s\nFAIL\n",
        None,
        [("", "got 1, want 2", ("m_test.go", 8)), ("", "got 3", ("m_test.go", 18))],
    ),
    "pytest.fail": (
        "____ test_a ____\n\n    def test_a():\n>       check()\n\nt.py:6: \n_ _ _ _ _\n\n    def check():\n"
        '>       pytest.fail("no")\nE       Failed: no\n\nt.py:3: Failed\n1 failed, 2 passed in 0.1s\n',
        2,
        [("Failed", "no", ("t.py", 3))],
    ),
    "a chain of exceptions": (
        'Traceback (most recent call last):\n  File "/r/m.py", line 2, in f\n    return {}[1]\nKeyError: 1\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/r/m.py", line 4, in f\n    raise ValueError\nValueError: no\n',
        None,
        [("ValueError", "no", ("/r/m.py", 4))],
    ),
    "cargo": ("test result: ok. 3 passed; 0 failed\n\ntest result: ok. 4 passed; 0 failed\n", 7, []),
    "vitest": (" Test Files  1 passed (1)\n      Tests  2 passed (2)\n", 2, []),
    "jest": ("Test Suites: 1 failed, 1 passed, 2 total\nTests:       1 failed, 2 passed, 3 total\n", 2, []),
    "pytest in color": (
        "\x1b[1m\x1b[31mE   assert 3 == 2\x1b[0m\n\n\x1b[1m\x1b[31mt.py\x1b[0m:5: AssertionError\n"
        "\x1b[31m\x1b[1m1 failed\x1b[0m, \x1b[32m4 passed\x1b[0m\x1b[31m in 0.02s\x1b[0m\n",
        4, [("AssertionError", "assert 3 == 2", ("t.py", 5))],
    ),
    "unittest": ("Ran 5 tests in 0.001s\n\nFAILED (failures=1, skipped=1)\n", 3, []),
    "unittest, all pass": ("Ran 3 tests in 0.1s\n\nOK\n", 3, []),
    "nothing": ("no\n", None, []),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "message", "sentence"),
    [
        ("AssertionError", "assert 1 == 2", "assert 1 == 2"),
        ("KeyError", "1", "KeyError: 1"),
        ("Failed", "", "Failed"),
        ("", "got 1,\n want 2", "got 1, want 2"),
    ],
)
def test_a_failure_is_a_sentence(kind: str, message: str, sentence: str) -> None:
    assert Failure("t", kind, message).sentence == sentence


@pytest.mark.timeout(5)
@pytest.mark.parametrize("line", ["x" * 40_000, "x." * 20_000], ids=["word", "path"])
def test_a_long_line_is_read_at_once(line: str) -> None:
    assert read_output(f"{line}\nRan 5 tests in 0.1s\n\nFAILED (failures=1)\n")[0] == 4
    queue = Queue(DOCUMENT)
    queue.learn(candidate("return a"), failed(line), None)
    assert queue.count_repeats(candidate("return a")) == 0


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_commands_print_is_read(name: str) -> None:
    output, passed, expected = OUTPUTS[name]
    found_passed, failures = read_output(output)
    assert found_passed == passed
    told = [(each.kind, each.message, (each.frames[-1].path, each.frames[-1].line)) for each in failures]
    assert told == expected
