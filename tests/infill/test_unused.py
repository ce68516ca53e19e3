"""Names before a hole that nothing uses yet."""

from functools import partial

import pytest
from tests.infill.needs import find_needs, read_holes

from midfill_infill.splicing.splice import Splicer
from midfill_infill.syntax.holes import body_at

find = partial(find_needs, kind="unused")


@pytest.mark.parametrize(
    ("marked", "names"),
    [
        ("def f(a, b=1, *, c: int, d: int = 2):\n    <hole>\n    return b\n", ["d", "c", "a"]),
        ("def f(a):\n    total = 0\n    for each in a:\n        <hole>\n    return total\n", ["each"]),
        ("def f(a):\n    first, second = a\n    <hole>\n    return first\n", ["second"]),
        ("def f(a):\n    for one, (two, three) in a:\n        <hole>\n", ["three", "two", "one"]),
        ("def f(a):\n    with open(a) as file:\n        <hole>\n", ["file"]),
        ("def f(a):\n    if (found := a()):\n        <hole>\n", ["found"]),
        ("def f(a):\n    try:\n        a()\n    except OSError as error:\n        <hole>\n", ["error"]),
        ("def f(a):\n    <hole>\n    b = a\n", []),
        ("def f(a):\n    '''Needs a.'''\n    <hole>  # a\n", ["a"]),
        ("def f(a):\n    a.b = 1\n    a[b] = 2\n    <hole>\n", []),
        ("def f(b):\n    a.b = a(b=1)\n    <hole>\n", ["b"]),
        ("def f(a):\n    a = 1\n    a += 1\n    <hole>\n", []),
        ("def f(a):\n    a = 1\n    a = 2\n    <hole>\n", ["a"]),
        ("def f(self, cls, args, kwargs, _a):\n    <hole>\n", []),
        ("def f(a):\n    def g(b):\n        c = 1\n    <hole>\n", ["a"]),
        ("def f(a):\n    def g(b):\n        <hole>\n    return a\n", ["b"]),
        ("def f(a):\n    return [b for b in <hole>]\n", ["a"]),
        ("def z(a, b, c, d, e, f, g, h, i):\n    <hole>\n    pass\n", ["i", "h", "g", "f", "e", "d", "c", "b"]),
        ("a = 1\n<hole>\n", []),
        ("def f(a):\n    <hole>\n    return (\n", []),
        ("def f(" + "a" * 100 + "):\n    <hole>\n    return 1\n", []),
        ("def f(größe):\n    <hole>\n    return 1\n", ["größe"]),
    ],
)
def test_parameters_and_variables_that_nothing_uses(marked: str, names: list[str]) -> None:
    assert find(marked) == [names]


def test_a_long_function_and_other_languages_have_none() -> None:
    assert find("def f(a):\n" + "    print(1)\n" * 3000 + "    <hole>\n") == [[]]
    assert find("func f(a int) int {\n\t<hole>\n\treturn 1\n}\n", "go") == [[]]


@pytest.mark.parametrize(
    ("marked", "names"),
    [
        ("function f(a, b = 1) {\n  const c = 2;\n  <hole>\n  return b;\n}\n", ["c", "a"]),
        ("function f(a) {\n  const { b, c: d } = a, [e] = a;\n  <hole>\n}\n", ["e", "d", "b"]),
        ("const f = (a) => {\n  for (const b of a) {\n    <hole>\n  }\n};\n", ["b"]),
        ("function f() {\n  try {\n    f();\n  } catch (error) {\n    <hole>\n  }\n}\n", ["error"]),
        ("function f(a) {\n  a.b = 1;\n  return { c: 1 };\n  <hole>\n}\n", []),
        ("function f(a) {\n  <hole>\n  return { a };\n}\n", []),
    ],
)
def test_parameters_and_variables_of_scripts_that_nothing_uses(marked: str, names: list[str]) -> None:
    assert find(marked, "javascript") == find(marked, "typescript") == [names]


def test_types_of_parameters_are_no_names() -> None:
    assert find("function f(a: Foo, b?: Bar) {\n  <hole>\n}\n", "typescript") == [["b", "a"]]


def test_a_body_is_told_the_parameters() -> None:
    document, (start,) = read_holes("class A:\n    def f(self, a, b=None, *args):\n        <hole>...\n")
    assert Splicer(document, [body_at(document, start)]).find_needs(0) == {"names": [], "unused": ["b", "a"]}


def test_every_hole_of_a_function_is_told_them() -> None:
    assert find("def f(a):\n    <hole>\n    b = 1\n    <hole>\n") == [["a"], ["b", "a"]]
