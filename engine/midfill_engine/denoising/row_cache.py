"""The KV cache of one row: builds each forward pass from the positions it computes and the keys it reuses. Knows no
canvas, no sampler.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from midfill_engine.caches import Cache, KeptKeys, StepView
from midfill_engine.caches.base import ContextKeys
from midfill_engine.models.choice import Choice
from midfill_engine.models.packed import Pass, Result
from midfill_engine.models.sequence import Sequence
from midfill_engine.models.transformer import KeyValues, TransformerConfig


@dataclass
class RowCache:
    """`context_keys` is the context's KV cache, if it was computed once; `age` counts steps since everything was
    computed.
    """

    cache: Cache
    context_keys: KeyValues | None
    config: TransformerConfig
    kept: KeptKeys = field(default_factory=KeptKeys)
    age: int = 0
    _sequence: Sequence = field(init=False)  # of the last pass
    _computed: Tensor = field(init=False)  # [C]: positions of the last pass

    def build_pass(self, sequence: Sequence, masked: Tensor, active: int, targets: Tensor, choice: Choice) -> Pass:
        """The forward pass that scores the positions `targets`; `masked` is [T], `active` the last block to compute."""
        view = self._view(sequence, masked, active)
        rows = sequence.rows_of_scores(targets)
        compute = self.cache.compute(view)
        compute[rows] = True
        self._sequence, self._computed = sequence, compute.nonzero().flatten()
        computed, rest, past = self._computed, torch.arange(sequence.num_context), self.context_keys
        if past is None or bool((computed < sequence.num_context).any()):
            rest = (view.kept & ~compute).nonzero().flatten()
            past = self.kept.past(rest)
        place = torch.full((len(sequence.ids),), -1)
        place[computed] = torch.arange(len(computed))
        return Pass(
            ids=sequence.ids[computed],
            positions=sequence.for_heads(sequence.positions[:, computed], self.config.num_heads),
            wanted=place[rows],
            past=past,
            mask=sequence.mask(computed, torch.cat((rest, computed))),
            keeps=self.cache.keeps_rows,
            choice=choice,
        )

    def _view(self, sequence: Sequence, masked: Tensor, active: int) -> StepView:
        if len(self.kept.kept) != len(sequence.ids):
            self.kept.reset(len(sequence.ids))
            self.age = 0
        return StepView(
            is_hole=sequence.is_hole,
            is_before_holes=sequence.positions[0] < sequence.positions[0, sequence.num_context :].min(),
            masked=masked,
            kept=self.kept.kept.clone(),
            changed=self.kept.kept & (self.kept.tokens != sequence.ids),
            blocks=sequence.blocks,
            active_block=active,
            age=self.age,
        )

    def keep(self, result: Result) -> None:
        """Stores the keys and values that the last pass returned."""
        if result.own is not None:
            self.kept.put(self._computed, self._sequence.ids[self._computed], result.own)
            self.age = 1 if len(self._computed) == len(self.kept.kept) else self.age + 1

    def share_context(self) -> ContextKeys:
        """The KV cache of the context as of the last pass."""
        num = self._sequence.num_context
        layers = [(keys[:, :, :num], values[:, :, :num]) for keys, values in self.kept.layers]
        return ContextKeys(layers, self._sequence.positions[0, :num].clone())

    def begin_with(self, shared: ContextKeys, sequence: Sequence, *, with_room: bool) -> None:
        """Reuses a context KV cache that was computed for another canvas; `with_room` to keep the holes' keys too."""
        positions = sequence.positions[0, : sequence.num_context]
        self.kept, self.age = shared.at(positions, sequence.ids, self.config, with_room=with_room), 0
