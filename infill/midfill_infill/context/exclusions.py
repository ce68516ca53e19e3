"""Decides which files a fill never reads: secrets, files that the user excludes, files that git ignores.

Knows paths and patterns, no content. Runs no program, because a cloned repository must not choose one.
"""

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import Final

from midfill_infill.context.patterns import Patterns, anywhere, read_lines

SECRETS: Final = (
    ".env", ".env.*", "*.env", ".envrc", ".dev.vars",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.asc", "*.gpg", "*.ppk",
    "*.crt", "*.cer", "*.der", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
    ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd", ".git-credentials", ".vault-token",
    "credentials", "credentials.json", "client_secret*.json", "service-account*.json",
    "secret.*", "secrets.*", "*.tfvars", "*.tfstate", "*.tfstate.*", ".aws", ".ssh", ".gnupg", ".azure",
)  # fmt: skip
"""Names of files and folders, in capitals too; a star is any text."""
SECRET_PATHS: Final = ("/.kube/config", "/.docker/config.json")
_SECRET: Final = re.compile("|".join(map(translate, SECRETS)), re.IGNORECASE)
# The name of the standard library's module, and of files that are named after a class.
_NO_SECRET: Final = re.compile(r"secrets\.py|Secrets?\.(?:java|kt|cs|scala|swift|vue|svelte|[jt]sx?|cpp|hpp|h)")

Stamps = dict[str, tuple[int, ...]]
"""For each folder, the modification times of all files that affect what git ignores there."""


def find_exclusion(path: Path, listed: Sequence[str] = (), stamps: Stamps | None = None) -> str | None:
    """Why `path` is excluded, as a phrase; None if it is not. The user's patterns `listed` match below any folder:
    `src/gen/`, `/src/gen/` and `**/src/gen/` are the same. Calls that share `stamps` check each folder once.
    """
    path, stamps = path.absolute(), {} if stamps is None else stamps
    named = _find_exclusion(path, tuple(listed), _stamp(os.path.dirname(path), stamps))
    if named is not None or not os.path.islink(path):
        return named
    target = Path(os.path.realpath(path))
    found = _find_exclusion(target, tuple(listed), _stamp(os.path.dirname(target), stamps))
    return None if found is None else f"it links to {target.name}, and {found}"


def _stamp(folder: str, stamps: Stamps) -> tuple[int, ...]:
    """Modification times of all files that affect what git ignores, up to the repository's root."""
    if folder not in stamps:
        own = _time_ns(f"{folder}/.gitignore"), _time_ns(f"{folder}/.git")
        above = os.path.dirname(folder)
        if own[1] >= 0:
            stamps[folder] = *own, _time_ns(f"{folder}/.git/info/exclude")
        else:
            stamps[folder] = own + (_stamp(above, stamps) if above != folder else ())
    return stamps[folder]


def _time_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except (OSError, ValueError):  # does not exist
        return -1


@lru_cache(maxsize=1024)
def _find_exclusion(path: Path, listed: tuple[str, ...], stamp: tuple[int, ...]) -> str | None:
    if (reason := find_named_exclusion(path.as_posix(), listed)) is not None:
        return reason
    root = next((folder for folder in path.parents if os.path.exists(folder / ".git")), None)
    return "git ignores it" if root is not None and is_ignored(path, root) else None


def find_named_exclusion(name: str, listed: Sequence[str]) -> str | None:
    """Why a file of that path is excluded as far as names tell, wherever it is stored; None if it is not."""
    name = name.lstrip("/")
    if is_secret(name):
        return "its name is that of a file with secrets"
    return "the setting `exclude` names it" if _compile(tuple(listed)).says(name) else None


def is_secret(name: str) -> bool:
    """True if a file or a folder of the path is named like one with secrets."""
    parts = (part for part in name.split("/") if not _NO_SECRET.fullmatch(part))
    return f"/{name.lower()}".endswith(SECRET_PATHS) or any(map(_SECRET.match, parts))


@lru_cache(maxsize=64)
def _compile(patterns: tuple[str, ...]) -> Patterns:
    return Patterns(map(anywhere, patterns))


def is_ignored(path: Path, root: Path, *, is_folder: bool = False) -> bool:
    """True if git ignores a file or folder of the repository `root`: the deepest folder with a matching rule decides,
    and an ignored folder excludes everything in it.
    """
    folders = [root, *reversed([folder for folder in path.parents if folder.is_relative_to(root) and folder != root])]
    for target in [*folders[1:], path]:
        said = None
        for patterns, base in _find_patterns(root, folders):
            if target.is_relative_to(base) and target != base:
                name = target.relative_to(base).as_posix() + ("/" if target != path or is_folder else "")
                opinion = patterns.says(name)
                said = said if opinion is None else opinion
        if said:
            return True
    return False


def _find_patterns(root: Path, folders: Sequence[Path]) -> Iterator[tuple[Patterns, Path]]:
    own = root / ".git" / "info" / "exclude"
    for file, base in [(own, root), *((folder / ".gitignore", folder) for folder in folders)]:
        try:
            yield _read(file, file.stat().st_mtime_ns, follow=file is own), base
        except OSError:
            continue


@lru_cache(maxsize=256)
def _read(file: Path, mtime_ns: int, *, follow: bool) -> Patterns:
    return Patterns(read_lines(file, follow=follow))
