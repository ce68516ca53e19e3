"""`python engine/bench/counts.py FOLDER`: what counting a file of 5,000 lines costs the expert `counts`, in CPU time.

The file is the first lines of the folder's Python files, a line of it missing. Prints the least of some runs, in ms:
counting for the first time, after an edit, with the gap elsewhere, and the drafts of one line. Knows no model.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from midfill_engine.experts.base import Gap, Sources
from midfill_engine.experts.counts import Counts

NUM_LINES: Final = 5000
NUM_RUNS: Final = 5


def main(folder: Path) -> None:
    lines = "\n".join(path.read_text() for path in sorted(folder.rglob("*.py"))).split("\n")[:NUM_LINES]
    runs = [measure(lines) for _ in range(NUM_RUNS)]
    for name, values in zip(
        ("first", "edit", "gap elsewhere", "drafts of a line"), zip(*runs, strict=True), strict=True
    ):
        print(f"{name}: {min(values):.1f} ms")
    print(f"{len(lines)} lines, {sum(map(len, lines))} characters")


def measure(lines: list[str]) -> tuple[float, ...]:
    expert, middle = Counts(), len(lines) // 2
    opinion = expert.read(show(lines, middle))
    drafts = time_ms(lambda: opinion.propose(0))
    first = time_ms(lambda: Counts().read(show(lines, middle)))
    edited = [*lines[: middle - 1], "    y = 1", *lines[middle - 1 :]]
    return (
        first,
        time_ms(lambda: expert.read(show(edited, middle + 1))),
        time_ms(lambda: expert.read(show(edited, middle + 300))),
        drafts,
    )


def show(lines: list[str], place: int) -> Sources:
    gap = Gap("\n".join(lines[:place]) + "\n    ", "\n" + "\n".join(lines[place + 1 :]))
    return Sources([], (gap.before, gap.after), (gap,))


def time_ms(work: Callable[[], object]) -> float:
    started_s = time.process_time()
    work()
    return 1000 * (time.process_time() - started_s)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
