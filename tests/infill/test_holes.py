"""From a position, a name or a range to a hole."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from midfill_infill.errors import MidfillError
from midfill_infill.languages import Language
from midfill_infill.syntax.holes import (
    body_at,
    body_named,
    find_stubs,
    hole_at_cursor,
    hole_at_place,
    hole_at_range,
    is_line_of_code,
    sort_holes,
)
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

SHAPES = """import math

class Circle:
    sides = ...

    @property
    def area(self):
        '''Doc.'''
        def square(x):
            return x * x
        return math.pi * square(self.r)

    def name(self):
        return "circle"

class Square:
    def name(self): ...

"""


def text_of(document: Document, hole: Hole) -> str:
    return document.decode(hole.start_byte, hole.end_byte)


@pytest.mark.parametrize(
    ("line", "column", "name"),
    [
        (6, 1, "Circle.area"),
        (7, 1, "Circle.area"),
        (8, 19, "Circle.area"),
        (9, 1, "Circle.area.square"),
        (10, 25, "Circle.area.square"),
        (11, 1, "Circle.area"),
        (11, 40, "Circle.area"),
        (13, 5, "Circle.name"),
        (17, 1, "Square.name"),
    ],
)
def test_the_innermost_function_at_a_position(line: int, column: int, name: str) -> None:
    document = Document(SHAPES.encode(), "python")
    assert body_at(document, document.offset_at(line, column)).name == name


def test_outside_of_functions_placeholders_and_blank_lines_are_holes() -> None:
    document = Document(SHAPES.encode(), "python")
    assert text_of(document, body_at(document, document.offset_at(4, 1))) == "..."
    blank = body_at(document, document.offset_at(2, 1))
    assert (blank.start_byte, blank.end_byte, blank.kind) == (12, 12, "line")
    with pytest.raises(MidfillError, match="line 3 .* is in no function") as caught:
        body_at(document, document.offset_at(3, 1))
    assert caught.value.code == "no_hole"


def test_a_document_without_a_language_has_ranges_but_no_functions() -> None:
    document = Document(b"one two three\n")
    assert text_of(document, hole_at_range(document, document.offset_at(1, 5), document.offset_at(1, 8))) == "two"
    for find in (lambda: body_at(document, 0), lambda: body_named(document, "f"), lambda: find_stubs(document)):
        with pytest.raises(MidfillError) as caught:
            find()
        assert caught.value.code == "unknown_language"


@pytest.mark.parametrize("name", ["area", "Circle.area", "Circle::area", "area()", "Circle.area.square", "Square.name"])
def test_functions_by_name(name: str) -> None:
    hole = body_named(Document(SHAPES.encode(), "python"), name)
    assert (hole.name or "").endswith(name.replace("::", ".").removesuffix("()"))


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("name", "ambiguous_function", "Circle.name in line 13, Square.name in line 17"),
        ("aera", "no_function", "did you mean area"),
        ("zzz", "no_function", "it has Circle.area"),
        ("", "no_function", "no function ''"),
    ],
)
def test_names_that_do_not_lead_to_one_function(name: str, code: str, says: str) -> None:
    with pytest.raises(MidfillError, match=says) as caught:
        body_named(Document(SHAPES.encode(), "python"), name)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("language", "source", "name", "text"),
    [
        ("go", "package p\nfunc (s *Set[T]) Add(x T) {\n\ts.x = x\n}\n", "Set.Add", "s.x = x"),
        ("rust", "impl<T> Set<T> {\n    fn add(&self) {\n        1\n    }\n}\n", "Set.add", "1"),
        ("cpp", "void ns::Set::add() {\n  x();\n}\n", "Set::add", "x();"),
        ("javascript", "Set.prototype.add = function () {\n  x();\n};\n", "add", "x();"),
        ("typescript", "class Set {\n  #add = () => {\n    x();\n  };\n}\n", "Set.add", "x();"),
        ("java", "class Set {\n  void add() {\n    x();\n  }\n}\n", "Set.add", "x();"),
        ("c", "char **add(void) {\n  x();\n}\n", "add", "x();"),
    ],
)
def test_functions_of_other_languages_are_found_by_name(language: str, source: str, name: str, text: str) -> None:
    document = Document(source.encode(), language)
    assert text_of(document, body_named(document, name)) == text


@pytest.mark.parametrize(
    ("language", "source", "lead", "tail", "indent"),
    [
        ("python", "def f():", "\n    ", "", "    "),
        ("python", "class A:\n\tdef f(self): ...\n", "\n\t\t", "", "\t\t"),
        ("python", 'def f(): "doc"\n', '\n    "doc"\n    ', "", "    "),
        ("javascript", "function f() {}\n", "\n  ", "\n", "  "),
        ("rust", "impl A {\n    fn f() { todo!() }\n}\n", "\n        ", "\n    ", "        "),
        ("c", "void f(void)\n{\n}\n", "\n    ", "\n", "    "),
        ("java", "class A {\n  void f() {\n    x(); }\n}\n", "", "\n  ", "    "),
        ("javascript", "const f = (x) => x;\n", "", "", ""),
    ],
)
def test_lead_and_tail_open_a_body_up_into_lines(language: str, source: str, lead: str, tail: str, indent: str) -> None:
    document = Document(source.encode(), language)
    hole = body_named(document, "f")
    assert (hole.lead, hole.tail, hole.indent) == (lead, tail, indent)


def test_selections_lose_the_white_space_at_their_ends() -> None:
    document = Document(b"if x:\n    a = 1\n    b = 2\n\nc = 3\n", "python")
    hole = hole_at_range(document, document.offset_at(2, 1), document.offset_at(4, 1))
    assert (text_of(document, hole), hole.indent) == ("a = 1\n    b = 2", "    ")
    assert text_of(document, hole_at_range(document, 10, 13)) == "a ="
    assert hole_at_range(document, 9, 10).kind == "cursor"


def test_positions_are_code_points_and_the_end_is_exclusive() -> None:
    document = Document("\ufeffé = '😀' + x\n".encode(), "python")
    assert text_of(document, hole_at_range(document, document.offset_at(1, 5), document.offset_at(1, 8))) == "'😀'"


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_byte_order_mark_belongs_to_no_line(mark: str) -> None:
    first = len(mark.encode())
    blank = body_at(Document(f"{mark}\nx = 1\n".encode(), "python"), first)
    assert (blank.start_byte, blank.end_byte, blank.kind) == (first, first, "line")
    indented = hole_at_cursor(Document(f"{mark}    x = 1\n".encode(), "c"), first + 5)
    assert indented.indent == "    "


def test_a_cursor_is_a_hole_of_its_line_or_of_no_width() -> None:
    document = Document(b"def f():\n    x = 1\n\n    y = foo()\n  \n", "python")
    blank = hole_at_cursor(document, document.offset_at(3, 1))
    assert (blank.kind, blank.lead, blank.indent) == ("line", "", "    ")
    inside = hole_at_cursor(document, document.offset_at(4, 13))
    assert (inside.start_byte, inside.end_byte, inside.lead, inside.indent) == (32, 32, "", "    ")
    typed = hole_at_cursor(document, document.offset_at(5, 2))
    assert text_of(document, typed) == " "
    assert (typed.lead, typed.indent) == ("", " ")


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (0, 99), (3, 1)])
def test_ranges_outside_of_the_document_are_refused(start: int, end: int) -> None:
    with pytest.raises(MidfillError) as caught:
        hole_at_range(Document(b"abc def"), start, end)
    assert caught.value.code == "position_outside"


def test_holes_are_sorted_and_must_not_overlap() -> None:
    document = Document(b"abc def")
    first, second = Hole(0, 3), Hole(3, 7)
    assert sort_holes(document, [second, first]) == (first, second)
    for other in (Hole(2, 5), Hole(0, 0), Hole(0, 3)):
        with pytest.raises(MidfillError) as caught:
            sort_holes(document, [first, other])
        assert caught.value.code == "overlapping_holes"


def test_a_latin1_file_has_its_holes_at_raw_bytes() -> None:
    source = "# coding: latin-1\nname = 'äöü'\ndef f():\n    '''ä'''\n    ...\n"
    document = Document(source.encode("latin-1"), "python")
    (hole,) = find_stubs(document)
    assert document.data[hole.start_byte : hole.end_byte] == b"..."


def test_declarations_hold_no_stubs() -> None:
    assert find_stubs(Document(b"def f(): ...\n", "python", Path("a.pyi"))) == ()
    assert len(find_stubs(Document(b"def f(): ...\n", "python", Path("a.py")))) == 1


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("javascript", "class A { () {} }\n"),
        ("javascript", "const api = {\n  : function () {},\n};\n"),
        ("typescript", "const api = { : () => {} };\n"),
        ("java", "class A { void () {} }\n"),
        ("cpp", "void ::() {}\n"),
    ],
)
def test_a_name_that_is_still_to_be_typed(language: str, source: str) -> None:
    document = Document(source.encode(), language)
    find_stubs(document)
    assert body_at(document, source.index("{}") + 1).start_byte == source.index("{}") + 1


@pytest.mark.parametrize("before", ["x = 1 +\n", "x = [1,\n\n", "x a\n", "def a(b:\n    ...\n\n", "except\n"])
def test_an_async_function_behind_an_error_is_one(before: str) -> None:
    document = Document(f"{before}async def fetch(url):\n    ...\n".encode(), "python")
    hole = body_named(document, "fetch")
    assert text_of(document, hole) == "..."
    assert sort_holes(document, find_stubs(document))[-1] == hole
    without_body = Document(f"{before}async def fetch(url):\n".encode(), "python")
    (stub,) = [hole for hole in find_stubs(without_body) if hole.name == "fetch"]
    assert sort_holes(without_body, find_stubs(without_body))[-1] == stub


def test_functions_that_never_end_are_read_at_once() -> None:
    start_s = time.process_time()
    assert find_stubs(Document(b"function f(a) {\n  g(a);\n" * 2000, "javascript")) == ()
    assert time.process_time() - start_s < 1.5


@pytest.mark.parametrize("end", ["", "def broken(:\n    x = (\n"])
def test_stubs_of_twice_the_lines_take_twice_the_work(end: str, record_calls: Callable[..., list[Any]]) -> None:
    parses, num_calls = record_calls(Language, "parse"), 0

    def count(*_: object) -> None:
        nonlocal num_calls
        num_calls += 1

    block = """class C:
    def a(self, x):
        '''Doc.'''
        if x:
            return f(x)

        return x

    def b(self):
        ...
"""
    calls: dict[int, int] = {}
    for num_blocks in (5, 100, 200):  # what is done once is done with the first
        document = Document((block * num_blocks + end).encode(), "python")
        parses.clear()
        num_calls = 0
        sys.setprofile(count)
        try:
            stubs = find_stubs(document)
        finally:
            sys.setprofile(None)
        assert len(stubs) == num_blocks
        assert sum(len(source) for _, source, *_ in parses) < 2 * len(document.data)
        calls[num_blocks] = num_calls
    assert calls[200] < 2.2 * calls[100]


LEVELS = [
    ("def f(x):\n    if x:\n", "    return 1\n", 8),  # a block needs something in it
    ("def f(x):\n    if x:\n", "        y = 1\n    return 1\n", 8),
    ("def f(x):\n", "        return 2\n    else:\n        return 3\n", 4),  # what opens the block is missing
    ("def f(x):\n    for y in x:\n        if y:\n            n = 1\n", "          pass\n    return n\n", 8),
    ("def f(x):\n    for y in x:\n        n += y\n", "    return n\n", 8),
    ("def f(x):\n    y = 1\n", "        return n\n", 4),
    ("f(\n", "        y,\n)\n", 8),
    ("def f(x):\n    return 1\n\n\n", "y = 2\n", 0),
    ("", "y = 2\n", 0),
]


@pytest.mark.parametrize(("before", "after", "columns"), LEVELS)
def test_a_blank_line_expects_the_indent_of_what_is_missing_there(before: str, after: str, columns: int) -> None:
    hole = hole_at_cursor(Document(f"{before}\n{after}".encode(), "python"), len(before))
    assert (len(hole.indent), hole.lead) == (columns, "")


def test_a_blank_line_between_braces_is_inside_of_them() -> None:
    hole = hole_at_cursor(Document(b"function f() {\n\n}\n\nfunction g() {\n  a();\n}\n", "javascript"), 15)
    assert hole.indent == "  "


@pytest.mark.parametrize(
    ("before", "after", "columns"),
    [
        ("  <ul>\n", "  </ul>\n", 4),
        ("  <ul\n    id={1}\n  >\n", "  </ul>\n", 4),
        ("  <b>x</b>\n", "  </ul>\n", 2),
        ("  <img />\n", "  </ul>\n", 2),
        ("  <ul>\n", "  <b>x</b>\n", 2),
    ],
)
def test_a_blank_line_between_tags_is_inside_of_them(before: str, after: str, columns: int) -> None:
    document = Document(f"const A = () => (\n{before}\n{after});\n".encode(), "tsx")
    assert len(hole_at_cursor(document, 18 + len(before)).indent) == columns


def test_a_blank_line_among_code_is_a_hole_of_its_own() -> None:
    source = b"def f(a):\n    b = a\n\n    return b\n\ndef g():\n    \n    ...\n\ndef h():\n    \n"
    document = Document(source, "python")
    blank = hole_at_place(document, document.offset_at(3, 1))
    assert (blank.kind, blank.start_byte, blank.end_byte, blank.indent) == ("line", 20, 20, "    ")
    assert hole_at_place(document, document.offset_at(3, 1), 0).kind == "line"
    assert hole_at_place(document, document.offset_at(2, 5)).kind == "body"
    assert hole_at_place(document, document.offset_at(7, 5)).kind == "stub", "nothing is written around it yet"
    assert hole_at_place(document, document.offset_at(11, 5)).kind == "stub"
    inner = Document(b"function f() {\n  const g = () => {\n    a();\n\n  };\n}\n", "javascript")
    assert hole_at_place(inner, inner.offset_at(4, 1)).kind == "line"
    assert hole_at_place(inner, inner.offset_at(4, 1), 1).name == "f", "who asks for the function around gets it"


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        ("total = 1", True),
        ("1", True),
        ("    total = 1\n", True),
        ("# the sum", False),
        ("pass", False),
        ("total = 1\n    # the sum", False),
        ("\n", False),
    ],
)
def test_one_line_takes_the_place_of_a_line_of_code(selected: str, expected: bool) -> None:
    source = "def f():\n    total = 1\n    # the sum\n    pass\n\n\nx = 1\n"
    start = source.index(selected)
    document = Document(source.encode(), "python")
    assert is_line_of_code(document, hole_at_range(document, start, start + len(selected))) is expected


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        ("let total = 1", True),
        ("// the sum", False),
        ('throw new Error("not implemented")', False),
        ("return total", True),
    ],
)
@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_a_line_of_code_is_known_in_javascript_too(selected: str, expected: bool, line_break: str) -> None:
    lines = "function f() {", "  let total = 1", "  // the sum", "  return total", "}", "function g() {"
    source = line_break.join((*lines, '  throw new Error("not implemented")', "}", ""))
    document = Document(source.encode(), "javascript")
    start = source.index(selected)
    hole = hole_at_range(document, start, start + len(selected + line_break))
    assert is_line_of_code(document, hole) is expected


UNCLOSED_PYTHON = """class A(
    def one(self):
        return 1

    def two(self):
        ...
"""
UNCLOSED_JAVASCRIPT = """function one() {
  call(1,
}

async function two(a) {
  // TODO
}
"""
UNCLOSED_OBJECT = "const x = {\n  a: 1\n  b: 2\n\nexport default function two(a) {\n}\n"
UNCLOSED_TYPE = "interface X {\n  a:\n\nfunction two(a: string): void {\n}\n"
UNCLOSED_GO = """package x

func one() {
\tif x {
\t\ty()
}

func (a *A) two(b int) int {
\tpanic("TODO")
}
"""
UNCLOSED_RUST = """struct B<T> {
    one: T,

impl<T> A for B<T> {
    pub(crate) fn two(&self) {
        todo!()
    }
}
"""


@pytest.mark.parametrize(
    ("language", "source", "name", "old"),
    [
        ("python", UNCLOSED_PYTHON, "A.two", "..."),
        ("javascript", UNCLOSED_JAVASCRIPT, "two", "// TODO"),
        ("javascript", UNCLOSED_OBJECT, "two", "\n"),
        ("typescript", UNCLOSED_TYPE, "two", "\n"),
        ("go", UNCLOSED_GO, "A.two", 'panic("TODO")'),
        ("rust", UNCLOSED_RUST, "B.two", "todo!()"),
    ],
)
def test_a_function_below_a_syntax_error_has_its_name(language: str, source: str, name: str, old: str) -> None:
    document = Document(source.encode(), language)
    hole = body_named(document, name)
    assert document.visible_text(hole.start_byte, hole.end_byte) == old
    at_place = hole_at_place(document, source.index(" two"))
    assert (at_place.start_byte, at_place.end_byte) == (hole.start_byte, hole.end_byte)
    assert hole in find_stubs(document)


@pytest.mark.parametrize("source", ["class A:\n    def one(self): ...\n\ndef two(): ...\nx = (\n"])
def test_a_syntax_error_gives_no_class_a_function_of_its_file(source: str) -> None:
    with pytest.raises(MidfillError, match=r"has no function 'A\.two'"):
        body_named(Document(source.encode(), "python"), "A.two")


@pytest.mark.parametrize("name", ["Stack::push", "q.Stack.push", "Stack<T>::push", "push"])
def test_a_method_of_a_template_needs_no_arguments_in_its_name(name: str) -> None:
    source = "namespace q {\ntemplate <class T>\nvoid Stack<T>::push(T item) {\n}\n}\n"
    assert body_named(Document(source.encode(), "cpp"), name).name == "q.Stack<T>.push"
    other = "bool A::operator<=>(A a) {\n}\nbool A::operator<(A a) {\n}\n"
    assert body_named(Document(other.encode(), "cpp"), "A::operator<").name == "A.operator<"
