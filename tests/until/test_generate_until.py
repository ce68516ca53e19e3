"""`midfill refactor generate --until`: a hole at a time, with the tests that import it, journaled."""

import json
import re
from pathlib import Path

import pytest
from tests.refactor.trees import init_git
from tests.refactor.workers import use_workers
from tests.until.runs import PYTEST, run
from tests.until.shops import needs_bubblewrap

from midfill_engine.wire import InfillRequest, TextSegment
from midfill_infill.errors import MidfillError
from midfill_infill.repository.roots import Repository, find_repository
from midfill_infill.until.choosing import ReachingTests, add_tests, guess_commands, place_tests

pytestmark = needs_bubblewrap
FILES = {
    "pkg/__init__.py": "",
    "pkg/maths.py": "def half(a):\n    ...\n\n\ndef quarter(a):\n    ...\n",
    "pkg/text.py": "def shout(text):\n    ...\n",
    "pkg/lost.py": "def lost(a):\n    ...\n",
    "tests/test_maths.py": "from pkg.maths import half, quarter\n\ndef test_half():\n    assert half(4) == 2\n",
    "tests/test_quarter.py": "from pkg.maths import quarter\n\ndef test_quarter():\n    assert quarter(8) == 2\n",
    "tests/test_text.py": "from pkg import text\n\ndef test_shout():\n    assert text.shout('a') == 'A!'\n",
}
RIGHT = {"half": "return a / 2", "quarter": "return half(half(a))", "shout": "return text.upper() + '!'"}


def answer(request: InfillRequest) -> str:
    """Right only where it is drawn; of `shout` never."""
    before = "".join(segment.text for segment in request.segments[:1] if isinstance(segment, TextSegment))
    name = re.findall(r"def (\w+)\(", before)[-1]
    return RIGHT[name] if request.seed and name != "shout" else f"return {request.seed or 0}"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repo"
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    init_git(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    use_workers(monkeypatch, answer)
    return folder


def test_a_hole_at_a_time_with_the_tests_that_import_it(root: Path) -> None:
    run("plan", "--stubs")
    result = run("generate", "--until", PYTEST, "--tries", "5")
    said = result.stderr
    assert "pkg/maths.py: half -> tests/test_maths.py\n  passes at try " in said
    assert "pkg/maths.py: quarter -> tests/test_maths.py, tests/test_quarter.py\n" in said, "half stands in its copy"
    assert said.count("  passes at try ") == 2 and "2 clean, 0 with syntax errors, 2 failed" in said
    assert "pkg/text.py: shout -> tests/test_text.py\n" in said and "pkg/lost.py: lost -> no test imports it" in said
    assert result.exit_code == 3 and json.loads(run("status", "--json").stdout)["holes"] == {
        "generated": 2,
        "failed": 2,
    }
    assert (root / "pkg/maths.py").read_text() == FILES["pkg/maths.py"], "files are written by apply alone"
    again = run("generate", "--until", PYTEST)
    assert again.exit_code == 3 and "0 holes" in again.stderr, "it goes on where it stopped"
    assert "2 holes got no good fill before" in again.stderr
    applied = run("apply", "--all", "--verify", f"{PYTEST} tests/test_maths.py tests/test_quarter.py")
    assert applied.exit_code == 0 and "2 kept, 0 rolled back" in applied.stderr
    assert RIGHT["quarter"] in (root / "pkg/maths.py").read_text()
    assert (root / "pkg/text.py").read_text() == FILES["pkg/text.py"]


def test_what_was_interrupted_goes_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("plan", "--stubs")
    use_workers(monkeypatch, answer, die_at=(4,))
    assert run("generate", "--until", PYTEST, "--tries", "3").exit_code == 3
    before = json.loads(run("status", "--json").stdout)["holes"]
    assert before.get("planned") and before.get("generated", 0) + before.get("failed", 0) < 4
    use_workers(monkeypatch, answer)
    run("generate", "--until", PYTEST, "--tries", "3")
    assert json.loads(run("status", "--json").stdout)["holes"] == {"generated": 2, "failed": 2}


def test_until_is_refused_together_with_shards(root: Path) -> None:
    run("plan", "--stubs")
    result = run("generate", "--until", PYTEST, "--shard", "1/2", "--out", str(root / "part"))
    assert result.exit_code == 2 and "--until fills one hole at a time" in result.stderr


def place(root: Path) -> Repository:
    return find_repository(root)


def test_which_tests_reach_a_function(root: Path) -> None:
    reaching_tests = ReachingTests(place(root))

    def names(path: str, name: str | None) -> list[str]:
        return [test.name for test in reaching_tests.find((root / path).resolve(), name)]

    assert names("pkg/maths.py", "half") == ["test_maths.py"]
    assert names("pkg/maths.py", "Box.quarter") == ["test_maths.py", "test_quarter.py"]
    assert names("pkg/maths.py", "unnamed") == ["test_maths.py", "test_quarter.py"]
    assert names("pkg/lost.py", "lost") == []
    (root / "pkg/deep.py").write_text("import pkg.lost\n")
    (root / "tests/test_deep.py").write_text("import pkg.deep\n")
    assert [test.name for test in ReachingTests(place(root)).find((root / "pkg/lost.py").resolve(), "lost")] == [
        "test_deep.py"
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pytest -q", "pytest -q tests/a.py tests/b.py"),
        ("pytest -q tests/c.py", "pytest -q tests/c.py"),
        ("make test T='{tests}'", "make test T='tests/a.py tests/b.py'"),
        ("npm test", "npm test"),
        ("cd api && pytest -q", "cd api && pytest -q"),
        ("pytest -q | tail -3", "pytest -q | tail -3"),
        ("pytest -q tests", "pytest -q tests"),
        ("python -m pytest -k half", "python -m pytest -k half tests/a.py tests/b.py"),
    ],
)
def test_where_the_tests_go_in_a_command(root: Path, line: str, expected: str) -> None:
    assert add_tests(line, ["tests/a.py", "tests/b.py"], root) == expected


def test_a_src_folder_below_the_root(root: Path) -> None:
    for name, text in (("api/src/money.py", ""), ("api/tests/test_money.py", "from money import add\n")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    found = ReachingTests(place(root)).find((root / "api/src/money.py").resolve())
    assert [path.name for path in found] == ["test_money.py"]


def test_commands_that_run_tests_are_guessed_from_the_files_of_a_repository(root: Path) -> None:
    def guesses(path: str) -> list[str]:
        return guess_commands(root / path, root)

    assert guesses("pkg/text.py") == ["pytest -q {tests}", "pytest -q"]
    (root / ".venv/bin").mkdir(parents=True)
    (root / ".venv/bin/pytest").touch()
    assert guesses("pkg/text.py")[0] == ".venv/bin/pytest -q {tests}"
    assert guesses("pkg/lost.py") == []
    (root / "Makefile").write_text("all:\n\ntest: all\n\tpytest\n")
    (root / "package.json").write_text('{"scripts": {"test": "vitest run"}}')
    (root / "pkg/a.ts").write_text("export const a = 1\n")
    assert guesses("pkg/a.ts") == ["npm test", "make test"]
    (root / "go.mod").touch()
    (root / "pkg/a.go").touch()
    assert guesses("pkg/a.go")[1] == "go test ./pkg"
    for path, package in (("a.go", "..."), (".x/a.go", ".x")):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).touch()
        assert f"go test ./{package}" in guesses(path)
    (root / "package.json").write_text('{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}')
    assert guesses("pkg/a.ts") == ["make test"]


def test_tests_in_a_command_are_those_of_the_file(root: Path) -> None:
    path = root / "pkg/text.py"
    assert place_tests("pytest {tests}", path, ["shout"], root) == "pytest tests/test_text.py"
    assert place_tests("pytest {tests}", path, ["shout"], root / "tests") == "pytest test_text.py"
    assert place_tests("make test", path, ["shout"], root) == "make test"
    with pytest.raises(MidfillError, match="no test imports lost.py"):
        place_tests("pytest {tests}", root / "pkg/lost.py", ["lost"], root)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("said", ["import { total } from '../src/cart.js'", "const { total } = require('../src/cart')"])
def test_tests_of_scripts_are_found_in_another_folder(tmp_path: Path, said: str) -> None:
    path = write(tmp_path, "src/cart.js", "export function total(prices) {}\n")
    write(tmp_path, "test/cart.test.js", f"{said};\ntest('total', () => total([]));\n")
    assert place_tests("node --test {tests}", path, ["total"], tmp_path) == "node --test test/cart.test.js"


def test_tests_of_go_reach_their_package_and_are_run_as_it(tmp_path: Path) -> None:
    inner = write(tmp_path, "shop/cart.go", "package shop\n\nfunc Total() int { return 0 }\n")
    outer = write(tmp_path, "main.go", "package main\n\nfunc main() {}\n")
    lost = write(tmp_path, "lost/lost.go", "package lost\n")
    for name in ("shop/cart_test.go", "shop/other_test.go", "main_test.go"):
        write(tmp_path, name, 'package p\n\nimport "testing"\n\nfunc TestIt(t *testing.T) {}\n')
    assert place_tests("go test {tests}", inner, [None], tmp_path) == "go test ./shop"
    assert place_tests("go test {tests}", outer, [None], tmp_path) == "go test ."
    assert place_tests("go test {tests}", outer, [None], tmp_path / "shop") == "go test ./.."
    with pytest.raises(MidfillError, match="no test imports lost.go"):
        place_tests("go test {tests}", lost, [None], tmp_path)
