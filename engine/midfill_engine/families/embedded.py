"""The embedded family, Midfill's own: context positions attend to context only, hole positions to everything.

So the context's keys and values are exact for every step and alternative. They are exact for every canvas length too,
because each hole takes `hole_span` positions whatever its length. The first half of the heads count its tokens from the
text before (start, start + 1, ...), the second half from the text after (..., end - 2, end - 1).
"""

from typing import Final

from torch import nn

from midfill_engine.models.family import AuthorsSetting, Family, Model, ModelConfig, SpecialTokens, lay_in_rooms
from midfill_engine.models.transformer import TransformerConfig
from midfill_engine.tokens.tokenizer import BOS, DELETE, EOS, LANGUAGE_TOKENS, MASK, SPECIAL_TOKENS

# Upper bounds, in tokens, of the length head's buckets.
LENGTH_BUCKETS: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256)


class Embedded(Model):
    """The transformer with a length head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert config.transformer.num_heads == config.transformer.num_kv_heads, "positions are counted by head"
        assert config.transformer.num_heads % 2 == 0, "half the heads count from each side"
        self.length_head = nn.Linear(2 * config.transformer.dim, len(LENGTH_BUCKETS))


EMBEDDED_TOKENS: Final = SpecialTokens(
    mask_id=MASK,
    special_ids=tuple(range(len(SPECIAL_TOKENS))),
    opening=lambda language: [LANGUAGE_TOKENS[language], BOS] if language in LANGUAGE_TOKENS else [BOS],
    closing=(EOS,),
    delete_ids=(DELETE,),
)
EMBEDDED: Final = Family(
    name="embedded",
    attention="context_frozen",
    shape=lambda config: TransformerConfig(**config["transformer"]),
    tensors={},
    tokens=lambda files: EMBEDDED_TOKENS,
    quality=0.5,
    fast_threshold=0.0,
    heals=True,
    shows_deleted=False,
    own_certainty=0.03,  # it writes 2.7 % of 300 held-out lines correctly
    lay_out=lambda texts, holes, span: lay_in_rooms(texts, holes, [span] * len(holes)),
    authors=AuthorsSetting("Midfill's own: the defaults", sampler="threshold", quality=0.5),
)
