"""KV caches by name: each decides which positions a step computes; all others reuse stored keys and values. A cache is
exact if the skipped positions could not have changed. Knows no tensors of keys.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np

from midfill_engine.models.family import Attention
from midfill_engine.models.sequence import Array, Sequence
from midfill_engine.registry import Registry

REFRESH_STEPS: Final = 8  # dKV-Cache's interval for LLaDA; Fast-dLLM refreshes once per block of 32 tokens


@dataclass(frozen=True)
class StepView:
    """A step over T positions of context and holes; arrays are [T], but `masked` [Th], the holes' positions that are to
    be settled. `kept` positions have cached keys and values, of the `tokens`; others have -1 there. Block-causal
    attention computes blocks up to `active_block`. `age` counts steps since everything was computed.
    """

    sequence: Sequence
    masked: Array
    kept: Array
    tokens: Array
    active_block: int
    age: int

    @property
    def stale(self) -> Array:
        """[T]: the positions whose keys and values are missing or due."""
        return np.ones_like(self.kept) if self.age >= REFRESH_STEPS else ~self.kept


@dataclass(frozen=True)
class Cache:
    """`compute` returns the positions [T] of a step to compute: masked positions of active blocks must be true.

    `attentions` are the attention patterns it supports. `keeps_rows` is false if a row's own keys are not kept.
    """

    compute: Callable[[StepView], Array]
    attentions: frozenset[Attention]
    keeps_rows: bool = True


def compute_open_blocks(view: StepView) -> Array:
    """A block is computed again once settled. A changed token changes the keys of its block and all later ones."""
    frame = view.sequence.frame
    news = frame.blocks[view.tokens != view.sequence.ids]
    first = int(news.min()) if len(news) else frame.last_block + 1
    compute = frame.blocks >= first
    compute[frame.num_context :] |= view.masked
    return compute & (frame.blocks <= view.active_block)


BIDIRECTIONAL: Final[frozenset[Attention]] = frozenset({"bidirectional"})
CACHES: Final = Registry(
    "cache",
    {
        # The reference for all other caches.
        "none": Cache(lambda view: np.ones_like(view.kept), frozenset(get_args(Attention)), keeps_rows=False),
        # Fast-dLLM's (arXiv 2505.22618): keeps the text before the first hole, whose keys change as holes are filled.
        "prefix": Cache(lambda view: ~view.sequence.frame.is_before_holes | view.stale, BIDIRECTIONAL),
        # Fast-dLLM's DualCache: keeps prefix and suffix.
        "dual": Cache(lambda view: view.sequence.frame.is_hole | view.stale, BIDIRECTIONAL),
        # The context is encoded once for all steps, rows and requests: exact where it attends only to itself.
        "frozen": Cache(
            lambda view: view.sequence.frame.is_hole.copy(), frozenset({"context_frozen"}), keeps_rows=False
        ),
        # Finished blocks of a block-causal model (SDAR, LLaDA2.x): exact.
        "block": Cache(compute_open_blocks, frozenset({"block_causal"})),
    },
)
