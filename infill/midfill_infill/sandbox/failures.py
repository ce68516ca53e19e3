"""Reads from the output of a test command which tests failed, why and where, and how many passed. Knows text alone."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_PYTHON_FRAME: Final = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)', re.MULTILINE)
# Places in files as printed by pytest, Go, Rust, JavaScript and compilers.
_PLACE: Final = re.compile(r"(?P<path>[\w./@+-]+\.[A-Za-z]{1,4}):(?P<line>\d+)(?=[:\s)]|$)", re.MULTILINE)
_PYTEST_PLACE: Final = re.compile(r"^(?P<path>[\w./@+-]+\.py):(?P<line>\d+): (?P<kind>\w*)$", re.MULTILINE)
_ERROR: Final = re.compile(
    r"^(?:E\s+)?(?P<kind>[\w.]*(?:Error|Exception|Exit|Interrupt|panic|FAIL)\w*)(?:: (?P<message>.*))?$", re.MULTILINE
)
_ASSERTED: Final = re.compile(r"^E\s+(?P<message>assert .*)$", re.MULTILINE)
# How pytest and unittest begin the section of a single test.
_SECTION: Final = re.compile(
    r"^(?:_{3,} .+ _{3,}|={60,}|-{3} FAIL: .*|Traceback \(most recent call last\):)$", re.MULTILINE
)
_PASSED: Final = re.compile(r"(?<![\w.])(\d+) (?:passed|passing)\b")
# unittest's last lines: "Ran 5 tests in 0.1s", and "FAILED (failures=1, errors=1, skipped=1)" or "OK".
_UNITTEST: Final = re.compile(r"^Ran (?P<all>\d+) tests? in .*\n+(?:OK|FAILED)(?: \((?P<others>.*)\))?", re.MULTILINE)
_NUMBER: Final = re.compile(r"=(\d+)")


@dataclass(frozen=True)
class Frame:
    """A place in a file that a traceback names, and the name of its function if that is known."""

    path: str
    line: int
    name: str = ""


@dataclass(frozen=True)
class Failure:
    """A test that failed, or a traceback. `reached`: whether the test made the marker file; None if that is unknown."""

    test: str
    kind: str
    message: str
    frames: tuple[Frame, ...] = ()
    reached: bool | None = None

    @property
    def sentence(self) -> str:
        """The failure on one line; the kind of a failed assertion is left out, because its message says it."""
        text = f"{self.kind}: {self.message}" if self.message and not self.message.startswith("assert") else ""
        return " ".join((text or self.message or self.kind).split())


def read_output(output: str) -> tuple[int | None, tuple[Failure, ...]]:
    """Returns the number of tests that passed (None if unknown) and the failures in order."""
    starts = [match.start() for match in _SECTION.finditer(output)] or [0]
    sections = [output[start:end] for start, end in pairwise([*starts, len(output)])]
    failures = map(_read_section, sections)
    return _count_passed(output), tuple(failure for failure in failures if failure is not None)


def _count_passed(output: str) -> int | None:
    passed = _PASSED.search(output)
    if passed is not None:
        return int(passed[1])
    ran = _UNITTEST.search(output)
    if ran is None:
        return None
    return int(ran["all"]) - sum(map(int, _NUMBER.findall(ran["others"] or "")))


def _read_section(section: str) -> Failure | None:
    """The failure of a section: its first assertion, otherwise its last error, or the kind that a place names."""
    frames = [Frame(match["path"], int(match["line"]), match["name"]) for match in _PYTHON_FRAME.finditer(section)]
    places = [Frame(match["path"], int(match["line"])) for match in _PLACE.finditer(section)]
    errors, assertion = list(_ERROR.finditer(section)), _ASSERTED.search(section)
    pytest_place = _PYTEST_PLACE.search(section)
    if assertion is not None:
        kind, message = "AssertionError", assertion["message"]
    elif errors:
        kind, message = errors[-1]["kind"].rpartition(".")[2], errors[-1]["message"] or ""
    elif pytest_place is not None:
        kind, message = pytest_place["kind"], ""
    else:
        return None
    title = re.match(r"_{3,} (.+?) _{3,}", section)
    return Failure(title[1] if title else "", kind, message.strip(), tuple(frames or places))
