"""Runs git on a user's repository and reads its answers. Knows paths, no holes."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError

# Variables that name another repository than the working folder's (git sets them for hooks) or give paths a meaning.
_MISLEADING: Final = frozenset(
    ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")
    + ("GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS")
)
_TIMEOUT_S: Final = 20.0


def run_git(
    root: Path,
    *words: str,
    stdin: bytes | None = None,
    fine: tuple[int, ...] = (0,),
    environment: Mapping[str, str] = os.environ,
    timeout_s: float | None = None,
) -> bytes:
    """The output of `git WORDS` in the folder `root`. Raises `git_failed` if the exit code is not in `fine`, if git
    cannot be run, and after `timeout_s`.
    """
    variables = {**environment, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    command = ["git", "-c", "core.quotepath=off", "-c", "core.fsmonitor=false", *words]
    try:
        result = subprocess.run(
            command, cwd=root, input=stdin, capture_output=True, env=variables, check=False, timeout=timeout_s
        )
    except OSError as error:
        raise MidfillError("git_failed", f"git cannot be run ({error.strerror})") from None
    except subprocess.TimeoutExpired:
        raise MidfillError("git_failed", f"git {words[0]} did not end in time") from None
    if result.returncode not in fine:
        lines = result.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {result.returncode}"]
        reason = next((line for line in lines if line.startswith("fatal: ")), lines[-1]).removeprefix("fatal: ")
        raise MidfillError("git_failed", f"git {words[0]}: {reason}")
    return result.stdout


def list_files(root: Path, *options: str) -> list[str]:
    """The paths that `git ls-files` prints with `options`. Raises `git_failed`."""
    return split_names(run_git(root, "ls-files", "-z", *options))


def find_ignored(root: Path, paths: Iterable[str]) -> set[str]:
    """Those of `paths` (relative to the repository's root) that git ignores and does not track. Raises `git_failed`,
    also if `root` is no repository's root, and if a folder of a path is a link. Starts no program that the
    repository's configuration chooses: no file monitor, and no transport that fetches what a partial clone lacks.
    """
    names = b"".join(b"./%b\0" % os.fsencode(path) for path in paths)  # git gives a colon at the start a meaning
    if not names:
        return set()
    variables = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    variables |= {"GIT_CEILING_DIRECTORIES": str(root.parent), "GIT_ALLOW_PROTOCOL": "none"}
    words = ("check-ignore", "-z", "--stdin")
    output = run_git(root, *words, stdin=names, fine=(0, 1), environment=variables, timeout_s=_TIMEOUT_S)
    return {name.removeprefix("./") for name in split_names(output)}


def split_names(data: bytes) -> list[str]:
    """The file names in data in which a NUL byte ends each name."""
    return [os.fsdecode(name) for name in data.split(b"\0") if name]
