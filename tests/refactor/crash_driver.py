"""A process that applies or undoes a run and is killed, or told of an error, at its n-th call on a file.

Run as `python crash_driver.py`; reads one JSON job a line and answers one JSON line each. Every job runs in a fork of
its own, so that a kill costs milliseconds. Jobs: {"journal", "root", "action"} and what befalls them: {"at", "errno",
"short", "after"} or {"kill_after_s"}. "group" is how many files are written together.
"""

import errno
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import State
from midfill_infill.refactor.writing import apply
from midfill_infill.refactor.writing.apply import Writer, written_holes
from midfill_infill.refactor.writing.writes import GROUP
from midfill_infill.repository import replace
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document

CALLS = ("open", "write", "fsync", "fchmod", "fchown", "unlink", "rename", "replace", "close", "setxattr", "ftruncate")


class Trap:
    """Counts calls; at the chosen one it kills this process, before or after the call, or raises an error."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.errno: int | None = job.get("errno")
        self.count, self.at = 0, job["at"]
        self.after, self.short = job.get("after", False), job.get("short", False)
        for name in CALLS:
            setattr(os, name, self.wrap(name, getattr(os, name)))
        replace.exchange = self.wrap("exchange", replace.exchange)

    def wrap(self, name: str, function: Any) -> Any:
        def call(*words: Any, **options: Any) -> Any:
            self.count += 1
            if self.count != self.at:
                return function(*words, **options)
            if self.errno is None:
                if self.after:
                    function(*words, **options)
                os.kill(os.getpid(), signal.SIGKILL)
                raise AssertionError("it is dead")
            if name == "write" and self.short:
                function(words[0], bytes(words[1])[: max(1, len(words[1]) // 2)])
            if name == "close":
                function(*words, **options)
            raise OSError(self.errno, os.strerror(self.errno), "injected")

        return call


def work(job: dict[str, Any]) -> dict[str, Any]:
    trap = Trap(job) if job.get("at") else None
    vars(apply)["GROUP"] = job.get("group", GROUP)
    answer: dict[str, Any] = {"troubles": [], "code": None}
    try:
        with Journal(Path(job["journal"])) as journal:
            writer = Writer(journal, Path(job["root"]))
            if job["action"] == "apply":
                holes = list(journal.holes_in(State.ACCEPTED))
                report = writer.apply(holes, is_git=False)
            else:
                report = writer.undo(written_holes(journal))
            answer["troubles"] = [[trouble.path, trouble.code] for trouble in report.troubles]
            answer["files"] = report.num_files
    except MidfillError as error:
        answer["code"] = error.code
    answer["calls"] = trap.count if trap else 0
    return answer


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            answer = json.dumps(work(job))
            pipe.write(answer)
        os._exit(0)
    os.close(writer)
    if job.get("kill_after_s") is not None:
        time.sleep(job["kill_after_s"])
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return {**(json.loads(said) if said else {}), "killed": os.WIFSIGNALED(status), "exit": status}


def main() -> None:
    outline(Document(b"def f():\n    pass\n", "python"))  # loads the grammar once, before the forks
    assert errno.EIO
    for line in sys.stdin:
        print(json.dumps(run_job(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
