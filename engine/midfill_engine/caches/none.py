"""Keeps nothing: every step computes context and holes in one pass. The reference for every other cache."""

import torch
from torch import Tensor

from midfill_engine.caches.base import ContextStore, encode
from midfill_engine.models.embedded import Embedded, Layout


class Uncached:
    reused = False

    def __init__(self, model: Embedded, context_ids: Tensor, layout: Layout, store: ContextStore) -> None:
        self._model = model
        self._context_ids = context_ids
        self.hidden = encode(model, context_ids, layout).hidden
        self.forwards = 1

    def logits(self, hole_ids: Tensor, needed: Tensor, layout: Layout) -> Tensor:
        context_ids = self._context_ids.to(hole_ids.device).expand(hole_ids.shape[0], -1)
        self.forwards += 1
        with torch.inference_mode():
            return self._model.full(context_ids, hole_ids, layout)[needed]
