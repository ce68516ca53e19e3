"""Asks the user about fills one by one, and journals every answer at once. Knows no terminal."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import SUGGESTION, describe_certainty
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import HoleRow, State, StateChange
from midfill_infill.refactor.reporting.export import Exported, patch
from midfill_infill.refactor.writing.imports import bound_name
from midfill_infill.syntax.problems import count_errors
from midfill_infill.text.document import Document
from midfill_infill.text.encoding import decode
from midfill_infill.text.spans import Edit, Patch
from midfill_infill.text.visible import plural

HELP: Final = """\
y  accept this fill
n  reject it
a  accept it and all that are left, without those that add syntax errors
d  reject it and all that are left of this file
q  stop; answers are kept, the rest stays open
e  edit the fill in $EDITOR
b  back to the one before
r  reroll: another fill with another seed
s  show more context"""

Reroll = Callable[[HoleRow], HoleRow]
"""Fills a hole with another seed, and journals that as its next attempt. Raises MidfillError if the fill fails."""


class Screen(Protocol):
    """The user interface of a review."""

    def show(self, text: str) -> None: ...

    def show_diff(self, diff: bytes, encoding: str) -> None: ...

    def ask(self, question: str) -> str:
        """The user's answer; "" at the end of the input."""
        ...

    def edit(self, text: str, suffix: str) -> str | None:
        """The text as the user edited it in a file with `suffix`; None if unchanged. Raises MidfillError."""
        ...


def review(journal: Journal, screen: Screen, reroll: Reroll) -> None:
    """Asks about every generated fill, in plan order."""
    waiting = [hole.id for hole in journal.holes_in(State.GENERATED)]
    done: list[int] = []  # ids, the last answered one at the end
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
        answered = dict.fromkeys(_list_answered(journal, hole, answer, waiting))
        state = State.REJECTED if answer in "nd" else State.ACCEPTED
        journal.set_states([StateChange(hole_id, state) for hole_id in answered])
        done += answered
        waiting = [hole_id for hole_id in waiting if hole_id not in answered]


def _list_answered(journal: Journal, hole: HoleRow, answer: str, waiting: list[int]) -> list[int]:
    """The ids of the holes that an answer applies to. `a` accepts no other fill that adds syntax errors."""
    if answer == "d":
        return [hole_id for hole_id in waiting if journal.hole(hole_id).file == hole.file]
    if answer != "a":
        return [hole.id]
    others = [(hole_id, journal.fill(journal.hole(hole_id))) for hole_id in waiting[1:]]
    return [hole.id, *(hole_id for hole_id, fill in others if fill is not None and fill.new_errors == 0)]


def _ask(journal: Journal, screen: Screen, reroll: Reroll, hole: HoleRow) -> str:
    """The user's answer for a fill: y, n, a, d, q or b. Does what `e`, `r` and `s` ask for, and asks again."""
    context = 3
    while True:
        answer = screen.ask("[y,n,a,d,q,e,b,r,s,?] ")
        answer = answer.strip().lower()[:1] if answer else "q"
        if answer and answer in "ynadqb":
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
    """Shows a fill as a diff with `context` lines around it, and how sure it is. `count` says how many are done."""
    file = journal.file(hole.file)
    fill = journal.fill(hole)
    source = journal.snapshot(file.planned_hash)
    assert fill is not None and source is not None
    exported = Exported(file, source, ((hole, fill),))
    line, _ = exported.document.position_at(hole.start_byte)
    certainty = describe_certainty(fill.certainty, is_suggestion=fill.is_suggestion)
    if fill.is_suggestion and not certainty:
        certainty = SUGGESTION
    title = f"{file.path}:{line} {hole.name or hole.kind} {count} {certainty}"
    if fill.new_errors:
        title += f", {plural(fill.new_errors, 'syntax error')}"
    screen.show(title.replace("  ", " "))
    screen.show_diff(patch(exported, context), exported.document.encoding)


def _edit(journal: Journal, screen: Screen, hole: HoleRow) -> bool:
    """Lets the user edit a fill, and stores the text as the next attempt. False if it is unchanged. Raises
    MidfillError.
    """
    file, fill = journal.file(hole.file), journal.fill(hole)
    source = journal.snapshot(file.planned_hash)
    assert fill is not None and source is not None
    document = Document(source, file.language)
    shown = decode(fill.new, document.encoding).replace(document.newline, "\n")
    edited = screen.edit(shown, file.path.rpartition(".")[2])
    if edited is None:
        return False
    text = document.encode(edited.replace("\r\n", "\n").removesuffix("\n"))
    filled = document.with_patch(Patch((Edit(hole.start_byte, hole.end_byte, text),)))
    filled_span = (hole.start_byte, hole.start_byte + len(text))
    num_before = count_errors(document, [(hole.start_byte, hole.end_byte)])
    new_errors = max(0, count_errors(filled, [filled_span]) - num_before)
    row = replace(fill, attempt=journal.next_attempt(hole), new=text, new_errors=new_errors, certainty=1.0)
    imports = tuple(line for line in fill.imports if line in hole.hole.imports or bound_name(line) in edited)
    journal.add_fills([(replace(row, is_suggestion=False, imports=imports), source)])
    return True
