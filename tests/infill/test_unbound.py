"""Names that the code behind a hole needs and that nothing binds."""

import time
from types import SimpleNamespace
from typing import cast

import pytest
from tests.infill.fake_engines import Answering, answer
from tests.infill.needs import find_needs, read_holes

from midfill_engine import wire
from midfill_infill.engines.client import EngineClient
from midfill_infill.filling.fill import Filled, Options, fill
from midfill_infill.syntax.holes import hole_at_cursor


@pytest.mark.parametrize(
    ("marked", "names"),
    [
        ("def f(a):\n    <hole>\n    return total + a\n", ["total"]),
        ("def f(a):\n    <hole>\n    b = first(a)\n    return b, second\n", ["first", "second"]),
        ("def f(a):\n    # total\n    <hole>\n    return total\n", ["total"]),
        ("def f(a):\n    total = 0\n    <hole>\n    return total\n", []),
        ("def f(a):\n    <hole>\n    for total in a:\n        print(total)\n", []),
        ("import os\n\n\ndef f():\n    <hole>\n    return os.path, g(), A\n\n\ndef g(): ...\n\n\nclass A: ...\n", []),
        ("def f(a):\n    <hole>\n    return a.total, a(total=1)\n", []),
        ("def f(a):\n    <hole>\n    return a(key=total)\n", ["total"]),
        ("from os import *\n\n\ndef f(a):\n    <hole>\n    return total\n", []),
        ("def f(a):\n    <hole>\n    return total + (\n", []),
        ("def f(a):\n    <hole>\n    return one, two, three, four, five\n", []),
        ("def f(a):\n    <hole>\n    return __file__\n", []),
        ("<hole>\n\n\ndef f(a):\n    return json.dumps(a)\n", ["json"]),
        ("class A:\n    def f(self):\n        <hole>\n        return count\n\n    def g(self): b\n", ["count"]),
        ("def f(a):\n    if a:\n        <hole>\n    return total\n", ["total"]),
        ("def f(\n    a,\n    <hole>\n):\n    return a + b\n", ["b"]),
        ("def outer():\n    def inner():\n        <hole>\n        return x\n    x = 1\n    return inner\n", []),
    ],
)  # fmt: skip
def test_names_that_the_hole_has_to_bind(marked: str, names: list[str]) -> None:
    assert find_needs(marked) == [names]


def test_many_blank_lines_are_read_at_once() -> None:
    start_s = time.process_time()
    assert find_needs("def f(a):\n    <hole>\n    return total\n" + "\n" * 50_000) == [["total"]]
    assert time.process_time() - start_s < 1.5


@pytest.mark.parametrize(
    ("marked", "names"),
    [
        ("function f(a) {\n  <hole>\n  return total + a;\n}\n", ["total"]),
        ("function f(a) {\n  <hole>\n  const { total, b: [c] } = a;\n  return total + c + a.d;\n}\n", []),
        ("function f(a) {\n  <hole>\n  return a.map((each) => each + 1), document, new EventTarget();\n}\n", []),
        ("import { total } from './a';\nfunction f() {\n  <hole>\n  return total;\n}\n", []),
        ("const $ = g, $el = 1, größe = 2;\nfunction f() {\n  <hole>\n  return $($el, größe);\n}\n", []),
        ("function f() {\n  <hole>\n  return { total, b: 1 };\n}\n", ["total"]),
        ("function f() {\n  <hole>\n  return $el + größe;\n}\n", ["$el", "größe"]),
        ("function f() {\n  <hole>\n  return " + "x" * 200 + ";\n}\n", []),
    ],
)
def test_names_that_a_hole_of_a_script_has_to_bind(marked: str, names: list[str]) -> None:
    assert find_needs(marked, "javascript") == find_needs(marked, "typescript") == [names]


def test_what_is_far_before_the_hole_is_bound_too() -> None:
    far = "größe = 1\n" + "print(1)\n" * 4000
    assert find_needs(far + "<hole>\nprint(größe, maß)\n") == [["maß"]]


def test_other_languages_name_none() -> None:
    assert find_needs("func f() int {\n\t<hole>\n\treturn total\n}\n", "go") == [[]]


def test_a_name_belongs_to_the_hole_before_its_use() -> None:
    assert find_needs("def f():\n    <hole>\n    print(a)\n    <hole>\n    return b\n") == [["a"], ["b"]]


class Recording(Answering):
    """An engine that keeps its request."""

    def infill(self, request: wire.InfillRequest):  # type: ignore[no-untyped-def]
        self.request = request
        yield answer(self._text)

    window = 3072

    def infill_outside(self, request: wire.InfillRequest, origins: object):  # type: ignore[no-untyped-def]
        yield from self.infill(request)


def test_a_request_has_the_names() -> None:
    document, (start,) = read_holes("def f(a, b):\n    <hole>\n    return total + a\n")
    client = Recording("total = a")
    *_, filled = fill(document, [hole_at_cursor(document, start)], Options(), cast(EngineClient, client))
    (spec,) = (segment.hole for segment in client.request.segments if isinstance(segment, wire.HoleSegment))
    assert spec.names == ["total"] and spec.unused == ["b"]
    assert isinstance(filled, Filled) and filled.fills[0].text == "total = a"


def test_a_module_of_the_standard_library_is_imported() -> None:
    document, (start,) = read_holes("def f(a):\n    <hole>\n    return hashlib.md5(a), other.md5(a)\n")
    client = Recording("print(a)")
    *_, filled = fill(document, [hole_at_cursor(document, start)], Options(), cast(EngineClient, client))
    (spec,) = (segment.hole for segment in client.request.segments if isinstance(segment, wire.HoleSegment))
    assert spec.names == ["hashlib", "other"]
    assert "import hashlib" in [each.text for each in spec.candidates]
    assert "import other" not in [each.text for each in spec.candidates]


def test_an_engine_elsewhere_is_told_no_names() -> None:
    document, (start,) = read_holes("def f(a):\n    <hole>\n    return total + a\n")
    client = Recording("total = a")
    client.endpoint = SimpleNamespace(is_outside=True, protocol="fim")
    list(fill(document, [hole_at_cursor(document, start)], Options(), cast(EngineClient, client)))
    (spec,) = (segment.hole for segment in client.request.segments if isinstance(segment, wire.HoleSegment))
    assert not spec.names and not spec.unused
