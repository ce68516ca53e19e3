"""Reads from the output of a test command which tests failed, why and where, and how many passed. Knows text alone."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from midfill_infill.sandbox.reasons import COLOR

_PYTHON_FRAME: Final = re.compile(r'^[ \t]*File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)', re.MULTILINE)
# Places in files as printed by pytest, Go, Rust, JavaScript and compilers. Every pattern here takes time linear in the
# output, which may have a word of 200,000 letters, such as a file in base64, or as many blank lines.
_PLACE: Final = re.compile(r"(?<![\w./@+-])(?P<path>[\w./@+-]+\.[A-Za-z]{1,4}):(?P<line>\d+)(?=[:\s)]|$)", re.MULTILINE)
_PYTEST_PLACE: Final = re.compile(r"^(?P<path>[\w./@+-]+\.py):(?P<line>\d+): (?P<kind>\w*)$", re.MULTILINE)
_ERROR: Final = re.compile(
    r"^(?:E\s+)?(?P<kind>(?>[\w.]*(?:Error|Exception|Exit|Interrupt|panic|FAIL)\w*))(?:: (?P<message>.*))?$",
    re.MULTILINE,
)
_FAILED: Final = re.compile(r"^E\s+Failed: (?P<message>.*)$", re.MULTILINE)  # by `pytest.fail`
_ASSERTED: Final = re.compile(r"^E\s+(?P<message>assert .*)$", re.MULTILINE)
# How pytest, unittest and Go begin the section of a test that failed, with its name.
_SECTION: Final = re.compile(
    r"^(?:_{3,} (?P<pytest>.+) _{3,}|={60,}\n(?:FAIL|ERROR): (?P<unittest>.+)|[ \t]*-{3} FAIL: (?P<go>\S+).*|={60,})$",
    re.MULTILINE,
)
# A traceback without such a section around it. The next ones of a chain of exceptions belong to its first.
_TRACEBACK: Final = re.compile(
    r"(?<!exception occurred:\n\n)(?<!the following exception:\n\n)^Traceback \(most recent call last\):$", re.MULTILINE
)
# Go's last lines.
_GO_END: Final = re.compile(r"^FAIL\b.*\n?", re.MULTILINE)
# Not the lines in which Vitest and Jest count files and snapshots.
_PASSED: Final = re.compile(
    r"^(?![ \t]*(?:Test (?:Files|Suites)|Snapshots)\b).*?(?<![\w.])(\d+) (?:passed|passing)\b", re.MULTILINE
)
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
    """A test that failed, or a traceback. `test` is the test's name, "" if it is not told. `reached`: whether the test
    ran the hole, where a probe leaves a file; None if that is unknown.
    """

    test: str
    kind: str
    message: str
    frames: tuple[Frame, ...] = ()
    reached: bool | None = None

    @property
    def sentence(self) -> str:
        """The failure on one line; the kind of a failed assertion is left out, because its message says it."""
        if not self.kind or self.message.startswith("assert"):
            text = self.message
        else:
            text = f"{self.kind}: {self.message}" if self.message else self.kind
        return " ".join(text.split())


def read_output(output: str) -> tuple[int | None, tuple[Failure, ...]]:
    """Returns the number of tests that passed (None if unknown) and the failures in order."""
    output = COLOR.sub("", output)
    if "--- FAIL: " in output:
        output = _GO_END.sub("", output)
    begins = list(_SECTION.finditer(output))
    if not any(begin.lastgroup for begin in begins):
        begins = list(_TRACEBACK.finditer(output))
    tests = [begin[begin.lastgroup] if begin.lastgroup else "" for begin in begins] or [""]
    starts = [begin.start() for begin in begins] or [0]
    failures: list[Failure] = []
    for test, (start, end) in zip(tests, pairwise([*starts, len(output)]), strict=True):
        failure = _read_section(test, output[start:end])
        if failure is not None:
            failures.append(failure)
    return _count_passed(output), tuple(failures)


def _count_passed(output: str) -> int | None:
    passed = _PASSED.findall(output)  # cargo prints a number for each of its programs
    if passed:
        return sum(map(int, passed))
    ran = _UNITTEST.search(output)
    if ran is None:
        return None
    return int(ran["all"]) - sum(map(int, _NUMBER.findall(ran["others"] or "")))


def _read_section(test: str, section: str) -> Failure | None:
    """The failure of a test's section: its first assertion; otherwise its last error, which is what the test raised; or
    the kind of the last place that names one.
    """
    frames = [Frame(match["path"], int(match["line"]), match["name"]) for match in _PYTHON_FRAME.finditer(section)]
    places = [Frame(match["path"], int(match["line"])) for match in _PLACE.finditer(section)]
    errors, assertion = list(_ERROR.finditer(section)), _ASSERTED.search(section)
    kinds = [match["kind"] for match in _PYTEST_PLACE.finditer(section) if match["kind"]]
    failed = _FAILED.search(section)
    if assertion is not None:
        kind, message = "AssertionError", assertion["message"]
    elif errors:
        kind, message = errors[-1]["kind"].rpartition(".")[2], errors[-1]["message"] or ""
    elif kinds:
        kind, message = kinds[-1], "" if failed is None else failed["message"]
    elif test and places:  # as Go tells why, behind the place
        kind, message = "", section[section.find(f":{places[0].line}:") :].partition("\n")[0].partition(": ")[2]
    else:
        return None
    return Failure(test, kind, message.strip(), tuple(frames or places))
