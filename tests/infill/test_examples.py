"""What examples of a function and earlier fills propose."""

import pytest

from midfill_infill.context.references import Reference
from midfill_infill.proposals import Surroundings, propose
from midfill_infill.syntax.holes import body_named, hole_at_cursor
from midfill_infill.text.document import Document


def bodies(source: str, name: str, *tests: str) -> list[str]:
    document = Document(source.encode(), "python")
    references = [Reference("test", each) for each in tests]
    around = Surroundings(document, (body_named(document, name),), references)
    return [each.text for each in propose(("examples",), around, 0)]


@pytest.mark.parametrize(
    ("header", "examples", "wanted"),
    [
        ("mean(values)", "assert mean([1, 2, 6]) == 3.0\nassert mean([4.0]) == 4.0\n",
         "return sum(values) / len(values)"),
        ("greet(name)", 'def test_it():\n    assert greet("Bo") == "Hello, Bo!"\n', 'return f"Hello, {name}!"'),
        ("clip(x: int, top: int = 9) -> int", "assert clip(4, 3) == 3\nassert clip(2, top=3) == 2\n",
         "return min(x, top)"),
        ("answer()", "        self.assertEqual(answer(), 42)\n", "return 42"),
        ("is_even(n)", "assert is_even(4) is True\nassert is_even(3) is False\n", "return n % 2 == 0"),
    ],
)  # fmt: skip
def test_a_body_is_what_the_examples_say(header: str, examples: str, wanted: str) -> None:
    source = f"def {header}:\n    raise NotImplementedError\n"
    assert bodies(source, header.partition("(")[0], examples)[0] == wanted
    assert bodies(source, header.partition("(")[0]) == []


def test_a_doctest_is_an_example() -> None:
    source = 'def last(text):\n    """The last word.\n\n    >>> last([1, 5, 7])\n    7\n    """\n    ...\n'
    assert bodies(source, "last") == ["return max(text)", "return text[-1]"]


@pytest.mark.parametrize(
    "example",
    [
        "assert twice(__import__('os').getpid()) == 1\n",
        "assert twice([0] * 9) == 3\n",
        f"assert twice({'[' * 900}{']' * 900}) == 1\n",
        "assert twice(2, 3) == 4\n",
        f"assert twice({10**9}) == {2 * 10**9}\n",
        "assert twice(3) == 'never'\nassert twice(4) == 9\n",
        "assert twice(\n",
    ],
)
def test_what_is_no_example_proposes_nothing(example: str) -> None:
    assert bodies("def twice(n):\n    ...\n", "twice", example) == []


def test_what_was_taken_before_is_proposed_where_it_fits() -> None:
    document = Document(b"class A:\n    def f(self):\n        ...\n\n\nx = 1\n\ny = 2\n", "python")
    taken = ["if a:\n    b()\nreturn c", "x += 1"]
    around = Surroundings(document, (body_named(document, "A.f"),), taken=taken)
    found = propose(("taken",), around, 0)
    assert [each.text for each in found] == ["if a:\n            b()\n        return c", "x += 1"]
    assert found[0].certainty > found[1].certainty and found[0].origin == "as you took before"
    line = Surroundings(document, (hole_at_cursor(document, document.data.index(b"\n\ny") + 1),), taken=taken)
    assert [each.text for each in propose(("taken",), line, 0)] == ["x += 1"]
    assert len(propose(("taken",), Surroundings(document, around.holes, taken=list(map(str, range(99)))), 0)) == 8
