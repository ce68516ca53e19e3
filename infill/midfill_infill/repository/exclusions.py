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
from typing import Final

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
"""Names of files and folders, in capitals too; a star is any text."""
SECRET_PATHS: Final = ("/.kube/config", "/.docker/config.json")
_SECRET: Final = re.compile("|".join(map(translate, SECRETS)), re.IGNORECASE)
# The name of the standard library's module, and of files that are named after a class.
_NO_SECRET: Final = re.compile(r"secrets\.py|Secrets?\.(?:java|kt|cs|scala|swift|vue|svelte|[jt]sx?|cpp|hpp|h)")

# For so long nobody asks git again where no file that it is known to read has changed.
REFRESH_S: Final = 60.0
_MAX_KNOWN: Final = 4096


@dataclass(frozen=True)
class _Home:
    """A folder without links, its repository's root, and the times of what decides there what git ignores."""

    real: str
    root: str | None
    stamp: tuple[int, ...]


Stamps = dict[str, _Home]
"""What is known of folders. Calls that share it check each folder once."""
_Place = tuple[str, str, tuple[int, ...]]  # a repository's root, a name in it, a stamp
_known: dict[_Place, bool] = {}


def find_exclusion(path: Path, listed: Sequence[str] = (), stamps: Stamps | None = None) -> str | None:
    """Why `path` is excluded, as a phrase; None if it is not. The user's patterns `listed` match below any folder:
    `src/gen/`, `/src/gen/` and `**/src/gen/` are the same.
    """
    return find_exclusions((path,), listed, stamps).get(path)


def find_exclusions(paths: Iterable[Path], listed: Sequence[str] = (), stamps: Stamps | None = None) -> dict[Path, str]:
    """Those of `paths` that are excluded, each with the reason. Asks git once for each repository."""
    stamps = {} if stamps is None else stamps
    found, waiting = dict[Path, str](), dict[Path, list[str]]()
    for path in paths:
        waiting[path] = _resolve(os.path.abspath(path), stamps)
        for name in (os.path.abspath(path), *waiting[path]):
            if (reason := find_named_exclusion(Path(name).as_posix(), listed)) is not None:
                found.setdefault(path, _explain(path, name, reason))
    places = {name: _place(name, stamps) for path, names in waiting.items() if path not in found for name in names}
    ignored = _find_ignored({place for place in places.values() if place is not None})
    for path, names in waiting.items():
        hit = None if path in found else next((name for name in names if places[name] in ignored), None)
        if hit is not None:
            found[path] = _explain(path, hit, "git ignores it")
    return found


def _explain(path: Path, name: str, reason: str) -> str:
    target = os.path.basename(name)
    return reason if target == path.name else f"it links to {target}, and {reason}"


def _resolve(path: str, stamps: Stamps) -> list[str]:
    """The path without links in its folder, the links that lead there, and what it links to itself."""
    folder, name = os.path.split(path)
    real = _find_home(folder, stamps).real
    names = [os.path.join(real, name)]
    if real != folder:
        links = [str(each) for each in Path(folder).parents if os.path.islink(each)] + [folder] * os.path.islink(folder)
        names += [os.path.join(os.path.realpath(os.path.dirname(link)), os.path.basename(link)) for link in links]
    return [*names, os.path.realpath(path)] if os.path.islink(path) else names


def _place(path: str, stamps: Stamps) -> _Place | None:
    """A path without links in its repository; None outside of one."""
    home = _find_home(os.path.dirname(path), stamps)
    return None if home.root is None else (home.root, os.path.relpath(path, home.root), home.stamp)


def _find_home(folder: str, stamps: Stamps) -> _Home:
    if folder not in stamps:
        real = os.path.realpath(folder)
        stamps[folder] = _read_home(folder, stamps) if real == folder else _find_home(real, stamps)
    return stamps[folder]


def _read_home(folder: str, stamps: Stamps) -> _Home:
    own, above = _time_ns(f"{folder}/.gitignore"), os.path.dirname(folder)
    if os.path.lexists(f"{folder}/.git"):
        files = (_time_ns(f"{folder}/.git{name}") for name in ("", "/index", "/config", "/info/exclude"))
        return _Home(folder, folder, (own, *files, int(time.monotonic() // REFRESH_S)))
    if above == folder:
        return _Home(folder, None, ())
    outer = _find_home(above, stamps)
    return _Home(folder, outer.root, (own, *outer.stamp))


def _time_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except (OSError, ValueError):  # does not exist
        return -1


def _find_ignored(places: Collection[_Place]) -> set[_Place]:
    """The places that git ignores. Where it cannot say, as without git, the files `.gitignore` do."""
    unknown = [place for place in places if place not in _known]
    for root in {place[0] for place in unknown}:
        names = [name for other, name, _ in unknown if other == root]
        try:
            ignored = git.find_ignored(Path(root), names)
        except MidfillError:
            ignored = {name for name in names if is_ignored(Path(root, name), Path(root))}
        if len(_known) > _MAX_KNOWN:
            _known.clear()
        _known.update({place: place[1] in ignored for place in unknown if place[0] == root})
    return {place for place in places if _known.get(place)}


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
    """True if the files `.gitignore` of the tree `root` exclude a file or folder: the deepest folder with a matching
    rule decides, and an ignored folder excludes everything in it.
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
