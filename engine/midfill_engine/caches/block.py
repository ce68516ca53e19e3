"""Keeps finished blocks of a block-causal model, computed once with their settled tokens (SDAR, LLaDA2.x); exact."""

from torch import Tensor

from midfill_engine.caches.base import StepView
from midfill_engine.models.family import Attention


class BlockCache:
    attentions: frozenset[Attention] = frozenset({"block_causal"})
    keeps_rows = True

    def compute(self, view: StepView) -> Tensor:
        takes_part = view.blocks <= view.active_block
        has_news = view.blocks >= _first_block(view, ~view.kept | view.changed)
        return takes_part & (view.masked | has_news)


def _first_block(view: StepView, where: Tensor) -> int:
    """A changed token changes the keys of its own block and of all later ones."""
    return int(view.blocks[where].min()) if bool(where.any()) else int(view.blocks.max()) + 1
