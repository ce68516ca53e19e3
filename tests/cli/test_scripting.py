"""A fill from Python is that of the command, and writes nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from midfill_infill.errors import MidfillError
from midfill_infill.scripting import fill

SOURCE = b"def add(a, b):\r\n    ...\r\n\r\n\r\ndef sub(a, b):\r\n    ...\r\n"


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "t.py"
    path.write_bytes(SOURCE)
    return path


@pytest.mark.parametrize("choice", [{"function": "add"}, {"function": ["add"]}, {"hole": "2:5-2:8"}])
def test_a_fill_tells_texts_and_the_file_and_writes_nothing(
    choice: dict[str, str], answer: Callable[..., None], file: Path
) -> None:
    answer(rows=[["return a + b"]])
    (way,) = fill(file, **choice)  # type: ignore[arg-type]
    assert (way.texts, way.new_errors) == (("return a + b",), 0)
    assert way.file == SOURCE.replace(b"...", b"return a + b", 1)
    assert file.read_bytes() == SOURCE


def test_alternatives_have_a_text_for_every_hole(answer: Callable[..., None]) -> None:
    answer(rows=[["return a + b", "return a - b"], ["return b + a", "return -b + a"]])
    ways = fill("t.py", stubs=True, n=2)
    assert [way.texts for way in ways] == [("return a + b", "return a - b"), ("return b + a", "return -b + a")]


def test_a_source_that_is_given_is_filled_in_place_of_the_file(answer: Callable[..., None], file: Path) -> None:
    answer(rows=[["return a * b"]])
    (way,) = fill("other.py:1", b"def mul(a, b): ...\n")
    assert way.file == b"def mul(a, b):\n    return a * b\n"
    with pytest.raises(MidfillError, match="secrets") as refused:
        fill(".env", b"def mul(a, b): ...\n")
    assert refused.value.code == "file_excluded"


def test_the_engine_is_the_one_that_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDFILL_ENGINE_URL", "http://127.0.0.1:9")
    with pytest.raises(MidfillError, match="127.0.0.1:9 is not running; check MIDFILL_ENGINE_URL"):
        fill("t.py:1")
