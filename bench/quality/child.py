"""Runs one program within limits and says how it ended. Runs alone, with nothing but the standard library beside it.

Reads a job as JSON from stdin; prints the job's mark when the program came to its end, else a word for what ended it.
"""

import json
import os
import resource
import sys
import types


def main() -> None:
    job = json.load(sys.stdin)
    report, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    os.register_at_fork(after_in_child=lambda: os.close(report))
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    for which, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, job["memory_bytes"]),
        (resource.RLIMIT_FSIZE, job["file_bytes"]),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_NPROC, 64),
    ):
        _, hard = resource.getrlimit(which)
        lowest = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (lowest, lowest))
    resource.setrlimit(resource.RLIMIT_CPU, (job["cpu_s"], job["cpu_s"] + 1))
    os.write(report, run(job["program"], job["mark"]).encode())
    os._exit(0)  # threads that the program left behind end with it


def run(program: str, mark: str) -> str:
    # A module of its own, as dataclasses and pickling look their module up by name.
    module = types.ModuleType("candidate")
    sys.modules["candidate"] = module
    sys.argv = ["candidate"]
    try:
        exec(compile(program, "<candidate>", "exec"), module.__dict__)
    except SyntaxError:
        return "syntax"
    except MemoryError:
        return "memory"
    except BaseException as error:  # noqa: BLE001 - whatever ends the program is its result
        return type(error).__name__
    return mark


main()
