"""KV caches by name. A cache decides which positions a step computes; the other positions reuse stored keys and values.
It is exact if the keys and values of these could not have changed. Knows no tensors of keys.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np

from midfill_engine.models.family import Attention
from midfill_engine.models.sequence import Array, TokenSequence
from midfill_engine.registry import Registry

REFRESH_STEPS: Final = 8  # dKV-Cache's interval for LLaDA; Fast-dLLM refreshes once per block of 32 tokens


@dataclass(eq=False)
class StepView:
    """A step over T positions: first those of the context, then the Th of the holes. `masked` [Th] are to be settled.
    Stored keys and values were computed from the `tokens` [T], which are -1 where nothing is stored. Block-causal
    attention computes blocks up to `active_block`. `age` counts the steps since all positions were computed.
    """

    sequence: TokenSequence
    masked: Array
    tokens: Array
    active_block: int
    age: int

    @property
    def stale(self) -> Array:
        """[T]: the positions whose keys and values are missing; all if they are to be refreshed."""
        return self.everything if self.age >= REFRESH_STEPS else self.tokens < 0

    @property
    def everything(self) -> Array:
        """[T]: all positions."""
        return ~np.zeros(len(self.tokens), dtype=bool)


@dataclass(frozen=True)
class Cache:
    """`compute` returns which positions [T] a step computes. Masked positions of active blocks must be among them.

    `attentions` are the attention patterns that it supports. `keeps_own_keys` is false if it stores no keys of a canvas
    and its context; an encoded context that all share is kept elsewhere.
    """

    compute: Callable[[StepView], Array]
    attentions: frozenset[Attention]
    keeps_own_keys: bool = True


def compute_open_blocks(view: StepView) -> Array:
    """Computes a block again once settled: changed tokens change the keys of their block and of all later ones."""
    frame = view.sequence.frame
    changed_blocks = frame.blocks[view.tokens != view.sequence.ids]
    first = int(changed_blocks.min()) if len(changed_blocks) else frame.last_block + 1
    compute = frame.blocks >= first
    compute[frame.num_context :] |= view.masked
    return compute & (frame.blocks <= view.active_block)


BIDIRECTIONAL: Final[frozenset[Attention]] = frozenset({"bidirectional"})
CACHES: Final = Registry(
    "cache",
    {
        # The reference for all other caches.
        "none": Cache(lambda view: view.everything, frozenset(get_args(Attention)), keeps_own_keys=False),
        # Fast-dLLM's (arXiv 2505.22618): keeps the text before the first hole, whose keys change as holes are filled.
        "prefix": Cache(lambda view: ~view.sequence.frame.is_before_holes | view.stale, BIDIRECTIONAL),
        # Fast-dLLM's DualCache: keeps the text before, between and behind the holes.
        "dual": Cache(lambda view: view.sequence.frame.is_hole | view.stale, BIDIRECTIONAL),
        # The context is encoded once for all steps, canvases and requests: exact where it attends only to itself.
        "frozen": Cache(
            lambda view: view.sequence.frame.is_hole.copy(), frozenset({"context_frozen"}), keeps_own_keys=False
        ),
        # Finished blocks of a block-causal model (SDAR, LLaDA2.x): exact.
        "block": Cache(compute_open_blocks, frozenset({"block_causal"})),
    },
)
