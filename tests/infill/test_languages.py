"""The registry: every language loads, ships its queries and is found by name."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

import midfill_infill.languages
from midfill_infill.errors import MidfillError
from midfill_infill.languages import REGISTRY, Language, find_language, get_language
from midfill_infill.languages import language as language_module
from midfill_infill.languages.python import compiles
from midfill_infill.syntax.rules import count_misplaced, list_inert

FOLDER = Path(midfill_infill.languages.__file__).parent


@pytest.mark.parametrize("language", REGISTRY.values(), ids=list(REGISTRY))
def test_queries_fit_the_grammar(language: midfill_infill.languages.Language) -> None:
    names = {language.query.capture_name(index) for index in range(language.query.capture_count)}
    without_classes = {"scope", "scope.name"} if language.id in ("c", "go") else set()
    assert {"function", "name", "body", "import", "stub", "block", "scope", "scope.name"} - names == without_classes


def test_every_query_file_and_module_is_used() -> None:
    used = {query for language in REGISTRY.values() for query in (*language.queries, *language.rules)}
    assert {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.scm")} == used
    assert {path.stem for path in FOLDER.glob("*.py")} - {
        "__init__",
        "language",
        "ecmascript",
        "headers",
        "macros",
        "components",
    } == set(REGISTRY)


@pytest.mark.parametrize(
    ("name", "language"),
    [("a.py", "python"), ("a.PY", "python"), ("a.mjs", "javascript"), ("a.d.ts", "typescript"), ("a.tsx", "tsx"),
     ("a.h", "c"), ("a.H", "cpp"), ("a.C", "cpp"), ("a.go", "go"), ("a.rs", "rust"), ("A.java", "java"),
     ("A.vue", "vue"), ("a.svelte", "svelte"),
     ("Makefile", None), ("a.txt", None)],
)  # fmt: skip
def test_file_names_tell_languages(name: str, language: str | None) -> None:
    assert find_language(Path(name)) == language


def test_a_header_of_many_definitions_is_read_at_once() -> None:
    source = b"".join(b"#define REGISTER_%d %d\n" % (number, number) for number in range(8000))
    start_s = time.process_time()
    assert find_language(Path("a.h"), source) == "c"
    assert find_language(Path("a.h"), source + b"\n \tnamespace a {}\n") == "cpp"
    assert time.process_time() - start_s < 2


def test_a_source_on_which_a_grammar_loops_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_module, "PARSING_S", 0.02)
    tsx, source = get_language("tsx"), b"const a = <b />;\r\n"
    old = tsx.parse(source)
    assert not old.root_node.has_error
    old.edit(len(source), len(source), len(source) + 17, (1, 0), (1, 0), (2, 0))
    for known in ((), (old,)):
        root = tsx.parse(source + b"<a {{b:>c:d(e f)\n", *known).root_node
        assert root.has_error and root.end_byte == len(source) + 17


def test_a_grammar_that_may_loop_reads_a_sound_source_once() -> None:
    source = b"const a = (b: number) => <i>{b + 1}</i>;\n" * 200

    def measure_s(language: Language) -> float:
        start_s = time.thread_time()
        assert not language.parse(source).root_node.has_error
        return time.thread_time() - start_s

    tsx = get_language("tsx")
    fastest_s, unlimited_s = (min(map(measure_s, [each] * 9)) for each in (tsx, replace(tsx, may_loop=False)))
    assert fastest_s < 1.5 * unlimited_s
    assert tsx.parse(source).root_node.text == source


def test_an_unknown_language_is_answered_with_the_known() -> None:
    with pytest.raises(MidfillError) as caught:
        get_language("cobol")
    assert caught.value.code == "unknown_language"
    assert "python, javascript, typescript, tsx, go, rust, java, c, cpp" in caught.value.sentence


@pytest.mark.parametrize("language", REGISTRY.values(), ids=REGISTRY)
def test_the_grammar_takes_the_rules(language: Language) -> None:
    assert count_misplaced(language, language.parse(b"")) == 0
    assert list_inert(language, language.parse(b"")) == ([], [])


@pytest.mark.parametrize("language, wrong, right", [
    ("javascript", "function f(...a, b) {}", "function f(b, ...a) {}"),
    ("javascript", "function f() { await a }", "async function f() { await a }"),
    ("javascript", "function* f() { g(() => { yield a }) }", "function* f() { yield a }"),
    ("javascript", "for (;;) { f(() => { break }) }", "for (;;) { break }"),
    ("javascript", "if (a) { return }", "f(() => { if (a) { return } })"),
    ("javascript", "{ const a; }", "for (const a of b) {}"),
    ("javascript", "f(, a)", "f([, a])"),
    ("javascript", "a?.b = c", "a.b = c?.d"),
    ("javascript", "f(() => { g() }[0])", "f((() => { g() })[0], () => g[0])"),
    ("javascript", "delete a", "delete a.b"),
    ("javascript", "f((a, b) = c)", "f((a) = c, (a.b) = c)"),
    ("javascript", "function f(a) { let a }", "function f(a) { { let a } }"),
    ("tsx", "import { a as b } from 'c'; const b = 1", "import { b as a } from 'c'; const b = 1"),
    ("typescript", "function f(a?: A, b: B) {}", "function f(a?: A, b = 1, ...c: B[]) {}"),
    ("vue", "<script>export const a: A</script>", "<script>export declare const a: A</script>"),
    ("go", "package a\nfunc f(a ...int, b int) {}", "package a\nfunc f(b int, a ...int) {}"),
    ("go", "package a\nfunc f() { g(a..., b) }", "package a\nfunc f() { g(b, a...) }"),
    ("go", "package a\nfunc (b c) error {\n}\n", "package a\nfunc (b c) d() { func(b c) {}(e) }"),
    ("go", "package a\nfunc f(a b, c) {}", "package a\nfunc f(a, b c, d ...e) (f, g) {}\nfunc h(a, ...b) {}"),
    ("go", "package a\nimport \")\"", "package a\nimport \"b/c-d.e\""),
    ("go", "package a\nfunc (a, b) c() {}", "package a\nfunc (a b) c(d, e) {}"),
    ("rust", "fn f() { a.await; }", "fn f() { async { a.await }; }"),
    ("rust", "fn f() { S { ..a, b }; }", "fn f() { S { b, ..a }; }"),
    ("java", "class A { void f(int... a, int b) {} }", "class A { void f(int b, int... a) {} }"),
    ("java", "class A { void f() { continue; } }", "class A { void f() { while (a) { continue; } } }"),
    ("c", "void f(int a, int *a) {}", "void f(int a, void (*b)(int a)) {}"),
    ("cpp", "void f(int a = 1, int b);", "void f(int b, int a = 1, ...);"),
])  # fmt: skip
def test_rules_find_what_a_grammar_takes_too_much(language: str, wrong: str, right: str) -> None:
    known = get_language(language)
    trees = [known.parse(source.encode()) for source in (wrong, right)]
    assert [count_misplaced(known, tree) for tree in trees] == [1, 0]
    assert not any(tree.root_node.has_error for tree in trees)


def test_python_is_compiled_and_not_run() -> None:
    assert compiles("raise SystemExit(1)") and compiles("'\\d'")
    assert not any(map(compiles, ("f(a=1, 2)", "return", "\0", "(" * 1000)))
