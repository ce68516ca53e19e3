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


def find_red(*test_files: str, folder: str = "kernels") -> frozenset[str]:
    """The failing tests of `tests/<folder>`, such as `test_head.py::test_no_scores_are_held`; compiled where a GPU is.

    Files that ran are not run again until code, a test, a version or the device changes.
    """
    state = digest_sources()
    marks = {name: Path(tempfile.gettempdir(), f"midfill-red-{state}-{folder}-{name}.json") for name in test_files}
    due = [name for name, mark in marks.items() if not mark.exists()]
    red = _run(due, folder) if due else set()
    for name in due:
        marks[name].write_text(json.dumps(sorted(test for test in red if test.startswith(name))), encoding="utf-8")
    return frozenset(test for mark in marks.values() for test in json.loads(mark.read_text(encoding="utf-8")))


def _run(names: list[str], folder: str) -> set[str]:
    """The names of failing tests; a file that cannot be collected fails as a whole."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        command = [sys.executable, "-m", "pytest", *OPTIONS, f"--rootdir={ROOT}"]
        command += ["-c", str(ROOT / "pyproject.toml"), f"--junitxml={report}"]
        if torch.cuda.is_available() and find_spec("xdist"):
            command += ["-n", str(PROCESSES)]
        paths = [str(ROOT / "tests" / folder / name) for name in names]
        code = subprocess.run([*command, *paths], cwd=ROOT, stdout=sys.stderr).returncode
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    red = {_name(case) for case in cases if case.find("failure") is not None or case.find("error") is not None}
    ran = {_name(case).partition("::")[0] for case in cases}
    return red | (set(names) - ran if code else set())


def _name(case: ElementTree.Element) -> str:
    """The file and name of a test; only the file if it cannot be collected."""
    place, name = case.get("classname") or "", case.get("name") or ""
    return f"{place.rpartition('.')[2]}.py::{name}" if place else f"{name.rpartition('.')[2]}.py"


def stop_unless_green(*test_files: str, folder: str = "kernels") -> None:
    """Ends the process if tests of the measured code fail, and names them."""
    red = find_red(*test_files, folder=folder)
    if red:
        sys.exit(f"No figures while tests fail: {', '.join(sorted(red))}.")


def digest_sources() -> str:
    """A digest of everything that the test results depend on: sources, tests, versions, device."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    sources = hash_sources(*(ROOT / folder for folder in ("kernels", "engine", "infill", "tests")))
    facts = f"{torch.__version__} {describe_triton()} {device} {sources}"
    return sha256(facts.encode()).hexdigest()[:16]


def main(files: Annotated[list[str] | None, typer.Argument(help="below tests/kernels")] = None) -> None:
    """Runs the kernels' tests once for all benches, and those of 4-bit weights, and names those that fail."""
    red = find_red(*(files or sorted(path.name for path in (ROOT / "tests/kernels").glob("test_*.py"))))
    if files is None:
        red |= find_red("test_int4.py", folder="engine")
    print("\n".join(sorted(red)) or "green")
    sys.exit(1 if red else 0)


if __name__ == "__main__":
    typer.run(main)
