"""Reviews fills one by one; every answer is journaled at once. Knows no terminal."""

from collections.abc import Callable
from typing import Final, Protocol

from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import describe_certainty
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import FillRow, HoleRow, State, StateChange
from midfill_infill.refactor.reporting.export import Exported, patch
from midfill_infill.text.document import Document
from midfill_infill.text.encoding import decode

HELP: Final = """\
y  accept this fill
n  reject it
a  accept it and all that are left
d  reject it and all that are left of this file
q  stop; answers are kept, the rest stays open
e  edit the fill in $EDITOR
b  back to the one before
r  reroll: another fill with another seed
s  show more context"""

Reroll = Callable[[HoleRow], HoleRow]


class Screen(Protocol):
    """The user interface of a review."""

    def show(self, text: str) -> None: ...

    def show_diff(self, diff: bytes, encoding: str) -> None: ...

    def ask(self, question: str) -> str:
        """One answer; "" at end of input."""
        ...

    def edit(self, text: str, suffix: str) -> str | None:
        """The edited text; None if unchanged. Raises MidfillError."""
        ...


def review(journal: Journal, screen: Screen, reroll: Reroll) -> None:
    """Asks about every generated fill, in plan order."""
    waiting = [hole.id for hole in journal.holes_in(State.GENERATED)]
    done: list[int] = []
    while waiting:
        hole = journal.hole(waiting[0])
        _show(journal, screen, hole, f"({len(done) + 1}/{len(done) + len(waiting)})", 3)
        answer = _ask(journal, screen, reroll, hole)
        if answer == "q":
            break
        if answer == "b":
            if done:
                back = done.pop()
                journal.set_states([StateChange(back, State.GENERATED)])
                waiting.insert(0, back)
            continue
        taken = _taken(journal, hole, answer, waiting)
        state = State.REJECTED if answer in "nd" else State.ACCEPTED
        journal.set_states([StateChange(number, state) for number in taken])
        done += taken
        waiting = [number for number in waiting if number not in set(taken)]


def _taken(journal: Journal, hole: HoleRow, answer: str, waiting: list[int]) -> list[int]:
    """The holes that an answer applies to. `a` accepts no other fill that adds syntax errors."""
    if answer == "d":
        return [number for number in waiting if journal.hole(number).file == hole.file]
    if answer != "a":
        return [hole.id]
    others = [(number, journal.fill(journal.hole(number))) for number in waiting[1:]]
    return [hole.id, *(number for number, fill in others if fill is not None and not fill.new_errors)]


def _ask(journal: Journal, screen: Screen, reroll: Reroll, hole: HoleRow) -> str:
    """The final answer for a fill; handles `e`, `r`, `s` and `?`."""
    context = 3
    while True:
        answer = screen.ask("[y,n,a,d,q,e,b,r,s,?] ").strip().lower()[:1] or "q"
        if answer in "ynadqb":
            return answer
        try:
            if answer == "s":
                context *= 4
            elif answer == "e":
                if not _edit(journal, screen, journal.hole(hole.id)):
                    screen.show("nothing changed")
                    continue
            elif answer == "r":
                reroll(journal.hole(hole.id))
            else:
                screen.show(HELP)
                continue
        except MidfillError as error:
            screen.show(error.sentence)
            continue
        _show(journal, screen, journal.hole(hole.id), "", context)


def _show(journal: Journal, screen: Screen, hole: HoleRow, count: str, context: int) -> None:
    """Shows a fill and how sure it is."""
    file = journal.file(hole.file)
    fill = journal.fill(hole)
    source = journal.snapshot(file.planned_hash)
    assert fill is not None and source is not None
    exported = Exported(file, source, ((hole, fill),))
    line, _ = exported.document.position_at(hole.start_byte)
    known = describe_certainty(fill.certainty, is_suggestion=fill.is_suggestion)
    title = f"{file.path}:{line} {hole.name or hole.kind} {count} {known}"
    if fill.new_errors:
        title += f", {fill.new_errors} syntax errors"
    screen.show(title.replace("  ", " "))
    screen.show_diff(patch(exported, context), exported.document.encoding)


def _edit(journal: Journal, screen: Screen, hole: HoleRow) -> bool:
    """Stores the user's own text as the next attempt. Raises MidfillError."""
    file, fill = journal.file(hole.file), journal.fill(hole)
    source = journal.snapshot(file.planned_hash)
    assert fill is not None and source is not None
    document = Document(source, file.language)
    edited = screen.edit(decode(fill.new, document.encoding), file.path.rpartition(".")[2])
    if edited is None:
        return False
    text = document.encode(edited.removesuffix("\n"))
    row = FillRow(hole.id, hole.attempt + 1, fill.seed, fill.old, text, 0, 1.0)
    journal.add_fills([(row, source)])
    return True
