"""Kills rewriting tools at random moments and looks at every file: `python tests/refactor/compare_kills.py --kills 60`.

Runs `midfill refactor apply`, `ruff check --fix`, `ruff format` and `ast-grep run -U` over the same number of files of
the same size, each as a user starts it, kills the whole process group after a time drawn from [0, the time of a whole
run], and counts. The others are looked for on the PATH and left out where they are not installed.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.refactor.trees import make_tree  # noqa: E402

LINE = b"value_%d = old_call(%d) + [1,2 ,3][0]  # filler that makes the file as long as a real one\n"


def source(number: int, size: int) -> bytes:
    """A file that every tool has something to change in."""
    head = b"import os\nimport sys\n\n\ndef f_%d(a, b):\n    ...\n\n\n" % number
    return head + b"".join(LINE % (line, line) for line in range(size // len(LINE)))


@dataclass
class Tool:
    """`command` rewrites the files of a folder; `go_on` finishes what a kill left, where the tool can."""

    name: str
    command: list[str]
    prepare: Callable[[Path, dict[str, bytes]], object]
    go_on: list[str] | None = None


def write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)


def tools() -> list[Tool]:
    midfill = [sys.executable, "-m", "midfill_infill", "refactor"]
    found = [Tool("midfill refactor apply", [*midfill, "apply"], make_tree, [*midfill, "apply"])]
    if ruff := shutil.which("ruff"):
        check = [ruff, "check", "--fix", "--no-cache", "--isolated", "--select", "F401", "--quiet", "."]
        found.append(Tool("ruff check --fix", check, write))
        found.append(Tool("ruff format", [ruff, "format", "--no-cache", "--isolated", "--quiet", "."], write))
    if grep := shutil.which("ast-grep"):
        words = [grep, "run", "-p", "old_call($A)", "-r", "new_call($A)", "-l", "python", "-U", "."]
        found.append(Tool("ast-grep run -U", words, write))
    return found


def run(command: list[str], folder: Path, kill_after_s: float | None = None) -> float:
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()
    return time.perf_counter() - began


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def measure(tool: Tool, files: dict[str, bytes], kills: int, folder: Path) -> str:
    chance = random.Random(1)
    tool.prepare(folder / "whole", files)
    duration = run(tool.command, folder / "whole")
    after = contents(folder / "whole")
    assert set(after) == set(files) and all(after[name] != files[name] for name in files), (
        f"{tool.name} changed nothing"
    )
    torn = half = strays = unfinished = 0
    for number in range(kills):
        here = folder / str(number)
        tool.prepare(here, files)
        run(tool.command, here, chance.uniform(0, 1.02 * duration))
        found = contents(here)
        torn += any(found[name] not in (files[name], after[name]) for name in files)
        half += len({found[name] == after[name] for name in files}) == 2
        if tool.go_on is not None:
            run(tool.go_on, here)
            found = contents(here)
            unfinished += found != after
        strays += len(set(found) - set(files))
        shutil.rmtree(here)
    rest = f"{unfinished} of {kills}" if tool.go_on else "cannot"
    return f"| {tool.name} | {duration:.2f} s | {torn} | {half} | {strays} | {rest} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--bytes", type=int, default=23_000)
    options = parser.parse_args()
    files = {f"m{number}.py": source(number, options.bytes) for number in range(options.files)}
    print(f"{options.kills} kills each, {options.files} files of {options.bytes // 1000} kB\n")
    print("| tool | a whole run | runs with a torn file | left half-way | stray files at the end | still unfinished |")
    print("|---|---|---|---|---|---|")
    for tool in tools():
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = f"{folder}/state"
            print(measure(tool, files, options.kills, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
