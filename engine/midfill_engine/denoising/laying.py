"""Builds a canvas: ids, masks, anchors and allowed tokens of all holes. Knows outlines; no sampler, no model."""

from typing import Final

import torch
from torch import Tensor

from midfill_engine.denoising.canvas import Canvas
from midfill_engine.denoising.outline import HoleOutline
from midfill_engine.errors import RequestError
from midfill_engine.lengths import LengthPolicy
from midfill_engine.models.layout import Layout
from midfill_engine.tokens.vocabulary import Vocabulary
from midfill_engine.wire import ErrorCode

MAX_CANVAS_TOKENS: Final = 4096  # rows times hole positions: what a request may hold in memory
# Token masks of a request; every string in one is compared with all tokens.
MAX_RULES: Final = 64


class _Rules:
    """The distinct token masks of a canvas, each stored once."""

    def __init__(self, vocabulary: Vocabulary, may_delete: bool, may_expand: bool) -> None:
        self._vocabulary = vocabulary
        self._may_delete = may_delete
        self._may_expand = may_expand
        self._numbers: dict[tuple[tuple[str, ...], str], int] = {}
        self.masks: list[Tensor] = []

    def number(self, forbid: tuple[str, ...], leading: str) -> int:
        key = (tuple(sorted(set(forbid))), leading)
        if key not in self._numbers:
            if not self._vocabulary.allowed(forbid=key[0], leading=leading).any():
                raise RequestError(ErrorCode.BAD_REQUEST, "forbid leaves no token to fill with", "forbid less")
            self._numbers[key] = len(self.masks)
            self.masks.append(
                self._vocabulary.allowed(
                    forbid=key[0], leading=leading, may_delete=self._may_delete, may_expand=self._may_expand
                )
            )
        return self._numbers[key]


def count_rules(outlines: list[HoleOutline]) -> int:
    """Number of token masks the holes need. Raises RequestError if there are too many, or too many forbidden
    strings.
    """
    strings = {text for outline in outlines for text in outline.forbid}
    rules = {
        (frozenset(outline.forbid), leading)
        for outline in outlines
        for stretch in outline.masked
        for leading in (stretch.leading, "")
    }
    if max(len(strings), len(rules)) > MAX_RULES:
        message = f"the holes forbid more than {MAX_RULES} different texts, or more than {MAX_RULES} sets of texts"
        raise RequestError(ErrorCode.TOO_LARGE, message, "forbid the same in all holes, or ask for fewer holes")
    return len(rules)


def lay_canvas(
    outlines: list[HoleOutline],
    lengths: list[list[int]],
    layout: Layout,
    vocabulary: Vocabulary,
    *,
    policy: LengthPolicy,
    mask_id: int,
    num_rows: int,
    max_hole: int,
    spill: int,
) -> Canvas:
    """Builds a canvas; `lengths` has the number of masked positions of every masked stretch of every hole. Raises
    RequestError.

    Memory is checked for `num_rows` such canvases. `max_hole` bounds how far a hole may grow. `spill` positions are
    added at the end of the last hole.
    """
    rules = _Rules(vocabulary, policy.may_delete, policy.may_expand)
    ids: list[int] = []
    hole_of: list[int] = []
    rule_of: list[int] = []
    anchored: list[bool] = []
    leading: list[bytes] = []
    for hole, (outline, hole_lengths) in enumerate(zip(outlines, lengths, strict=True)):
        remaining = iter(hole_lengths)
        for stretch in outline.stretches:
            count = next(remaining) if stretch.ids is None else len(stretch.ids)
            ids += [mask_id] * count if stretch.ids is None else stretch.ids
            anchored += [stretch.ids is not None] * count
            hole_of += [hole] * count
            leading += [stretch.leading.encode()] + [b""] * (count - 1)
            if stretch.ids is not None:
                rule_of += [0] * count
            else:
                first = rules.number(outline.forbid, stretch.leading)
                rule_of += [first] + [rules.number(outline.forbid, "")] * (count - 1)
    if spill:
        ids += [mask_id] * spill
        anchored += [False] * spill
        hole_of += [len(outlines) - 1] * spill
        leading += [b""] * spill
        rule_of += [rules.number(outlines[-1].forbid, "")] * spill
    if len(ids) * num_rows > MAX_CANVAS_TOKENS:
        message = f"the holes take {len(ids)} tokens, {num_rows} times; the limit is {MAX_CANVAS_TOKENS} in all"
        raise RequestError(ErrorCode.TOO_LARGE, message, "ask for fewer holes or alternatives, or a smaller max_tokens")
    anchors = torch.tensor(anchored, dtype=torch.bool)
    deletable = [
        max(0, sum(hole_lengths) - outline.min_tokens) for outline, hole_lengths in zip(outlines, lengths, strict=True)
    ]
    deletable[-1] += spill
    expandable = [
        max(0, outline.need(max_hole).max_tokens - sum(hole_lengths))
        for outline, hole_lengths in zip(outlines, lengths, strict=True)
    ]
    return Canvas(
        outlines=outlines,
        vocabulary=vocabulary,
        layout=layout,
        ids=torch.tensor(ids, dtype=torch.int64)[None],
        masked=(~anchors)[None],
        confidence=anchors.float()[None],
        anchored=anchors,
        hole_of=torch.tensor(hole_of, dtype=torch.int64),
        rule_of=torch.tensor(rule_of, dtype=torch.int64),
        leading=leading,
        allowed=torch.stack(rules.masks) if rules.masks else vocabulary.allowed()[None],
        deletable=torch.tensor(deletable)[None],
        expandable=torch.tensor(expandable)[None],
        is_length_chosen=policy.chooses,
        spill=spill,
    )
