"""What a fill writes into a file that is not UTF-8: its own bytes stay, text comes in its encoding or not at all."""

import codecs
import encodings.aliases
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.infill.fake_engines import Recorder

from midfill_engine import wire
from midfill_infill.context.references import Reference, show_text
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Filled, Options, fill, propose_fill
from midfill_infill.proposals import PROPOSERS, Surroundings, propose
from midfill_infill.refactor.writing.imports import put_in
from midfill_infill.repeats.repeat import find_repeats
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import body_named, find_stubs, hole_at_cursor
from midfill_infill.text.document import Document
from midfill_infill.text.encoding import decode, find_encoding
from midfill_infill.text.spans import Hole

GROESSE = "Größe".encode("latin-1")
REPLACEMENT = "\ufffd".encode()
# In each language two functions say the same in Latin-1, and the third is to be filled.
SOURCES = {
    "c": (b'void %s(int n) {\n    printf("%%s: %%d", n);\n    count(n);\n}\n\n', b"void c(int n) {\n}\n"),
    "python": (b'def %s(n):\n    print("%%s: %%d", n)\n    count(n)\n\n\n', b"def c(n):\n    ...\n"),
    "javascript": (b'function %s(n) {\n    print("%%s: %%d", n);\n    count(n);\n}\n\n', b"function c(n) {\n}\n"),
    "go": (b'func %s(n int) {\n\tfmt.Printf("%%s: %%d", n)\n\tcount(n)\n}\n\n', b"func c(n int) {\n}\n"),
    "java": (
        b'class %s {\n    void a(int n) {\n        say("%%s: %%d", n);\n        count(n);\n    }\n}\n',
        b"class C {\n    void c(int n) {\n    }\n}\n",
    ),
}


def make(language: str, word: bytes = GROESSE) -> Document:
    known, stub = SOURCES[language]
    return Document(b"".join(known % name for name in (b"a", b"b")).replace(b"%s", word) + stub, language)


def run(document: Document, text: str, references: Sequence[str] = ()) -> tuple[Filled, wire.InfillRequest]:
    """The fill of all stubs by an engine that answers `text`, and the first request."""
    engine, options = Recorder(text), Options(references=tuple(Reference("open", each) for each in references))
    filled = list(fill(document, find_stubs(document), options, engine))[-1]  # type: ignore[arg-type]
    assert isinstance(filled, Filled)
    return filled, engine.requests[0]


def list_proposals(document: Document, references: Sequence[str] = ()) -> list[str]:
    holes, found = find_stubs(document), []
    line = hole_at_cursor(document, document.data.index(b"    count(n)") if b"    count(n)" in document.data else 0)
    for each in ((hole,) for hole in (*holes, line)):
        around = Surroundings(document, each, [Reference("open", text) for text in references])
        found += [proposal.text for proposal in propose(PROPOSERS, around, 0)]
    return found


@pytest.mark.parametrize("language", SOURCES)
def test_lines_with_undecodable_bytes_are_not_proposed(language: str) -> None:
    readable = list_proposals(make(language, b"Size"))
    assert any("Size" in text for text in readable)
    found = list_proposals(make(language))
    assert found and not [text for text in found if "Gr" in text]
    assert not [text for text in found if "\ufffd" in text or "\x1a" in text or "\udcf6" in text]


@pytest.mark.parametrize("language", SOURCES)
def test_text_of_the_engine_is_ascii_or_refused(language: str) -> None:
    document = make(language)
    for text in ('say("Gr\ufffd\ufffde")', 'say("Größe")', "say('日本')"):
        with pytest.raises(
            MidfillError, match="the fill holds U\\+.*is not valid UTF-8; save the file as UTF-8"
        ) as caught:
            run(document, text)
        assert caught.value.code == "file_encoding"
    filled, _ = run(document, "count(n)")
    assert (
        filled.patch.apply(document.data).count(GROESSE) == 2 and REPLACEMENT not in filled.patch.edits[0].replacement
    )


@pytest.mark.parametrize("language", SOURCES)
def test_a_file_in_another_encoding_gives_nothing_of_it_to_others(language: str) -> None:
    other = make(language)
    text = show_text(other.data, other.path) if other.path else other.normalized_text(0, len(other.data))
    assert text is not None and "count(n)" in text
    known, stub = SOURCES[language]
    document = Document(stub.replace(b"c(", b"count_all("), language)
    found = list_proposals(document, [text])
    assert not [each for each in found if "Gr" in each or "\ufffd" in each or "\x1a" in each]
    source = b"// count n\n" if language != "python" else b"# count n\n"
    _, request = run(Document(source + document.data, language), "count(n)", [text])
    assert request.excerpts and "\ufffd" not in request.model_dump_json()


def test_a_replacement_character_of_a_valid_file_is_text_like_any_other() -> None:
    document = Document("def a(s):\n    return s.replace('\ufffd', '')\n\n\ndef b(s):\n    ...\n".encode(), "python")
    filled, _ = run(document, "return s.replace('\ufffd', '')")
    assert filled.patch.apply(document.data).count(REPLACEMENT) == 2
    assert any("\ufffd" in text for text in list_proposals(document))


def test_a_docstring_on_the_headers_line_keeps_its_bytes() -> None:
    for behind in (b"", b"; pass", b"  # note"):
        document = Document(b'def f(): "Gr\xf6\xdfe"' + behind + b"\nx = 1\n", "python")
        (hole,) = find_stubs(document) or (body_named(document, "f"),)
        after = splice(document, [hole], ["return 1"]).patch.apply(document.data)
        assert after.startswith(b'def f(): "Gr\xf6\xdfe"') and after.endswith(b"\nx = 1\n") and b"return 1" in after
    document = Document('# coding: latin-1\ndef f(): "Größe"\n'.encode("latin-1"), "python")
    after = splice(document, [body_named(document, "f")], ["return 1"]).patch.apply(document.data)
    assert after.decode("latin-1").endswith('def f():\n    "Größe"\n    return 1\n')


def test_imports_come_in_the_files_encoding_or_not_at_all() -> None:
    document = Document(b"# coding: latin-1\nimport os\n", "python")
    edit = put_in(document, "import größe")
    assert edit is not None and edit.replacement.strip() == "import größe".encode("latin-1")
    assert put_in(document, "import 日本") is None
    assert put_in(Document(b"import os\nx = '\xf6'\n", "python"), "import größe") is None


def test_an_edit_with_a_lone_surrogate_is_not_repeated() -> None:
    lines = [f"print(name_{number})\n" for number in range(4)]
    before = Document.from_text("".join(lines), "python")
    after = Document.from_text("".join(['print("\ud800", name_0)\n', *lines[1:]]), "python")
    assert not [each for each in find_repeats(before, after) if b"\x1a" in each.edit.replacement]


CODECS = sorted({*encodings.aliases.aliases.values(), "utf_8_sig", "idna", "punycode", "unicode_escape", "johab"})
BOMS = {
    "utf_8_sig": codecs.BOM_UTF8, "utf_16": codecs.BOM_UTF16, "utf_16_le": codecs.BOM_UTF16_LE,
    "utf_16_be": codecs.BOM_UTF16_BE, "utf_32_le": codecs.BOM_UTF32_LE, "utf_32_be": codecs.BOM_UTF32_BE,
}  # fmt: skip
WORDS = ("Größe", "размер", "日本", "大小", "크기", "ε", "abc")
ANSWERS = (
    "return 1",
    "return 'ß'",
    "return '日本'",
    "return '\ufffd'",
    "return 'a+b~c\\\\'",
    "return '¥'",
    "return 'я'",
)


def encode_source(name: str, cookie: bool) -> bytes | None:
    """A source in a codec with words of its own; None if the codec holds no such text."""
    for word in WORDS:
        text = f"# coding: {name}\n" * cookie + f"def a():\n    return '{word}'\n\n\ndef b():\n    ...\n"
        try:
            return text.encode(name)
        except (LookupError, ValueError):
            continue
    return None


@pytest.mark.parametrize("language", ["python", "c", None])
@pytest.mark.parametrize("cookie", [True, False], ids=["cookie", "no cookie"])
@pytest.mark.parametrize("name", CODECS)
def test_every_encoding_is_written_or_refused(name: str, cookie: bool, language: str | None) -> None:
    data = encode_source(name, cookie)
    sources = [] if data is None else [data, BOMS.get(name, b"") + data, data.replace(b"\n", b"\r\n")]
    for source in sources:
        try:
            document = Document(source, language)
        except MidfillError as error:
            assert error.code == "file_binary" and (b"\0" in source or source.startswith(tuple(BOMS.values())))
            continue
        start = source.rfind(b"...") if b"..." in source else 0
        hole = Hole(start, start + 3 * (b"..." in source), indent="    ")
        for answer in ANSWERS:
            check_written(document, hole, answer, name if cookie and language == "python" else None)


def check_written(document: Document, hole: Hole, answer: str, declared: str | None) -> None:
    try:
        (edit,) = splice(document, [hole], [answer]).patch.edits
    except MidfillError as error:
        assert error.code == "file_encoding" and (error.message.count("U+") == 1)
        return
    after = document.data[: edit.start_byte] + edit.replacement + document.data[edit.end_byte :]
    assert after.startswith(document.data[: hole.start_byte]) and after.endswith(document.data[hole.end_byte :])
    assert REPLACEMENT not in edit.replacement or "\ufffd" in answer
    if not answer.isascii():  # the whole file is in one encoding
        assert after.decode(document.encoding).count(answer) == 1
    if declared is not None and document.encoding not in ("utf-8", "ascii"):
        assert answer in after.decode(declared)


@settings(max_examples=600)
@given(
    st.sampled_from(CODECS),
    st.lists(st.sampled_from([b"A", b"\n", b"\x1b", b"~", *map(bytes, [[n] for n in range(128, 256)])]), max_size=12),
)
def test_any_bytes_of_any_encoding_have_places(name: str, parts: list[bytes]) -> None:
    document = Document(b"# coding: " + name.encode() + b"\nx = 1\n" + b"".join(parts), "python")
    assert len(document.source_lines) == document.num_lines
    assert document.to_data(len(document.source)) == len(document.data)
    for byte in range(len(document.data) + 1):
        assert document.to_data(document.to_source(document.snap(byte))) == document.snap(byte)
    assert find_encoding(document.data, has_cookie=True) == document.encoding
    assert decode(document.data, document.encoding) == document.text


def test_a_cookie_whose_ascii_means_something_else() -> None:
    document = Document(b"# coding: utf-7\nx = 1\n", "python")
    hole = Hole(len(document.data) - 2, len(document.data) - 1)
    assert splice(document, [hole], ["2"]).patch.apply(document.data) == b"# coding: utf-7\nx = 2\n"
    with pytest.raises(MidfillError, match=r"U\+002B, which utf-7 lacks"):
        splice(document, [hole], ["a + b"])
    unknown = replace(document, data=b"# coding: no-such\nx = 1\n")
    assert splice(unknown, [Hole(22, 23)], ["a + b"]).patch.apply(unknown.data).endswith(b"x = a + b\n")


def test_nothing_is_proposed_without_an_engine_that_the_file_cannot_hold() -> None:
    document = Document(b"# coding: ascii\ndef a(n):\n    return 'x', n\n\n\ndef b(n):\n    ...\n", "python")
    options = Options(references=(Reference("open", "def c(n):\n    return 'ß', n\n"),))
    found = propose_fill(document, list(find_stubs(document)), options)
    assert found is None or found.patch.apply(document.data).isascii()
