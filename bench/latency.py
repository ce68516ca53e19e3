"""Times `midfill fill` as a user sees it: from the command to the first frame and to the end.

    python -m bench latency [--runs 10] [--json FILE]

Fills the body of a short file and a line of a long one, by the default model. Cold starts the engine; fresh finds it
running with a new context; warm finds it running with this context cached.
"""

import os
import platform
import pty
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.measure import ROOT, JsonFile, find_commit, processor_name, write_record

FRAME = re.compile(rb", step \d|proposed by the file")


@dataclass(frozen=True)
class Target:
    """A file, a name that differs in each copy of it, and the hole: a function, or else a line by its number."""

    file: Path
    renamed: str
    function: str = ""
    line: int = 0

    def options(self, text: str) -> list[str]:
        """The options of the command that fills a copy with this text."""
        if self.function:
            return ["--function", self.function]
        line = text.splitlines()[self.line - 1]
        start = len(line) - len(line.lstrip()) + 1
        return ["--hole", f"{self.line}:{start}-{self.line}:{len(line) + 1}"]


TARGETS = {
    "body": Target(ROOT / "examples/inventory.py", "items", function="remaining"),
    "line": Target(ROOT / "infill/midfill_infill/config.py", "config", line=101),
}


@dataclass(frozen=True)
class Timing:
    """Seconds from starting the command."""

    first_frame_s: float
    end_s: float


def time_fill(arguments: list[str], environment: dict[str, str]) -> Timing:
    """Runs the command on a terminal of its own until it ends. Raises RuntimeError if it fails."""
    master, slave = pty.openpty()
    started = time.perf_counter()
    process = subprocess.Popen(arguments, stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=ROOT)
    os.close(slave)
    first_frame_s: float | None = None
    output = b""
    while chunk := _read(master):
        output += chunk
        if first_frame_s is None and FRAME.search(output):
            first_frame_s = time.perf_counter() - started
    if process.wait() != 0 or first_frame_s is None:
        raise RuntimeError(f"{arguments} failed:\n{output.decode(errors='replace')}")
    return Timing(first_frame_s, time.perf_counter() - started)


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # Linux answers EIO once the other side of the terminal is closed
        os.close(master)
        return b""


def measure(target: Target, num_runs: int) -> dict[str, list[Timing]]:
    """Timings of `num_runs` fills of each kind."""
    timings: dict[str, list[Timing]] = {"cold": [], "fresh": [], "warm": []}
    midfill = str(Path(sys.executable).parent / "midfill")
    for run in range(num_runs):
        with tempfile.TemporaryDirectory(prefix="midfill-bench-") as folder:
            copies = [Path(folder, f"{name}.py") for name in ("first", "second")]
            for copy in copies:
                renamed = f"{target.renamed}_{copy.stem}_{run}"
                copy.write_text(target.file.read_text().replace(target.renamed, renamed))
            terminal = {"TERM": "xterm-256color", "COLUMNS": "100"}
            environment = {**os.environ, **terminal, "MIDFILL_RUNTIME_DIR": str(Path(folder, "run"))}
            try:
                for kind, copy in zip(timings, (copies[0], copies[1], copies[1]), strict=True):
                    options = target.options(copy.read_text())
                    timings[kind].append(time_fill([midfill, "fill", str(copy), *options], environment))
            finally:
                subprocess.run([midfill, "engine", "stop"], env=environment, stdout=subprocess.DEVNULL)
    return timings


def main(
    runs: Annotated[int, typer.Option(help="fills of each kind")] = 10,
    json_file: JsonFile = None,
) -> None:
    """Times `midfill fill` cold, with a new context, and warm."""
    facts = {
        "machine": f"{processor_name()}, {os.cpu_count()} cores, {platform.system()}",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": find_commit(),
        "load": f"{os.getloadavg()[0]:.1f} at the start",
    }
    title = f"{', '.join(f'{name} {fact}' for name, fact in facts.items())}\nseconds, median (slowest) of {runs}"
    table = Table(title=title)
    for heading in ("", "first frame", "end"):
        table.add_column(heading)
    measured = {name: measure(target, runs) for name, target in TARGETS.items()}
    for name, timings in measured.items():
        for kind, rows in timings.items():
            cells = []
            for moment in ("first_frame_s", "end_s"):
                seconds = [getattr(row, moment) for row in rows]
                cells.append(f"{statistics.median(seconds):.2f} ({max(seconds):.2f})")
            table.add_row(f"{name}, {kind}", *cells)
    Console().print(table)
    if json_file is not None:
        write_record(json_file, {**facts, "timings": measured})


if __name__ == "__main__":
    typer.run(main)
