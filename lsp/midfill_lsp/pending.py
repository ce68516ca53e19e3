"""Pending fills and their line hunks, tracked while the user types, until they are accepted. Sends nothing itself."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import count
from typing import Final

from midfill_infill.filling.candidates import Alternative, PlacedFill
from midfill_infill.filling.fill import Filled
from midfill_infill.filling.reroll import keep_ranges
from midfill_infill.text.spans import find_gaps
from midfill_lsp.edits import FillFailed, Replacement
from midfill_lsp.messages import DraftParams, Position
from midfill_lsp.text import Moves, Span, SyncedDocument, Text, find_at, to_units, trim

MAX_PENDING: Final = 64
WEAK_SHARE: Final = 0.1  # of the tokens of a fill, the least certain first


def find_hunks(old: str, new: str) -> list[tuple[Span, Span]]:
    """Pairs of a span of the old text and the span of the new text that replaced it, in order; one may be empty."""
    old_text, new_text = Text(old), Text(new)
    # Blank lines are junk to the matcher: as they are equal everywhere, it would align unlike lines by them.
    matcher = SequenceMatcher(lambda line: not line.strip(), old_text.lines, new_text.lines, autojunk=False)
    hunks = []
    for tag, old_first, old_stop, new_first, new_stop in matcher.get_opcodes():
        if tag == "equal":
            continue
        # Added or removed lines include a line ending: the one after them, or before them at the end of the text.
        if old_first < old_stop and new_first < new_stop:
            find_span = _find_lines
        elif old_stop < len(old_text.lines) and new_stop < len(new_text.lines):
            find_span = _find_lines_and_end
        else:
            find_span = _find_lines_and_end_before
        hunks.append((find_span(old_text, old_first, old_stop), find_span(new_text, new_first, new_stop)))
    return hunks


def _find_lines(text: Text, first: int, stop: int) -> Span:
    return text.line_starts[first], text.line_end(stop - 1)


def _find_lines_and_end(text: Text, first: int, stop: int) -> Span:
    return text.line_starts[first], text.line_starts[stop]


def _find_lines_and_end_before(text: Text, first: int, stop: int) -> Span:
    return text.line_end(first - 1), text.line_end(stop - 1)


@dataclass(eq=False)
class PendingHole:
    """A hole with its fill. `outer` spans all that the fill inserted into the current text, `inner` the fill without
    lead and tail. `original` is what discarding restores: the text before the first fill, with the hunks that were
    accepted since.
    """

    outer: Span
    inner: Span
    fill: PlacedFill
    original: str
    is_decided: bool = False
    """True if the user has accepted or discarded some of its hunks."""

    def locate(self, spans: Iterable[Span], newline: str) -> list[Span]:
        """Converts spans of the fill into spans of the document; valid until somebody types into the fill."""
        start = self.inner[0]

        def move(offset: int) -> int:
            before = self.fill.text[:offset].replace("\n", newline)
            return start + len(before)

        return [(move(first), move(last)) for first, last in spans]

    def stretch(self, moves: Moves) -> bool:
        """Moves and resizes both spans as the edits of `moves` did; False if one of these crossed an end of a span."""
        outer, inner = moves.stretch(self.outer), moves.stretch(self.inner)
        if outer is None or inner is None:
            return False
        self.outer, self.inner = outer, inner
        return True

    def was_put_back(self, moves: Moves, source: str) -> bool:
        """True if the edits of `moves` touched the hole and restored its original text."""
        stretched = moves.stretch(self.outer, takes_ends=True)
        if stretched is None or moves.carry(self.outer) is not None:
            return False
        return source[slice(*stretched)] == self.original

    def hunks(self, source: str) -> list[Replacement]:
        """The spans of current lines that differ from the original ones, each with the lines that would restore it."""
        start = self.outer[0]
        hunks = []
        for old, (first, last) in find_hunks(self.original, source[slice(*self.outer)]):
            hunks.append(((start + first, start + last), self.original[slice(*old)]))
        return hunks

    def keep_hunk(self, hunk_index: int, source: str) -> None:
        """Accepts a hunk: its lines count as original from now on."""
        text = source[slice(*self.outer)]
        (first, last), new = find_hunks(self.original, text)[hunk_index]
        self.original = self.original[:first] + text[slice(*new)] + self.original[last:]

    def decided_ranges(self, source: str) -> list[Span]:
        """Ranges of the inner text that the user has accepted: once a hunk was decided, all text outside open hunks."""
        if not self.is_decided:
            return []
        start, end = self.inner
        hunks = []
        for (first, last), _ in self.hunks(source):
            first = min(max(first, start), end)
            last = min(max(last, start), end)
            hunks.append((first - start, last - start))
        return find_gaps(hunks, end - start)


@dataclass
class Pending:
    """One pending fill: the best candidate of `filled`, which is in the document or in an edit that is being applied.

    That edit replaces the document's text `before` by `expected`, which is None once the client has reported it. The
    document records its changes in `moves`, until `follow` has applied them. `weak` are the least certain tokens,
    `errors` what has syntax errors.
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
        """Sets `errors` and `weak`. If new errors have no known place, `errors` are all holes."""
        self.errors = []
        by_confidence: list[tuple[float, Span]] = []
        for hole in self.holes:
            self.errors += hole.locate(hole.fill.errors, self.newline)
            tokens = hole.locate(hole.fill.tokens, self.newline)
            by_confidence += zip(hole.fill.confidence, tokens, strict=True)
        if self.filled.new_errors and not self.errors:
            self.errors = [hole.inner for hole in self.holes]
        by_confidence.sort()
        num_weak = math.ceil(len(by_confidence) * WEAK_SHARE)
        self.weak = [span for _, span in by_confidence[:num_weak]]

    @property
    def spans(self) -> list[Span]:
        return [hole.outer for hole in self.holes]

    @property
    def text(self) -> Text:
        """The document's text, or the expected one until the client confirms the edit."""
        if self.expected is None:
            return self.document.text
        return Text(self.expected, self.document.text.encoding)

    def follow(self) -> bool:
        """Moves all spans as the document's last changes did. False if the fill was undone, every hole was put back, or
        one of them cannot be located.
        """
        source = self.document.source
        moves = self.moves
        if self.expected is not None:
            # The client's echo of our own edit; later typing may be merged into it.
            moves.clear()
            if source != self.expected:
                start, end = trim(self.expected, source)
                growth = len(source) - len(self.expected)
                moves.append((start, end, end - start + growth))
            self.expected = None
        is_undone = moves and source == self.before  # clients report an undo as any change with this result
        self.narrow([hole for hole in self.holes if not hole.was_put_back(moves, source)])
        is_located = not is_undone and bool(self.holes) and all(hole.stretch(moves) for hole in self.holes)
        self.weak = moves.carry_all(self.weak)
        self.errors = moves.carry_all(self.errors)
        moves.clear()
        return is_located

    def narrow(self, holes: Sequence[PendingHole]) -> None:
        """Reduces the fill and its alternatives to some of its holes. Their patches stay those of all holes."""
        if len(holes) == len(self.holes):
            return
        kept_indexes = [index for index, hole in enumerate(self.holes) if hole in holes]
        candidates = []
        for candidate in (self.filled.best, *self.filled.alternatives):
            fills = tuple(candidate.fills[index] for index in kept_indexes)
            new_errors = candidate.new_errors
            if any(fill.errors for fill in candidate.fills):  # otherwise nobody knows in which hole the errors are
                new_errors = sum(len(fill.errors) for fill in fills)
            candidates.append(replace(candidate, fills=fills, new_errors=new_errors))
        best, *others = candidates
        self.filled = replace(self.filled, best=best, alternatives=tuple(others))
        self.holes = [self.holes[index] for index in kept_indexes]

    def find_part(self, part: str, position: Position | None) -> tuple[PendingHole, int | None]:
        """Finds the part, a "hole" or a "hunk", at a position, or the only one of the fill. Returns its hole, and the
        index of the hunk: None for a whole hole, or if the hole has no hunks. Raises FillFailed if there is none.
        """
        parts: list[tuple[Span, tuple[PendingHole, int | None]]] = []
        for hole in self.holes:
            hunks = hole.hunks(self.document.source) if part == "hunk" else []
            for hunk_index, (span, _) in enumerate(hunks):
                parts.append((span, (hole, hunk_index)))
            if not hunks:
                parts.append((hole.outer, (hole, None)))
        matching: list[tuple[PendingHole, int | None]] = []
        if position:
            text = self.document.text
            matching = find_at(text, text.offset(position.to_lsp()), parts)
        if not matching and len(parts) == 1:
            matching = [only for _, only in parts]
        if not matching:
            raise FillFailed(f"Midfill: no {part} of a fill is here; put the cursor into one.")
        return matching[0]

    def decide(self, hole: PendingHole) -> None:
        """Records that the user decided a hunk. Drops the alternatives, because one would replace the whole fill."""
        hole.is_decided = True
        self.filled = replace(self.filled, alternatives=())

    def rotated(self) -> Filled:
        """The fill with its next alternative as the best."""
        first, *others = self.filled.alternatives
        return replace(self.filled, best=first, alternatives=(*others, self.filled.best), passed_command="")

    def replace_by(self, filled: Filled) -> tuple[list[tuple[Span, str]], list[PendingHole]]:
        """The edits that replace the fill by `filled`, and the holes after these edits."""
        edits: list[tuple[Span, str]] = []
        holes: list[PendingHole] = []
        shift = 0
        for hole, fill in zip(self.holes, filled.fills, strict=True):
            text = fill.text.replace("\n", self.newline)
            first, last = hole.outer
            start, end = hole.inner
            growth = len(text) - (end - start)
            edits.append((hole.inner, text))
            outer = first + shift, last + shift + growth
            inner = start + shift, end + shift + growth
            holes.append(PendingHole(outer, inner, fill, hole.original))
            shift += growth
        return edits, holes

    def drafts(self, share: float) -> tuple[DraftParams, ...]:
        """What a reroll keeps of each hole: all typed text and, if the engine can keep parts, `share` of the tokens."""
        kept_share = 0.0 if self.filled.keeps == "nothing" else share
        by_lines = self.filled.keeps == "lines"
        source = self.document.source
        drafts = []
        for hole in self.holes:
            fill = hole.fill
            text = source[slice(*hole.inner)]
            decided = hole.decided_ranges(source)
            keep = keep_ranges(fill.text, fill.tokens, fill.confidence, text, kept_share, decided, by_lines=by_lines)
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
        # The client has reported the edit before it answered, or the edit changed nothing and is never reported.
        if pending.moves or pending.document.source == pending.expected:
            self.follow(pending.document)

    def shrink(self) -> list[Pending]:
        """Drops the oldest fills until MAX_PENDING are left, and returns them."""
        lost = list(self)[: max(0, len(self) - MAX_PENDING)]
        for pending in lost:
            self.drop(pending)
        return lost

    def follow(self, document: SyncedDocument) -> bool:
        """Follows a change of the document. True if fills were lost."""
        lost = [pending for pending in self.of(document) if not pending.follow()]
        for pending in lost:
            self.drop(pending)
        return bool(lost)

    def of(self, document: SyncedDocument) -> list[Pending]:
        """The fills of a document, in the order of their requests."""
        in_document = [pending for pending in self._fills.values() if pending.document is document]
        return sorted(in_document, key=lambda pending: pending.id)

    def drop(self, pending: Pending) -> None:
        self._fills.pop(pending.id, None)
        pending.document.forget(pending.moves)


def place_holes(
    candidate: Alternative, spans: Sequence[Span], originals: Sequence[str], newline: str
) -> list[PendingHole]:
    """The holes of a candidate after its edits have replaced `spans`, the texts `originals`, in document order."""
    holes: list[PendingHole] = []
    shift = 0
    for fill, edit, span, original in zip(candidate.fills, candidate.patch.edits, spans, originals, strict=True):
        hole = fill.hole
        length = len(edit.replacement.decode("utf-8", "surrogatepass"))
        first, last = span
        start = first + shift
        end = start + length
        lead = len(hole.lead.replace("\n", newline))
        tail = len(hole.tail.replace("\n", newline))
        if hole.is_body and not fill.text:  # an empty fill keeps the body, so lead and tail were not inserted either
            lead = tail = 0
        holes.append(PendingHole((start, end), (start + lead, end - tail), fill, original))
        shift += length - (last - first)
    return holes
