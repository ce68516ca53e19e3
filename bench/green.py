"""Runs the tests of the code that a bench measures, and names those that fail: code that fails gets no figures.

    python -m bench green [FILE ...]    # all of tests/kernels and those of int4; exits with 1 where one is red

Knows test files; no bench.
"""

import json
import platform
import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final
from xml.etree import ElementTree

import torch
import typer

from bench.measure import ROOT, describe_triton, hash_sources

PROCESSES: Final = 8  # compiling takes longest, and the cores do it in parallel
ASKED: Final = "-q --continue-on-collection-errors -p no:cacheprovider --override-ini=addopts= --import-mode=importlib"
OPTIONS: Final = (*ASKED.split(), "-m", "not soak", "-W", "ignore")


def find_red(*tests: str, folder: str = "kernels") -> frozenset[str]:
    """The failing tests of `tests/<folder>`, such as `test_head.py::test_no_scores_are_held`; compiled where a GPU is.

    `tests` are files, or single tests of theirs. Those that ran are not run again until code, a test, a version or the
    device changes.
    """
    state = digest_sources()
    marks = {name: Path(tempfile.gettempdir(), f"midfill-red-{state}-{folder}-{name}.json") for name in tests}
    due = [name for name, mark in marks.items() if not mark.exists()]
    if due:
        red = _run(due, folder)
        for name in due:
            own = sorted(test for test in red if test.startswith(name))
            marks[name].write_text(json.dumps(own), encoding="utf-8")
    kept = [json.loads(mark.read_text(encoding="utf-8")) for mark in marks.values()]
    return frozenset(test for own in kept for test in own)


def _run(tests: list[str], folder: str) -> set[str]:
    """The names of failing tests; a file that cannot be collected fails as a whole."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        command = [sys.executable, "-m", "pytest", *OPTIONS, f"--rootdir={ROOT}"]
        command += ["-c", str(ROOT / "pyproject.toml"), f"--junitxml={report}"]
        if torch.cuda.is_available() and find_spec("xdist"):
            command += ["-n", str(PROCESSES)]
        command += [str(ROOT / "tests" / folder / name) for name in tests]
        code = subprocess.run(command, cwd=ROOT, stdout=sys.stderr).returncode
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    red = {_name(case) for case in cases if case.find("failure") is not None or case.find("error") is not None}
    if code:
        ran = [_name(case) for case in cases]
        red |= {name for name in tests if not any(test.startswith(name) for test in ran)}
    return red


def _name(case: ElementTree.Element) -> str:
    """The file and name of a test; only the file if it cannot be collected."""
    place, name = case.get("classname") or "", case.get("name") or ""
    if not place:
        return f"{name.rpartition('.')[2]}.py"
    return f"{place.rpartition('.')[2]}.py::{name}"


def stop_unless_green(*tests: str, folder: str = "kernels") -> None:
    """Ends the process if tests of the measured code fail, and names them."""
    red = find_red(*tests, folder=folder)
    if red:
        sys.exit(f"No figures while tests fail: {', '.join(sorted(red))}.")


def digest_sources() -> str:
    """A digest of everything that the test results depend on: sources, tests, versions, device."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    sources = hash_sources(*(ROOT / folder for folder in ("kernels", "engine", "infill", "lsp", "bench", "tests")))
    facts = f"{torch.__version__} {describe_triton()} {device} {sources}"
    return sha256(facts.encode()).hexdigest()[:16]


def main(files: Annotated[list[str] | None, typer.Argument(help="below tests/kernels")] = None) -> None:
    """Runs the kernels' tests once for all benches, and those of 4-bit weights, and names those that fail."""
    if files is None:
        red = find_red(*sorted(path.name for path in (ROOT / "tests/kernels").glob("test_*.py")))
        red |= find_red("test_int4.py", folder="engine")
    else:
        red = find_red(*files)
    print("\n".join(sorted(red)) or "green")
    sys.exit(bool(red))


if __name__ == "__main__":
    typer.run(main)
