"""Requests fit the engine's schema, whatever the documents, the related files and the holes are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.infill.fake_engines import Recorder, read_again

from midfill_engine import wire
from midfill_infill.context.excerpts import find_excerpts
from midfill_infill.context.references import Reference
from midfill_infill.context.requests import build_hole, build_request, clean_text
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Options, fill
from midfill_infill.filling.reroll import put_drafts
from midfill_infill.syntax.holes import find_stubs, hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

LANGUAGES = ("python", "javascript", "go", "rust", "java", "c", "cpp", None)
LONG = "name_" * 60
ODD = "\ud800é😀\ufffd\x01\u202e"
INDENTS = ["\n", "\n    ", "\n" + " " * 300, "\n" + "\t" * 300, "\r\n", " "]
LINES = [
    f"\ndef g(foo):\n    print('{ODD}', total)\n", "def f(foo): pass\n", "import total\n", "function g(foo) {}\n",
    "return foo", "int h(int foo) { }\n", "foo,\n" * 40, "x" * 20_000,
]  # fmt: skip
TOKENS = ["foo", "total", LONG, ODD, *INDENTS, *LINES, "(", ")", ",", ":", "=", "{", "}", ";", "pass", '"""', "#"]
STUBS = {"python": "\n\ndef total(foo):\n    ...\n", "c": "\n\nint total(int foo) {\n}\n"}
SOURCES = st.lists(st.sampled_from(TOKENS), max_size=30).map("".join)


def ask(document: Document, holes: tuple[Hole, ...], texts: list[str], text: str = "pass") -> wire.InfillRequest:
    """The first request of a fill with `texts` as related files."""
    engine = Recorder(text)
    options = Options(references=tuple(Reference("open", text) for text in texts))
    list(fill(document, holes, options, engine))  # type: ignore[arg-type]
    return engine.requests[0]


def find_hole(source: str, language: str) -> tuple[Document, tuple[Hole, ...]]:
    document = Document.from_text(source, language)
    return document, find_stubs(document)


def test_more_similar_files_than_a_request_holds() -> None:
    document, holes = find_hole("from parts import sum\n\n\ndef total(n): pass\n", "python")
    request = ask(document, holes, [f"def part{number}(n): return sum(n)\n" for number in range(17)])
    assert len(request.excerpts) == wire.MAX_EXCERPTS
    source = "int sum(int n);\n\nint total(int n) {\n}\n"
    document = Document.from_text(source, "c")
    texts = [f"int part{number}(int n) {{ return sum(n); }}\nint total_{number};" for number in range(40)]
    assert len(ask(document, find_stubs(document), texts).excerpts) == wire.MAX_EXCERPTS


@pytest.mark.parametrize(
    ("language", "start", "rows", "stub"),
    [
        ("python", "x = [", "foo,\n" * 1200 + "]", "# foo\ndef f(foo): pass\n"),
        ("javascript", "x = [", "foo,\n" * 1200 + "]", "// foo\nfunction f(foo) {\n}\n"),
        ("go", "var x = []int{", "foo,\n" * 1200 + "}", "// foo\nfunc f(foo int) {\n}\n"),
    ],
)
def test_one_list_of_short_lines(language: str, start: str, rows: str, stub: str) -> None:
    document, holes = find_hole(f"{start}\n{rows}\n\n\n{stub}", language)
    assert len(ask(document, holes, []).excerpts) == wire.MAX_EXCERPTS


def test_the_best_excerpts_stay_where_there_are_too_many() -> None:
    texts = [f"part{number}\n" for number in range(30)] + ["parse_invoice(total_price, currency)\n"]
    shown = "\n".join(f"part{number}" for number in range(30)) + "\nparse_invoice(total_price, currency)\n"
    found = [each.text for each in find_excerpts([shown[-400:], "\n"], texts)]
    assert len(found) == wire.MAX_EXCERPTS and texts[-1].strip() in found


@pytest.mark.parametrize("language", ["python", "javascript", "c"])
def test_an_indentation_that_is_wider_than_a_request_holds(language: str) -> None:
    document = Document.from_text("x = 1\n" + " " * 300 + "y = 1\n" + " " * 300 + "z = 1\n", language)
    hole = hole_at_range(document, 306, 306 + 5 + 301 + 5)
    (spec,) = [segment.hole for segment in ask(document, (hole,), []).segments if isinstance(segment, wire.HoleSegment)]
    assert spec.indent == " " * wire.MAX_INDENT_CHARACTERS


def test_text_of_an_editor_that_no_request_can_hold() -> None:
    """Lone surrogates arrive in JSON, in the document as well as in another open file."""
    document, holes = find_hole('def a():\n    print("\ud800")\n\n\ndef b():\n    ...\n', "python")
    request = ask(document, holes, ['def c():\n    print("\udfff")\n    print("\udfff", b)\n' * 3])
    assert "\ufffd" in request.model_dump_json()


def test_anchors_of_a_client_that_overlap_or_are_empty() -> None:
    document = Document.from_text("x = one + two\n", "python")
    keep = [(4, 7), (0, 5), (2, 2), (7, 9), (9, 13)]
    drafted, holes = put_drafts(document, [hole_at_range(document, 0, 13)], [(None, keep)])
    assert [(anchor.start_byte, anchor.end_byte) for anchor in holes[0].anchors] == [(0, 5), (5, 7), (7, 9), (9, 13)]
    ask(drafted, holes, [], text="x = one + two")


def test_a_model_that_cannot_be_named_is_refused_in_a_sentence() -> None:
    document, holes = find_hole("def f():\n    ...\n", "python")
    for name in ("m" * 600, "m\udcff"):
        with pytest.raises(MidfillError, match="a model's name"):
            list(fill(document, holes, Options(model=name), Recorder()))  # type: ignore[arg-type]


def test_a_fault_of_the_schema_quotes_no_value() -> None:
    with pytest.raises(ValidationError) as caught:
        wire.InfillRequest(segments=[], excerpts=["secret_code()"] * 17)
    assert "secret_code" not in str(caught.value)


@st.composite
def _holes(draw: st.DrawFn, document: Document) -> tuple[Hole, ...]:
    holes = list(find_stubs(document))[:3] if document.language else []
    for share in draw(st.lists(st.floats(0, 1), max_size=3)):
        start = int(share * len(document.data))
        hole = hole_at_range(document, start, min(start + draw(st.integers(0, 30)), len(document.data)))
        if all(other.end_byte < hole.start_byte or hole.end_byte < other.start_byte for other in holes):
            holes.append(hole)
    return tuple(sorted(holes, key=lambda hole: hole.start_byte))


@settings(max_examples=150)
@given(st.data(), st.sampled_from(LANGUAGES), SOURCES, st.lists(SOURCES, max_size=20))
def test_every_request_of_a_fill_fits(data: st.DataObject, language: str | None, source: str, texts: list[str]) -> None:
    document = Document.from_text(source + data.draw(st.sampled_from(["", *STUBS.values()])), language)
    holes = data.draw(_holes(document))
    if not holes:
        return
    if data.draw(st.booleans()):
        keep = data.draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3))
        document, holes = put_drafts(document, holes, [(data.draw(SOURCES) + " " * 10, keep) for _ in holes])
    options = Options(
        seed=data.draw(st.sampled_from([0, 1, 2**63])),
        n=data.draw(st.integers(1, 8)),
        max_tokens=data.draw(st.sampled_from([None, 1, 1024])),
        min_tokens=data.draw(st.sampled_from([0, 8])),
        single_line=data.draw(st.booleans()),
        intent=data.draw(st.sampled_from(["", ODD])),
        references=tuple(Reference("open", text) for text in texts),
    )
    try:
        list(fill(document, holes, options, Recorder(data.draw(st.sampled_from(["pass", "", "x)", "\n" * 9])))))  # type: ignore[arg-type]
    except MidfillError as error:
        assert error.code in ("hole_too_large", "engine_error", "file_encoding", "overlapping_holes"), error


TEXTS = st.sampled_from(["", "x", ODD, "y" * 16384, "z" * 16385, " " * 300])


@settings(max_examples=200)
@given(
    st.lists(st.tuples(TEXTS, st.floats(0, 1)), max_size=80),
    st.lists(TEXTS, max_size=20),
    st.lists(TEXTS, max_size=40),
    st.integers(0, 2**65),
    st.integers(1, 1100),
)
def test_every_part_of_a_request_is_bounded(
    candidates: list[tuple[str, float]], names: list[str], excerpts: list[str], seed: int, times: int
) -> None:
    try:
        hole = build_hole(candidates=candidates, names=names, unused=names, indent="\t" * (seed % 400))
        segments = [wire.TextSegment(text=clean_text(ODD)), wire.HoleSegment(hole=hole)]
        request = build_request(segments * (times if times % 9 else 1), model=None, seed=seed, excerpts=excerpts)
    except MidfillError as error:
        assert error.code == "hole_too_large" and "z" * 10 not in error.sentence
    else:
        assert read_again(request).segments == request.segments
