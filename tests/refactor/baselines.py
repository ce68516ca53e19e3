"""Runs the tests of ten known repositories where they are and in the copy that `verify` makes, and compares.

`python tests/refactor/baselines.py` fetches source distributions from PyPI, gives each an environment of its own in
`.venv`, and prints a table: what the tests say outside, what they say inside, and why where that differs.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.refactor.real_repositories import fetch

from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.verifying.verify import Verifier
from midfill_infill.repository.roots import find_repository
from midfill_infill.sandbox import run as sandbox
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.copy import open_copy

PYTEST: Final = (".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
_COUNTED: Final = re.compile(r"\b(\d+) (passed|failed|errors?|skipped|xfailed|xpassed)\b")
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    package: str
    needs: tuple[str, ...]
    tests: tuple[str, ...] = ("tests",)


CASES: Final = (
    Case("attrs==25.4.0", ("hypothesis", "cloudpickle")),
    Case("click==8.1.8", ()),
    Case("flask==3.1.2", ()),
    Case("itsdangerous==2.2.0", ("freezegun",)),
    Case("jinja2==3.1.6", ("trio",)),
    Case("markupsafe==3.0.2", ()),
    Case("more-itertools==10.8.0", ()),
    Case("packaging==25.0", ("pretend", "hypothesis")),
    Case("requests==2.32.5", ("pytest-httpbin", "pytest-mock", "trustme", "PySocks")),
    # Its live servers with a reloader hang where they are, too.
    Case(
        "werkzeug==3.1.3",
        ("ephemeral-port-reserve", "pytest-timeout", "cryptography", "watchdog"),
        ("tests", "--ignore=tests/test_serving.py"),
    ),
)  # fmt: skip


def set_up(root: Path, case: Case) -> None:
    """An environment in the tree with the package itself, as its developers have it."""
    subprocess.run([sys.executable, "-m", "venv", ".venv"], cwd=root, check=True)
    words = [".venv/bin/python", "-m", "pip", "install", "-q", "-q", "--disable-pip-version-check"]
    subprocess.run([*words, "pytest<9", *case.needs, "-e", "."], cwd=root, check=True)


def say(output: str) -> str:
    lines = output.strip().splitlines() or [""]
    counts = _COUNTED.findall(lines[-1])
    return ", ".join(f"{number} {what}" for number, what in counts) or lines[-1][:80]


def run_inside(root: Path, words: tuple[str, ...], folder: Path) -> tuple[sandbox.Outcome, list[str], list[str]]:
    place = find_repository(root)
    notes: list[str] = []
    with (
        Journal.create(folder / "run.db", {"run": "baseline"}) as journal,
        open_copy(place, sandboxed=True) as copy,
    ):
        verifier = Verifier(copy, journal, [], Command(words, 900), notes.append)
        return verifier.run([]), copy.left_out, notes


def measure(case: Case, folder: Path) -> str:
    root = fetch(case.package, folder)
    set_up(root, case)
    words = (*PYTEST, *case.tests)
    outside = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=900).stdout
    inside, left_out, _ = run_inside(root, words, folder)
    news = sorted(set(_FAILED.findall(inside.output)) - set(_FAILED.findall(outside)))
    reason = "; ".join(news[:4]) or ("" if inside.passed else "it fails outside, too")
    name = case.package.replace("==", " ")
    print(f"{name}: left out {left_out[:5]}", flush=True)
    return f"| {name} | {say(outside)} | {say(inside.output)} | {reason} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""], help="run only cases whose package begins so")
    options = parser.parse_args()
    rows = []
    for case in CASES:
        if case.package.startswith(tuple(options.only)):
            with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
                rows.append(measure(case, Path(folder)))
                print(rows[-1], flush=True)
    print("| repository | its tests | in the copy | why |\n|---|---|---|---|", *rows, sep="\n")


if __name__ == "__main__":
    main()
