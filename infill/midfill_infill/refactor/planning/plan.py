"""Plans a run: finds the holes of all chosen files, one file after the other. Knows no engine."""

import os
import shutil
import stat
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.languages import REGISTRY, find_language
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import PlannedFile
from midfill_infill.refactor.journal.runs import journal_of, new_run_id
from midfill_infill.refactor.planning.selection import Selection
from midfill_infill.repository import guards, walk
from midfill_infill.repository.changes import ChangedLines, find_changed
from midfill_infill.repository.content import digest
from midfill_infill.repository.exclusions import find_named_exclusion
from midfill_infill.repository.replace import sync_folder
from midfill_infill.repository.roots import Repository
from midfill_infill.text.document import Document, read_bytes
from midfill_infill.text.spans import Hole

_MAX_INTENT: Final = 200
NUM_NEW_FOLDERS: Final = 6  # that hold a run, or a folder that its first run makes


@dataclass(frozen=True)
class Request:
    """A selection of holes and the files to search: the user's paths `names`, or all files below `folder`; of both only
    those that match `globs`. `intent` is shown to the model as a comment above every hole. Raises `bad_request` if the
    intent is not one short line.
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
    """Counters of a plan. `skipped` counts the files that are left out by reason, `examples` names the first three.
    `unfollowed` lists what the recipe leaves as it is: path, line (counted from 1), and reason.
    """

    num_seen: int = 0
    num_files: int = 0
    num_holes: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    unfollowed: list[tuple[str, int, str]] = field(default_factory=list)

    def skip(self, reason: str, path: str) -> None:
        self.skipped[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < 3:
            examples.append(path)


def find_holes(repository: Repository, request: Request, planning: Planning) -> Generator[PlannedFile, None, None]:
    """Files with holes, in the order of their paths or of `request.names`. Raises `git_failed` and `target_refused`."""
    if request.names is None:
        names: Iterable[str] = walk.list_files(repository, request.folder)
    else:
        names = _list_given(repository, request.names, planning)
    changed = None if request.changed_since is None else find_changed(repository.root, request.changed_since)
    if changed is not None:
        names = [name for name in names if name in changed.ranges]
    marked = walk.read_attributes(repository.root)
    for name in walk.choose(names, request.globs):
        if not request.include_generated and walk.is_foreign(name, marked):
            if find_language(Path(name)) is not None:
                planning.skip("generated or of a third party, by its path", name)
            continue
        planned = _plan_file(repository.root, name, request, planning, changed)
        if planned is not None and planned.holes:
            planning.num_files += 1
            planning.num_holes += len(planned.holes)
            yield planned


def make_run(repository: Repository, request: Request, planning: Planning, seed: int = 0) -> Path:
    """Plans into a new run and returns its journal, which exists only when the plan is complete and on the disk."""
    run_id = new_run_id(repository)
    path = journal_of(repository, run_id)
    unfinished = path.with_name("planning.db")
    meta = {
        "run": run_id,
        "root": os.fsdecode(repository.root),
        "seed": seed,
        "selection": asdict(request.selection),
        "intent": request.intent,
        "planned_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    try:
        with Journal.create(unfinished, meta) as journal, closing(find_holes(repository, request, planning)) as files:
            journal.add_plan(files)
        unfinished.replace(path)
    finally:
        if not path.exists():
            shutil.rmtree(path.parent, ignore_errors=True)
    for folder in path.parents[:NUM_NEW_FOLDERS]:
        with suppress(OSError):  # one that cannot be read was not made here
            sync_folder(folder)
    return path


def _list_given(repository: Repository, given: Sequence[str], planning: Planning) -> Iterator[str]:
    """The paths `given` (absolute or relative to the working folder), relative to the root, without ignored ones."""
    names = list(dict.fromkeys(_below_root(repository.root, name) for name in given))
    ignored = walk.find_ignored(repository, names)
    for name in names:
        if (repository.root / name).is_dir():
            raise MidfillError("file_is_directory", f"{name} is a folder", "name files")
        if name in ignored:
            planning.skip("ignored", name)
        elif not os.path.lexists(repository.root / name):
            planning.skip("no such file", name)
        else:
            yield name


def _below_root(root: Path, name: str) -> str:
    """A path relative to the root; a link at its end is not followed. Raises `target_refused` outside of the root."""
    path = Path(os.path.abspath(name))
    folder = Path(os.path.realpath(path.parent))
    if not folder.is_relative_to(root):
        raise MidfillError("target_refused", f"{name} is outside of {root}")
    return (folder / path.name).relative_to(root).as_posix()


def _plan_file(
    root: Path, name: str, request: Request, planning: Planning, changed: ChangedLines | None
) -> PlannedFile | None:
    """A file with its holes, of which there may be none; None for a file that is left out."""
    language = find_language(Path(name))
    if language is None:
        return None
    if (secret := find_named_exclusion(name, ())) is not None:
        planning.skip(secret, name)
        return None
    if request.selection.languages and language not in request.selection.languages:
        planning.skip(f"{REGISTRY[language].title}, which the recipe does not know", name)
        return None
    try:
        facts = os.stat(os.path.join(root, name), follow_symlinks=False)
    except OSError:
        return None  # deleted, but still in the index
    if not stat.S_ISREG(facts.st_mode):
        planning.skip("a link" if stat.S_ISLNK(facts.st_mode) else "not a regular file", name)
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
            holes = tuple(
                hole
                for hole in request.selection.find(document, name)
                if changed is None or changed.touches(name, data, hole.start_byte, hole.end_byte)
            )
            for at, reason in request.selection.list_unfollowed(document, name):
                if changed is None or changed.touches(name, data, at, at):
                    line, _ = document.position_at(at)
                    planning.unfollowed.append((name, line, reason))
    except MidfillError as error:
        planning.skip(error.title.lower(), name)
        return None
    return PlannedFile(name, digest(data), language, holes)
