"""Plans a run: finds the holes of all files. Streams. Knows no engine."""

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from midfill_infill import git
from midfill_infill.errors import MidfillError
from midfill_infill.languages import REGISTRY, find_language
from midfill_infill.refactor.journal import guards
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.places import Repository, new_run_id
from midfill_infill.refactor.journal.records import PlannedFile, digest
from midfill_infill.refactor.planning import walk
from midfill_infill.refactor.planning.selection import Selection
from midfill_infill.text.document import Document, read_bytes
from midfill_infill.text.lines import Lines
from midfill_infill.text.spans import Hole

_HUNK: Final = re.compile(rb"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class ChangedLines:
    """Line ranges, from 0 with an exclusive end, per path relative to the root. None means the whole file."""

    ranges: dict[str, tuple[tuple[int, int], ...] | None]

    def touches(self, path: str, data: bytes, hole: Hole) -> bool:
        """True if a hole overlaps changed lines."""
        if self.ranges.get(path, ()) is None:
            return True
        lines = Lines(data)
        return self.has(path, lines.at(hole.start_byte), lines.at(hole.end_byte))

    def has(self, path: str, first: int, last: int) -> bool:
        """True if one of the lines from `first` to `last` changed."""
        found = self.ranges.get(path, ())
        return found is None or any(start <= last and first < end for start, end in found)


def find_changed(root: Path, reference: str) -> ChangedLines:
    """Differences between `reference` and the files on disk; untracked files count as a whole. Raises MidfillError
    `git_failed`, also for an unknown reference.
    """
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    commit = git.run_git(root, *asked, fine=(0, 1)).decode().strip()
    if not commit:
        message = f"there is no revision {reference!r} in {root}"
        raise MidfillError("git_failed", message, "name a commit, a branch or a tag, see `git log`")
    options = (
        "--unified=0", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--relative",
        "--src-prefix=a/", "--dst-prefix=b/",
    )  # fmt: skip
    found: dict[str, tuple[tuple[int, int], ...] | None] = {}
    path: str | None = None
    in_header = True
    for line in git.run_git(root, "diff", *options, commit, "--").split(b"\n"):
        if line.startswith(b"diff --git "):
            path, in_header = None, True
        elif in_header and line.startswith(b"+++ b/"):
            path = os.fsdecode(line[6:].rstrip(b"\t"))
        elif path is not None and (match := _HUNK.match(line)):
            in_header = False
            start, count = int(match[1]), int(match[2] or b"1")
            span = (start - 1, start - 1 + count) if count else (max(start - 1, 0), start + 1)
            found[path] = (*(found.get(path) or ()), span)
    return ChangedLines(found | dict.fromkeys(git.list_files(root, "--others", "--exclude-standard")))


_MAX_INTENT: Final = 200


@dataclass(frozen=True)
class Request:
    """A selection and the files to search. `names` are explicitly given paths. `intent` is shown to the model as a
    comment above every hole. Raises `bad_request` if it has several lines.
    """

    selection: Selection
    folder: Path | None = None
    globs: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None
    changed_since: str | None = None
    include_generated: bool = False
    intent: str = ""

    def __post_init__(self) -> None:
        if len(self.intent.splitlines()) > 1 or len(self.intent) > _MAX_INTENT:
            message = f"an intent is one line of at most {_MAX_INTENT} characters"
            raise MidfillError("bad_request", message, "say it shorter")


@dataclass
class Planning:
    """Counters of a plan. `skipped` counts omitted files of known languages by reason, with examples; `left` lists what
    the recipe does not follow: path, line from 1, and reason.
    """

    num_seen: int = 0
    num_files: int = 0
    num_holes: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    left: list[tuple[str, int, str]] = field(default_factory=list)

    def skip(self, reason: str, path: str) -> None:
        self.skipped[reason] += 1
        if len(names := self.examples.setdefault(reason, [])) < 3:
            names.append(path)


def find_holes(place: Repository, request: Request, planning: Planning) -> Generator[PlannedFile, None, None]:
    """Files with holes, ordered by path. Raises MidfillError `git_failed` and `file_missing`."""
    names: Iterable[str] = (
        _given(place, request.names, planning) if request.names is not None else walk.list_files(place, request.folder)
    )
    changed = None if request.changed_since is None else find_changed(place.root, request.changed_since)
    names = names if changed is None else [name for name in names if name in changed.ranges]
    marked = walk.read_attributes(place.root)
    chosen = walk.choose(names, request.globs, marked, include_generated=request.include_generated)
    for name in chosen:
        planned = _plan_file(place.root, name, request, planning, changed)
        if planned is not None and planned.holes:
            planning.num_files += 1
            planning.num_holes += len(planned.holes)
            yield planned


def make_run(place: Repository, request: Request, planning: Planning, seed: int = 0) -> Path:
    """Plans into a new run and returns its journal, which exists only when the plan is complete."""
    run_id = new_run_id()
    path = place.run_folder(run_id) / "run.db"
    young = path.with_name("planning.db")
    meta = {
        "run": run_id,
        "root": os.fsdecode(place.root),
        "seed": seed,
        "selection": asdict(request.selection),
        "intent": request.intent,
        "planned_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    with Journal.create(young, meta) as journal, closing(find_holes(place, request, planning)) as files:
        journal.add_plan(files)
    young.replace(path)
    return path


def _given(place: Repository, given: Sequence[str], planning: Planning) -> Iterator[str]:
    """Given paths (relative to the working folder or absolute) as paths relative to the root, without ignored ones."""
    names = [_below_root(place.root, name) for name in dict.fromkeys(given)]
    ignored = walk.find_ignored(place, names)
    for name in names:
        if name in ignored:
            planning.skip("ignored", name)
        else:
            yield name


def _below_root(root: Path, name: str) -> str:
    path = Path(os.path.abspath(name))
    folder = Path(os.path.realpath(path.parent))
    if not folder.is_relative_to(root):
        raise MidfillError("target_refused", f"{name} is outside of {root}")
    return (folder / path.name).relative_to(root).as_posix()


def _plan_file(
    root: Path, name: str, request: Request, planning: Planning, changed: ChangedLines | None
) -> PlannedFile | None:
    language = find_language(Path(name))
    if language is None:
        return None
    if request.selection.languages and language not in request.selection.languages:
        planning.skip(f"{REGISTRY[language].title}, which the recipe does not know", name)
        return None
    try:
        facts = os.stat(os.path.join(root, name), follow_symlinks=False)
    except OSError:
        return None  # deleted, but still in the index
    if not stat.S_ISREG(facts.st_mode):
        return None
    planning.num_seen += 1
    try:
        data = read_bytes(root / name)
        if guards.is_generated(data) and not request.include_generated:
            planning.skip("generated", name)
            return None
        holes: tuple[Hole, ...] = ()
        if request.selection.may_match(name, language):
            language = find_language(root / name, data)
            document = Document(data, language, Path(name))
            found = request.selection.find(document, name)
            holes = tuple(hole for hole in found if changed is None or changed.touches(name, data, hole))
            for at, reason in request.selection.list_left(document, name):
                line, _ = document.position_at(at)
                if changed is None or changed.has(name, line - 1, line - 1):
                    planning.left.append((name, line, reason))
    except MidfillError as error:
        planning.skip(error.title.lower(), name)
        return None
    return PlannedFile(name, digest(data), language, holes)
