"""Lays out a canvas: the token, the hole and the allowed tokens of every position. Runs no model and no sampler."""

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

MAX_CANVAS_TOKENS: Final = 4096  # positions of a canvas times alternatives: bounds the memory of a request


class Rule(NamedTuple):
    """The strings that a token must not contain, and what it must begin with."""

    forbid: tuple[str, ...]
    leading: str = ""


class Cell(NamedTuple):
    """A position of a canvas: its first token, the number of its hole, and the rule for the tokens that may replace it.
    Anchors have no rule, because they never change.
    """

    token: int
    hole: int
    rule: Rule | None


def lay_canvas(plan: Plan, lengths: Lengths) -> Canvas:
    """The canvas whose stretch s of hole h has `lengths[h][s]` masked positions, anchors not counted. Raises
    RequestError if it is too large, or if a rule allows no token.
    """
    runtime, outlines = plan.runtime, plan.outline.holes
    mask_id = runtime.tokens.mask_id
    cells: list[Cell] = []
    for hole, (outline, hole_lengths) in enumerate(zip(outlines, lengths, strict=True)):
        cells += lay_hole(outline, hole, hole_lengths, mask_id)
    spill = count_spill(plan, len(cells))
    cells += [Cell(mask_id, len(outlines) - 1, Rule(outlines[-1].forbid))] * spill
    if len(cells) * plan.request.n > MAX_CANVAS_TOKENS:
        message = f"the holes take {len(cells)} tokens, {plan.request.n} times, of {MAX_CANVAS_TOKENS} in all"
        raise RequestError(ErrorCode.TOO_LARGE, message, "ask for fewer holes or alternatives, or a smaller max_tokens")
    rules = list(dict.fromkeys(cell.rule for cell in cells if cell.rule))
    allowed_by_rule = [find_allowed(plan, rule) for rule in rules] or [runtime.vocabulary.allowed()]
    index_of_rule = {rule: index for index, rule in enumerate(rules)}
    rule_of = [index_of_rule[cell.rule] if cell.rule else 0 for cell in cells]  # anchors use none: any will do
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
        leading=[cell.rule.leading.encode() if cell.rule else b"" for cell in cells],
        allowed=torch.stack(allowed_by_rule),
        min_positions=np.array([outline.min_tokens for outline in outlines]),
        max_positions=np.array([outline.length_bounds(max_hole).max_tokens for outline in outlines]),
        is_length_chosen=plan.policy.lengths_are_chosen,
        spill=spill,
    )


def lay_hole(outline: HoleOutline, hole: int, lengths: Sequence[int], mask_id: int) -> list[Cell]:
    """The positions of a hole, with `lengths` masks, each at least 1, in its masked stretches."""
    cells: list[Cell] = []
    masked_lengths = iter(lengths)
    for stretch in outline.stretches:
        if stretch.ids is not None:
            cells += [Cell(token, hole, None) for token in stretch.ids]
            continue
        cells.append(Cell(mask_id, hole, Rule(outline.forbid, stretch.leading)))
        cells += [Cell(mask_id, hole, Rule(outline.forbid))] * (next(masked_lengths) - 1)
    return cells


def find_allowed(plan: Plan, rule: Rule) -> Tensor:
    """[V]: the tokens that a rule allows. Raises RequestError if only deletions and expansions are left of them."""
    vocabulary, policy = plan.runtime.vocabulary, plan.policy
    if not vocabulary.allowed(forbid=rule.forbid, leading=rule.leading).any():
        raise RequestError(ErrorCode.BAD_REQUEST, "forbid leaves no token to fill with", "forbid less")
    return vocabulary.allowed(
        forbid=rule.forbid, leading=rule.leading, may_delete=policy.may_delete, may_expand=policy.may_expand
    )


def count_spill(plan: Plan, hole_length: int) -> int:
    """The number of masks behind the last hole, of `hole_length` positions, that complete its block: models that end a
    text within a block were trained so. They fill one hole at a time.

    0 if the fill cannot end in them: it ends with an anchor, has a minimum length, or nothing may be deleted.
    """
    family, last = plan.runtime.family, plan.outline.holes[-1]
    ends_with_mask = bool(last.stretches) and last.stretches[-1].ids is None
    may_end_early = plan.runtime.tokens.ends_text and plan.policy.may_delete and not last.min_tokens
    if not ends_with_mask or not may_end_early or family.aligned:
        return 0
    first_position = 0 if family.pipelined else len(plan.context_ids)  # pipelined blocks begin behind the prompt
    return int(-(first_position + hole_length) % plan.runtime.loaded.config.block_size)
