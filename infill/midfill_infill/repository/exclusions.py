"""Decides which files a fill never reads: secrets, files that the user excludes, files that git ignores.

Knows paths and patterns, no content. The only program it runs is git, and a cloned repository cannot choose another.
"""

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from midfill_infill.errors import MidfillError
from midfill_infill.repository import git
from midfill_infill.repository.patterns import Patterns, anywhere, read_lines

SECRETS: Final = (
    ".env", ".env.*", "*.env", ".envrc", ".dev.vars",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.asc", "*.gpg", "*.ppk",
    "*.crt", "*.cer", "*.der", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
    ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd", ".git-credentials", ".vault-token",
    "credentials", "credentials.json", "client_secret*.json", "service-account*.json",
    "secret.*", "secrets.*", "*.tfvars", "*.tfstate", "*.tfstate.*", ".aws", ".ssh", ".gnupg", ".azure",
)  # fmt: skip
"""Patterns for names of files and folders, in any case; `*` is any text."""
SECRET_PATHS: Final = ("/.kube/config", "/.docker/config.json")
_SECRET: Final = re.compile("|".join(map(translate, SECRETS)), re.IGNORECASE)
# Not secret: Python's module `secrets`, and source files of a class of this name.
_SOURCE_FILE: Final = re.compile(r"secrets\.py|Secrets?\.(?:java|kt|cs|scala|swift|vue|svelte|[jt]sx?|cpp|hpp|h)")

# For so long an answer of git counts while none of the files in `_Folder.stamp` has changed.
REFRESH_S: Final = 60.0
_MAX_NUM_ANSWERS: Final = 4096
_MAX_NUM_LINKS: Final = 40  # as many as Linux follows


@dataclass(frozen=True)
class _Folder:
    """A folder's path without links, its repository's root, and when the files changed that decide what git ignores."""

    real: str
    root: str | None
    stamp: tuple[int, ...]


Stamps = dict[str, _Folder]
"""What was read of folders, by path. Calls that share it read each folder once."""


class _Place(NamedTuple):
    """A path by its `name` relative to the root of its repository, and the stamp of its folder."""

    root: str
    name: str
    stamp: tuple[int, ...]


_answers: dict[_Place, bool] = {}  # whether git ignores a place


def find_exclusion(path: Path, listed: Sequence[str] = (), stamps: Stamps | None = None) -> str | None:
    """The reason why `path` is excluded, as a phrase; None if it is not. `listed` are the patterns of the user's
    setting `exclude`. They match below any folder: `src/gen/`, `/src/gen/` and `**/src/gen/` are the same.
    """
    return find_exclusions((path,), listed, stamps).get(path)


def find_exclusions(paths: Iterable[Path], listed: Sequence[str] = (), stamps: Stamps | None = None) -> dict[Path, str]:
    """The excluded ones of `paths`, each with the reason. Asks git once for each repository."""
    folders = {} if stamps is None else stamps
    reasons, names_of = dict[Path, str](), dict[Path, list[str]]()
    for path in paths:
        names_of[path] = _list_names(os.path.abspath(path), folders)
        for name in (os.path.abspath(path), *names_of[path]):
            if (reason := find_named_exclusion(Path(name).as_posix(), listed)) is not None:
                reasons.setdefault(path, _explain(path, name, reason))
    waiting = {path: names for path, names in names_of.items() if path not in reasons}
    places = {name: _find_place(name, folders) for names in waiting.values() for name in names}
    ignored = _find_ignored({place for place in places.values() if place is not None})
    for path, names in waiting.items():
        ignored_name = next((name for name in names if places[name] in ignored), None)
        if ignored_name is not None:
            reasons[path] = _explain(path, ignored_name, "git ignores it")
    return reasons


def _explain(path: Path, name: str, reason: str) -> str:
    """The reason why `path` is excluded, given that of `name`, which is one of its names."""
    target = os.path.basename(name)
    return reason if target == path.name else f"it links to {target}, and {reason}"


def _list_names(path: str, stamps: Stamps) -> list[str]:
    """All names that may exclude a file: its path without links in the folder, each link on the way to the file, and
    the file that these lead to.
    """
    folder, name = os.path.split(path)
    real = _find_folder(folder, stamps).real
    names = [os.path.join(real, name)]
    if real != folder or os.path.islink(path):
        names += [*_follow_links(path), os.path.realpath(path)]
    return names


def _follow_links(path: str) -> Iterator[str]:
    """Yields the links that the system follows for `path`, each by its path without links in the folder."""
    for _ in range(_MAX_NUM_LINKS):
        above = [path, *map(str, Path(path).parents)]
        link = next(filter(os.path.islink, reversed(above)), None)
        if link is None:
            return
        yield link
        target = os.path.join(os.path.dirname(link), os.readlink(link))
        path = os.path.normpath(target + path[len(link) :])


def _find_place(path: str, stamps: Stamps) -> _Place | None:
    """Where a path without links is in its repository; None outside of one."""
    folder = _find_folder(os.path.dirname(path), stamps)
    return None if folder.root is None else _Place(folder.root, os.path.relpath(path, folder.root), folder.stamp)


def _find_folder(folder: str, stamps: Stamps) -> _Folder:
    """Reads a folder and those above it; keeps them in `stamps`."""
    if folder not in stamps:
        real = os.path.realpath(folder)
        stamps[folder] = _read_folder(folder, stamps) if real == folder else _find_folder(real, stamps)
    return stamps[folder]


def _read_folder(folder: str, stamps: Stamps) -> _Folder:
    own_time, above = _changed_ns(f"{folder}/.gitignore"), os.path.dirname(folder)
    if os.path.lexists(f"{folder}/.git"):
        times = (_changed_ns(f"{folder}/.git{name}") for name in ("", "/index", "/config", "/info/exclude"))
        period = int(time.monotonic() // REFRESH_S)  # git reads further files, such as the user's
        return _Folder(folder, folder, (own_time, *times, period))
    if above == folder:
        return _Folder(folder, None, ())
    outer = _find_folder(above, stamps)
    return _Folder(folder, outer.root, (own_time, *outer.stamp))


def _changed_ns(path: str) -> int:
    """When a file or its mode changed, which no copied time hides; -1 if it does not exist."""
    try:
        return os.stat(path).st_ctime_ns
    except (OSError, ValueError):
        return -1


def _find_ignored(places: Collection[_Place]) -> set[_Place]:
    """The places that git ignores. Where git fails or is not installed, the files `.gitignore` decide."""
    answers = {place: _answers.get(place) for place in places}
    unknown = [place for place, answer in answers.items() if answer is None]
    for root in {place.root for place in unknown}:
        names = [place.name for place in unknown if place.root == root]
        try:
            ignored = git.find_ignored(Path(root), names)
        except MidfillError:
            ignored = {name for name in names if is_ignored(Path(root, name), Path(root))}
        answers |= {place: place.name in ignored for place in unknown if place.root == root}
    if len(_answers) > _MAX_NUM_ANSWERS:
        _answers.clear()
    _answers.update((place, bool(answers[place])) for place in unknown)
    return {place for place in places if answers[place]}


def find_named_exclusion(name: str, listed: Sequence[str]) -> str | None:
    """The reason why the path `name` alone excludes a file, which need not exist; None if it does not."""
    relative = name.lstrip("/")
    if is_secret(relative):
        return "its name is that of a file with secrets"
    if _compile(tuple(listed)).says(relative):
        return "the setting `exclude` names it"
    return None


def is_secret(name: str) -> bool:
    """True if the file or a folder of the path `name` is named like one with secrets."""
    parts = (part for part in name.split("/") if not _SOURCE_FILE.fullmatch(part))
    return f"/{name.lower()}".endswith(SECRET_PATHS) or any(_SECRET.match(part) for part in parts)


@lru_cache(maxsize=64)
def _compile(patterns: tuple[str, ...]) -> Patterns:
    return Patterns(map(anywhere, patterns))


def is_ignored(path: Path, root: Path, *, is_folder: bool = False) -> bool:
    """True if the files `.gitignore` of the tree `root` exclude a file or folder. Of several files with a matching rule
    the deepest decides. An ignored folder excludes everything in it.
    """
    folders = [root, *reversed([folder for folder in path.parents if folder.is_relative_to(root) and folder != root])]
    for target in [*folders[1:], path]:
        is_target_ignored = False
        for patterns, base in _find_patterns(root, folders):
            if target.is_relative_to(base) and target != base:
                slash = "/" if target != path or is_folder else ""
                verdict = patterns.says(target.relative_to(base).as_posix() + slash)
                if verdict is not None:
                    is_target_ignored = verdict
        if is_target_ignored:
            return True
    return False


def _find_patterns(root: Path, folders: Sequence[Path]) -> Iterator[tuple[Patterns, Path]]:
    """The patterns of `.git/info/exclude` and of each folder's `.gitignore`, with the folder that they refer to."""
    unshared = root / ".git" / "info" / "exclude"  # the user's own patterns
    for file, base in [(unshared, root), *((folder / ".gitignore", folder) for folder in folders)]:
        try:
            yield _read_patterns(file, file.stat().st_ctime_ns, follow=file is unshared), base
        except OSError:
            continue


@lru_cache(maxsize=256)  # by the time too, so that a changed file is read again
def _read_patterns(file: Path, changed_ns: int, *, follow: bool) -> Patterns:
    return Patterns(read_lines(file, follow=follow))
