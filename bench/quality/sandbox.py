"""Runs Python programs that a model wrote: bounded in time and memory, in `midfill_infill.sandbox` where it works.

Without bubblewrap only limits of time, memory and file size hold. A program passes when it runs to its end, not when
its process does: `sys.exit(0)` half-way is a failure.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.run import find_bubblewrap, start_command
from midfill_infill.sandbox.view import CopiedTree

Wall = Literal["bubblewrap", "limits"]

_CHILD: Final = (Path(__file__).parent / "child.py").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Limits:
    """`cpu_s` bounds computing, which does not depend on the machine's load; `wall_s` bounds waiting."""

    cpu_s: int = 5
    wall_s: float = 30.0
    memory_bytes: int = 1 << 30
    file_bytes: int = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """`why` is "passed", "timeout", "memory", "syntax", "died", or the name of the exception that ended the program."""

    passed: bool
    why: str


def best_wall() -> Wall:
    """The strongest wall that works on this machine."""
    return "bubblewrap" if find_bubblewrap() else "limits"


def run_programs(
    programs: Mapping[str, str], limits: Limits | None = None, wall: Wall | None = None, num_workers: int | None = None
) -> dict[str, Verdict]:
    """A verdict for every program, by its key; equal programs run once."""
    chosen, bounds = wall or best_wall(), limits or Limits()
    distinct = sorted(set(programs.values()))
    with ThreadPoolExecutor(num_workers or os.cpu_count() or 1) as pool:
        verdicts = dict(zip(distinct, pool.map(lambda text: run(text, bounds, chosen), distinct), strict=True))
    return {key: verdicts[text] for key, text in programs.items()}


def run(program: str, limits: Limits, wall: Wall) -> Verdict:
    """Runs one program to its end or its limits, and ends what it started.

    With the wall `limits`, a process in a new session of its own is not ended; its limits still hold.
    """
    mark = secrets.token_hex(16)
    job = {"program": program, "mark": mark, "cpu_s": limits.cpu_s, "memory_bytes": limits.memory_bytes}
    told = json.dumps({**job, "file_bytes": limits.file_bytes}).encode()
    words = (sys.executable, "-I", "-S", "-B", "-c", _CHILD)
    command = Command(words, limits.wall_s, sandboxed=wall == "bubblewrap")
    with (
        tempfile.TemporaryDirectory(prefix="midfill-eval-") as folder,
        start_command(command, CopiedTree(Path(folder), Path(folder)), stdin=subprocess.PIPE) as process,
    ):
        try:
            output, _ = process.communicate(told, limits.wall_s)
        except subprocess.TimeoutExpired:
            return Verdict(False, "timeout")
    return _verdict(process.returncode, output.decode(errors="replace"), mark)


def _verdict(code: int, output: str, mark: str) -> Verdict:
    if output == mark:
        return Verdict(True, "passed")
    # A signal arrives as -N from a child of ours, and as 128 + N through bubblewrap.
    if code in (-signal.SIGXCPU, 128 + signal.SIGXCPU, -signal.SIGKILL, 128 + signal.SIGKILL):
        return Verdict(False, "timeout")
    return Verdict(False, output if output.isidentifier() else "died")
