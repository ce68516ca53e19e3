"""What editors need of infill: exclusions, rerolls, a fill that ends early, limits in a request."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midfill_engine.wire import HoleState, Keeps, ModelInfo, Wish
from midfill_infill.context.segments import build_segments
from midfill_infill.filling.fill import Options, Preview, _request, finish
from midfill_infill.filling.reroll import keep_ranges
from midfill_infill.repository.exclusions import Stamps, find_exclusion
from midfill_infill.syntax.holes import body_at, body_named
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document


@pytest.mark.parametrize("name", [
    ".env", "app/.env.local", "prod.env", "tls/server.key", "a.pem", "home/.ssh/config", ".aws/credentials", "id_rsa",
    ".npmrc", "infra/main.tfvars", "secrets.yaml", ".git-credentials", ".kube/config", ".docker/config.json",
])  # fmt: skip
def test_secrets_are_left_out(tmp_path: Path, name: str) -> None:
    assert find_exclusion(tmp_path / name) == "its name is that of a file with secrets"


@pytest.mark.parametrize("name", ["main.py", "environment.py", "keys.ts", "secrets.py", "src/env/load.go", "x.key.py"])
def test_files_with_code_are_not_left_out(tmp_path: Path, name: str) -> None:
    assert find_exclusion(tmp_path / name) is None


def test_the_user_adds_patterns(tmp_path: Path) -> None:
    assert find_exclusion(tmp_path / "vendor/a.py", ["vendor/"]) == "the setting `exclude` names it"
    assert find_exclusion(tmp_path / "src/a.py", ["vendor/"]) is None


@pytest.mark.parametrize(
    "pattern", ["src/gen/", "/src/gen/", "**/src/gen/", "src/gen/*.py", "src/**", "gen/", "src/*/"]
)
def test_the_users_patterns_may_have_slashes(tmp_path: Path, pattern: str) -> None:
    assert find_exclusion(tmp_path / "src/gen/a.py", [pattern]) == "the setting `exclude` names it"
    assert find_exclusion(tmp_path / "lib/a.py", [pattern]) is None
    assert find_exclusion(tmp_path / "src/gen/a.py", [pattern, "!src/gen/a.py"]) is None


def test_what_git_ignores(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    (root / ".git" / "info").mkdir(parents=True)
    (root / "web" / "keep").mkdir(parents=True)
    (root / ".gitignore").write_text("build/\n*.gen.py\n/top.py\n")
    (root / "web" / ".gitignore").write_text("!wanted.gen.py\nlocal.py\n")
    (root / ".git" / "info" / "exclude").write_text("mine.py\n")
    ignored = [
        "build/a.py",
        "web/build/deep/a.py",
        "x.gen.py",
        "top.py",
        "web/local.py",
        "web/keep/local.py",
        "mine.py",
    ]
    taken = ["web/wanted.gen.py", "web/top.py", "local.py", "a.py"]
    assert [name for name in ignored if find_exclusion(root / name) != "git ignores it"] == []
    assert [name for name in taken if find_exclusion(root / name) is not None] == []
    assert find_exclusion(tmp_path / "build/a.py") is None
    stamps = Stamps()
    for name in [*ignored, *taken]:
        assert find_exclusion(root / name, (), stamps) == find_exclusion(root / name)


def test_a_reroll_keeps_what_was_typed_and_the_surest_half() -> None:
    filled = "total = 0\nreturn wrong"
    tokens, confidence = [(0, 9), (10, 16), (17, 22)], [0.9, 0.8, 0.1]
    assert keep_ranges(filled, tokens, confidence, filled) == [(0, 16)]
    current = "total = 0\nfor row in rows:\nreturn wrong"
    kept = "".join(current[start:end] for start, end in keep_ranges(filled, tokens, confidence, current, 0.0))
    assert kept.strip() == "for row in rows:"
    assert keep_ranges(filled, tokens, confidence, filled, 0.0) == []
    assert keep_ranges(filled, tokens, confidence, filled, 1.0) == [(0, len(filled))]
    mixed = "a\r\nbc\nd\r\ne"
    for share in (0.0, 0.4, 1.0):
        tokens = [(0, 1), (2, 4), (5, 8)]
        kept = keep_ranges("a\nbc\nd\ne", tokens, [0.9, 0.5, 0.7], mixed, share)
        plain = keep_ranges("a\nbc\nd\ne", tokens, [0.9, 0.5, 0.7], mixed.replace("\r\n", "\n"), share)
        shown = [mixed[start:end].replace("\r\n", "\n") for start, end in kept]
        assert shown == [mixed.replace("\r\n", "\n")[start:end] for start, end in plain]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_reroll_keeps_the_line_breaks_beside_what_it_keeps(newline: str) -> None:
    filled = "if a:\n    b()\nreturn c"
    current = filled.replace("\n", newline)
    for word, known in (("b()", "\n    b()\n"), ("a", "a"), ("if a:", "if a:\n    "), ("return", "\nreturn")):
        start = current.index(word)
        (kept,) = keep_ranges(filled, [], [], current, 0.0, [(start, start + len(word))])
        assert current[slice(*kept)] == known.replace("\n", newline)


def test_a_model_that_writes_from_the_left_keeps_its_surest_lines() -> None:
    filled = "a = 1\nb = wrong\nreturn a\n"
    tokens, confidence = [(0, 5), (6, 10), (10, 15), (16, 22), (22, 24)], [0.9, 0.99, 0.01, 0.8, 0.0]
    assert keep_ranges(filled, tokens, confidence, filled, by_lines=True) == [(0, 16)]
    assert keep_ranges(filled, tokens, [*confidence[:4], 0.9], filled, by_lines=True) == [(0, 6), (15, 25)]
    assert keep_ranges("return a", [(0, 6), (6, 8)], [0.9, 0.1], "return a", by_lines=True) == []
    typed = keep_ranges("return a", [(0, 6), (6, 8)], [0.9, 0.1], "return abc", by_lines=True)
    assert typed == [(8, 10)]
    assert keep_ranges("return value", [], [], "return typed", 0.0) == [(7, 12)], "with the e that value has, too"


@given(st.text("ab \n", max_size=40), st.text("abc \n", max_size=40), st.floats(0, 1), st.booleans())
def test_kept_ranges_are_ranges_of_the_present_text(filled: str, current: str, share: float, by_lines: bool) -> None:
    tokens = [(start, start + 1) for start in range(len(filled))]
    ranges = keep_ranges(filled, tokens, [0.5] * len(tokens), current, share, by_lines=by_lines)
    edges = [edge for span in ranges for edge in span]
    assert edges == sorted(edges) and all(0 <= start < end <= len(current) for start, end in ranges)
    assert all(first[1] < second[0] for first, second in zip(ranges, ranges[1:], strict=False))


def texts(segments: Sequence[object]) -> str:
    return "".join(getattr(segment, "text", "<hole>") for segment in segments)


def test_limits_reach_every_hole() -> None:
    document = Document.from_text("def add(a, b):\n    ...\n", "python")
    segments = build_segments(document, [body_named(document, "add")], 1000)
    request = _request(segments, document, Options(min_tokens=20, max_tokens=8, single_line=True))
    (hole,) = [segment.hole for segment in request.segments if hasattr(segment, "hole")]
    assert (hole.min_tokens, hole.max_tokens, hole.forbid) == (8, 8, ["\n"])


def model_that(keeps: Keeps, *heeds: Wish) -> ModelInfo:
    sizes = {"parameters": 1, "max_context_tokens": 2048, "max_hole_tokens": 512}
    return ModelInfo(id="m", family="causal", device="cpu", dtype="fp32", keeps=keeps, heeds=heeds, **sizes)


def test_a_fill_may_end_early_with_its_guesses() -> None:
    document = Document.from_text("def add(a, b):\n    ...\n", "python")
    holes = [body_named(document, "add")]
    shown = HoleState(
        text="return a + b ",
        settled=[(0, 6)],
        masked=3,
        tokens=[(0, 6), (6, 8), (8, 12), (12, 13)],
        confidence=[0.9, 0.5, 0.4, 0.1],
    )
    filled = finish(document, holes, Preview(2, 9, [shown], model=model_that("nothing", "seconds")))
    assert filled.patch.apply(document.data) == b"def add(a, b):\n    return a + b\n"
    assert filled.new_errors == 0 and filled.stats.steps == 2
    (fill,) = filled.fills
    assert (fill.tokens, fill.confidence) == (((0, 6), (6, 8), (8, 12)), (0.9, 0.5, 0.4)), "cut text has no token"
    assert (filled.keeps, filled.heeds) == ("nothing", ("seconds",)), (
        "what its model can do when the hole is filled again"
    )
    half = [HoleState(text="return (", settled=[], masked=3)]
    broken = finish(document, holes, Preview(1, 9, half, model=model_that("tokens")))
    assert broken.new_errors > 0


def test_two_threads_read_a_document_once() -> None:
    text = "".join(f"def f{number}(x):\n    return {number}\n" for number in range(2000))
    document = Document.from_text(text, "python")
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: outline(document), range(2))
    assert first is second and len(first.functions) == 2000


@pytest.mark.parametrize("text, name", [
    ("def f():\n    x = 1\n    # still f |\n\ny = 2\n", "f"),
    ("def f():\n    s = \"\"\"\nat the margin\n\"\"\"\n    |\n", "f"),
    ("class A:\n    def g(self):\n        return 1\n\n        |\n\n    def h(self):\n        pass\n", "A.g"),
    ("def f(:\n    return (\n    |\n\ndef g():\n    pass\n", "f"),
])  # fmt: skip
def test_a_function_goes_on_to_the_next_line_at_its_margin(text: str, name: str) -> None:
    byte = text.index("|")
    assert body_at(Document.from_text(text.replace("|", ""), "python"), byte).name == name
