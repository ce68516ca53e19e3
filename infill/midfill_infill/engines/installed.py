"""Tells what is installed: versions, missing packages, the command that starts an engine. Imports none of them."""

import importlib.util
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Final

ENGINE_PACKAGES: Final = ("torch", "tokenizers", "safetensors", "fastapi", "uvicorn")
# Environment variables of an engine's process.
# glibc: all threads share one heap, which keeps up to 128 MiB of freed memory during a fill; the idle engine gives it
# back. Otherwise each large tensor is mapped anew: a page fault per 4 KiB, a quarter more CPU time per fill.
# GNU OpenMP: threads spin briefly before they sleep. By default they sleep at once if a process has two thread pools,
# as one with torch has: a fill took 3.4 s instead of 2.5 s.
_TUNING: Final = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
    "MALLOC_TRIM_THRESHOLD_": str(2**27),
    "GOMP_SPINCOUNT": "2000",
}
_TREE: Final = Path(__file__).parents[3]


def distribution_version() -> str:
    """The installed version of Midfill, or "0+source" if it runs from a source tree that is not installed."""
    return package_version("midfill") or "0+source"


def describe_build() -> str:
    """One line with the version, the commit if known, and the versions of Python and torch."""
    torch = package_version("torch")
    runs_on = [f"Python {platform.python_version()}", f"torch {torch}" if torch else "no torch"]
    return f"midfill {distribution_version()} ({', '.join([*_describe_commit(), *runs_on])})"


def _describe_commit(tree: Path = _TREE) -> list[str]:
    """Words for the commit of the running source tree or of the installed repository; empty if neither is known."""
    try:
        if (tree / ".git").exists():
            words = ["git", "-C", str(tree), "describe", "--always", "--dirty", "--exclude=*"]
            return [f"commit {subprocess.run(words, capture_output=True, check=True, text=True).stdout.strip()}"]
        origin = json.loads(distribution("midfill").read_text("direct_url.json") or "{}")
        return [f"commit {origin['vcs_info']['commit_id'][:12]}"]
    except (OSError, subprocess.CalledProcessError, PackageNotFoundError, KeyError, ValueError):
        return []


def package_version(name: str) -> str | None:
    """The installed version of a distribution; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def missing_engine_packages() -> list[str]:
    """The names of the packages that an engine needs and that are not installed."""
    return [name for name in ENGINE_PACKAGES if importlib.util.find_spec(name) is None]


def engine_command() -> list[str]:
    """The first words of the command that starts an engine. `-P`: no file of the current folder shadows a library."""
    return [sys.executable, "-P", "-m", "midfill_engine"]


def engine_environment() -> dict[str, str]:
    """The environment of an engine's process: this process's own and _TUNING where that does not set the same. Entries
    of PYTHONPATH become absolute, because the engine runs in another folder.
    """
    environment = _TUNING | os.environ
    if path := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in path.split(os.pathsep))
    return environment
