"""The families of models: what the engine must know of each to lay out a canvas. Knows no weights, no requests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from midfill_engine.models import embedded
from midfill_engine.models.embedded import Layout
from midfill_engine.registry import Registry
from midfill_engine.tokenizer import closing_ids, opening_ids


@dataclass(frozen=True)
class Family:
    """What differs from family to family. Ids are token ids; the last three fields name the defaults of the family.

    `attention` says who sees whom: with `context_frozen` context positions see context only, so their keys and values
    hold for every step. `logit_shift` is 1 where the scores of a position stand one position earlier.
    """

    name: str
    attention: Literal["context_frozen", "bidirectional"]
    logit_shift: int
    mask_id: int
    delete_id: int | None
    special_ids: tuple[int, ...]
    opening_ids: Callable[[str | None], list[int]]
    closing_ids: Callable[[], list[int]]
    lay_out: Callable[[list[int], list[int], int], Layout]
    length_buckets: tuple[int, ...]
    sampler: str
    cache: str
    lengths: str


EMBEDDED: Final = Family(
    name="embedded",
    attention="context_frozen",
    logit_shift=0,
    mask_id=embedded.MASK,
    delete_id=embedded.DELETE,
    special_ids=tuple(range(len(embedded.SPECIAL_TOKENS))),
    opening_ids=opening_ids,
    closing_ids=closing_ids,
    lay_out=embedded.lay_out,
    length_buckets=embedded.LENGTH_BUCKETS,
    sampler="threshold",
    cache="frozen",
    lengths="learned",
)

FAMILIES: Final = Registry("model family", {"embedded": EMBEDDED})
