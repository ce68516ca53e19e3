"""Takes up stale holes again when their text is as it was, as after a switch of branches and back."""

import os
from pathlib import Path

from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import State, StateChange
from midfill_infill.refactor.writing.edits import Regions
from midfill_infill.repository.content import read_content


def reopen_stale(journal: Journal, root: Path) -> int:
    """Makes stale holes generated again where the file has the text that their fill replaces, and those without a fill
    planned where the file is as it was planned. Returns their number.
    """
    changes: list[StateChange] = []
    for file in journal.files(State.STALE):
        try:
            content = read_content(Path(os.path.realpath(file.below(root))))
        except OSError:
            continue
        holes = journal.holes(file.id)
        known_data = journal.snapshot(file.known_hash)
        regions = None if known_data is None else Regions.find(holes, known_data, content.data)
        for hole in holes:
            if hole.state is not State.STALE:
                continue
            fill = journal.fill(hole)
            if fill is None and content.hash == file.planned_hash:
                changes.append(StateChange(hole.id, State.PLANNED))
            elif fill is not None and regions is not None and regions.text(hole.id) == fill.old:
                changes.append(StateChange(hole.id, State.GENERATED))
    if changes:
        journal.set_states(changes)
    return len(changes)
