"""Writes the fills of a run into their files, and takes them out again. Knows regions and guards, no models.

Each file is rewritten once for all of its holes. Edits that other people made since stay: a hole is found again in the
new text; if it is not, `apply` marks it as stale, and `undo` refuses to take its fill out.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal import records
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import FileRow, HoleRow, Report, Rewrite, State, StateChange, Trouble
from midfill_infill.refactor.writing.bisecting import find_guilty
from midfill_infill.refactor.writing.edits import Regions
from midfill_infill.refactor.writing.imports import has_import, weave
from midfill_infill.refactor.writing.writes import GROUP, in_groups, recover, write_group
from midfill_infill.repository import git, guards
from midfill_infill.repository.content import Content, read_content
from midfill_infill.syntax.outline import find_own
from midfill_infill.syntax.problems import count_errors
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

# Tries for a file that somebody else writes meanwhile: the first one in a group of files, the others alone.
_TRIES: Final = 8

Prepare = Callable[[FileRow, Sequence[HoleRow], Report], Rewrite | None]


class Writer:
    """Writes the fills of one run, and takes them out; the caller holds the root's lock. The options turn guards of
    `apply` off, against uncommitted changes and against files that say that they are generated.
    """

    def __init__(
        self, journal: Journal, root: Path, *, allow_dirty: bool = False, include_generated: bool = False
    ) -> None:
        self.journal, self.root = journal, root
        self._allow_dirty, self._include_generated = allow_dirty, include_generated
        self.run_id = str(journal.get_meta("run"))
        recovered = recover(journal, root)
        self.unsettled, self.recovered = recovered.troubles, replace(recovered, troubles=[])
        self._ignored: set[str] = set()

    def apply(self, holes: Iterable[HoleRow], *, is_git: bool) -> Report:
        """Writes the latest fill of each hole. Raises `tree_dirty` before anything is written."""
        chosen = list(holes)
        self.guard(chosen, is_git=is_git)
        return self._write(_group_by_file(chosen), self._prepare_apply, State.APPLIED)

    def guard(self, holes: Iterable[HoleRow], *, is_git: bool) -> None:
        """Raises `tree_dirty` if `apply` would raise it for these holes."""
        if not is_git:
            return
        files = list(filter(self._is_in_reach, map(self.journal.file, _group_by_file(holes))))
        self._ignored = git.find_ignored(self.root, (file.path for file in files))
        if not self._allow_dirty:
            guards.refuse_dirty(self.root, self._list_foreign(files))

    def undo(
        self, holes: Iterable[HoleRow], state: State = State.UNDONE, reasons: Mapping[int, str] = MappingProxyType({})
    ) -> Report:
        """Restores the old text of each written hole, which gets `state` and its reason. A hole whose text was changed
        since is refused and reported.
        """
        prepare = partial(self._prepare_undo, state=state, reasons=reasons)
        return self._write(_group_by_file(hole for hole in holes if hole.is_written), prepare, state)

    def _is_in_reach(self, file: FileRow) -> bool:
        """True for a file that is there and in a place where `apply` may write; git says nothing about others."""
        try:
            guards.refuse_linked_folder(self.root, file.path)
            guards.find_target(self.root, file.below(self.root))
        except (MidfillError, OSError):
            return False
        return True

    def _list_foreign(self, files: Iterable[FileRow]) -> Iterator[str]:
        """The paths of files whose content this run has not written."""
        for file in files:
            try:
                content = read_content(Path(os.path.realpath(file.below(self.root))))
            except OSError:
                continue
            if not self.journal.regions_written(file.id, content.hash):
                yield file.path

    def _write(self, by_file: Mapping[int, list[HoleRow]], prepare: Prepare, state: State) -> Report:
        """Writes what `prepare` makes of each file. Prepares a file again if others wrote it meanwhile. The report
        starts with what the recovery left open, and with the writes that it completed if their holes got `state`, too.
        """
        report = Report(troubles=self.unsettled)
        self.unsettled = []
        if self.recovered.count(state):
            report.holes, report.num_files = self.recovered.holes, self.recovered.num_files
            self.recovered = Report()
        waiting = list(by_file)  # ids of files
        for attempt in range(_TRIES):
            rewrites = self._prepare_all([(file_id, by_file[file_id]) for file_id in waiting], prepare, report)
            waiting = []
            for group in in_groups(rewrites, GROUP if attempt == 0 else 1):
                try:
                    waiting += write_group(self.journal, self.run_id, group, report)
                except MidfillError as error:
                    if error.code != "disk_full" or len(group) == 1:
                        raise
                    for rewrite in group:  # each needs less room than all
                        waiting += write_group(self.journal, self.run_id, [rewrite], report)
            if not waiting:
                return report
        names = [self.journal.file(file_id).path for file_id in waiting]
        report.troubles += [Trouble(name, "file_changed", f"{name} is being written") for name in names]
        return report

    def _prepare_all(
        self, waiting: Iterable[tuple[int, list[HoleRow]]], prepare: Prepare, report: Report
    ) -> Iterator[Rewrite]:
        """The rewrites of files, each with its holes; reports the files that cannot be prepared."""
        for file_id, holes in waiting:
            file = self.journal.file(file_id)
            try:
                rewrite = prepare(file, holes, report)
            except (MidfillError, OSError) as error:
                report.troubles.append(Trouble.of(file.path, error, reading=True))
                continue
            if rewrite is not None:
                yield rewrite

    def _open(self, file: FileRow) -> tuple[Path, Content, list[HoleRow], Regions]:
        """The path of a file without links, its content, all of its holes, and where they are in this content."""
        target = guards.find_target(self.root, file.below(self.root))
        content = read_content(target)
        guards.check_writable(target, content.status)
        holes = self.journal.holes(file.id)
        return target, content, holes, Regions.find(self.journal, file, holes, content.data)

    def _prepare_apply(self, file: FileRow, chosen: Sequence[HoleRow], report: Report) -> Rewrite | None:
        """The rewrite that writes the fills of the chosen holes; None if none can be written."""
        if file.path in self._ignored:
            raise MidfillError("target_refused", f"{file.path} is ignored by git", "track it, or leave it out")
        guards.refuse_linked_folder(self.root, file.path)
        target, content, holes, regions = self._open(file)
        if guards.is_generated(content.data) and not self._include_generated:
            message = f"{file.path} says that it is generated"
            raise MidfillError("target_refused", message, "leave it out of the plan, or give --include-generated")
        document = Document(content.data, file.language, target)
        is_edited = content.hash != file.known_hash
        texts: dict[int, bytes] = {}  # by the id of a hole
        imports_of: dict[int, tuple[str, ...]] = {}
        for hole in chosen:
            fill = self.journal.fill(hole)
            if fill is None or hole.is_written:
                continue
            if regions.text(hole.id) != fill.old or (is_edited and not _is_in_its_function(document, hole, regions)):
                change = StateChange(hole.id, State.STALE, "its text is not found: it or a line beside it was changed")
                trouble = Trouble(file.path, "hole_stale", f"{_describe_hole(file, hole)}: {change.reason}")
                self._report_left(change, trouble, report)
                continue
            texts[hole.id] = fill.new
            imports_of[hole.id] = fill.imports
        for broken_id in _find_broken(document, regions, texts):
            del texts[broken_id]
            del imports_of[broken_id]
            change = StateChange(broken_id, State.FAILED, "its fill adds a syntax error")
            trouble = Trouble(file.path, "holes_failed", f"hole {broken_id} of {file.path}: {change.reason}")
            self._report_left(change, trouble, report)
        if not texts:
            return None
        imports = set(chain.from_iterable(imports_of.values()))
        after = weave(document, regions.replace(texts), imports)
        changes = tuple(StateChange(hole, State.APPLIED) for hole in texts)
        return Rewrite(file, target, content.data, after.data, content.status, after.rows(holes), changes)

    def _report_left(self, change: StateChange, trouble: Trouble, report: Report) -> None:
        """Journals and reports a hole whose fill is not written; once, although its file may be prepared again."""
        self.journal.set_states([change])
        if any(earlier.hole == change.hole for earlier in report.holes):
            return
        report.holes.append(change)
        report.troubles.append(trouble)

    def _prepare_undo(
        self, file: FileRow, chosen: Sequence[HoleRow], report: Report, state: State, reasons: Mapping[int, str]
    ) -> Rewrite | None:
        """The rewrite that restores the text of the chosen holes, which get `state`; None if none can be restored."""
        target, content, holes, regions = self._open(file)
        texts: dict[int, bytes] = {}
        for hole in chosen:
            fill = self.journal.fill(hole)
            assert fill is not None, "a written hole has a fill"
            if regions.text(hole.id) == fill.new:
                texts[hole.id] = fill.old
            else:
                why = "its text is not found: it or a line beside it was changed since it was applied"
                message = f"{_describe_hole(file, hole)}: {why}"
                trouble = Trouble(file.path, "undo_refused", message)
                if trouble not in report.troubles:  # the file may be prepared again
                    report.troubles.append(trouble)
        if not texts:
            return None
        unwanted = self._list_imports(hole for hole in holes if hole.id in texts)
        unwanted -= self._list_imports(hole for hole in holes if hole.id not in texts)
        unwanted = choose_added(self.journal, file, unwanted)
        document = Document(content.data, file.language, target)
        after = weave(document, regions.replace(texts), (), unwanted)
        changes = tuple(StateChange(hole, state, reasons.get(hole, "")) for hole in texts)
        return Rewrite(file, target, content.data, after.data, content.status, after.rows(holes), changes)

    def _list_imports(self, holes: Iterable[HoleRow]) -> set[str]:
        """The import statements that the written ones of `holes` need."""
        fills = [self.journal.fill(hole) for hole in holes if hole.is_written]
        return {statement for fill in fills if fill is not None for statement in fill.imports}


def _group_by_file(holes: Iterable[HoleRow]) -> dict[int, list[HoleRow]]:
    """The holes by the id of their file."""
    by_file: dict[int, list[HoleRow]] = {}
    for hole in holes:
        by_file.setdefault(hole.file, []).append(hole)
    return by_file


def _describe_hole(file: FileRow, hole: HoleRow) -> str:
    words = f"hole {hole.id} of {file.path}"
    if hole.name:
        words += f" ({hole.name})"
    return words


def _is_in_its_function(document: Document, hole: HoleRow, regions: Regions) -> bool:
    """True if a body is still in the function that it was planned for, and for holes that are no bodies."""
    at, length = regions.places[hole.id]
    if document.syntax is None or hole.kind not in ("body", "stub") or hole.name is None:
        return True
    return find_own(document, Hole(at, at + length, kind="body", name=hole.name)) is not None


def _find_broken(document: Document, regions: Regions, texts: Mapping[int, bytes]) -> list[int]:
    """The ids of the holes whose fills would add syntax errors to the current file."""
    num_before = _count_errors(document, regions, texts)

    def is_sound(chosen: Sequence[int]) -> bool:
        filled = regions.replace({hole_id: texts[hole_id] for hole_id in chosen})
        return _count_errors(document, filled, texts) <= num_before

    return find_guilty(list(texts), is_sound).guilty


def _count_errors(document: Document, regions: Regions, hole_ids: Iterable[int]) -> int:
    """The number of syntax errors in the data of `regions`, with those that only the part from the first to the last of
    these holes tells.
    """
    changed = Document(regions.data, document.language, document.path, document.stored_as)
    places = [regions.places[hole_id] for hole_id in hole_ids if hole_id in regions.places]
    part = [(min(start for start, _ in places), max(map(sum, places)))] if places else []
    return count_errors(changed, part)


def choose_added(journal: Journal, file: FileRow, statements: Iterable[str]) -> set[str]:
    """Those of some import statements that this run added to a file and has not taken out; others are the user's."""
    added: set[str] = set()
    waiting = set(statements)
    for contents in journal.rewrites_of(file.id) if waiting else ():
        before, after = (Document(data, file.language, Path(file.path)) for data in contents)
        waiting = {statement for statement in waiting if has_import(after, statement)}
        added |= {statement for statement in waiting if not has_import(before, statement)}
        waiting -= added
    return added


def written_holes(journal: Journal, file: str | None = None, holes: Sequence[int] = ()) -> list[HoleRow]:
    """The written holes of a run: those with the ids `holes`, and of these those of `file` (a file or a folder,
    relative to the root); by default all. Raises `no_such_hole` if an id is of no written hole or of another file, or
    `file` has none.
    """
    rows = [journal.hole(hole_id) for hole_id in dict.fromkeys(holes)] or list(journal.holes_in(*records.WRITTEN))
    for hole in rows:
        if not hole.is_written:
            raise MidfillError("no_such_hole", f"hole {hole.id} is {hole.state}, not applied")
    if file is None:
        return rows
    files = journal.files(*records.WRITTEN)
    file_ids = {row.id for row in files if file in (".", row.path) or row.path.startswith(f"{file}/")}
    if not file_ids:
        raise MidfillError("no_such_hole", f"nothing was applied to {file}")
    for hole in rows:
        if holes and hole.file not in file_ids:
            raise MidfillError("no_such_hole", f"hole {hole.id} is in {journal.file(hole.file).path}, not in {file}")
    return [hole for hole in rows if hole.file in file_ids]
