"""Measures planning over real files, and a journal of a million holes: `python tests/refactor/bench_plan.py`.

CPU seconds, because they say more on a busy machine; `status` in wall seconds too. Beside the plan stands what parsing
each file once with tree-sitter costs, and what ruff and ast-grep take where they are there, in the same run.
"""

import argparse
import os
import resource
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from midfill_infill.languages import get_language
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import PlannedFile
from midfill_infill.text.document import MAX_DOCUMENT_BYTES
from midfill_infill.text.spans import Hole

# What else looks at every function, one after the other with ours, on one thread each.
RIVALS = (
    ("ruff", "check", "--isolated", "--no-cache", "--quiet", "--select", "D102,D103"),
    ("ast-grep", "run", "--threads", "1", "--lang", "python", "--pattern", "def $F($$$A): $$$B", "--json=stream"),
)
MIDFILL = [sys.executable, "-m", "midfill_infill", "refactor"]


def copy_files(root: Path, wanted: int) -> tuple[int, float]:
    """Python files of this installation, below `root`; returns how many and their megabytes."""
    sources = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")} | {Path("/usr/lib/python3")}
    found = sorted(path for source in sources for path in source.rglob("*.py"))
    size = count = 0
    old = time.time() - 1000
    for path in found:
        facts = path.stat()
        if count == wanted or facts.st_size > MAX_DOCUMENT_BYTES:
            continue
        target = root / f"d{count // 500}" / f"f{count}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        os.utime(target, (old, old))
        count, size = count + 1, size + facts.st_size
    return count, size / 1e6


def run(root: Path, *words: str) -> tuple[float, float, int, str]:
    """Wall seconds, CPU seconds and the largest memory of a command, in MiB, and its remarks."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    result = subprocess.run(words, cwd=root, capture_output=True, text=True)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, after.ru_maxrss // 1024, (result.stderr.strip().splitlines() or [""])[0]


def rate(count: int, cpu_s: float) -> str:
    return f"{count / cpu_s:.0f} files a CPU second ({cpu_s:.2f} s)"


def parse_all(root: Path) -> float:
    language, began = get_language("python"), time.process_time()
    for path in root.rglob("*.py"):
        language.parse(path.read_bytes())
    return time.process_time() - began


def many(num_files: int, per_file: int) -> Iterator[PlannedFile]:
    for number in range(num_files):
        holes = [Hole(50 * n, 50 * n + 3, kind="stub", name=f"function_{n}", indent="    ") for n in range(per_file)]
        yield PlannedFile(
            f"package/module_{number // 100}/file_{number}.py", number.to_bytes(32), "python", tuple(holes)
        )


def measure_journal(folder: Path, num_files: int) -> None:
    from midfill_infill.refactor.journal.runs import find_run, journal_of
    from midfill_infill.repository.roots import find_repository

    place = find_repository(folder)
    began = time.perf_counter()
    meta = {"run": "20260101-000000-0000", "planned_at": ""}
    with Journal.create(journal_of(place, "20260101-000000-0000"), meta) as journal:
        _, num_holes = journal.add_plan(many(num_files, 10))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    took = time.perf_counter() - began
    print(f"journal of {num_files:,} files and {num_holes:,} holes: {took:.1f} s, {peak} MiB at most")
    with Journal(find_run(place), read_only=True) as journal:
        began = time.perf_counter()
        assert sum(journal.counts().values()) == num_holes
        print(f"status of it: {1000 * (time.perf_counter() - began):.0f} ms and the command's start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--journal-files", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        (Path(folder) / "big").mkdir()
        measure_journal(Path(folder) / "big", options.journal_files)
        root = Path(folder) / "tree"
        count, megabytes = copy_files(root, options.files)
        parse_s = parse_all(root)
        print(f"{count} files, {megabytes:.0f} MB; tree-sitter alone: {count / parse_s:.0f} files a CPU second")
        for what in (("--stubs",), ("--recipe", "add-docstrings")):
            wall, cpu, peak, said = run(root, *MIDFILL, "plan", *what)
            print(f"{what[-1]}: {rate(count, cpu)}, {wall:.2f} s wall, {peak} MiB at most ({said})")
            for rival in RIVALS:
                if shutil.which(rival[0]):
                    wall, cpu, peak, _ = run(root, *rival)
                    print(f"{shlex.join(rival)}: {rate(count, cpu)}, {wall:.2f} s wall, {peak} MiB at most")


if __name__ == "__main__":
    main()
