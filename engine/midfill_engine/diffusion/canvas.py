"""The canvas of one fill: token ids of all holes, which are masked, and their text. Knows no sampler, no request."""

from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch

from midfill_engine.models.sequence import Array
from midfill_engine.requests.outline import HoleOutline
from midfill_engine.samplers.base import Decision, Proposals
from midfill_engine.tokens.pieces import Spans, decode, merge
from midfill_engine.tokens.vocabulary import Vocabulary
from midfill_engine.wire import FilledHole, HoleState


@dataclass
class Canvas:
    """T hole positions, all holes side by side. Changed in place by `apply` and `reshape`.

    `ids`, `masked`, `confidence` are [T]. `anchored` [T] marks positions that never change. `hole_of` [T] and
    `rule_of` [T] give each position's hole and its row in `allowed` [R, V]; `leading` has the bytes each position must
    begin with. Each hole has `least` [G] to `most` [G] positions that are neither anchors nor deletions.
    `is_length_chosen`: the lengths were chosen, not only an upper bound. The last `spill` positions only complete a
    block and are not part of the fill. All but `allowed` are numpy's: nothing of it is ever on a device.
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
    least: Array
    most: Array
    is_length_chosen: bool
    spill: int = 0

    def __post_init__(self) -> None:
        self.guesses = np.full_like(self.ids, -1)
        self.guessed = np.zeros_like(self.confidence)  # the guesses' confidence
        self._find_holes()

    def _find_holes(self) -> None:
        """`lengths` [G] are the numbers of positions of the holes, anchors included."""
        self.lengths: tuple[int, ...] = tuple(np.bincount(self.hole_of, minlength=len(self.outlines)).tolist())
        self._holes = [slice(start, end) for start, end in pairwise(accumulate(self.lengths, initial=0))]

    @property
    def num_masked(self) -> int:
        return int(np.count_nonzero(self.masked))

    def _count(self, where: Array) -> Array:
        """[G]: the number of positions of `where` [T] in each hole."""
        return np.array([np.count_nonzero(where[hole]) for hole in self._holes])

    @property
    def deletable(self) -> Array:
        """[G]: the number of deletions that each hole can still settle without becoming too short."""
        is_deleted = ~self.masked & self.vocabulary.is_deletion(self.ids)
        room: Array = self._count(~(self.anchored | is_deleted)) - self.least
        return room

    @property
    def expandable(self) -> Array:
        """[G]: the number of positions that each hole can still gain."""
        room: Array = np.maximum(self.most - self._count(~self.anchored), 0)
        return room

    def apply(self, decision: Decision, proposals: Proposals) -> None:
        """Settles and remasks. The least confident deletions and expansions beyond a hole's limits stay masked."""
        self.guesses, self.guessed = proposals.ids, proposals.confidence
        if decision.edit is not None:
            self._write(decision.edit & ~self.masked & ~self.anchored)
        settle = decision.settle & self.masked
        if self.vocabulary.expand_id is not None:
            grows = settle & (self.guesses == self.vocabulary.expand_id)
            if np.count_nonzero(grows):
                settle &= ~self._excess(grows, self.expandable)
        settle = self._write(settle)
        self.masked = self.masked & ~settle
        if decision.remask is not None:
            self.masked |= decision.remask & ~settle & ~self.anchored

    def _write(self, where: Array) -> Array:
        """Writes the guesses at `where` [T] except deletions beyond a hole's limit; returns the written positions."""
        deletes = where & self.vocabulary.is_deletion(self.guesses)
        if np.count_nonzero(deletes):
            where = where & ~self._excess(deletes, self.deletable)
        self.ids = np.where(where, self.guesses, self.ids)
        self.confidence = np.where(where, self.guessed, self.confidence)
        return where

    def cut_spill(self, mask_id: int) -> None:
        """Drops the positions that only completed a block."""
        if self.spill:
            num_kept = len(self.ids) - self.spill
            self.spill = 0
            self.reshape(list(range(num_kept)), mask_id)

    def _excess(self, chosen: Array, room: Array) -> Array:
        """The positions among `chosen` [T] that exceed the `room` [G] of their hole, the least confident ones."""
        excess = np.zeros_like(chosen)
        for hole, most in zip(self._holes, room.tolist(), strict=True):
            here = np.flatnonzero(chosen[hole])
            best = (-self.guessed[hole][here]).argsort(kind="stable")
            excess[hole.start + here[best[max(most, 0) :]]] = True
        return excess

    def delete_behind(self, *, ends_text: bool) -> None:
        """Deletes the masked positions after a deletion, up to the next anchor and within the hole's limit. With
        `ends_text` deletes all positions, but only after a deletion that has no mask before it.
        """
        is_deleted = ~self.masked & self.vocabulary.is_deletion(self.ids)
        if not np.count_nonzero(is_deleted & ~self.anchored):
            return
        running, is_final = False, True
        room = self.deletable.tolist()
        for index, hole in enumerate(self.hole_of.tolist()):
            if index == 0 or hole != self.hole_of[index - 1] or self.anchored[index]:
                running, is_final = False, True
            if running and not is_deleted[index] and (ends_text or self.masked[index]):
                if room[hole] > 0 and not self.leading[index]:
                    self.ids[index] = self.vocabulary.delete_ids[0]
                    self.confidence[index] = 1.0
                    self.masked[index] = False
                    room[hole] -= 1
            elif self.masked[index]:
                is_final = False
            elif is_deleted[index] and not self.anchored[index]:
                running = running or is_final or not ends_text

    def growth(self) -> list[int | None] | None:
        """The order for `reshape`: no deletions, two masks for each settled expansion; None if nothing changes."""
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
        """Position i becomes the old position `order[i]`, or a new mask like the position before it if that is None."""
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
        for name in ("anchored", "hole_of", "rule_of", "ids", "masked", "confidence", "guesses", "guessed"):
            setattr(self, name, getattr(self, name)[index])
        self.ids[is_new] = mask_id
        self.masked[is_new] = True
        self.confidence[is_new] = 0.0
        self.guesses[is_new] = -1
        self._find_holes()

    def state(self, hole: int) -> HoleState:
        """The current state of a hole: settled tokens, and guesses where there are any."""
        here = self._holes[hole]
        if hole == len(self.outlines) - 1:
            here = slice(here.start, here.stop - self.spill)
        is_masked = self.masked[here]
        shown = np.where(is_masked, self.guesses[here], self.ids[here]).tolist()
        confidence = np.where(is_masked, self.guessed[here], self.confidence[here]).tolist()
        pieces = []
        for token, lead in zip(shown, self.leading[here], strict=True):
            pieces.append(self.vocabulary.pieces[token] if token >= 0 else lead)
        text, ranges, _ = self._text(hole, pieces, "replace")
        visible: list[tuple[tuple[int, int], float]] = []
        for token, (start, end), value in zip(shown, ranges, confidence, strict=True):
            if token >= 0 and start < end:
                visible.append(((start, end), round(value, 3)))
        masked = is_masked.tolist()
        return HoleState.model_construct(  # valid by construction: checking took longer than all above
            text=text,
            settled=merge([span for span, is_open in zip(ranges, masked, strict=True) if not is_open]),
            masked=sum(masked),
            tokens=[span for span, _ in visible],
            confidence=[value for _, value in visible],
        )

    def fill(self, hole: int, certainty: float | None = None) -> FilledHole:
        """The finished text. Invalid UTF-8 and tokens without text are left out."""
        here = self._holes[hole]
        pieces = [self.vocabulary.pieces[token] for token in self.ids[here].tolist()]
        text, ranges, whole_ranges = self._text(hole, pieces, "ignore")
        confidence = self.confidence[here].tolist()
        visible = [(span, value) for span, value in zip(ranges, confidence, strict=True) if span[0] < span[1]]
        anchors = []  # the part of each token that the request keeps: all, nothing, or the space moved from an anchor
        for (start, end), anchored, lead in zip(whole_ranges, self.anchored[here], self.leading[here], strict=True):
            anchors.append((start, end if anchored else start + len(lead)))
        return FilledHole(
            text=text,
            tokens=[span for span, _ in visible],
            confidence=[value for _, value in visible],
            anchors=merge(self._without_lead(hole, anchors)),
            cut=self._is_cut(hole),
            certainty=certainty,
        )

    def _is_cut(self, hole: int) -> bool:
        """True if the text may continue: all positions are used, and the length was only a limit."""
        deleted = (self.hole_of == hole) & ~self.anchored & self.vocabulary.is_deletion(self.ids)
        has_room = int(self.expandable[hole]) > 0
        return not bool(deleted.any()) and not (self.is_length_chosen and has_room)

    def _without_lead(self, hole: int, spans: Spans) -> Spans:
        """Ranges relative to the answer, which starts behind the text that belongs to the context."""
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
        if not len(logs):
            return 0.0
        return float(logs.mean())
