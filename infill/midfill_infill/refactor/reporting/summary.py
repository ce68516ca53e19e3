"""Sums a run up in Markdown, as the text of a pull request: what was asked, what came of it, file by file."""

import json
from collections.abc import Iterator, Sequence

from midfill_infill.candidates import describe_certainty
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import State
from midfill_infill.refactor.reporting.export import CHOSEN, Exported, exported
from midfill_infill.text.visible import visible


def markdown(journal: Journal, states: Sequence[State] = CHOSEN) -> Iterator[str]:
    """Lines with their ends. Knows certainties and states, shows no code."""
    funnel = journal.funnel()
    yield f"## {_title(journal)}\n\n"
    yield f"Run `{journal.get_meta('run')}`, selected by {_selection(journal)}.\n\n"
    yield "| planned | filled | without new syntax errors | accepted | not rolled back | in their files |\n"
    yield "|---|---|---|---|---|---|\n"
    numbers = (funnel.planned, funnel.filled, funnel.clean, funnel.accepted, funnel.passing, funnel.written)
    yield f"| {' | '.join(map(str, numbers))} |\n\n"
    yield "| file | function | state | certainty |\n|---|---|---|---|\n"
    for one in exported(journal, states, 0):
        yield from _rows(one)
    rolled_back = list(journal.holes_in(State.ROLLED_BACK))
    if rolled_back:
        yield f"\nRolled back, since the tests fail with them ({len(rolled_back)}):\n\n"
        for hole in rolled_back:
            yield f"- {_cell(journal.file(hole.file).path)}: {_cell(hole.name or hole.kind)}\n"
    yield "\n`midfill refactor undo` takes all of it back.\n"


def _title(journal: Journal) -> str:
    counts = journal.counts()
    number = sum(counts.get(state, 0) for state in CHOSEN)
    return f"{number} {'hole' if number == 1 else 'holes'} filled"


def _selection(journal: Journal) -> str:
    given = {key: value for key, value in (journal.get_meta("selection") or {}).items() if value}
    said = (f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in given.items() if key != "query")
    return ", ".join([*map(_cell, said), *(["a query"] if "query" in given else [])])


def _rows(one: Exported) -> Iterator[str]:
    for hole, fill in one.fills:
        cells = (_cell(one.file.path), _cell(hole.name or hole.kind), hole.state, describe_certainty(fill.certainty))
        yield f"| {' | '.join(cells)} |\n"


def _cell(text: str) -> str:
    """Text that is neither markup nor the end of a cell."""
    plain = visible(text).replace("\n", " ")
    for sign in "\\`*_<>|[]":
        plain = plain.replace(sign, f"\\{sign}")
    return plain
