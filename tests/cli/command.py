"""The command as a process, for its tests."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from midfill_infill.cli import main

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent
Midfill = Callable[..., subprocess.Popen[bytes]]


def read_all(descriptor: int) -> str:
    data = b""
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # how Linux says that nobody has the other side open
            piece = b""
        if not piece:
            os.close(descriptor)
            return data.decode()
        data += piece


def python_path(*first: Path) -> str:
    folders = [*first, *(ROOT / room for room in ("lsp", "infill", "engine", "kernels"))]
    return os.pathsep.join(map(str, folders))


def run_main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of the command's entry, in this process."""
    monkeypatch.setattr(sys, "argv", ["midfill", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)
