"""Brings the states of holes in line with files that somebody else put back, as git does."""

import os
from pathlib import Path

from midfill_infill.refactor.journal import records
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import FileRow, HoleRow, State, StateChange
from midfill_infill.refactor.writing.edits import Regions
from midfill_infill.repository.content import Content, read_content


def reopen_stale(journal: Journal, root: Path) -> int:
    """Makes stale holes accepted again, as they were when `apply` found them stale, where the file has the text that
    their fill replaces, and those without a fill planned where the file is as it was planned. Returns their number.
    """
    return len(_restate(journal, root, State.STALE))


def note_put_back(journal: Journal, root: Path) -> int:
    """Makes written holes undone whose old text is back in their files, as after `git stash`, and applied again those
    whose fill came back the same way. Returns the number of the undone ones.
    """
    changes = _restate(journal, root, *records.WRITTEN, State.UNDONE)
    return sum(change.state is State.UNDONE for change in changes)


def _restate(journal: Journal, root: Path, *states: State) -> list[StateChange]:
    """Journals the new states of those holes in `states` to which their files give another one."""
    changes: list[StateChange] = []
    for file in journal.files(*states):
        try:
            content = read_content(Path(os.path.realpath(file.below(root))))
        except OSError:
            continue
        holes = journal.holes(file.id)
        is_known = content.hash == file.known_hash
        asked = [hole for hole in holes if hole.state in states and not (hole.is_written and is_known)]
        if not asked:
            continue
        has_fills = journal.snapshot(file.planned_hash) is not None
        regions = Regions.find(journal, file, holes, content.data) if has_fills else Regions(content.data, {})
        for hole in asked:
            state = _state_by_file(journal, file, hole, content, regions)
            if state is not None:
                changes.append(StateChange(hole.id, state))
    if changes:
        journal.set_states(changes)
    return changes


def _state_by_file(journal: Journal, file: FileRow, hole: HoleRow, content: Content, regions: Regions) -> State | None:
    """The state that the content of its file gives to a hole; None for the one that it has."""
    fill = journal.fill(hole)
    if fill is None:
        return State.PLANNED if hole.state is State.STALE and content.hash == file.planned_hash else None
    text = regions.text(hole.id)
    if hole.state is State.UNDONE:
        return State.APPLIED if text == fill.new else None
    if text != fill.old:
        return None
    return State.UNDONE if hole.is_written else State.ACCEPTED
