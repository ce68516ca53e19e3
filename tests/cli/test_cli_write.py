"""What a write leaves, whatever meets it: a folder that cannot be read, an interrupt before, in and after it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from midfill_infill.cli import build_app
from midfill_infill.repository.replace import write_atomically

RUNNER = CliRunner()
SOURCE = b"def add(a, b):\n    ...\n"


def test_folder_that_cannot_be_read_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.py"
    path.write_bytes(b"old")
    open_file = os.open

    def refuse_folders(name: str | Path, *args: Any, **options: Any) -> int:
        if Path(name) == tmp_path:
            raise PermissionError(13, "Permission denied")
        return open_file(name, *args, **options)

    monkeypatch.setattr(os, "open", refuse_folders)
    write_atomically(path, b"old", b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize(("words", "says"), [(["--write"], "t.py is written"), ([], "nothing was written")])
def test_interrupt_says_what_was_written(
    tmp_path: Path, answer: Callable[..., None], monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("t.py")
    file.write_bytes(SOURCE)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("midfill_infill.cli.filling._print", interrupt)
    result = RUNNER.invoke(build_app(), ["fill", "t.py", *words])
    assert (result.exit_code, result.stderr) == (130, f"midfill: interrupted; {says}.\n")
    assert (file.read_bytes() != SOURCE) == bool(words)


def test_interrupt_while_writing_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.py"
    path.write_bytes(b"old")
    replace = os.replace

    def replace_and_interrupt(*names: Path) -> None:
        replace(*names)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", replace_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"old", b"new")
    assert list(tmp_path.iterdir()) == [path]
