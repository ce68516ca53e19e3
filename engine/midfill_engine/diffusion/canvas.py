"""The canvas of one fill: the token ids of all holes, some of them masked, and their text. Knows no request."""

from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch

from midfill_engine.models.sequence import Array
from midfill_engine.requests.outline import HoleOutline
from midfill_engine.samplers.base import Decision, Predictions
from midfill_engine.tokens.pieces import Spans, decode, merge
from midfill_engine.tokens.vocabulary import Vocabulary
from midfill_engine.wire import FilledHole, HoleState


@dataclass
class Canvas:
    """T positions: those of all G holes, one after the other. Changed in place, for instance by `apply` and `reshape`.

    `ids`, `masked`, `confidence` are [T]. `anchored` [T] marks positions that never change. `hole_of` [T] and
    `rule_of` [T] give each position's hole and its row in `allowed` [R, V]; `leading` has the bytes with which each
    position's token must begin. Each hole has `min_positions` [G] to `max_positions` [G] that are neither anchors nor
    deletions. `is_length_chosen`: a length policy chose the lengths; otherwise they are only upper bounds. The last
    `spill` positions only complete a block and are not part of the fill. All arrays but `allowed` are numpy's, because
    they are never on a device.
    """

    outlines: list[HoleOutline]
    vocabulary: Vocabulary
    ids: Array
    masked: Array
    confidence: Array
    anchored: Array
    hole_of: Array
    rule_of: Array
    leading: list[bytes]
    allowed: torch.Tensor
    min_positions: Array
    max_positions: Array
    is_length_chosen: bool
    spill: int = 0

    def __post_init__(self) -> None:
        self.guesses = np.full_like(self.ids, -1)
        self.guess_confidence = np.zeros_like(self.confidence)
        self._find_holes()

    def _find_holes(self) -> None:
        """Sets `lengths` [G], the number of positions of each hole, anchors included, and where the holes are."""
        self.lengths: tuple[int, ...] = tuple(np.bincount(self.hole_of, minlength=len(self.outlines)).tolist())
        self._holes = [slice(start, end) for start, end in pairwise(accumulate(self.lengths, initial=0))]

    @property
    def num_masked(self) -> int:
        return int(np.count_nonzero(self.masked))

    def _count(self, where: Array) -> Array:
        """[G]: the number of positions of `where` [T] in each hole."""
        return np.bincount(self.hole_of[where], minlength=len(self.outlines))

    @property
    def deletable(self) -> Array:
        """[G]: the number of deletions that each hole can still settle without becoming too short."""
        is_deleted = ~self.masked & self.vocabulary.is_deletion(self.ids)
        num_deletable: Array = self._count(~(self.anchored | is_deleted)) - self.min_positions
        return num_deletable

    @property
    def expandable(self) -> Array:
        """[G]: the number of positions that each hole can still gain."""
        num_expandable: Array = np.maximum(self.max_positions - self._count(~self.anchored), 0)
        return num_expandable

    def apply(self, decision: Decision, predictions: Predictions) -> None:
        """Replaces, settles and remasks positions as decided. But where a hole has no room for all deletions or
        expansions, the least confident ones are left as they were.
        """
        self.guesses, self.guess_confidence = predictions.ids, predictions.confidence
        if decision.edit is not None:
            self._write(decision.edit & ~self.masked & ~self.anchored)
        settle = decision.settle & self.masked
        if self.vocabulary.expand_id is not None:
            grows = settle & (self.guesses == self.vocabulary.expand_id)
            if np.count_nonzero(grows):
                settle &= ~self._excess(grows, self.expandable)
        settle = self._write(settle)
        self.masked ^= settle
        if decision.remask is not None:
            self.masked |= decision.remask & ~settle & ~self.anchored

    def _write(self, where: Array) -> Array:
        """Writes the guesses at `where` [T], except deletions beyond a hole's limit; returns the written positions."""
        written = where
        if self.vocabulary.delete_ids:
            deletes = where & self.vocabulary.is_deletion(self.guesses)
            if np.count_nonzero(deletes):
                written = where & ~self._excess(deletes, self.deletable)
        np.copyto(self.ids, self.guesses, where=written)
        np.copyto(self.confidence, self.guess_confidence, where=written)
        return written

    def cut_spill(self, mask_id: int) -> None:
        """Drops the positions that only completed a block."""
        if self.spill:
            num_kept = len(self.ids) - self.spill
            self.spill = 0
            self.reshape(list(range(num_kept)), mask_id)

    def _excess(self, chosen: Array, room: Array) -> Array:
        """The least confident of the `chosen` [T] positions: those for which their hole has no `room` [G]."""
        excess = np.zeros_like(chosen)
        for hole, num_fitting in zip(self._holes, room.tolist(), strict=True):
            here = np.flatnonzero(chosen[hole])
            best_first = (-self.guess_confidence[hole][here]).argsort(kind="stable")
            excess[hole.start + here[best_first[max(num_fitting, 0) :]]] = True
        return excess

    def delete_behind(self, *, ends_text: bool) -> None:
        """Deletes the masked positions after a deletion, up to the next anchor and within the hole's limit. If one
        ends the text (`ends_text`), deletes settled ones, too, but only after a deletion with no mask before it.
        """
        is_deleted = ~self.masked & self.vocabulary.is_deletion(self.ids)
        if not np.count_nonzero(is_deleted & ~self.anchored):
            return
        is_behind, has_no_mask = False, True
        room = self.deletable.tolist()
        for index, hole in enumerate(self.hole_of.tolist()):
            if index == 0 or hole != self.hole_of[index - 1] or self.anchored[index]:
                is_behind, has_no_mask = False, True
            if is_behind and not is_deleted[index] and (ends_text or self.masked[index]):
                if room[hole] > 0 and not self.leading[index]:
                    self.ids[index] = self.vocabulary.delete_ids[0]
                    self.confidence[index] = 1.0
                    self.masked[index] = False
                    room[hole] -= 1
            elif self.masked[index]:
                has_no_mask = False
            elif is_deleted[index] and not self.anchored[index]:
                is_behind = is_behind or has_no_mask or not ends_text

    def order_grown(self) -> list[int | None] | None:
        """The order for `reshape` that drops deletions and doubles settled expansions; None if nothing changes."""
        is_free = ~self.masked & ~self.anchored
        shrinks = is_free & self.vocabulary.is_deletion(self.ids)
        expands = is_free & (self.ids == self.vocabulary.expand_id)
        if not (shrinks | expands).any():
            return None
        order: list[int | None] = []
        for index in range(len(self.ids)):
            if expands[index]:
                order += [index, None]
            elif not shrinks[index]:
                order.append(index)
        return order

    def reshape(self, order: list[int | None], mask_id: int) -> None:
        """Moves the old position `order[i]` to position i; where that is None, a new mask comes, otherwise like the
        position before it. Settled expansions become masks, too. Masks have the id `mask_id`.
        """
        sources: list[int] = []
        leading: list[bytes] = []
        for source in order:
            sources.append(sources[-1] if source is None else source)
            leading.append(b"" if source is None else self.leading[source])
        index = np.array(sources, dtype=np.int64)
        is_new = np.array([source is None for source in order], dtype=bool)
        if self.vocabulary.expand_id is not None:
            is_new |= ~self.anchored[index] & ~self.masked[index] & (self.ids[index] == self.vocabulary.expand_id)
        self.leading = leading
        for name in ("anchored", "hole_of", "rule_of", "ids", "masked", "confidence", "guesses", "guess_confidence"):
            setattr(self, name, getattr(self, name)[index])
        self.ids[is_new] = mask_id
        self.masked[is_new] = True
        self.confidence[is_new] = 0.0
        self.guesses[is_new] = -1
        self._find_holes()

    def states(self) -> list[HoleState]:
        """The current state of each hole: its settled tokens, and guesses at masked positions that have one."""
        shown = np.where(self.masked, self.guesses, self.ids).tolist()
        confidence = np.where(self.masked, self.guess_confidence, self.confidence).astype(np.float64).round(3).tolist()
        is_masked, num_shown, all_pieces = self.masked.tolist(), len(shown) - self.spill, self.vocabulary.pieces
        states: list[HoleState] = []
        for hole, positions in enumerate(self._holes):
            here = slice(positions.start, min(positions.stop, num_shown))
            tokens, masked = shown[here], is_masked[here]
            leads = self.leading[here]
            pieces = [all_pieces[token] if token >= 0 else lead for token, lead in zip(tokens, leads, strict=True)]
            text, ranges, _ = self._text(hole, pieces, "replace")
            known = zip(tokens, ranges, confidence[here], strict=True)
            visible = [(span, value) for token, span, value in known if token >= 0 and span[0] < span[1]]
            state = HoleState.model_construct(  # valid by construction: checking took longer than all above
                text=text,
                settled=merge([span for span, is_open in zip(ranges, masked, strict=True) if not is_open]),
                masked=sum(masked),
                tokens=[span for span, _ in visible],
                confidence=[value for _, value in visible],
            )
            states.append(state)
        return states

    def fill(self, hole: int, certainty: float | None = None) -> FilledHole:
        """The finished text of a hole. Invalid UTF-8 and tokens without text are left out."""
        here = self._holes[hole]
        pieces = [self.vocabulary.pieces[token] for token in self.ids[here].tolist()]
        text, ranges, whole_ranges = self._text(hole, pieces, "ignore")
        confidence = self.confidence[here].tolist()
        visible = [(span, value) for span, value in zip(ranges, confidence, strict=True) if span[0] < span[1]]
        anchors = []  # of each token the range that the request keeps: all, nothing, or the space moved from an anchor
        for (start, end), anchored, lead in zip(whole_ranges, self.anchored[here], self.leading[here], strict=True):
            anchors.append((start, end if anchored else start + len(lead)))
        if self.outlines[hole].keeps_tail:
            end = len(self.outlines[hole].lead) + len(text)
            anchors.append((end - len(self.outlines[hole].tail), end))
        return FilledHole(
            text=text,
            tokens=[span for span, _ in visible],
            confidence=[value for _, value in visible],
            anchors=merge(self._without_lead(hole, anchors)),
            cut=self._is_cut(hole),
            certainty=certainty,
        )

    def _is_cut(self, hole: int) -> bool:
        """True if a limit may have cut the text off: no position is deleted, and the length is the limit itself."""
        ids = self.ids[(self.hole_of == hole) & ~self.anchored]
        is_full = not (self.is_length_chosen and self.expandable[hole] > 0)
        return is_full and len(ids) > 0 and not self.vocabulary.is_deletion(ids).any()

    def _without_lead(self, hole: int, spans: Spans) -> Spans:
        """The ranges as ones of the answer, which begins behind the outline's `lead`."""
        lead = len(self.outlines[hole].lead)
        if not lead:
            return spans
        return [(max(0, start - lead), max(0, end - lead)) for start, end in spans]

    def _text(self, hole: int, pieces: list[bytes], errors: str) -> tuple[str, Spans, Spans]:
        """The answer's text for `pieces`, each piece's character range in it, and the ranges with the lead included."""
        outline = self.outlines[hole]
        text, ranges = decode(pieces, errors)
        assert text.startswith(outline.lead)
        return text[len(outline.lead) :] + outline.tail, self._without_lead(hole, ranges), ranges

    @property
    def num_new_tokens(self) -> int:
        """Settled tokens that are neither anchors nor deletions."""
        return int((~self.masked & ~self.anchored & ~self.vocabulary.is_deletion(self.ids)).sum())

    @property
    def mean_log_confidence(self) -> float:
        """The mean log-confidence of the positions that are not anchors."""
        logs = torch.from_numpy(self.confidence[~self.anchored]).double().clamp(min=1e-12).log()
        return float(logs.mean()) if len(logs) else 0.0
