"""Fills that are in a document but not accepted yet, followed while their user types. Asks for nothing itself."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from midfill_infill.fill import Candidate, Filled, FilledHole
from midfill_infill.reroll import keep_ranges
from midfill_infill.text.spans import Hole
from midfill_lsp.messages import Draft
from midfill_lsp.text import Moves, Span, SyncedDocument, to_units, trim

MAX_PENDING = 64


@dataclass
class PendingHole:
    """`outer` is all that the fill put in, `inner` its text without lead and tail; both spans of the present text."""

    hole: Hole
    outer: Span
    inner: Span
    fill: FilledHole
    original: str

    def carry(self, moves: Moves) -> bool:
        """Follows the edits of `moves`; False if one of them crossed an end."""
        outer, inner = moves.stretch(self.outer), moves.stretch(self.inner)
        if outer is None or inner is None:
            return False
        self.outer, self.inner = outer, inner
        return True


@dataclass
class Pending:
    """One fill; the best of `filled` stands in the document."""

    id: int
    document: SyncedDocument
    holes: list[PendingHole]
    filled: Filled
    seed: int
    moves: Moves
    expected: str | None
    newline: str

    @property
    def num_tokens(self) -> int:
        return max((len(hole.fill.tokens) for hole in self.holes), default=0)

    def follow(self) -> bool:
        """Takes in the document's last changes; False where the fill cannot be found any more."""
        if self.expected is not None:
            # The client's echo of our own edit, in which later typing may be merged already.
            start, end = trim(self.expected, self.document.source)
            self.moves.clear()
            self.moves.add(start, end, len(self.document.source) - len(self.expected) + end - start)
            if self.document.source == self.expected:
                self.moves.clear()
            self.expected = None
        alive = all(hole.carry(self.moves) for hole in self.holes)
        self.moves.clear()
        return alive

    def rotated(self) -> Filled:
        """The fill with its next alternative as the best."""
        first, *others = self.filled.alternatives
        return replace(self.filled, best=first, alternatives=(*others, self.filled.best))

    def show(self, filled: Filled) -> tuple[list[tuple[Span, str]], list[PendingHole]]:
        """The edits that show another fill in its place, and where its texts then stand."""
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

    def drafts(self, share: float) -> tuple[Draft, ...]:
        """What a reroll keeps of each hole: everything typed, and that share of the tokens left alone."""
        return tuple(self._draft(hole, share) for hole in self.holes)

    def _draft(self, hole: PendingHole, share: float) -> Draft:
        text = self.document.source[slice(*hole.inner)]
        keep = keep_ranges(hole.fill.text, hole.fill.tokens, hole.fill.confidence, text, share)
        return Draft(keep=to_units(text, keep, self.document.text.encoding))


class PendingFills:
    """All pending fills of all documents."""

    def __init__(self) -> None:
        self._fills: dict[int, Pending] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._fills)

    def add(
        self, document: SyncedDocument, holes: Sequence[PendingHole], filled: Filled, seed: int,
        expected: str, newline: str, moves: Moves,
    ) -> Pending:  # fmt: skip
        """`moves` records since before the edit that the client turns into `expected`."""
        self._last_id += 1
        pending = Pending(self._last_id, document, list(holes), filled, seed, moves, expected, newline)
        self._fills[pending.id] = pending
        if moves or document.source == expected:
            self.follow(document)
        while len(self._fills) > MAX_PENDING:
            self.drop(next(iter(self._fills.values())))
        return pending

    def follow(self, document: SyncedDocument) -> bool:
        """Takes in a change of the document; whether fills were lost."""
        lost = [pending for pending in self.of(document) if not pending.follow()]
        for pending in lost:
            self.drop(pending)
        return bool(lost)

    def find(self, id: int | None) -> Pending | None:
        return next(reversed(self._fills.values()), None) if id is None else self._fills.get(id)

    def of(self, document: SyncedDocument) -> list[Pending]:
        return [pending for pending in self._fills.values() if pending.document is document]

    def drop(self, pending: Pending) -> None:
        self._fills.pop(pending.id, None)
        pending.document.forget(pending.moves)

    def drop_uri(self, uri: str) -> None:
        for pending in [pending for pending in self._fills.values() if pending.document.uri == uri]:
            self.drop(pending)


def place(candidate: Candidate, spans: Sequence[Span], originals: Sequence[str], newline: str) -> list[PendingHole]:
    """Where the fills of a candidate come to stand when its edits go to `spans`, in order."""
    holes: list[PendingHole] = []
    shift = 0
    for fill, edit, span, original in zip(candidate.fills, candidate.patch.edits, spans, originals, strict=True):
        length = len(edit.replacement.decode("utf-8", "surrogatepass"))
        start = span[0] + shift
        lead, tail = (len(text.replace("\n", newline)) for text in (fill.hole.lead, fill.hole.tail))
        if fill.hole.is_body and not fill.text:  # an empty fill leaves a body as it is
            lead = tail = 0
        outer = start, start + length
        holes.append(PendingHole(fill.hole, outer, (start + lead, start + length - tail), fill, original))
        shift += length - (span[1] - span[0])
    return holes
