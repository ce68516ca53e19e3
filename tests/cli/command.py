"""The command as a process, for its tests."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

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
