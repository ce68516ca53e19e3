"""The innermost function at a cursor, and those around it; what a header is written in; sources that macros break."""

import os
from pathlib import Path

import pytest

from midfill_infill.errors import MidfillError
from midfill_infill.languages import find_language, get_language
from midfill_infill.languages.language import weigh_errors
from midfill_infill.languages.macros import blank_alternatives, blank_macros
from midfill_infill.syntax.holes import body_at, body_named
from midfill_infill.text.document import Document

GO = """package p

func main() {
	http.HandleFunc("/", func(w W, r *R) {
		w.Write(nil)
	})
	serve()
}
"""
RUST = "fn main() {\n    rows.iter().for_each(|row| {\n        print(row);\n    });\n    done();\n}\n"
JAVA = "class A {\n  void f() {\n    jobs.each(job -> {\n      job.run();\n    });\n    done();\n  }\n}\n"
CPP = "int main() {\n  each(rows, [&](int row) {\n    print(row);\n  });\n  done();\n}\n"
TSX = "const V = () => (\n  <B\n    on={() =>\n      open(1)\n    }\n  />\n);\n"
JS = "describe('a', () => {\n  it('b', () => {\n    check(1);\n  });\n});\n"


def text_at(source: str, language: str, line: int, outer: int = 0, column: int | None = None) -> str:
    document = Document(source.encode(), language)
    content = source.splitlines()[line - 1]
    start = document.offset_at(line, len(content) - len(content.lstrip()) + 1 if column is None else column)
    hole = body_at(document, start, outer)
    return document.decode(hole.start_byte, hole.end_byte).strip()


@pytest.mark.parametrize(
    ("source", "language", "line", "inner", "outer"),
    [
        (GO, "go", 5, "w.Write(nil)", "http.HandleFunc"), (RUST, "rust", 3, "print(row);", "rows.iter()"),
        (JAVA, "java", 4, "job.run();", "jobs.each"), (CPP, "cpp", 3, "print(row);", "each(rows"),
        (TSX, "tsx", 4, "open(1)", "("), (JS, "javascript", 3, "check(1);", "it("),
    ],
)  # fmt: skip
def test_the_innermost_body_is_the_hole_and_outer_widens_it(
    source: str, language: str, line: int, inner: str, outer: str
) -> None:
    assert text_at(source, language, line) == inner
    wider = text_at(source, language, line, outer=1)
    assert wider.startswith(outer) and inner in wider
    with pytest.raises(MidfillError) as caught:
        text_at(source, language, line, outer=9)
    assert caught.value.code == "no_hole" and "--outer" in caught.value.sentence


def test_a_line_stands_for_the_function_that_opens_on_it() -> None:
    assert text_at(GO, "go", 4) == "w.Write(nil)"
    assert text_at(GO, "go", 6) == "w.Write(nil)", "its last line is its own, too"
    assert text_at(GO, "go", 7).startswith("http.HandleFunc")
    assert text_at(GO, "go", 4, column=4).startswith("http.HandleFunc"), "a column before it is not in it"
    assert text_at(JS, "javascript", 2) == "check(1);"
    assert text_at("const twice = (x) => x + x;\n", "javascript", 1) == "x + x"
    assert text_at(
        "f(rows.map((row) => row.id));\nfunction g() {\n  return rows.map((row) => row.id);\n}\n", "javascript", 3
    ).startswith("return")


def test_a_template_line_belongs_to_its_function() -> None:
    assert text_at("template <class T>\nT f(T x) {\n  return x;\n}\n", "cpp", 1) == "return x;"


HEADERS = {
    "class Foo {\n public:\n  int x() { return 1; }\n};\n": "cpp",
    "#include <string>\nstd::string name();\n": "cpp",
    "template <class T> T f(T x) { return x; }\n": "cpp",
    "// a class of C\nstatic inline int f(int class) { return class; }\n": "c",
    '#ifdef __cplusplus\nextern "C" {\n#endif\nint f(void);\n#ifdef __cplusplus\n}\n#endif\n': "c",
    "typedef struct { int new; } node;\nstatic int get(node *n) { return n->new; }\n": "c",
    "": "c",
}


@pytest.mark.parametrize("source", HEADERS)
def test_a_header_is_in_the_language_of_its_words(source: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h"
    path.write_text(source)
    assert Document.read(path).language == HEADERS[source]
    assert Document.read(path, "cpp").language == "cpp", "what is said goes first"
    assert find_language(path) == "c", "without its text"


@pytest.mark.parametrize(
    ("names", "language"),
    [(["a.cpp", "b.c"], "cpp"), (["a.c", "b.cpp"], "c"), (["b.cc"], "cpp"), (["b.cc", "c.c"], "c"), ([], "c")],
)
def test_neighbors_decide_where_a_header_says_nothing(names: list[str], language: str, tmp_path: Path) -> None:
    for name in ["a.h", *names]:
        (tmp_path / name).write_text("int f(int);\n")
    assert Document.read(tmp_path / "a.h").language == language


C23 = "constexpr int size = 3;\nstatic inline int *find(int *items) { return size ? items : nullptr; }\n"


@pytest.mark.parametrize(
    ("names", "source", "language"),
    [
        ([], C23, "cpp"),
        (["a.c"], C23, "c"),
        (["b.c"], C23, "c"),
        (["a.c"], C23 + "namespace n {\n}\n", "cpp"),
        (["b.c", "c.cpp"], C23, "cpp"),
        ([], C23 + "static inline void put(int *restrict to);\n", "c"),
        (["a.cpp"], C23 + "static inline void put(int *restrict to);\n", "cpp"),
    ],
)
def test_words_that_c_has_too_decide_where_sources_do_not(
    names: list[str], source: str, language: str, tmp_path: Path
) -> None:
    for name in ["a.h", *names]:
        (tmp_path / name).write_text(source)
    assert Document.read(tmp_path / "a.h").language == language


@pytest.mark.parametrize(
    ("database", "language"),
    [
        ('[{"file": "../src/store.cc"}, {"file": "../src/main.c"}]', "cpp"),
        ('[{"file": "../src/main.cc"}, {"file": "../src/other.cpp"}]', "cpp"),
        ('[{"file": "../src/main.cc"}, {"file": "../src/other.c"}]', "c"),
        ('[{"file": "../src/store.c"}, {"file": "../src/main.cc"}]', "c"),
        ('[{"file": 3}, 4]', "c"),
        ('{"file": "store.cc"}', "c"),
        ("[" * 100_000, "c"),
    ],
)
def test_what_is_compiled_decides_where_a_folder_has_headers_only(database: str, language: str, tmp_path: Path) -> None:
    header = tmp_path / "repo/include/store.h"
    header.parent.mkdir(parents=True)
    header.write_text("int count(void);\n")
    (tmp_path / "compile_commands.json").write_text('[{"file": "elsewhere.cc"}]')  # beyond the repository
    (tmp_path / "repo/.git").mkdir()
    (tmp_path / "repo/build").mkdir()
    os.mkfifo(tmp_path / "repo/compile_commands.json")
    assert Document.read(header).language == "c"
    (tmp_path / "repo/build/compile_commands.json").write_text(database)
    assert Document.read(header).language == language


def test_an_inline_method_of_a_header_is_no_class(tmp_path: Path) -> None:
    path = tmp_path / "a.h"
    path.write_text("class API Foo : public Bar {\n public:\n  int x() {\n    return 1;\n  }\n};\n")
    document = Document.read(path)
    hole = body_at(document, document.offset_at(4, 5))
    assert document.data[hole.start_byte : hole.end_byte] == b"return 1;"
    assert hole.name == "Foo.x"


BROKEN = b"""NS_BEGIN
class API_EXPORT Foo : public Bar {
 public:
  INLINE int x() const NOEXCEPT { return 1; }
};
#if FAST
int f(int a) { if (a) {
#else
int f(int a) { if (!a) {
#endif
    return 2; }
  return 3;
}
NS_END
"""


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_macros_and_branches_do_not_hide_functions(newline: bytes) -> None:
    source = BROKEN.replace(b"\n", newline)
    document = Document(source, "cpp")
    for name, body in (("Foo.x", b"return 1;"), ("f", b"if (a) {")):
        hole = body_named(document, name)
        assert source[hole.start_byte : hole.end_byte].strip().startswith(body)
    assert weigh_errors(get_language("cpp").parse(source)) == 0


def test_blanks_keep_every_byte_in_its_place() -> None:
    for read in (blank_macros, blank_alternatives):
        blanked = read(BROKEN)
        assert len(blanked) == len(BROKEN) and blanked.count(b"\n") == BROKEN.count(b"\n")
        assert all(new in (old, 0x20) for old, new in zip(BROKEN, blanked, strict=True))
    assert b"TEST(" in blank_macros(b'TEST("a") {\n}\n') and b'"a"' not in blank_macros(b'TEST("a") {\n}\n')
    assert blank_macros(b"enum {\n  ONE,\n  TWO\n};\nHANDLE f(void);\nint A = B;\n").count(b"ONE") == 1


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        (b"#if 0\nold();\n#else\nnew();\n#endif\n", b"new();"),
        (b"#if 0\na();\n#elif B\nb();\n#else\nc();\n#endif\n", b"b();"),
        (b"#if A\na();\n#elif B\nb();\n#else\nc();\n#endif\n", b"a();"),
        (b"#if A\n#if 0\na();\n#else\nb();\n#endif\n#else\nc();\n#endif\n", b"b();"),
        (b"#if 0\nold();\n#endif\nnew();\n", b"new();"),
        (b"#if DEBUG > 0\na();\n#else\nb();\n#endif\n", b"a();"),
        (b"# if 0 // old\r\na();\r\n#else\r\nb();\r\n#endif\r\n", b"b();"),
    ],
)
def test_the_first_branch_that_may_be_compiled_is_kept(source: bytes, kept: bytes) -> None:
    assert blank_alternatives(source).split() == [kept]


def test_sound_sources_are_read_as_they_are() -> None:
    source = b"#define MAX 3\nint f(void) {\n  return MAX;\n}\n"
    assert get_language("c").parse(source).root_node.children[0].type == "preproc_def"
