"""What differs between model families: each file of `families/` defines its `Family`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.models.transformer import Transformer, TransformerConfig
from midfill_engine.wire import Keeps, Wish

Backend = Literal["causal", "diffusion"]
Attention = Literal["context_frozen", "bidirectional", "block_causal", "causal", "canvas"]
CACHES_BY_ATTENTION: Final[Mapping[Attention, str]] = {"context_frozen": "frozen", "block_causal": "block"}
LENGTHS_BY_ATTENTION: Final[Mapping[Attention, str]] = {
    "context_frozen": "learned",
    "bidirectional": "calibrated",
    "block_causal": "until-end",
    "causal": "fixed",
    "canvas": "candidates",
}
Pieces = list[list[int]]
Values = Mapping[str, Any]  # a checkpoint's config.json

# Our names of tensors to theirs. {i} counts layers, {e} stacked experts; "NAME#q", "#k" and "#v" are rows of a matrix.
LLAMA_TENSORS: Final[Mapping[str, str]] = {
    "embedding.weight": "model.embed_tokens.weight",
    "blocks.{i}.attention_norm.weight": "model.layers.{i}.input_layernorm.weight",
    "blocks.{i}.attention.q.weight": "model.layers.{i}.self_attn.q_proj.weight",
    "blocks.{i}.attention.k.weight": "model.layers.{i}.self_attn.k_proj.weight",
    "blocks.{i}.attention.v.weight": "model.layers.{i}.self_attn.v_proj.weight",
    "blocks.{i}.attention.q.bias": "model.layers.{i}.self_attn.q_proj.bias",
    "blocks.{i}.attention.k.bias": "model.layers.{i}.self_attn.k_proj.bias",
    "blocks.{i}.attention.v.bias": "model.layers.{i}.self_attn.v_proj.bias",
    "blocks.{i}.attention.q_norm.weight": "model.layers.{i}.self_attn.q_norm.weight",
    "blocks.{i}.attention.k_norm.weight": "model.layers.{i}.self_attn.k_norm.weight",
    "blocks.{i}.attention.out.weight": "model.layers.{i}.self_attn.o_proj.weight",
    "blocks.{i}.mlp_norm.weight": "model.layers.{i}.post_attention_layernorm.weight",
    "blocks.{i}.mlp.gate.weight": "model.layers.{i}.mlp.gate_proj.weight",
    "blocks.{i}.mlp.up.weight": "model.layers.{i}.mlp.up_proj.weight",
    "blocks.{i}.mlp.down.weight": "model.layers.{i}.mlp.down_proj.weight",
    "final_norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}


@dataclass(frozen=True)
class Layout:
    """The positions of the context (visible tokens) and of the holes (all other tokens), each in document order.

    `context_positions` [Tc] and `hole_positions` [N, Th] are int64; N is 2 if half of the heads count from the right,
    else 1. `edges` [G, 2] are the indices, among the context's tokens, of those before and after each hole.
    """

    context_positions: Tensor
    hole_positions: Tensor
    edges: Tensor


def lay_in_rooms(text_lengths: list[int], hole_lengths: list[int], rooms: list[int]) -> Layout:
    """Positions for text, hole, ..., hole, text, where hole `i` takes `rooms[i]` positions, counted from both sides."""
    assert len(text_lengths) == len(hole_lengths) + 1
    all_rooms, all_lengths = [*rooms, 0], [*hole_lengths, 0]  # with an empty hole behind the last text
    ends = list(accumulate(text + room for text, room in zip(text_lengths, all_rooms, strict=True)))
    starts = [end - room for end, room in zip(ends, all_rooms, strict=True)]
    context = torch.cat(
        [torch.arange(start - length, start) for start, length in zip(starts, text_lengths, strict=True)]
    )
    from_left = [torch.arange(start, start + length) for start, length in zip(starts, all_lengths, strict=True)]
    from_right = [torch.arange(end - length, end) for end, length in zip(ends, all_lengths, strict=True)]
    edges = [(max(num_before - 1, 0), num_before) for num_before in accumulate(text_lengths[:-1])]
    return Layout(context, torch.stack((torch.cat(from_left), torch.cat(from_right))), torch.tensor(edges))


def lay_in_a_row(text_lengths: list[int], hole_lengths: list[int], hole_span: int = 0) -> Layout:
    """Positions without gaps, counted from the left. Holes are as long as they are, so `hole_span` is ignored."""
    layout = lay_in_rooms(text_lengths, hole_lengths, hole_lengths)
    return replace(layout, hole_positions=layout.hole_positions[:1])


@dataclass(frozen=True)
class ModelConfig:
    """Sizes in tokens. `hole_span` is 0 if holes take no fixed room, `block_size` is 0 if attention has no blocks."""

    transformer: TransformerConfig
    name: str
    max_context: int
    max_hole: int
    hole_span: int = 0
    block_size: int = 0


class Model(nn.Module):
    """A transformer with the sizes of its model."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.transformer = Transformer(config.transformer)


@dataclass(frozen=True)
class Markers:
    """Fill-in-the-middle ids for prefix, suffix and middle, and whether the suffix comes first in a prompt."""

    prefix: int
    suffix: int
    middle: int
    suffix_first: bool

    def lay(self, before: list[int], after: list[int]) -> list[int]:
        """The prompt for a hole between the ids `before` and `after`."""
        if self.suffix_first:
            return [self.suffix, *after, self.prefix, *before, self.middle]
        return [self.prefix, *before, self.suffix, *after, self.middle]


@dataclass(frozen=True)
class SpecialTokens:
    """A checkpoint's special ids. No fill may contain `special_ids`. `mask_id` is -1 if the model has no mask.

    `opening` returns the ids before every text, for the tag of the request; `closing` are the ids behind every text.
    `delete_ids` shorten a hole, `expand_id` lengthens it. With `deletes_rest` a deletion also deletes the masked
    positions behind it (DreamOn's broadcast); with `ends_text` one that has no mask before it ends the hole. `markers`
    are the fill-in-the-middle ids.
    """

    mask_id: int
    special_ids: tuple[int, ...]
    opening: Callable[[str | None], list[int]] = lambda tag: []
    closing: tuple[int, ...] = ()
    delete_ids: tuple[int, ...] = ()
    expand_id: int | None = None
    deletes_rest: bool = False
    ends_text: bool = False
    markers: Markers | None = None


@dataclass(frozen=True)
class AuthorsSetting:
    """The settings of a family's authors, according to `source`. Without `steps` the sampler chooses how many."""

    source: str
    sampler: str
    quality: float = 1.0
    steps: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int | None = None


@dataclass(frozen=True)
class KnownModel:
    """A published checkpoint, for the list of models. `parameters` in billions; `licence` as its authors state it, or
    where they do.
    """

    hub_id: str
    parameters: float
    licence: str


@dataclass(frozen=True)
class Family:
    """What differs between models. `shape` reads a checkpoint's config.json and `tokens` its special ids; `tensors`
    maps our names of tensors to the checkpoint's. `model_types` are those of config.json; `claims` tells whether a
    checkpoint of such a type belongs to the family.

    `backend` names the code that fills with its models. `attention` is the attention pattern. With `context_frozen`
    context positions see context only; with `block_causal` a position sees its own block of `block_size` and all
    before; with `canvas` the holes and the text behind them see all, and the text before sees itself causally.
    Block-causal variants: `pipelined` (the prompt is one block, the others are counted from its end, several may be
    open), `aligned` (all blocks are counted from the prompt's end), `hybrid` (finished text sees itself causally, and
    scores the first token of the next block). `logit_shift` is 1 if the state before a position scores it, 0 if its own
    does.

    `expands`: the model has a token that lengthens a hole. `heals`: white space at a hole's edges moves into it.
    `own_certainty`: how often what the model writes is right, if measured. `shows_deleted`: the model sees a settled
    deletion that stays in the canvas, not a mask. `quality` is the dial's default, `fast_threshold` the confidence that
    settles a token at dial 0. `heeds`: the wishes of a request that its models heed; `keeps`: the smallest part of a
    draft that they fill around.
    """

    name: str
    shape: Callable[[Values], TransformerConfig]
    tokens: Callable[[CheckpointFiles], SpecialTokens]
    tensors: Mapping[str, str] = field(default_factory=lambda: LLAMA_TENSORS)
    backend: Backend = "diffusion"
    attention: Attention = "bidirectional"
    logit_shift: int = 0
    sampler: str = "threshold"
    expands: bool = False
    quality: float = 0.8
    fast_threshold: float = 0.5
    context_window: int = 2048
    max_hole: int = 256
    model_types: tuple[str, ...] = ()
    claims: Callable[[CheckpointFiles], bool] = lambda files: True
    heals: bool = False
    shows_deleted: bool = True
    own_certainty: float | None = None
    lay_out: Callable[[list[int], list[int], int], Layout] = lay_in_a_row
    block_size: Callable[[Values], int] = lambda config: 0
    pipelined: bool = False
    aligned: bool = False
    hybrid: bool = False
    authors: AuthorsSetting | None = None
    known: tuple[KnownModel, ...] = ()
    heeds: tuple[Wish, ...] = ("min_tokens", "steps", "quality", "max_ms")
    keeps: Keeps = "tokens"

    @property
    def cache(self) -> str:
        """The name of the family's default cache, which changes no result."""
        return CACHES_BY_ATTENTION.get(self.attention, "none")

    @property
    def lengths(self) -> str:
        """The name of the family's default length policy."""
        return "expand" if self.expands else LENGTHS_BY_ATTENTION[self.attention]

    @property
    def sees_suffix(self) -> bool:
        """True if masks attend to later text; otherwise the text behind a hole must go into the prompt."""
        return self.attention != "block_causal"

    def arrange(self, pieces: Pieces, tokens: SpecialTokens) -> Pieces:
        """The context's pieces in the model's order: block-causal models get the text behind the hole in the prompt."""
        if self.sees_suffix:
            return pieces
        before, after = pieces
        if tokens.markers is None:
            num_opening = len(tokens.opening(None))
            return [before[:num_opening] + after + before[num_opening:], []]
        return [tokens.markers.lay(before, after), []]
