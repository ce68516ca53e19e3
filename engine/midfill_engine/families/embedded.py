"""The embedded family: context positions attend to context only, hole positions to everything.

Context keys and values are therefore exact for every denoise step, every alternative and every canvas length. For the
last of these, no context position may depend on how long a hole is: each hole takes `hole_span` positions, whatever its
canvas. A hole's tokens count from both sides: the first half of the heads from the text before (start, start + 1, ...),
the second half from the text after (..., end - 2, end - 1), so both neighbours are at their true distance.
"""

from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor, nn

from midfill_engine.models.family import AuthorsSetting, Family, SpecialTokens
from midfill_engine.models.layout import Layout, lay_in_rooms
from midfill_engine.models.transformer import KeyValues, Transformer, TransformerConfig
from midfill_engine.tokens.special import DELETE, MASK, SPECIAL_TOKENS
from midfill_engine.tokens.tokenizer import closing_ids, opening_ids

# Upper bounds, in tokens, of the length head's buckets.
LENGTH_BUCKETS: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256)


@dataclass(frozen=True)
class EmbeddedConfig:
    """What `config.json` of an embedded checkpoint holds. Sizes in tokens.

    `causal` says that it was trained to read holes from the left, too, over the same context.
    """

    transformer: TransformerConfig
    hole_span: int = 256
    max_context: int = 512
    max_hole: int = 256
    causal: bool = False
    name: str = "midfill-embedded"
    training: dict[str, object] = field(default_factory=dict)

    @property
    def block_size(self) -> int:
        """0: its attention knows no blocks."""
        return 0


def lay_out(text_lengths: list[int], hole_lengths: list[int], hole_span: int) -> Layout:
    """Positions for text, hole, text, ..., hole, text: `text_lengths` has one entry more than `hole_lengths`.

    Every text length must be at least 1 at both ends of the document (BOS, EOS).
    """
    return lay_in_rooms(text_lengths, hole_lengths, [hole_span] * len(hole_lengths))


class Embedded(nn.Module):
    """The transformer with a length head. Every method computes for one layout shared by all rows."""

    def __init__(self, config: EmbeddedConfig) -> None:
        super().__init__()
        assert config.transformer.num_heads == config.transformer.num_kv_heads, "positions are counted by head"
        assert config.transformer.num_heads % 2 == 0, "half the heads count from each side"
        self.config = config
        self.transformer = Transformer(config.transformer)
        self.length_head = nn.Linear(2 * config.transformer.dim, len(LENGTH_BUCKETS))

    def initialize(self, generator: torch.Generator) -> None:
        """Fresh weights for training: uniform fan-in matrices, zero output projections, small embedding."""
        for name, parameter in self.named_parameters():
            if name.endswith(("attention.out.weight", "mlp.down.weight", "length_head.weight", "bias")):
                nn.init.zeros_(parameter)
            elif name.endswith("embedding.weight"):
                nn.init.normal_(parameter, std=0.02, generator=generator)
            else:
                bound = (3 / parameter.shape[1]) ** 0.5 * 0.5
                nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def by_head(self, hole_positions: Tensor) -> Tensor:
        """[..., 2, T] positions from the left and from the right as [..., H, T], one row a head."""
        return hole_positions.repeat_interleave(self.config.transformer.num_heads // 2, dim=-2)

    def encode_context(self, ids: Tensor, positions: Tensor) -> tuple[Tensor, KeyValues]:
        """Context `ids` [B, Tc] at `positions` [B, Tc] -> hidden [B, Tc, D] and the keys and values to keep."""
        hidden, own = self.transformer(ids, positions)
        return hidden, own

    def step(self, ids: Tensor, hole_positions: Tensor, context: KeyValues, needed: Tensor | None = None) -> Tensor:
        """One forward over the holes' `ids` [B, Th] at `hole_positions` [B, 2, Th] -> logits [B, Th, V].

        With `needed` [B, Th] (bool) only the logits [M, V] of the M positions where it is true, row by row.
        """
        hidden, _ = self.transformer(ids, self.by_head(hole_positions), past=context)
        return self.transformer.logits(hidden if needed is None else hidden[needed])

    def full(self, context_ids: Tensor, hole_ids: Tensor, layout: Layout) -> Tensor:
        """The same logits [B, Th, V] in one masked pass without any cache: the reference for the cached path."""
        num_context, num_hole = context_ids.shape[1], hole_ids.shape[1]
        mask = torch.ones(num_context + num_hole, num_context + num_hole, dtype=torch.bool, device=hole_ids.device)
        mask[:num_context, num_context:] = False
        context_by_head = self.by_head(layout.context_positions.expand(2, -1))
        positions = torch.cat((context_by_head, self.by_head(layout.hole_positions)), dim=-1)
        ids = torch.cat((context_ids, hole_ids), dim=1)
        hidden, _ = self.transformer(ids, positions.expand(ids.shape[0], -1, -1).to(ids.device), mask=mask)
        return self.transformer.logits(hidden[:, num_context:])


EMBEDDED_TOKENS: Final = SpecialTokens(
    mask_id=MASK,
    special_ids=tuple(range(len(SPECIAL_TOKENS))),
    opening=opening_ids,
    closing=tuple(closing_ids()),
    delete_ids=(DELETE,),
)
EMBEDDED: Final = Family(
    name="embedded",
    attention="context_frozen",
    logit_shift=0,
    shape=lambda config: TransformerConfig(**config["transformer"]),
    tensors={},
    tokens=lambda files: EMBEDDED_TOKENS,
    cache="frozen",
    lengths="learned",
    quality=0.5,
    fast_threshold=0.0,
    heals=True,
    shows_deleted=False,
    certainty=(0.0901, 0.7945, 0.1347),  # fitted on 420 lines of seven packages, 2026-11-23
    lay_out=lay_out,
    length_buckets=LENGTH_BUCKETS,
    authors=AuthorsSetting("Midfill's own: the defaults", sampler="threshold", quality=0.5),
)
