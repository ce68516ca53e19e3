"""What a measurement of another project's engine holds back: its unlikely lines and doubtful bodies, no other body."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.infill.stand_in import serve
from typer.testing import CliRunner, Result

from midfill_infill.cli import build_app
from midfill_infill.engines.endpoint import parse_engine
from midfill_infill.filling import certainty, written
from midfill_infill.filling.certainty import Fit

SOURCE = """def clean(name):
    return name.strip().lower()


def shorten(name):
    ...


def total(a, b):
    c = 0
    return c
"""
RARELY = Fit(-2.0)  # right in 12 %

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs `midfill fill t.py`, filled with a text by a model that was measured: it is rarely exact."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    Path("t.py").write_text(SOURCE)
    with serve("ollama") as server:
        engine = f"ollama:m@{server.url}"
        monkeypatch.setenv("MIDFILL_ENGINE", engine)
        certainty.save(parse_engine(engine).info, "ollama:m", {"line": RARELY, "body": RARELY})

        def fill(text: str, *words: str) -> Result:
            server.parts = [text]
            return CliRunner().invoke(build_app(), ["fill", "t.py", *words])

        yield fill


@pytest.mark.parametrize("way", [["--function", "shorten"], ["--stubs"]])
def test_a_body_that_is_rarely_exact_is_written(run: Run, way: list[str]) -> None:
    done = run("return name.split()[0]\n", *way, "--write")
    assert done.exit_code == 0, done.output
    assert "replaced by 1, exact in 12%\n" in done.stdout and "return name.split()[0]" in Path("t.py").read_text()


def test_a_limit_that_is_asked_for_holds_it_back(run: Run) -> None:
    words = ["--function", "shorten", "--write", "--min-certainty"]
    held = run("return name.split()[0]\n", *words, "0.13")
    assert held.exit_code == 6 and "1 of 1 fill not written: t.py:6 exact in 12%; " in held.stderr
    assert Path("t.py").read_text() == SOURCE
    assert run("return name.split()[0]\n", *words, "0.11").exit_code == 0


@pytest.mark.parametrize("text", ["return name", "return name.split()[0]"])
def test_a_doubtful_body_is_held_back(run: Run, text: str) -> None:
    """A parameter that comes back unchanged, and what was written unseen."""
    if "split" in text:
        written.remember([text])
    held = run(f"{text}\n", "--function", "shorten", "--write")
    assert held.exit_code == 6 and "t.py:6 a suggestion (exact in 12%)" in held.stderr
    assert Path("t.py").read_text() == SOURCE


def test_a_line_that_is_rarely_exact_is_held_back(run: Run) -> None:
    held = run("c = a + b\n", "--hole", "10:5-10:10", "--write")
    assert held.exit_code == 6 and "t.py:10 a suggestion (exact in 12%)" in held.stderr
    assert Path("t.py").read_text() == SOURCE
