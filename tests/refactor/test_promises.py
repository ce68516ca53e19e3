"""A recipe's promise is checked on the syntax tree before a fill counts as clean."""

from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from tests.refactor.trees import init_git
from tests.refactor.workers import ScriptedWorkers

from midfill_engine.requests.outline import split_draft
from midfill_engine.wire import HoleSegment, InfillRequest
from midfill_infill.refactor.generating import promises
from midfill_infill.refactor.generating.generate import generate
from midfill_infill.refactor.generating.needs import Resolver
from midfill_infill.refactor.generating.promises import (
    find_promise,
    keeps_arm,
    keeps_call,
    keeps_code,
    keeps_functions,
    keeps_signature,
)
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import State
from midfill_infill.refactor.planning.plan import Planning, Request, make_run
from midfill_infill.refactor.planning.selection import Selection
from midfill_infill.repository.roots import find_repository
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit


def edit_of(source: str, old: str, new: str) -> Edit:
    start = len(source[: source.index(old)].encode())
    return Edit(start, start + len(old.encode()), new.encode())


SIGNATURE = "a, /, b: int, *, c=1) -> int:"
CLASS = "class A:\n    pass\n\n\n"


@pytest.mark.parametrize(
    ("old", "new", "breach"),
    [
        (SIGNATURE, "a: A, /, b: int, *, c: int = 1) -> int:", None),
        (SIGNATURE, "a: A, b, c, d, e, /, b: int, *, c: int = 1) -> int:", "more than types"),
        (SIGNATURE, "a: A, x, /, b: int, *, c: int = 1) -> int:", "more than types"),
        (SIGNATURE, "a: A, /, b: int, *, c: int = 2) -> int:", "more than types"),
        (SIGNATURE, "a: A, b: int, *, c: int = 1) -> int:", "more than types"),
        (SIGNATURE, "a: A, /, b: str, *, c: int = 1) -> int:", "a type that was there"),
        (SIGNATURE, "a: A, /, b: int, *, c: int = 1) -> str:", "a type that was there"),
        (SIGNATURE, "a: Nosuch, /, b: int, *, c: Other = 1) -> int:", "nothing defines Nosuch, Other"),
        (SIGNATURE, "a: A, /, b: int, *, c: int = 1) -> int: return 1\ndef g():", "more than types|not one signature"),
        ("self, *xs, **ys):", "self, *xs: int, **ys: str) -> None:", None),
        ("self, *xs, **ys):", "self, *xs: int, y: int = 0, **ys: str) -> None:", "more than types"),
        ("self, *xs, **ys):", "self, xs: int, **ys: str) -> None:", "more than types"),
        ("):", ") -> list[A]:", None),
        ("):", "x) -> list[A]:", "more than types"),
    ],
)
def test_hints_are_types_alone(old: str, new: str, breach: str | None) -> None:
    source = f"{CLASS}def f({old}\n    return 1\n"
    said = keeps_signature(Document(source.encode(), "python"), edit_of(source, f"{old}\n", f"{new}\n"), ())
    assert said is None if breach is None else said is not None and any(each in said for each in breach.split("|"))


def test_a_type_that_an_import_binds_is_defined() -> None:
    source = "def f(p):\n    return 1\n"
    document, edit = Document(source.encode(), "python"), edit_of(source, "p):", "p: Path) -> int:")
    assert keeps_signature(document, edit, ("from pathlib import Path",)) is None
    assert keeps_signature(document, edit, ()) == "nothing defines Path"


HEAD = "from typing import TYPE_CHECKING, Annotated, Literal\n\nif TYPE_CHECKING:\n    from other import Late\n\n"
NO_TYPE = "the fill has an annotation that is not a type"


@pytest.mark.parametrize(
    ("type_", "breach"),
    [
        ("'A'", None),
        ("'Nowhere'", "nothing defines Nowhere"),
        ('"list[Nowhere]"', "nothing defines Nowhere"),
        ("list['Nowhere']", "nothing defines Nowhere"),
        ("\"list['Nowhere']\"", "nothing defines Nowhere"),
        ("'A | Nowhere.B'", "nothing defines Nowhere"),
        ("'int' ' | None'", None),
        ("'Late'", None),
        ("dict[str, 'list[Late]']", None),
        ("Literal['Nowhere']", None),
        ("'Literal[\"Nowhere\"]'", None),
        ("Annotated['A', 'Nowhere']", None),
        ("Annotated['Nowhere', 'A']", "nothing defines Nowhere"),
        ("'not a type'", NO_TYPE),
        ("print(1)", NO_TYPE),
        ("'print(1)'", NO_TYPE),
        ("1", NO_TYPE),
        ("(x := A)", NO_TYPE),
        ("lambda: A", NO_TYPE),
        ("tuple[()]", None),
    ],
)
def test_quoted_types_are_types_and_defined(type_: str, breach: str | None) -> None:
    source = f"{HEAD}{CLASS}def f(p):\n    return 1\n"
    for new in (f"p: {type_}):", f"p) -> {type_}:"):
        assert keeps_signature(Document(source.encode(), "python"), edit_of(source, "p):", new), ()) == breach


@pytest.mark.parametrize(
    ("source", "breach"),
    [
        ("class A:\n    class T: pass\n    def f(self, p):\n        pass\n", None),
        ("class A:\n    class T: pass\ndef f(p):\n    pass\n", "nothing defines T"),
        ("def g():\n    from x import T\n    def f(p):\n        pass\n", None),
        ("def g():\n    from x import T\ndef f(p):\n    pass\n", "nothing defines T"),
        ("def f[T](p):\n    pass\n", None),
        ("def f[U: int, *T](p):\n    pass\n", None),
        ("class A[T]:\n    def f(self, p):\n        pass\n", None),
        ("def g[T](x: list[int]): pass\ndef f(p):\n    pass\n", "nothing defines T"),
        ("type T[U] = list[U]\ndef f(p):\n    pass\n", None),
        ("type U[T] = list[T]\ndef f(p):\n    pass\n", "nothing defines T"),
        ("x: T = 1\ndef f(p):\n    pass\n", "nothing defines T"),
        ("# coding: latin-1\nx = 'é'\ndef f(p):\n    pass\n", "nothing defines T"),
        ("from x import *\ndef f(p):\n    pass\n", None),
    ],
)
@pytest.mark.parametrize("type_", ["T", "'T'", "'list[T]'"])
def test_types_are_defined_where_they_are_written(source: str, breach: str | None, type_: str) -> None:
    data = source.encode("latin-1" if "latin-1" in source else "utf-8")
    start = data.index(b"p):")
    edit = Edit(start, start + 3, f"p: {type_}):".encode())
    assert keeps_signature(Document(data, "python"), edit, ()) == breach


def test_a_quoted_type_brings_its_import(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def f(p):\n    return 1\n")
    document = Document.read(tmp_path / "m.py")
    edit = Edit(6, 9, b"p: 'Path | None') -> 'Nowhere':")
    found = Resolver(tmp_path).find(document, edit)
    assert found == ("from pathlib import Path",)
    assert keeps_signature(document, edit, found) == "nothing defines Nowhere"


@pytest.mark.parametrize(
    ("old", "new", "breach"),
    [
        ("a, *, b=1):", "a: int, b: int = 1):", "the fill changes more than types"),
        ("a, b=1):", "a: int, *, b: int = 1):", "the fill changes more than types"),
        ("a, b=1):", "a: int, /, b: int = 1):", "the fill changes more than types"),
        ("a, b=1):", "a: int, b: int = True):", "the fill changes more than types"),
        ("a, b=1):", "a: int, b: int = 1.0):", "the fill changes more than types"),
        ("a, b=1):", "a: int = 1, b: int = 1):", "the fill changes more than types"),
        ("a, *, b, c=1):", "a: int, *, b: int = 1, c: int = 1):", "the fill changes more than types"),
        ("a,  # one\n    b):", "a: int, b: int):", "the fill changes more than types"),
        ("a, b):", "a: int,  # type: ignore\n    b: int):", "the fill changes more than types"),
        ("a): ", "a) -> int: return 2; ", "the fill is not one signature"),
    ],
)
def test_markers_defaults_and_comments_of_a_signature_stay(old: str, new: str, breach: str) -> None:
    source = f"def f({old}return 1\n" if old.endswith(" ") else f"def f({old}\n    return 1\n"
    assert keeps_signature(Document(source.encode(), "python"), edit_of(source, old, new), ()) == breach


@pytest.mark.parametrize(
    ("new", "is_kept"),
    [
        ('\n    """Says it."""', True),
        ('\n    """Says it."""  # or not', False),
        ('\n    """Says it.""";', False),
        ('\n    b"""Says it."""', False),
        ("\n    1", False),
        ("\n    ...", False),
        ('\n    f"""Says it."""', False),
        ('\n    """Says it.\n\n    And more: ünï.\n    """\n    ', True),
        ('\n    """Says it."""\n    x = 1\n    """"""', False),
        ('\n    """Says it.""" + f""""""', False),
        ('\n    """', False),
        ('\n"""Says it."""', False),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_docstrings_are_docstrings_alone(new: str, is_kept: bool, encoding: str) -> None:
    source = f"# coding: {encoding}\ndef f():\n    return 1\n"
    data = source.encode(encoding)
    start = data.index(b":\n    ret") + 1
    edit = Edit(start, start, new.encode(encoding.removesuffix("-sig")))
    assert (keeps_code(Document(data, "python"), edit, ()) is None) == is_kept


@pytest.mark.parametrize(
    ("language", "source", "old", "kept", "broken"),
    [
        ("python", "def f():\n    return load(1)\n", "load(1)", "read(1, mode=2)", "read(1), x"),
        ("javascript", "const a = load(1);\n", "load(1)", "new Reader(1)", "read(1); b = 2"),
        ("typescript", "const a = load<T>(1);\n", "load<T>(1)", "read<T>(1)", "read(1) as T"),
        ("go", "package p\n\nvar a = load(1)\n", "load(1)", "read(1)", "read(1) + 2"),
        ("rust", "fn f() { load(1); }\n", "load(1)", "io::read(1)", "read(1) + 2"),
        ("java", "class A { int a = load(1); }\n", "load(1)", "reader.read(1)", "1 + read(1)"),
        ("python", "load(1)\n", "load(1)", "read(f(1)(2))", "read(1)(2)"),
        ("typescript", "load?.(1);\n", "load?.(1)", "read?.(1)", "read?.(1)(2)"),
    ],
)
def test_a_fill_of_a_call_that_is_no_single_call_breaks_its_promise(
    language: str, source: str, old: str, kept: str, broken: str
) -> None:
    document = Document(source.encode(), language)
    assert keeps_call(document, edit_of(source, old, kept), ()) is None
    assert keeps_call(document, edit_of(source, old, broken), ()) == "the fill is not a single call"


@pytest.mark.parametrize(
    ("language", "source", "kept", "broken"),
    [
        (
            "python",
            "def f(a):\n    ...\n\n\ndef g():\n    pass\n",
            "return lambda: a",
            "return a\n\ndef h():\n    pass",
        ),
        ("python", "class A:\n    def f(a):\n        ...\n", "return a", "return a\n\n    def h(a):\n        pass"),
        ("javascript", "function f(a) {\n  ...;\n}\nfunction g() {}\n", "return () => a", "return a;\n}\n{"),
        ("go", "package p\n\nfunc f() {\n\t...\n}\n\nfunc g() {\n}\n", "h := func() {}\n\th()", "}\n\nfunc h() {"),
        ("c", "int f(void) {\n    ...;\n}\nint g(void) {\n}\n", "return 1", "return 1;\n}\nint h(void) {"),
    ],
)
def test_bodies_leave_other_functions_alone(language: str, source: str, kept: str, broken: str) -> None:
    document = Document(source.encode(), language)
    assert keeps_functions(document, edit_of(source, "...", kept), ()) is None
    assert (
        keeps_functions(document, edit_of(source, "...", broken), ()) == "the fill ends its function or changes others"
    )


COMMENTS = {
    "go": "package p\n\nfunc f() {\n\t@\n}\n\nfunc g() {\n}\n",
    "javascript": "function f() {\n  @\n}\nfunction g() {}\n",
    "typescript": "class A {\n  f(): number {\n    @\n  }\n}\n",
    "java": "class A {\n  int f() {\n    @\n  }\n  void g() {}\n}\n",
    "c": "int f(void) {\n    @\n}\nint g(void) {\n}\n",
    "cpp": "struct A {\n  int f() {\n    @\n  }\n};\n",
    "rust": "fn f() -> u8 {\n    @\n}\nfn g() {}\n",
    "python": "def f():\n    @\n\n\ndef g():\n    return 1\n",
}


@pytest.mark.parametrize("language", COMMENTS)
@pytest.mark.parametrize("was", ["old();", "// later"])
def test_a_body_that_is_all_comments_is_none(language: str, was: str) -> None:
    sign, code = ("#", "return 1") if language == "python" else ("//", "return 1;")
    source = COMMENTS[language].replace("@", was.replace("//", sign))
    document, old = Document(source.encode(), language), was.replace("//", sign)
    assert keeps_functions(document, edit_of(source, old, code), ()) is None
    assert keeps_functions(document, edit_of(source, old, f"{sign} first\n    {code}"), ()) is None
    for new in (f"{sign} nothing", f"{sign} a\n    {sign} b\n", "" if language == "python" else "/* a */"):
        assert keeps_functions(document, edit_of(source, old, new), ()) is not None


def test_a_comment_may_take_the_place_of_a_comment_beside_code() -> None:
    source = "func f() int {\n\t// TODO: say why\n\treturn 1\n}\n"
    document = Document(source.encode(), "go")
    assert keeps_functions(document, edit_of(source, "// TODO: say why", "// it is one"), ()) is None
    assert keeps_functions(document, edit_of(source, "return 1", "// it is one"), ()) == "the fill is not code"


@pytest.mark.parametrize(
    ("new", "is_kept"),
    [
        ("y()", True),
        ("match y:\n            case 3:\n                z()", True),
        ("if y:\n            z()\n        else:\n            w()", True),
        ("y()\n    case 3:\n        z()", False),
        ("y()\nz()", False),
        ("# y", False),
    ],
)
@pytest.mark.parametrize("rest", ["", "    case 2:\n        x()\n", "w()\n"])
def test_a_fill_of_a_match_arm_has_to_stay_one_arm(new: str, is_kept: bool, rest: str) -> None:
    source = f"match x:\n    case 1:\n        ...\n{rest}"
    assert (keeps_arm(Document(source.encode(), "python"), edit_of(source, "...", new), ()) is None) == is_kept


@pytest.mark.parametrize(
    ("language", "source", "old", "new"),
    [
        ("python", "@cache\ndef f(a, b=1):\n    pass\n", "@cache\n", ""),
        ("python", "class A:\n    @staticmethod\n    def f(a):\n        pass\n", "@staticmethod", "@classmethod"),
        ("python", "async def f(a):\n    pass\n", "async def", "def"),
        ("python", "def f(a, b=1):\n    pass\n", "f(a, b=1)", "f(a, b=2)"),
        ("python", "def f(a, *, b):\n    pass\n", "def f(a, *, b)", "def f(a, b)"),
        ("javascript", "async function f(a) {\n  g();\n}\n", "async function f", "function f"),
        ("rust", "pub fn f(a: u8) {\n    g();\n}\n", "fn f(a: u8)", "fn f(a: u16)"),
        ("java", "class A {\n  static int f(int a) {\n    return 1;\n  }\n}\n", "static int f", "int f"),
    ],
)
def test_a_fill_changes_no_signature(language: str, source: str, old: str, new: str) -> None:
    said = keeps_functions(Document(source.encode(), language), edit_of(source, old, new), ())
    assert said == "the fill ends its function or changes others"


def test_a_broken_body_hides_no_decorator() -> None:
    source = "class A:\n    @dec(1)\n    # why\n    @dec2\n    async def f(self, a=1):\n        if (\n\n"
    source += "    def g(self): pass\n"
    document = Document(source.encode(), "python")
    assert keeps_functions(document, edit_of(source, "if (", "return 1"), ()) is None


def test_a_call_in_a_signature_may_change() -> None:
    source = "@route(load(1))\ndef f(a=load(2)):\n    pass\n"
    document = Document(source.encode(), "python")
    assert keeps_functions(document, edit_of(source, "load(2)", "read(2)"), ()) is None
    assert keeps_functions(document, edit_of(source, "load(1)", "read(1)"), ()) is None


def test_each_recipe_has_its_promise() -> None:
    assert find_promise("add-type-hints") is keeps_signature and find_promise("migrate-call=a:b") is keeps_call
    assert find_promise("migrate-call=a::b") is keeps_functions, "any expression may take the place of a call"
    assert find_promise("fill-match-arms") is keeps_arm
    assert find_promise("add-docstrings") is keeps_code and find_promise(None) is find_promise("fill-todos")


@pytest.mark.parametrize("query", [None, "(function_definition) @fill"])
def test_a_fill_that_breaks_its_promise_is_not_clean(tmp_path: Path, query: str | None) -> None:
    (tmp_path / "m.py").write_text(f"{CLASS}def f(a, b=1):\n    return a\n\n\ndef g(a):\n    return a\n")
    init_git(tmp_path)
    place = find_repository(tmp_path)
    run = make_run(place, Request(Selection(recipe="add-type-hints", query=query)), Planning())
    with Journal(run) as journal:
        types = chain(["A, x"], repeat("A"))

        def write(request: InfillRequest) -> str:
            (hole,) = (segment.hole for segment in request.segments if isinstance(segment, HoleSegment))
            return "".join(text if is_kept else next(types) for text, is_kept in split_draft(hole))

        generate(journal, place.root, ScriptedWorkers(write), jobs=1)
        states = {hole.name: (hole.state, hole.reason) for hole in (*journal.holes_in(*State),)}
    assert states["f"] == (State.FAILED, "the fill changes more than types")
    assert states["g"][0] == State.GENERATED


def test_only_headers_near_the_fill_are_read(record_calls: Callable[..., list[Any]]) -> None:
    source = "".join(f"def f{number}(a):\n    return a\n\n\n" for number in range(40)).replace(
        "return a\n\n\ndef f20", "...\n\n\ndef f20"
    )
    found = record_calls(promises, "find_header_end")
    edit = edit_of(source, "...\n\n\ndef f20", "return 1\n\n\ndef f20")
    assert keeps_functions(Document(source.encode(), "python"), edit, ()) is None and len(found) < 8
