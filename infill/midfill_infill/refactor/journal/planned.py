"""A plan's entry for a file."""

import json
from dataclasses import dataclass
from typing import Self

from midfill_infill.text.spans import Hole


@dataclass(frozen=True)
class PlannedHole:
    """A hole in the plan; `spec` is everything of `Hole` but its range."""

    start_byte: int
    end_byte: int
    name: str | None
    kind: str
    spec: str

    @classmethod
    def of(cls, hole: Hole) -> Self:
        anchors = [[anchor.start_byte, anchor.end_byte] for anchor in hole.anchors]
        rest = {
            "lead": hole.lead,
            "tail": hole.tail,
            "indent": hole.indent,
            "anchors": anchors,
            "context": [[*span] for span in hole.context],
            "note": hole.note,
            "imports": hole.imports,
        }
        spec = json.dumps({key: value for key, value in rest.items() if value}, separators=(",", ":"))
        return cls(hole.start_byte, hole.end_byte, hole.name, hole.kind, spec)


@dataclass(frozen=True)
class PlannedFile:
    """A file and its holes in document order. `path` is relative to the root."""

    path: str
    hash: bytes
    language: str | None
    holes: tuple[PlannedHole, ...]
