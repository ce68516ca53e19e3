"""Pending fills and their line hunks, tracked while the user types, until they are accepted. Sends nothing itself."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import count

from midfill_infill.filling.candidates import Alternative, PlacedFill
from midfill_infill.filling.fill import Filled
from midfill_infill.filling.reroll import keep_ranges
from midfill_infill.text.spans import Hole, find_gaps
from midfill_lsp.edits import FillFailed, Replacement
from midfill_lsp.messages import DraftParams, Position
from midfill_lsp.text import Moves, Span, SyncedDocument, Text, find_at, to_units, trim


def find_hunks(old: str, new: str) -> list[tuple[Span, Span]]:
    """Pairs of different spans of the old and the new text, in order; one of a pair may be empty."""
    before, after = Text(old), Text(new)
    matcher = SequenceMatcher(lambda line: not line.strip(), before.lines, after.lines, autojunk=False)
    return [
        _spans((before, after), ((start, stop), (begin, end)))
        for tag, start, stop, begin, end in matcher.get_opcodes()
        if tag != "equal"
    ]


def _spans(texts: tuple[Text, Text], lines: tuple[Span, Span]) -> tuple[Span, Span]:
    """Added or removed lines include a line ending: the one after them, or before them at the end of the text."""
    pairs = list(zip(texts, lines, strict=True))
    if all(first < last for first, last in lines):
        one, other = ((text.line_starts[first], text.line_end(last - 1)) for text, (first, last) in pairs)
    elif all(last < len(text.lines) for text, (_, last) in pairs):
        one, other = ((text.line_starts[first], text.line_starts[last]) for text, (first, last) in pairs)
    else:
        one, other = ((text.line_end(first - 1), text.line_end(last - 1)) for text, (first, last) in pairs)
    return one, other


MAX_PENDING = 64
WEAK_SHARE = 0.1


@dataclass(eq=False)
class PendingHole:
    """`outer` spans everything the fill inserted, `inner` its text without lead and tail, in the current text."""

    hole: Hole
    outer: Span
    inner: Span
    fill: PlacedFill
    original: str
    is_decided: bool = False
    """True if the user has accepted or discarded some of its hunks."""

    def find(self, spans: Iterable[Span], newline: str) -> list[Span]:
        """Spans of the fill as spans of the document; valid until somebody types into the fill."""
        text, start = self.fill.text, self.inner[0]
        before = (tuple(len(text[:end].replace("\n", newline)) for end in span) for span in spans)
        return [(start + first, start + last) for first, last in before]

    def carry(self, moves: Moves) -> bool:
        """Follows the edits of `moves`; False if one of them crossed an end."""
        outer, inner = moves.stretch(self.outer), moves.stretch(self.inner)
        if outer is None or inner is None:
            return False
        self.outer, self.inner = outer, inner
        return True

    def was_put_back(self, moves: Moves, source: str) -> bool:
        """True if the edits of `moves` touched it and restored the text from before the fill."""
        wide = moves.stretch(self.outer, takes_ends=True)
        return moves.carry(self.outer) is None and wide is not None and source[slice(*wide)] == self.original

    def hunks(self, source: str) -> list[Replacement]:
        """The spans of current lines that differ from the old ones, each with the old lines."""
        start = self.outer[0]
        return [
            ((start + new[0], start + new[1]), self.original[slice(*old)])
            for old, new in find_hunks(self.original, source[slice(*self.outer)])
        ]

    def keep_hunk(self, number: int, source: str) -> None:
        """Accepts a hunk: its lines count as old from now on."""
        text = source[slice(*self.outer)]
        (first, last), new = find_hunks(self.original, text)[number]
        self.original = self.original[:first] + text[slice(*new)] + self.original[last:]

    def decided_ranges(self, source: str) -> list[Span]:
        """Ranges of its inner text that the user accepted: everything outside hunks, once one was decided."""
        first, last = self.inner
        hunks = ([min(max(edge, first), last) - first for edge in span] for span, _ in self.hunks(source))
        return find_gaps(hunks, last - first) if self.is_decided else []


@dataclass
class Pending:
    """One pending fill, or one whose edit is being applied: the best candidate of `filled`.

    The edit replaces the text `before` by `expected`; `moves` records what changed since.
    """

    id: int
    document: SyncedDocument
    filled: Filled
    seed: int
    newline: str
    holes: list[PendingHole] = field(default_factory=list)
    moves: Moves = field(default_factory=Moves)
    before: str = ""
    expected: str | None = None
    weak: list[Span] = field(default_factory=list)
    errors: list[Span] = field(default_factory=list)

    def mark(self) -> None:
        """Locates its errors and its least certain tokens."""
        self.errors = [span for hole in self.holes for span in hole.find(hole.fill.errors, self.newline)]
        if self.filled.new_errors and not self.errors:
            self.errors = [hole.inner for hole in self.holes]
        scored = [
            (score, span)
            for hole in self.holes
            for score, span in zip(hole.fill.confidence, hole.find(hole.fill.tokens, self.newline), strict=False)
        ]
        self.weak = [span for _, span in sorted(scored)[: math.ceil(len(scored) * WEAK_SHARE)]]

    @property
    def spans(self) -> list[Span]:
        return [hole.outer for hole in self.holes]

    @property
    def text(self) -> Text:
        """The document's text, or the expected one until the client confirms the edit."""
        return self.document.text if self.expected is None else Text(self.expected, self.document.text.encoding)

    def follow(self) -> bool:
        """Follows the document's last changes. False if the fill was undone or cannot be located any more."""
        if self.expected is not None:
            # The client's echo of our own edit; later typing may be merged into it.
            self.moves.clear()
            if self.document.source != self.expected:
                start, end = trim(self.expected, self.document.source)
                self.moves.append((start, end, len(self.document.source) - len(self.expected) + end - start))
            self.expected = None
        is_undone = self.moves and self.document.source == self.before  # undo may come as any equal change
        self.narrow([hole for hole in self.holes if not hole.was_put_back(self.moves, self.document.source)])
        alive = not is_undone and bool(self.holes) and all(hole.carry(self.moves) for hole in self.holes)
        for spans in (self.weak, self.errors):
            spans[:] = [carried for span in spans if (carried := self.moves.carry(span))]
        self.moves.clear()
        return alive

    def narrow(self, holes: Sequence[PendingHole]) -> None:
        """Reduces the fill to some of its holes."""
        if len(holes) < len(self.holes):
            left = [number for number, hole in enumerate(self.holes) if hole in holes]
            rows = (self.filled.best, *self.filled.alternatives)
            best, *others = (replace(row, fills=tuple(row.fills[number] for number in left)) for row in rows)
            self.filled = replace(self.filled, best=best, alternatives=tuple(others))
            self.holes = [self.holes[number] for number in left]

    def find_part(self, part: str, position: Position | None) -> tuple[PendingHole, int | None]:
        """The hole at a position and its hunk's number, or the only part. A hole without hunks is a part. Raises
        FillFailed if there is none.
        """
        parts: list[tuple[Span, tuple[PendingHole, int | None]]] = []
        for hole in self.holes:
            hunks = hole.hunks(self.document.source) if part == "hunk" else ()
            parts += [(span, (hole, number)) for number, (span, _) in enumerate(hunks)] or [(hole.outer, (hole, None))]
        text = self.document.text
        found = find_at(text, text.offset(position.to_lsp()), parts) if position else []
        if not found and len(parts) != 1:
            raise FillFailed(f"Midfill: no {part} of a fill is here; put the cursor into one.")
        return found[0] if found else parts[0][1]

    def decide(self, hole: PendingHole) -> None:
        """Records that the user decided a hunk, and drops the alternatives, which would undo that."""
        hole.is_decided = True
        self.filled = replace(self.filled, alternatives=())

    def rotated(self) -> Filled:
        """The fill with its next alternative as the best."""
        first, *others = self.filled.alternatives
        return replace(self.filled, best=first, alternatives=(*others, self.filled.best), passes="")

    def show(self, filled: Filled) -> tuple[list[tuple[Span, str]], list[PendingHole]]:
        """The edits that replace it by another fill, and the holes after them."""
        edits: list[tuple[Span, str]] = []
        holes: list[PendingHole] = []
        shift = 0
        for hole, fill in zip(self.holes, filled.fills, strict=True):
            text = fill.text.replace("\n", self.newline)
            growth = len(text) - (hole.inner[1] - hole.inner[0])
            edits.append((hole.inner, text))
            outer, inner = ((first + shift, last + shift + growth) for first, last in (hole.outer, hole.inner))
            holes.append(PendingHole(hole.hole, outer, inner, fill, hole.original))
            shift += growth
        return edits, holes

    def drafts(self, share: float) -> tuple[DraftParams, ...]:
        """What a reroll keeps of each hole: all typed text and, if the engine can, that share of the rest."""
        share, by_lines = 0.0 if self.filled.keeps == "nothing" else share, self.filled.keeps == "lines"
        drafts = []
        for hole in self.holes:
            fill, text = hole.fill, self.document.source[slice(*hole.inner)]
            fixed = hole.decided_ranges(self.document.source)
            keep = keep_ranges(fill.text, fill.tokens, fill.confidence, text, share, fixed, by_lines=by_lines)
            drafts.append(DraftParams(keep=to_units(text, keep, self.document.text.encoding)))
        return tuple(drafts)


class PendingStore:
    """All pending fills of all documents."""

    def __init__(self) -> None:
        self.ids = count(1)
        """The ids of new fills, which they keep while they are pending."""
        self._fills: dict[int, Pending] = {}

    def __len__(self) -> int:
        return len(self._fills)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._fills.values())

    def add(self, pending: Pending) -> None:
        pending.mark()
        self._fills[pending.id] = pending
        if pending.moves or pending.document.source == pending.expected:
            self.follow(pending.document)
        while len(self._fills) > MAX_PENDING:
            self.drop(next(iter(self._fills.values())))

    def follow(self, document: SyncedDocument) -> bool:
        """Follows a change of the document. True if fills were lost."""
        lost = [pending for pending in self.of(document) if not pending.follow()]
        for pending in lost:
            self.drop(pending)
        return bool(lost)

    def of(self, document: SyncedDocument) -> list[Pending]:
        """The fills of a document, in the order of their requests."""
        found = [pending for pending in self._fills.values() if pending.document is document]
        return sorted(found, key=lambda pending: pending.id)

    def drop(self, pending: Pending) -> None:
        self._fills.pop(pending.id, None)
        pending.document.forget(pending.moves)


def place(candidate: Alternative, spans: Sequence[Span], originals: Sequence[str], newline: str) -> list[PendingHole]:
    """The holes of a candidate after its edits are applied at `spans`, in order."""
    holes: list[PendingHole] = []
    shift = 0
    for fill, edit, span, original in zip(candidate.fills, candidate.patch.edits, spans, originals, strict=True):
        length = len(edit.replacement.decode("utf-8", "surrogatepass"))
        start = span[0] + shift
        lead, tail = (len(text.replace("\n", newline)) for text in (fill.hole.lead, fill.hole.tail))
        if fill.hole.is_body and not fill.text:  # an empty fill keeps the body
            lead = tail = 0
        outer = start, start + length
        holes.append(PendingHole(fill.hole, outer, (start + lead, start + length - tail), fill, original))
        shift += length - (span[1] - span[0])
    return holes
