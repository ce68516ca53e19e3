"""Runs the user's command again and again over one copy, and keeps pytest warm. Knows files and outcomes, no fills."""

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
MARKER: Final = ".midfill-reached"  # the file that code to be noticed creates, and may write words into
_REPORT: Final = ".midfill-report"  # the file with the plugin's report of a cold run
# A shell's exit codes for a command that is missing or cannot be started.
_NOT_FOUND: Final = (126, 127)


@dataclass(frozen=True)
class Ran:
    """The outcome of one run. `code` is the exit code, None after the timeout. `passed` is the number of tests that
    passed, None if it is unknown; `failures` are those that the report or the output describes. `failed` are the ids of
    all tests that failed, None if they are unknown; of these, `excused` do not count. `reached`: some code created the
    marker file. `reached_by` are the words that each test wrote into it, by the test's id; None if they are unknown.
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
        """True if the command passes, or if only excused tests fail."""
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
    """Runs `command` over `copy`. Its methods raise MidfillError if it cannot be started or is cancelled."""

    def __init__(self, copy: Copy, command: Command) -> None:
        self.copy, self.command = copy, command
        self._warm: WarmPytest | None = None
        self._takes_plugin = True  # False once pytest has failed because of the plugin
        self.only: frozenset[str] | None = None  # the ids of the tests that warm runs are for, None for all
        self.start_s = 0.0  # minimum time limit of a run with `cold=True`

    def run(self, files: Mapping[str, bytes], *, cold: bool = False, traced: bool = False) -> Ran:
        """Runs the command on the tree with `files` in it; `cold` starts a new process even if one is warm. Such a run
        tells which tests created the marker only if it is `traced`; a warm run always does.
        """
        self.copy.put(files)
        marker = self.copy.mirror.work / MARKER
        if self._warm is not None and not cold:
            try:
                only = None if self.only is None else sorted(self.only)
                report = self._warm.run(self.command, marker=str(self.copy.root / MARKER), only=only)
                return replace(_read_report(report), reached=marker.exists())
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
            tests = json.loads(read_content(self.copy.mirror.work / _REPORT).data)
            report = {**tests, "code": outcome.code, "output": outcome.output, "seconds": seconds}
            return replace(_read_report(report), reached=reached, is_warm=False)
        except (OSError, ValueError, TypeError, KeyError):  # it is no pytest, did not come to its end, or was disturbed
            if is_reported and PLUGIN_NAME in outcome.output:  # not found, as `python -I` ignores PYTHONPATH
                self._takes_plugin = False
                return self.run(files, cold=True, traced=traced)
            passed, failures = read_output(outcome.output)
            return Ran(outcome.code, outcome.output, seconds, passed, failures, reached)

    def warm_up(self, files: Mapping[str, bytes], expected: Ran) -> Ran:
        """Keeps the command warm if a warm run has the exit code of `expected`. Returns that run, else `expected`."""
        if tell_why_cold(self.command):
            return expected
        self.copy.put(files)
        try:
            self._warm = WarmPytest(self.copy, self.command)
            report = self._warm.run(self.command, wants_modules=True)
            self._warm.take_in(report, self.command)
            self.copy.put(files)
            ran = _read_report(self._warm.run(self.command))
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


def _read_report(report: dict[str, Any]) -> Ran:
    """The run that a report of the plugin describes."""
    failures = tuple(
        Failure(entry["test"], entry["kind"], entry["message"], tuple(Frame(*frame) for frame in entry["frames"]),
                entry.get("reached"))
        for entry in report.get("failures", [])
    )  # fmt: skip
    reached = report.get("reached")
    return Ran(
        report["code"],
        report["output"],
        report["seconds"],
        report.get("passed"),
        failures,
        is_warm=True,
        failed=frozenset(report["failed"]) if "failed" in report else None,
        reached_by={test: frozenset(words) for test, words in reached.items()} if reached is not None else None,
    )
