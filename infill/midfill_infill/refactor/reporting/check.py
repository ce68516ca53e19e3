"""Lists, without a model, holes left to fill and fills not written. For CI and pre-commit hooks."""

from collections.abc import Sequence
from pathlib import Path

from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.places import Repository
from midfill_infill.refactor.journal.records import State, digest
from midfill_infill.refactor.planning.plan import Planning, Request, find_holes
from midfill_infill.text.document import Document
from midfill_infill.text.visible import visible


def check(place: Repository, request: Request, planning: Planning) -> list[str]:
    """A line for each hole in the files of `request`, and for accepted fills that the latest run has not written.

    Raises MidfillError, also for an unreadable journal.
    """
    findings = []
    for planned in find_holes(place, request, planning):
        path = place.root / planned.path
        document = Document(path.read_bytes(), planned.language, path)
        for hole in planned.holes:
            line, column = document.position_at(hole.start_byte)
            findings.append(visible(f"{planned.path}:{line}:{column}: {hole.name or 'this'} waits to be filled"))
    return findings + _unwritten(place, request.names)


def _unwritten(place: Repository, names: Sequence[str] | None) -> list[str]:
    if not place.run_ids():
        return []
    chosen = None if names is None else {str(Path(name).resolve()) for name in names}
    with Journal(place.find_run(), read_only=True) as journal:
        findings = []
        for file in journal.files(State.ACCEPTED):
            path = file.below(place.root)
            if chosen is not None and str(path.resolve()) not in chosen:
                continue
            number = sum(hole.state is State.ACCEPTED for hole in journal.holes(file.id))
            fills = "1 accepted fill is" if number == 1 else f"{number} accepted fills are"
            is_same = path.exists() and digest(path.read_bytes()) == file.known_hash
            findings.append(visible(f"{file.path}: {fills} not written{'' if is_same else ', and stale'}"))
        return findings
