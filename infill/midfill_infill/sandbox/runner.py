"""Runs the user's command repeatedly over one copy; pytest is kept warm. Knows files and outcomes, nothing of fills."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from midfill_infill.errors import MidfillError
from midfill_infill.repository.content import read_content
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.copy import Copy
from midfill_infill.sandbox.failures import Failure, Frame, read_output
from midfill_infill.sandbox.reasons import find_reason
from midfill_infill.sandbox.warm import PLUGIN_NAME, WarmEnded, WarmPytest, add_plugin, tell_why_cold

TESTS_FAILED: Final = 1  # the exit code of pytest if all tests ran and some failed
MARKER: Final = ".midfill-reached"
_REPORT: Final = ".midfill-report"
# A shell's exit codes for a command that is missing or cannot be started.
_NOT_FOUND: Final = (126, 127)


@dataclass(frozen=True)
class Ran:
    """One run. `code` is None after the timeout; without a test report `failures` is empty and `passed` is None.
    `failed` are the ids of all tests that failed, None if they are unknown; of these, `excused` do not count.
    `reached_by` has the ids of the tests that ran code that leaves the marker, and the words that it left there; None
    if they are unknown.
    """

    code: int | None
    output: str
    seconds: float
    passed: int | None = None
    failures: tuple[Failure, ...] = ()
    reached: bool = False
    is_warm: bool = False
    failed: frozenset[str] | None = None
    excused: frozenset[str] = frozenset()
    reached_by: Mapping[str, frozenset[str]] | None = None

    @property
    def blamed(self) -> frozenset[str] | None:
        """The ids of the tests that failed and count; None if they are unknown."""
        if self.failed is None or self.code not in (0, TESTS_FAILED):
            return None
        return self.failed - self.excused

    @property
    def is_good(self) -> bool:
        return self.code == 0 or (bool(self.failed) and self.blamed == frozenset())

    @property
    def verdict(self) -> str:
        if self.is_good:
            return "passed"
        if self.code is None:
            return "too slow"
        return "did not run" if self.code in _NOT_FOUND else "failed"

    @property
    def reason(self) -> str:
        """Why it failed, on one line; empty if the command does not tell."""
        if self.failures:
            return self.failures[0].sentence
        return find_reason(self.output) if self.verdict == "failed" else ""


class Runner:
    """Raises MidfillError if the command cannot be started."""

    def __init__(self, copy: Copy, command: Command) -> None:
        self.copy, self.command = copy, command
        self._warm: WarmPytest | None = None
        self._takes_plugin = True  # until pytest complains about it
        self.only: frozenset[str] | None = None  # the ids of the tests that warm runs are for, None for all
        self.start_s = 0.0  # minimum time limit of a run with `cold=True`

    def run(self, files: Mapping[str, bytes], *, cold: bool = False, traced: bool = False) -> Ran:
        """Runs the command on the tree with `files` in it; `cold` starts a new process even if one is warm. Such a run
        tells what leaves the marker only if it is `traced`.
        """
        self.copy.put(files)
        marker = self.copy.mirror.work / MARKER
        if self._warm is not None and not cold:
            try:
                only = None if self.only is None else sorted(self.only)
                told = self._warm.run(self.command, marker=str(self.copy.root / MARKER), only=only)
                return replace(_read(told), reached=marker.exists())
            except WarmEnded:
                self.close()
                self.copy.put(files)
            except MidfillError:  # cancelled: a late answer would be taken for the next one
                self.close()
                raise
        command = replace(self.command, timeout_s=max(self.command.timeout_s, self.start_s if cold else 0.0))
        is_reported = self._takes_plugin and not tell_why_cold(command)
        if is_reported:
            marks = {"MARKER": str(self.copy.root / MARKER)} if traced else {}
            command = add_plugin(command, self.copy, REPORT=str(self.copy.root / _REPORT), **marks)
        began_s = time.perf_counter()
        outcome = self.copy.run(command)
        seconds, reached = time.perf_counter() - began_s, marker.exists()
        try:
            report = json.loads(read_content(self.copy.mirror.work / _REPORT).data)
            told = {**report, "code": outcome.code, "output": outcome.output, "seconds": seconds}
            return replace(_read(told), reached=reached, is_warm=False)
        except (OSError, ValueError, TypeError, KeyError):  # it is no pytest, did not come to its end, or was disturbed
            if is_reported and PLUGIN_NAME in outcome.output:  # as of a Python that ignores its variables
                self._takes_plugin = False
                return self.run(files, cold=True, traced=traced)
            passed, failures = read_output(outcome.output)
            return Ran(outcome.code, outcome.output, seconds, passed, failures, reached)

    def warm_up(self, files: Mapping[str, bytes], expected: Ran) -> Ran:
        """Keeps the command warm from now on, if a warm run ends as `expected`; that run, or `expected`."""
        if tell_why_cold(self.command):
            return expected
        self.copy.put(files)
        try:
            self._warm = WarmPytest(self.copy, self.command)
            told = self._warm.run(self.command, wants_modules=True)
            self._warm.take_in(told, self.command)
            self.copy.put(files)
            ran = _read(self._warm.run(self.command))
            if ran.code == expected.code:
                return ran
        except WarmEnded:
            pass
        except MidfillError:
            self.close()
            raise
        self.close()
        return expected

    def close(self) -> None:
        """Ends the warm process; later runs are cold."""
        if self._warm is not None:
            self._warm.close()
            self._warm = None


def _read(told: dict[str, Any]) -> Ran:
    failures = tuple(
        Failure(each["test"], each["kind"], each["message"], tuple(Frame(*frame) for frame in each["frames"]),
                each.get("reached"))
        for each in told.get("failures", [])
    )  # fmt: skip
    reached = told.get("reached")
    return Ran(
        told["code"],
        told["output"],
        told["seconds"],
        told.get("passed"),
        failures,
        is_warm=True,
        failed=frozenset(told["failed"]) if "failed" in told else None,
        reached_by={test: frozenset(words) for test, words in reached.items()} if reached is not None else None,
    )
