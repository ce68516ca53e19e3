"""The registry: every language loads, ships its queries and is found by name."""

from pathlib import Path

import pytest

import midfill_infill.languages
from midfill_infill.errors import MidfillError
from midfill_infill.languages import REGISTRY, find_language, get_language

FOLDER = Path(midfill_infill.languages.__file__).parent


@pytest.mark.parametrize("language", REGISTRY.values(), ids=list(REGISTRY))
def test_queries_fit_the_grammar(language: midfill_infill.languages.Language) -> None:
    names = {language.query.capture_name(index) for index in range(language.query.capture_count)}
    without_classes = {"scope", "scope.name"} if language.id in ("c", "go") else set()
    assert {"function", "name", "body", "import", "stub", "block", "scope", "scope.name"} - names == without_classes


def test_every_query_file_and_module_is_used() -> None:
    used = {query for language in REGISTRY.values() for query in language.queries}
    assert {path.name for path in FOLDER.glob("*.scm")} == used
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
def test_names_tell_languages(name: str, language: str | None) -> None:
    assert find_language(Path(name)) == language


def test_an_unknown_language_is_answered_with_the_known() -> None:
    with pytest.raises(MidfillError) as caught:
        get_language("cobol")
    assert caught.value.code == "unknown_language"
    assert "python, javascript, typescript, tsx, go, rust, java, c, cpp" in caught.value.sentence
