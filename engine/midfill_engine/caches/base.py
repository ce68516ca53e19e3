"""The interface of caches: what of the context is kept between steps. Knows the model's calls, no tokens' meaning."""

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Protocol

import torch
from torch import Tensor

from midfill_engine.models.embedded import Embedded, Layout
from midfill_engine.models.transformer import KeyValues

MAX_STORE_BYTES: Final = 256 * 1024 * 1024
MAX_STORED_CONTEXTS: Final = 32


@dataclass(frozen=True)
class EncodedContext:
    """The context's hidden states [1, Tc, D] and its keys and values, as the model returned them."""

    hidden: Tensor
    keys_values: KeyValues

    @property
    def num_bytes(self) -> int:
        return self.hidden.nbytes + sum(key.nbytes + value.nbytes for key, value in self.keys_values)


class OpenContext(Protocol):
    """One fill's context. `hidden` [1, Tc, D]; `reused` says it was known before; `forwards` counts passes."""

    hidden: Tensor
    reused: bool
    forwards: int

    def logits(self, hole_ids: Tensor, needed: Tensor, layout: Layout) -> Tensor:
        """The scores [M, V] of those M positions of `hole_ids` [B, Th] where `needed` [B, Th] is true, row by row."""
        ...


class Cache(Protocol):
    def __call__(self, model: Embedded, context_ids: Tensor, layout: Layout, store: "ContextStore") -> OpenContext:
        """Opens the context `context_ids` [Tc]. `layout` has the context's positions; its holes may be empty still."""
        ...


class ContextStore:
    """Encoded contexts of earlier requests, the least recently used dropped beyond the bounds. One thread's."""

    def __init__(self, max_bytes: int = MAX_STORE_BYTES, max_contexts: int = MAX_STORED_CONTEXTS) -> None:
        self._max_bytes = max_bytes
        self._max_contexts = max_contexts
        self._entries: OrderedDict[bytes, EncodedContext] = OrderedDict()

    @staticmethod
    def key(context_ids: Tensor, positions: Tensor) -> bytes:
        digest = blake2b(digest_size=16)
        digest.update(context_ids.cpu().numpy().tobytes())
        digest.update(positions.cpu().numpy().tobytes())
        return digest.digest()

    def get(self, key: bytes) -> EncodedContext | None:
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: bytes, context: EncodedContext) -> None:
        self._entries[key] = context
        while self.num_bytes > self._max_bytes or len(self._entries) > self._max_contexts:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        self._entries.clear()

    @property
    def num_bytes(self) -> int:
        return sum(context.num_bytes for context in self._entries.values())


def encode(model: Embedded, context_ids: Tensor, layout: Layout) -> EncodedContext:
    device = next(model.parameters()).device
    with torch.inference_mode():
        hidden, keys_values = model.encode_context(
            context_ids[None].to(device), layout.context_positions[None].to(device)
        )
    return EncodedContext(hidden, keys_values)
