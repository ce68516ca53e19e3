"""Runs `midfill refactor` over open-source repositories: `python tests/refactor/real_repositories.py`.

Fetches source distributions from PyPI, plans holes in them, fills them with the engine that is installed, keeps what
the repository's own tests pass with, and prints a table. What a user would type is printed too.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MIDFILL: Final = (sys.executable, "-m", "midfill_infill", "refactor")
GIT: Final = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")


@dataclass(frozen=True)
class Case:
    package: str
    plan: tuple[str, ...]
    tests: str


PYTEST: Final = f"{sys.executable} -m pytest -q -x -p no:cacheprovider"
CASES: Final = (
    Case(
        "toolz==1.0.0", ("--recipe", "add-docstrings", "--glob", "toolz/*.py", "--glob", "!tests/"), f"{PYTEST} toolz"
    ),
    Case("toolz==1.0.0", ("--name", "toolz.dicttoolz:*"), f"{PYTEST} toolz/tests/test_dicttoolz.py"),
    Case("inflection==0.5.1", ("--name", "inflection:*"), f"{PYTEST} test_inflection.py"),
    Case("boltons==26.2.0", ("--recipe", "add-docstrings", "--glob", "boltons/[a-e]*.py"), f"{PYTEST} tests"),
    Case("boltons==26.2.0", ("--name", "boltons.mathutils:*"), f"{PYTEST} tests/test_mathutils.py"),
)


def fetch(package: str, folder: Path) -> Path:
    """A git repository with the source distribution in it."""
    words = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        ":all:",
        "-d",
        str(folder),
        package,
    ]
    subprocess.run(words, check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    archive.unlink()
    (root,) = (path for path in folder.iterdir() if path.is_dir())
    for step in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "start"]):
        subprocess.run([*GIT, *step], cwd=root, check=True)
    return root


def run(root: Path, *words: str) -> tuple[float, str]:
    """A command, shown; its seconds and its remarks."""
    print(f"$ midfill refactor {shlex.join(words).replace(sys.executable, 'python')}", flush=True)
    began = time.perf_counter()
    result = subprocess.run([*MIDFILL, *words], cwd=root, capture_output=True, text=True)
    lines = result.stderr.strip().splitlines()
    print(
        "\n".join(line for line in lines if not line.startswith("run ")) + f"\n(exit {result.returncode})\n", flush=True
    )
    return time.perf_counter() - began, result.stderr


def counts(root: Path) -> dict[str, int]:
    result = subprocess.run([*MIDFILL, "status", "--json"], cwd=root, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(result.stdout)["holes"]
    return found


def measure(case: Case, folder: Path) -> str:
    root = fetch(case.package, folder)
    run(root, "plan", *case.plan)
    planned = sum(counts(root).values())
    fill_s, said = run(root, "generate")
    clean = int(re.findall(r"(\d+) clean", said)[-1])
    verify_s, said = run(
        root, "apply", "--all", "--verify", case.tests, "--sandbox" if has_sandbox() else "--no-sandbox"
    )
    end = counts(root)
    kept = end.get("applied", 0)
    status = subprocess.run(["git", "diff", "--stat"], cwd=root, capture_output=True, text=True).stdout.splitlines()
    run(root, "undo")
    assert not subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True).stdout, (
        "undo left changes"
    )
    runs = sum(line.startswith("run ") for line in said.splitlines())
    minutes = (fill_s + verify_s) / 60
    what = " ".join(case.plan[:2])
    print(status[-1] if status else "no change", flush=True)
    return (
        f"| {case.package.replace('==', ' ')} | `{what}` | {planned} | {clean} | {kept} | {60 * planned / fill_s:.0f} "
        f"| {runs} | {kept / minutes:.1f} |"
    )


def has_sandbox() -> bool:
    from midfill_infill.sandbox.run import find_bubblewrap

    return find_bubblewrap() is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run only cases whose package begins so")
    options = parser.parse_args()
    rows = []
    for case in CASES:
        if not case.package.startswith(options.only):
            continue
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            os.environ["XDG_STATE_HOME"] = f"{folder}-state"
            rows.append(measure(case, Path(folder)))
    head = ("repository", "selection", "holes", "clean fills", "kept by the tests", "filled a minute", "test runs")
    print(f"| {' | '.join(head)} | kept a minute |")
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
