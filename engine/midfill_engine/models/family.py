"""What differs from one family of models to another. A family file fills one `Family` in and holds nothing else."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.models.layout import Layout, lay_in_a_row
from midfill_engine.models.transformer import TransformerConfig

Attention = Literal["context_frozen", "bidirectional", "block_causal", "canvas"]
Pieces = list[list[int]]
Values = Mapping[str, Any]  # a checkpoint's config.json


@dataclass(frozen=True)
class SpecialTokens:
    """A checkpoint's ids. `opening` takes the request's tag; `special_ids` no fill may contain.

    `delete_id` shortens a hole where it is chosen, `expand_id` lengthens it. With `deletes_rest` one deletion takes
    what is still masked behind it along (DreamOn's broadcast). `markers` are a base model's fill-in-the-middle ids:
    before the suffix, before the prefix, before the middle.
    """

    mask_id: int
    special_ids: tuple[int, ...]
    opening: Callable[[str | None], list[int]] = lambda tag: []
    closing: tuple[int, ...] = ()
    delete_id: int | None = None
    expand_id: int | None = None
    deletes_rest: bool = False
    markers: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class KnownModel:
    """A published checkpoint, for the list of models. `parameters` in billions; `licence` as its authors state it."""

    hub_id: str
    parameters: float
    licence: str


@dataclass(frozen=True)
class Family:
    """`shape` and `tensors` read a checkpoint of the family: its config.json, and its tensors' names by ours.

    `attention` says who sees whom: with `context_frozen` context positions see context only, with `block_causal` a
    position sees its own block of `block_size` and all before (with `pipelined` the prompt is one block, the others are
    counted from its end, and several may be open at once), with `canvas` the holes and what stands behind them see
    all and the text before sees itself causally. `logit_shift` is 1 where the scores of a position stand
    one position earlier. `heals` says whether white space at a hole's edges moves into it, as in training;
    `experts` names those that requests listen to unless they name their own;
    `shows_deleted` whether a settled deletion that stays in the canvas is shown as it is, or masked. `quality` is the
    dial's default, `fast_threshold` the confidence that settles a token where the dial stands at 0. `example` is a
    config.json of the family, shrunk, from which random checkpoints are made.
    """

    name: str
    attention: Attention
    logit_shift: int
    shape: Callable[[Values], TransformerConfig]
    tensors: Mapping[str, str]
    tokens: Callable[[CheckpointFiles], SpecialTokens]
    sampler: str = "threshold"
    cache: str = "none"
    lengths: str = "calibrated"
    quality: float = 0.8
    fast_threshold: float = 0.5
    context_window: int = 2048
    max_hole: int = 256
    model_types: tuple[str, ...] = ()
    claims: Callable[[CheckpointFiles], bool] = lambda files: True
    heals: bool = False
    shows_deleted: bool = True
    experts: tuple[str, ...] = ()
    lay_out: Callable[[list[int], list[int], int], Layout] = lay_in_a_row
    length_buckets: tuple[int, ...] = ()
    block_size: Callable[[Values], int] = lambda config: 0
    pipelined: bool = False
    example: Values = field(default_factory=dict)
    added_tokens: tuple[str, ...] = ()
    known: tuple[KnownModel, ...] = ()

    @property
    def sees_suffix(self) -> bool:
        """Whether a mask sees what stands behind it; otherwise the suffix must go into the prompt."""
        return self.attention != "block_causal"

    def arrange(self, pieces: Pieces, tokens: SpecialTokens) -> Pieces:
        """The context's pieces as the model is to read them: a block-causal one gets the suffix first."""
        if self.sees_suffix:
            return pieces
        before, after = pieces
        if tokens.markers is None:
            num_first = len(tokens.opening(None))
            return [before[:num_first] + after + before[num_first:], []]
        suffix, prefix, middle = tokens.markers
        return [[suffix, *after, prefix, *before, middle], []]
