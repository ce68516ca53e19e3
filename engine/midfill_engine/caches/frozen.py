"""Encodes the context once and keeps it for all steps, rows and requests. Exact where context sees context only."""

import torch
from torch import Tensor

from midfill_engine.caches.base import ContextStore, encode
from midfill_engine.models.embedded import Embedded, Layout


class Frozen:
    def __init__(self, model: Embedded, context_ids: Tensor, layout: Layout, store: ContextStore) -> None:
        self._model = model
        key = store.key(context_ids, layout.context_positions)
        known = store.get(key)
        self.reused = known is not None
        self._context = encode(model, context_ids, layout) if known is None else known
        self.hidden = self._context.hidden
        self.forwards = int(known is None)
        store.put(key, self._context)

    def logits(self, hole_ids: Tensor, needed: Tensor, layout: Layout) -> Tensor:
        positions = layout.hole_positions.to(hole_ids.device).expand(hole_ids.shape[0], -1, -1)  # [B, 2, Th]
        self.forwards += 1
        with torch.inference_mode():
            return self._model.step(hole_ids, positions, self._context.keys_values, needed)
