"""Bodies for functions without a fill, in which the tests that come to them stop. Knows documents; runs nothing."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from midfill_infill.refactor.journal.records import HoleRow
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit
from midfill_infill.until.lab import NOT_FILLED, NOT_FILLED_BODY

_STOPPED_IN: Final = re.compile(rf"{NOT_FILLED} \(hole (\d+)\)")


def find_stub_stops(planned: Document, holes: Sequence[HoleRow]) -> dict[int, Edit]:
    """As `find_stops`, for those of the holes that are stubs; of Python alone."""
    if planned.language != "python":
        return {}
    stubs = {(stub.start_byte, stub.end_byte) for stub in find_stubs(planned)}
    return find_stops(planned, [hole for hole in holes if (hole.start_byte, hole.end_byte) in stubs])


def find_stops(planned: Document, holes: Sequence[HoleRow]) -> dict[int, Edit]:
    """For each hole of a Python file as it was planned, by its id: the edit that makes it raise an error for tests. The
    number of lines stays, except for stubs on the line of their header.
    """
    bodies = [NOT_FILLED_BODY.replace(NOT_FILLED, f"{NOT_FILLED} (hole {hole.id})") for hole in holes]
    spliced = splice(planned, [hole.hole for hole in holes], bodies)
    by_start = {edit.start_byte: edit for edit in spliced.patch.edits}
    stops: dict[int, Edit] = {}
    for hole in holes:
        edit = by_start[hole.start_byte]
        num_missing = planned.data.count(b"\n", edit.start_byte, edit.end_byte) - edit.replacement.count(b"\n")
        stops[hole.id] = replace(edit, replacement=edit.replacement + b"\n" * num_missing)
    return stops


def read_stops(message: str) -> set[int]:
    """The ids of the holes whose stops are in the message of a failure."""
    return {int(match[1]) for match in _STOPPED_IN.finditer(message)}
