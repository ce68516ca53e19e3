"""Bodies for functions without a fill, in which the tests that come to them stop. Knows documents; runs nothing."""

from collections.abc import Sequence
from dataclasses import replace

from midfill_infill.refactor.journal.records import HoleRow
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit
from midfill_infill.until.lab import NOT_FILLED_BODY


def find_stub_stops(planned: Document, holes: Sequence[HoleRow]) -> dict[int, Edit]:
    """For each hole of a Python file as it was planned that is a stub, by its id: the edit that makes it raise an error
    for tests. The number of lines stays, except for stubs on the line of their header.
    """
    if planned.language != "python":
        return {}
    spans = {(stub.start_byte, stub.end_byte) for stub in find_stubs(planned)}
    stubs = {hole.start_byte: hole for hole in holes if (hole.start_byte, hole.end_byte) in spans}
    spliced = splice(planned, [hole.hole for hole in stubs.values()], [NOT_FILLED_BODY] * len(stubs))
    stops: dict[int, Edit] = {}
    for edit in spliced.patch.edits:
        num_missing = planned.data.count(b"\n", edit.start_byte, edit.end_byte) - edit.replacement.count(b"\n")
        stops[stubs[edit.start_byte].id] = replace(edit, replacement=edit.replacement + b"\n" * num_missing)
    return stops
