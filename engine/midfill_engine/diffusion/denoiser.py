"""Denoises one canvas of a fill: chooses each step's positions, applies the sampler, keeps keys and values."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from midfill_engine.caches.keys import CanvasCache
from midfill_engine.diffusion.canvas import Canvas
from midfill_engine.diffusion.plan import Plan
from midfill_engine.models.choice import Choice, Chosen
from midfill_engine.models.packed import Pass, Result, choose_again
from midfill_engine.models.sequence import Array, TokenSequence
from midfill_engine.samplers import Decision, Predictions, Sampler, StepState


@dataclass
class CanvasDenoiser:
    """Denoises one canvas in at most `num_steps` steps, with its own sampler, KV cache and random generator."""

    plan: Plan
    canvas: Canvas
    sampler: Sampler
    cache: CanvasCache
    num_steps: int
    temperature: float
    generator: torch.Generator
    step: int = 0
    _open_positions: Array = field(init=False)  # [M]: hole positions that this step may settle or revise
    _active_block: int = 0  # the last block that takes part in this step
    _laid: tuple[tuple[int, ...], TokenSequence] | None = None  # the holes' lengths, and the sequence for these

    @property
    def is_done(self) -> bool:
        """True if no position is masked, and the sampler may not change settled ones any more."""
        may_change = self.sampler.block_may_change and not self.is_last_step and not self.canvas.anchored.all()
        return not self.canvas.num_masked and not may_change

    @property
    def is_last_step(self) -> bool:
        return self.step >= self.num_steps

    def _lay_sequence(self) -> TokenSequence:
        """The sequence of context and canvas, built anew if a hole has another length. Its ids may be out of date."""
        lengths, mask_id = self.canvas.lengths, self.plan.runtime.tokens.mask_id
        if self._laid is None or self._laid[0] != lengths:
            ids = np.concatenate((self.plan.context_ids.numpy(), self.canvas.ids))
            self._laid = (lengths, TokenSequence(self.plan.frame(lengths), ids, mask_id))
        return self._laid[1]

    def sequence(self) -> TokenSequence:
        """The context and the canvas as model input, valid until the next call. Settled deletions are shown as masks if
        the model saw none in training.
        """
        sequence, hidden = self._lay_sequence(), self.canvas.masked
        if not self.plan.runtime.family.shows_deleted:
            hidden = hidden | self.canvas.vocabulary.is_deletion(self.canvas.ids)
        in_holes = sequence.ids[sequence.frame.num_context :]
        in_holes[:] = self.canvas.ids
        in_holes[hidden] = sequence.mask_id
        return sequence

    def open_pass(self) -> Pass:
        """Starts a step and returns its forward pass, which scores the positions that may be settled or revised."""
        self.step += 1
        sequence, masked = self.sequence(), self.canvas.masked
        blocks, last_block = sequence.frame.hole_blocks, sequence.frame.last_block
        self._active_block = self._find_active_block(blocks, last_block)
        is_open = masked
        if last_block > self._active_block:
            is_open = masked & (blocks <= self._active_block)
        if self.sampler.revises:
            is_open = is_open | (~masked & ~self.canvas.anchored & (blocks == self._active_block))
        self._open_positions = is_open.nonzero()[0]
        rows = sequence.frame.hole_score_rows[self._open_positions]
        choice = self._build_choice(self._open_positions)
        return self.cache.build_pass(sequence, masked, self._active_block, rows, choice, self.is_last_step)

    def _find_active_block(self, blocks: Array, last_block: int) -> int:
        """The last block that takes part in this step. Usually that is the first one with masks. A pipelined model goes
        on as far as the sampler reaches; the last step takes all; a block that may still change stays the active one.
        `blocks` [Th] are the blocks of the holes' positions, ascending.
        """
        if self.is_last_step or not last_block:
            return last_block
        if self.sampler.block_may_change:
            return self._active_block
        first_masked = int(blocks[self.canvas.masked.argmax()])
        if not self.plan.runtime.family.pipelined:
            return first_masked
        reach = self.sampler.reach(self.canvas.masked)
        return max(first_masked, int(blocks[reach - 1])) if reach else first_masked

    def _build_choice(self, positions: Array) -> Choice:
        """The choice of tokens at canvas `positions` [M]. Bars deletions and expansions that a hole has no room for."""
        canvas, tokens = self.canvas, self.plan.runtime.tokens
        barred: dict[int, Tensor] = {}
        if self.plan.policy.may_delete:
            is_short = torch.from_numpy((canvas.deletable <= 0)[canvas.hole_of[positions]])
            barred.update(dict.fromkeys(tokens.delete_ids, is_short))
        if tokens.expand_id is not None and self.plan.policy.may_expand:
            is_full = (canvas.expandable <= 0) | self.is_last_step
            barred[tokens.expand_id] = torch.from_numpy(is_full[canvas.hole_of[positions]])
        return Choice(
            allowed=canvas.allowed,
            rule_of=torch.from_numpy(canvas.rule_of[positions]),
            barred=barred,
            temperature=self.temperature,
            top_p=self.plan.request.top_p,
            is_scaled=self.sampler.is_scaled,
            generator=self.generator,
            needs_entropy=self.sampler.needs_entropy,
        )

    def absorb(self, result: Result) -> None:
        """Finishes the step: applies the sampler's decision, then lets the canvas shrink and grow."""
        assert result.chosen is not None
        self.cache.keep(result)
        self._settle(self._open_positions, result.chosen)
        if self.is_last_step:
            self._settle_all(self._open_positions, result.hidden)
        tokens, may_delete = self.plan.runtime.tokens, self.plan.policy.may_delete
        if tokens.deletes_rest and may_delete:
            self.canvas.delete_behind(ends_text=False)
        if tokens.ends_text and may_delete:
            if not self.sampler.block_may_change or self.is_last_step:
                self.canvas.delete_behind(ends_text=True)
            if self.is_done:
                self.canvas.cut_spill(tokens.mask_id)
        if self.plan.policy.resizes_canvas:
            order = self.canvas.order_grown()
            if order is not None:
                self.canvas.reshape(order, tokens.mask_id)
                self.cache.reset(0)

    def _settle(self, positions: Array, chosen: Chosen) -> None:
        """Settles the tokens `chosen` at `positions` [M] as the sampler decides, but in the last step all of them."""
        canvas = self.canvas
        predictions = Predictions.spread(chosen, positions, len(canvas.ids))
        masked, num_masked = canvas.masked, canvas.num_masked
        if len(positions) != num_masked or self.sampler.revises:
            masked = np.zeros(len(canvas.ids), dtype=bool)
            masked[positions] = canvas.masked[positions]
        if self.is_last_step:
            decision = Decision(masked)
        else:
            decision = self.sampler.decide(self._describe_step(predictions, masked, num_masked))
        if self.plan.policy.may_expand:
            decision = delay_neighbors(decision, predictions.ids == self.plan.runtime.tokens.expand_id)
        canvas.apply(decision, predictions)

    def _describe_step(self, predictions: Predictions, masked: Array, num_masked: int) -> StepState:
        """What the sampler sees of this step. `masked` [Th] may be settled now, of `num_masked` on the canvas."""
        block_size, sequence_positions = self.plan.runtime.loaded.config.block_size, None
        if block_size:
            frame = self._lay_sequence().frame
            sequence_positions = frame.positions[0, frame.num_context :]
        return StepState(
            predictions=predictions,
            ids=self.canvas.ids,
            masked=masked,
            fixed=self.canvas.anchored,
            remaining=num_masked,
            step=self.step,
            num_steps=self.num_steps,
            quality=self.plan.quality,
            fast_threshold=self.plan.runtime.family.fast_threshold,
            sequence_positions=sequence_positions,
            block_size=block_size,
        )

    def _settle_all(self, positions: Array, hidden: Tensor) -> None:
        """Settles the `positions` [M] that are still masked after the last step, because a hole cannot afford the
        deletions that were predicted there: chooses other tokens from their states `hidden` [M, D].
        """
        transformer, operators = self.plan.runtime.loaded.model.transformer, self.plan.runtime.operators
        still_open, states = positions, hidden
        while self.canvas.masked[still_open].any():
            is_masked = self.canvas.masked[still_open]
            still_open = still_open[is_masked]
            states = states[torch.from_numpy(is_masked).to(states.device)]
            self._settle(still_open, choose_again(transformer, states, self._build_choice(still_open), operators))


def delay_neighbors(decision: Decision, expands: Array) -> Decision:
    """The decision that leaves the neighbors of settled expansions masked, because their predictions were made for a
    shorter text. `expands` [T] is true where the prediction is an expansion.
    """
    grows = decision.settle & expands
    if not grows.any():
        return decision
    is_beside = np.zeros_like(grows)
    is_beside[1:] |= grows[:-1]
    is_beside[:-1] |= grows[1:]
    return Decision(decision.settle & (grows | ~is_beside), decision.remask, decision.edit)
