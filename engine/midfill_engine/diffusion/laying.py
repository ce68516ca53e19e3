"""Builds a canvas: ids, masks, anchors and allowed tokens of all holes. Knows outlines; no sampler, no model."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from midfill_engine.diffusion.canvas import Canvas
from midfill_engine.diffusion.plan import Plan
from midfill_engine.errors import RequestError
from midfill_engine.lengths import Lengths
from midfill_engine.requests.outline import HoleOutline
from midfill_engine.wire import ErrorCode

MAX_CANVAS_TOKENS: Final = 4096  # rows times hole positions: what a request may hold in memory

Rule = tuple[tuple[str, ...], str]  # the strings that a token must not contain, and what it must begin with


class Cell(NamedTuple):
    """A position of a canvas: its token and its hole, and the rule for other tokens, None for an anchor."""

    token: int
    hole: int
    rule: Rule | None

    @property
    def leading(self) -> bytes:
        return self.rule[1].encode() if self.rule else b""


def lay_canvas(plan: Plan, lengths: Lengths) -> Canvas:
    """The canvas with `lengths` positions for the masked stretches of each hole. Raises RequestError."""
    runtime, outlines = plan.runtime, plan.outline.holes
    mask_id = runtime.tokens.mask_id
    spill = count_spill(plan, sum(lengths[-1]) + outlines[-1].num_anchored)
    cells: list[Cell] = []
    for hole, (outline, hole_lengths) in enumerate(zip(outlines, lengths, strict=True)):
        cells += lay_hole(outline, hole, hole_lengths, mask_id)
    cells += [Cell(mask_id, len(outlines) - 1, (forbidden_of(outlines[-1]), ""))] * spill
    rules = list(dict.fromkeys(cell.rule for cell in cells if cell.rule))
    masks = [find_allowed(plan, rule) for rule in rules] or [runtime.vocabulary.allowed()]
    if len(cells) * plan.request.n > MAX_CANVAS_TOKENS:
        message = f"the holes take {len(cells)} tokens, {plan.request.n} times, of {MAX_CANVAS_TOKENS} in all"
        raise RequestError(ErrorCode.TOO_LARGE, message, "ask for fewer holes or alternatives, or a smaller max_tokens")
    index_of_rule = {rule: index for index, rule in enumerate(rules)}
    rule_of = [index_of_rule[cell.rule] if cell.rule else 0 for cell in cells]
    anchors = np.array([cell.rule is None for cell in cells], dtype=bool)
    max_hole = runtime.loaded.config.max_hole
    return Canvas(
        outlines=outlines,
        vocabulary=runtime.vocabulary,
        ids=np.array([cell.token for cell in cells], dtype=np.int64),
        masked=~anchors,
        confidence=anchors.astype(np.float32),
        anchored=anchors,
        hole_of=np.array([cell.hole for cell in cells], dtype=np.int64),
        rule_of=np.array(rule_of, dtype=np.int64),
        leading=[cell.leading for cell in cells],
        allowed=torch.stack(masks),
        least=np.array([outline.min_tokens for outline in outlines]),
        most=np.array([outline.need(max_hole).max_tokens for outline in outlines]),
        is_length_chosen=plan.policy.chooses,
        spill=spill,
    )


def lay_hole(outline: HoleOutline, hole: int, lengths: Sequence[int], mask_id: int) -> list[Cell]:
    """The positions of a hole, with `lengths` masks in its masked stretches."""
    forbid = forbidden_of(outline)
    cells: list[Cell] = []
    num_masked = 0
    for stretch in outline.stretches:
        if stretch.ids is not None:
            cells += [Cell(token, hole, None) for token in stretch.ids]
            continue
        cells.append(Cell(mask_id, hole, (forbid, stretch.leading)))
        cells += [Cell(mask_id, hole, (forbid, ""))] * (lengths[num_masked] - 1)
        num_masked += 1
    return cells


def forbidden_of(outline: HoleOutline) -> tuple[str, ...]:
    return tuple(sorted(set(outline.forbid)))


def find_allowed(plan: Plan, rule: Rule) -> Tensor:
    """The mask [V] of tokens that a rule allows. Raises RequestError if no token has text."""
    vocabulary, policy = plan.runtime.vocabulary, plan.policy
    forbid, leading = rule
    if not vocabulary.allowed(forbid=forbid, leading=leading).any():
        raise RequestError(ErrorCode.BAD_REQUEST, "forbid leaves no token to fill with", "forbid less")
    return vocabulary.allowed(
        forbid=forbid, leading=leading, may_delete=policy.may_delete, may_expand=policy.may_expand
    )


def count_spill(plan: Plan, total: int) -> int:
    """Positions that complete the last block behind a hole of `total`; 0 behind an anchor or for a minimum length."""
    family = plan.runtime.family
    last = plan.outline.holes[-1]
    if not last.stretches or last.stretches[-1].ids is not None or last.min_tokens:
        return 0
    if not plan.runtime.tokens.ends_text or family.aligned or not plan.policy.may_delete:
        return 0
    start = 0 if family.pipelined else len(plan.context_ids)
    return int(-(start + total) % plan.runtime.loaded.config.block_size)
