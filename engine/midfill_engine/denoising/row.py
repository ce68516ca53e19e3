"""One alternative of a fill: selects the positions of each step, applies the sampler, keeps keys and values."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from midfill_engine.caches.keys import RowCache
from midfill_engine.denoising.canvas import Canvas
from midfill_engine.denoising.plan import Plan
from midfill_engine.models.choice import Choice, Chosen
from midfill_engine.models.family import Layout
from midfill_engine.models.packed import Pass, Result, choose_again
from midfill_engine.models.sequence import Sequence
from midfill_engine.samplers import Decision, Sampler, StepState


@dataclass
class CanvasRow:
    plan: Plan
    canvas: Canvas
    sampler: Sampler
    cache: RowCache
    num_steps: int
    temperature: float
    generator: torch.Generator
    step: int = 0
    _open: Tensor = field(init=False)  # [Th]: positions this step may settle
    _active: int = 0

    @property
    def is_done(self) -> bool:
        return not bool(self.canvas.masked.any()) and (not self.sampler.goes_on or self.is_last_step)

    @property
    def is_last_step(self) -> bool:
        return self.step >= self.num_steps

    @property
    def layout(self) -> Layout:
        return self.plan.lay_out(self.canvas.hole_lengths())

    def sequence(self) -> Sequence:
        """The canvas as model input. Deletions are shown as masks if the model never saw one in training."""
        family, tokens = self.plan.runtime.family, self.plan.runtime.tokens
        hidden = self.canvas.masked
        if not family.shows_deleted:
            hidden = hidden | self.canvas.vocabulary.is_deletion(self.canvas.ids)
        ids = self.canvas.ids.masked_fill(hidden, tokens.mask_id)
        block_size = self.plan.runtime.loaded.config.block_size
        return Sequence(self.plan.context_ids, ids, self.layout, family, block_size, tokens.mask_id)

    def open_pass(self) -> Pass:
        """Starts a step and returns its forward pass, which scores the positions that may be settled or revised."""
        self.step += 1
        sequence = self.sequence()
        num_context, blocks = sequence.num_context, sequence.blocks
        masked = torch.cat((torch.zeros(num_context, dtype=torch.bool), self.canvas.masked))
        self._active = self._active_block(blocks, masked)
        is_open = masked & (blocks <= self._active)
        if self.sampler.revises:
            revisable = ~self.canvas.masked & ~self.canvas.anchored
            is_open[num_context:] |= revisable & (blocks[num_context:] == self._active)
        self._open = is_open[num_context:]
        targets = is_open.nonzero().flatten()
        return self.cache.build_pass(sequence, masked, self._active, targets, self._choice(targets - num_context))

    def _active_block(self, blocks: Tensor, masked: Tensor) -> int:
        """The last block that takes part in this step: the first with masks, or as far as the pipeline reaches."""
        if self.is_last_step:
            return int(blocks.max())
        if self.sampler.goes_on:
            return self._active
        first = int(blocks[masked].min())
        reach = self.sampler.reach(self.canvas.masked) if self.plan.runtime.family.pipelined else 0
        return max(first, int(blocks[len(self.plan.context_ids) + reach - 1])) if reach else first

    def _choice(self, places: Tensor) -> Choice:
        """The token choice at the canvas positions `places` [M]."""
        canvas, tokens = self.canvas, self.plan.runtime.tokens
        holes, barred = canvas.hole_of[places], {}
        if self.plan.policy.may_delete:
            barred.update(dict.fromkeys(tokens.delete_ids, canvas.deletable[holes] <= 0))
        if tokens.expand_id is not None and self.plan.policy.may_expand:
            barred[tokens.expand_id] = (canvas.expandable[holes] <= 0) | self.is_last_step
        return Choice(
            allowed=canvas.allowed,
            rule_of=canvas.rule_of[places],
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
        places = self._open.nonzero().flatten()
        self._settle(places, result.chosen)
        if self.is_last_step:
            self._settle_all(places, result.hidden[: len(places)])
        if self.plan.runtime.tokens.deletes_rest and self.plan.policy.may_delete:
            self.canvas.delete_behind(ends_text=False)
        if self.plan.runtime.tokens.ends_text and self.plan.policy.may_delete:
            if not self.sampler.goes_on or self.is_last_step:
                self.canvas.delete_behind(ends_text=True)
            if self.is_done:
                self.canvas.cut_spill(self.plan.runtime.tokens.mask_id)
        order = self.canvas.growth() if self.plan.policy.removes else None
        if order is not None:
            self.canvas.reshape(order, self.plan.runtime.tokens.mask_id)
            self.cache.reset(0)

    def _settle(self, places: Tensor, chosen: Chosen) -> None:
        """Applies the sampler to `chosen`, whose rows are the open positions `places` [M]."""
        proposals = scatter(places, chosen, len(self.canvas.ids))
        masked = torch.zeros_like(self.canvas.masked)
        masked[places] = self.canvas.masked[places]
        block_size = self.plan.runtime.loaded.config.block_size
        state = StepState(
            proposals=proposals,
            ids=self.canvas.ids,
            masked=masked,
            fixed=self.canvas.anchored,
            remaining=int(self.canvas.masked.sum()),
            step=self.step,
            num_steps=self.num_steps,
            quality=self.plan.quality,
            fast_threshold=self.plan.runtime.family.fast_threshold,
            places=self.layout.hole_positions[0] if block_size else None,
            block_size=block_size,
        )
        decision = Decision(masked) if self.is_last_step else self.sampler.decide(state)
        if self.plan.policy.may_expand:
            grows = decision.settle & (proposals.ids == self.plan.runtime.tokens.expand_id)
            decision = delay_neighbors(decision, grows)
        self.canvas.apply(decision, proposals)

    def _settle_all(self, places: Tensor, hidden: Tensor) -> None:
        """Settles whatever is still masked after the last step; deletions that the hole cannot afford are replaced."""
        transformer, operators = self.plan.runtime.loaded.model.transformer, self.plan.runtime.operators
        while bool(self.canvas.masked[places].any()):
            is_left = self.canvas.masked[places]
            places, hidden = places[is_left], hidden[is_left.to(hidden.device)]
            choice = self._choice(places)
            self._settle(places, choose_again(transformer, hidden, choice, operators))


def scatter(places: Tensor, chosen: Chosen, size: int) -> Chosen:
    """Proposals for a canvas of `size` positions from the tokens chosen at its positions `places` [M]."""
    ids = torch.full((size,), -1).scatter(0, places, chosen.ids)
    confidence = torch.zeros(size).scatter(0, places, chosen.confidence)
    entropy = None if chosen.entropy is None else torch.zeros(size).scatter(0, places, chosen.entropy)
    return Chosen(ids, confidence, entropy)


def delay_neighbors(decision: Decision, grows: Tensor) -> Decision:
    """Does not settle the neighbors of the expansions `grows`, whose proposals were made for a shorter text."""
    beside = torch.zeros_like(grows)
    beside[1:] |= grows[:-1]
    beside[:-1] |= grows[1:] & ~beside[:-1]
    return Decision(decision.settle & (grows | ~beside), decision.remask, decision.edit)
