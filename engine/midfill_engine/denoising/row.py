"""One alternative of a fill: its canvas, sampler and KV cache. Builds the input of each forward pass and applies the
result.

Knows tokens and the model's shape; no request, no other rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from midfill_engine.caches import CACHES, Cache, KeptKeys, StepView
from midfill_engine.caches.held import ContextKeys
from midfill_engine.denoising.canvas import Canvas
from midfill_engine.lengths import LengthPolicy
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.choice import Choice, Chosen
from midfill_engine.models.layout import Layout
from midfill_engine.models.packed import Pass, Result, choose_again
from midfill_engine.models.sequence import Sequence
from midfill_engine.models.transformer import KeyValues
from midfill_engine.samplers import Decision, Proposals, Sampler, StepState


@dataclass
class CanvasRow:
    """`context_keys` is the context's KV cache, computed once; `lay_out` assigns positions to holes of given
    lengths.
    """

    runtime: Runtime
    canvas: Canvas
    context_ids: Tensor
    context_keys: KeyValues | None
    lay_out: Callable[[list[int]], Layout]
    sampler: Sampler
    cache: Cache
    policy: LengthPolicy
    num_steps: int
    quality: float
    temperature: float
    top_p: float
    generator: torch.Generator
    step: int = 0
    age: int = 0
    kept: KeptKeys = field(default_factory=KeptKeys)
    _open: Tensor = field(init=False)  # [Th]: positions this step may settle
    _computed: Tensor = field(init=False)  # [C]
    _active: int = 0

    @property
    def is_done(self) -> bool:
        return not bool(self.canvas.masked.any()) and (not self.sampler.goes_on or self.is_last_step)

    @property
    def is_last_step(self) -> bool:
        return self.step >= self.num_steps

    def sequence(self) -> Sequence:
        """The canvas as model input. A deletion that stays is shown as masked if the model never saw one in
        training.
        """
        family, tokens = self.runtime.family, self.runtime.tokens
        hidden = self.canvas.masked[0]
        if not family.shows_deleted:
            hidden = hidden | self.canvas.vocabulary.is_deletion(self.canvas.ids[0])
        ids = self.canvas.ids[0].masked_fill(hidden, tokens.mask_id)
        block_size = self.runtime.loaded.config.block_size
        return Sequence.of(self.context_ids, ids, self.canvas.layout, family, block_size, tokens.mask_id)

    def open_pass(self) -> Pass:
        """Starts a step and returns its forward pass."""
        self.step += 1
        sequence = self.sequence()
        view = self._view(sequence)
        is_open = self._asked(view)
        targets = is_open.nonzero().flatten()
        self._open = is_open[sequence.num_context :]
        compute = self.cache.compute(view)
        compute[sequence.rows_of_scores(targets)] = True
        self._computed = compute.nonzero().flatten()
        return self._build(sequence, view, targets)

    def share_context(self) -> ContextKeys:
        """The context's part of the KV cache."""
        num = len(self.context_ids)
        layers = [(keys[:, :, :num], values[:, :, :num]) for keys, values in self.kept.layers]
        return ContextKeys(layers, self.canvas.layout.context_positions.clone())

    def begin_with(self, shared: ContextKeys) -> None:
        """Reuses a context KV cache that was computed for another canvas."""
        self._place(shared, with_room=True)

    def open_over(self, shared: ContextKeys) -> Pass:
        """`open_pass` of the holes alone, over a context KV cache that was computed for another canvas."""
        self._place(shared, with_room=False)
        self.cache = CACHES.find("dual")
        return self.open_pass()

    def _place(self, shared: ContextKeys, *, with_room: bool) -> None:
        sequence, config = self.sequence(), self.runtime.loaded.config.transformer
        positions = sequence.positions[0, : sequence.num_context]
        self.kept, self.age = shared.at(positions, sequence.ids, config, with_room=with_room), 0

    def _asked(self, view: StepView) -> Tensor:
        """[T]: positions that this step may settle or revise."""
        is_open = view.masked & (view.blocks <= view.active_block)
        if self.sampler.revises:
            revisable = ~self.canvas.masked[0] & ~self.canvas.anchored
            is_open[len(self.context_ids) :] |= revisable & (view.blocks[len(self.context_ids) :] == view.active_block)
        return is_open

    def _view(self, sequence: Sequence) -> StepView:
        length = len(sequence.ids)
        if len(self.kept.kept) != length:
            self.kept.reset(length)
            self.age = 0
        num_context = sequence.num_context
        masked = torch.cat((torch.zeros(num_context, dtype=torch.bool), self.canvas.masked[0]))
        first = sequence.positions[0, num_context:].min()
        blocks = sequence.blocks
        self._active = self._active_block(blocks, masked)
        return StepView(
            is_hole=sequence.is_hole,
            is_before_holes=sequence.positions[0] < first,
            masked=masked,
            kept=self.kept.kept.clone(),
            changed=self.kept.kept & (self.kept.tokens != sequence.ids),
            blocks=blocks,
            active_block=self._active,
            age=self.age,
        )

    def _active_block(self, blocks: Tensor, masked: Tensor) -> int:
        """The last block that takes part in this step: the first with masks, or as far as the pipeline reaches."""
        if self.is_last_step:
            return int(blocks.max())
        if self.sampler.goes_on:
            return self._active
        first = int(blocks[masked].min())
        reach = self.sampler.reach(self.canvas.masked) if self.runtime.family.pipelined else 0
        return max(first, int(blocks[len(self.context_ids) + reach - 1])) if reach else first

    def _build(self, sequence: Sequence, view: StepView, targets: Tensor) -> Pass:
        computed = self._computed
        uses_context_keys = self.context_keys is not None and not bool((computed < sequence.num_context).any())
        if uses_context_keys:
            rest, past = torch.arange(sequence.num_context), self.context_keys
        else:
            is_kept = view.kept.clone()
            is_kept[computed] = False
            rest = is_kept.nonzero().flatten()
            past = self.kept.past(rest)
        place = torch.full((len(sequence.ids),), -1)
        place[computed] = torch.arange(len(computed))
        num_heads = self.runtime.loaded.config.transformer.num_heads
        return Pass(
            ids=sequence.ids[computed],
            positions=sequence.for_heads(sequence.positions[:, computed], num_heads),
            wanted=place[sequence.rows_of_scores(targets)],
            past=past,
            mask=sequence.mask(computed, torch.cat((rest, computed))),
            keeps=self.cache.keeps_rows,
            choice=self._choice(targets - sequence.num_context),
        )

    def _choice(self, places: Tensor) -> Choice:
        """How tokens are chosen at the canvas positions `places` [M]."""
        canvas, tokens = self.canvas, self.runtime.tokens
        holes, barred = canvas.hole_of[places], {}
        if self.policy.may_delete:
            barred.update(dict.fromkeys(tokens.delete_ids, canvas.deletable[0, holes] <= 0))
        if tokens.expand_id is not None and self.policy.may_expand:
            barred[tokens.expand_id] = (canvas.expandable[0, holes] <= 0) | self.is_last_step
        return Choice(
            allowed=canvas.allowed,
            rule_of=canvas.rule_of[places],
            barred=barred,
            temperature=self.temperature,
            top_p=self.top_p,
            is_scaled=self.sampler.is_scaled,
            generator=self.generator,
            needs_entropy=self.sampler.needs_entropy,
        )

    def keep(self, result: Result) -> None:
        """Stores the keys and values that a pass returned."""
        if result.own is not None:
            ids = self.sequence().ids[self._computed]
            self.kept.put(self._computed, ids, result.own)
            self.age = 1 if len(ids) == len(self.kept.kept) else self.age + 1

    def absorb(self, result: Result) -> None:
        """Finishes the step: applies the sampler's decision, then lets the canvas shrink and grow."""
        assert result.chosen is not None
        self.keep(result)
        places = self._open.nonzero().flatten()
        self._settle(places, result.chosen)
        if self.is_last_step:
            self._settle_all(places, result.hidden[: len(places)])
        if self.runtime.tokens.deletes_rest and self.policy.may_delete:
            self.canvas.delete_rest()
        if self.runtime.tokens.ends_text and self.policy.may_delete:
            self._end_text()
        if self.policy.removes:
            self._reshape()

    def _end_text(self) -> None:
        if not self.sampler.goes_on or self.is_last_step:
            self.canvas.end_text()
        if self.is_done:
            self.canvas.cut_spill()
            self.canvas.layout = self.lay_out(self.canvas.hole_lengths())

    def _settle(self, places: Tensor, chosen: Chosen) -> None:
        """Applies the sampler to `chosen`, whose rows are the open positions `places` [M]."""
        proposals = self._scatter(places, chosen)
        masked = torch.zeros_like(self.canvas.masked)
        masked[0, places] = True
        masked &= self.canvas.masked
        state = StepState(
            proposals=proposals,
            masked=masked,
            step=self.step,
            num_steps=self.num_steps,
            quality=self.quality,
            fast_threshold=self.runtime.family.fast_threshold,
            remaining=self.canvas.masked.sum(dim=1),
            settled=self.canvas.confidence,
            fixed=self.canvas.anchored,
            ids=self.canvas.ids,
            places=self.canvas.layout.hole_positions[0],
            block_size=self.runtime.loaded.config.block_size,
        )
        decision = Decision(masked) if self.is_last_step else self.sampler.decide(state)
        if self.policy.may_expand:
            decision = self._one_growth_at_a_time(decision, proposals)
        self.canvas.apply(decision, proposals)

    def _settle_all(self, places: Tensor, hidden: Tensor) -> None:
        """Settles whatever is still masked after the last step; deletions that the hole cannot afford are replaced."""
        transformer, operators = self.runtime.loaded.model.transformer, self.runtime.operators
        while bool(self.canvas.masked[0, places].any()):
            is_left = self.canvas.masked[0, places]
            places, hidden = places[is_left], hidden[is_left.to(hidden.device)]
            choice = self._choice(places)
            self._settle(places, choose_again(transformer, hidden, choice, operators))

    def _scatter(self, places: Tensor, chosen: Chosen) -> Proposals:
        def scatter(values: Tensor) -> Tensor:
            found = torch.zeros(self.canvas.ids.shape)
            found[0, places] = values
            return found

        ids = torch.full(self.canvas.ids.shape, -1)
        ids[0, places] = chosen.ids
        entropy = None if chosen.entropy is None else scatter(chosen.entropy)
        return Proposals(ids, scatter(chosen.confidence), entropy)

    def _one_growth_at_a_time(self, decision: Decision, proposals: Proposals) -> Decision:
        """Delays neighbors of an expansion: their proposals were made for a shorter text."""
        grows = decision.settle & (proposals.ids == self.runtime.tokens.expand_id)
        beside = torch.zeros_like(grows)
        beside[:, 1:] |= grows[:, :-1]
        beside[:, :-1] |= grows[:, 1:] & ~beside[:, :-1]
        settle = decision.settle & ~(beside & ~grows) if bool(grows.any()) else decision.settle
        return Decision(settle, decision.remask, decision.edit)

    def _reshape(self) -> None:
        tokens = self.runtime.tokens
        order = self.canvas.growth(tokens.expand_id)
        if order is None:
            return
        self.canvas.reshape(order, tokens.expand_id, tokens.mask_id)
        self.canvas.layout = self.lay_out(self.canvas.hole_lengths())
        self.kept.reset(0)
        self.sampler.move(order)
