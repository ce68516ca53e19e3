"""Builds a canvas: ids, masks, anchors and allowed tokens of all holes. Knows outlines; no sampler, no model."""

from typing import Final

import numpy as np
import torch
from torch import Tensor

from midfill_engine.diffusion.canvas import Canvas
from midfill_engine.diffusion.plan import Plan
from midfill_engine.errors import RequestError
from midfill_engine.lengths import Lengths
from midfill_engine.wire import ErrorCode

MAX_CANVAS_TOKENS: Final = 4096  # rows times hole positions: what a request may hold in memory

Rule = tuple[tuple[str, ...], str]  # the strings that a token must not contain, and what it must begin with


def lay_canvas(plan: Plan, lengths: Lengths) -> Canvas:
    """The canvas with `lengths` positions for the masked stretches of each hole. Raises RequestError."""
    runtime, outlines, policy = plan.runtime, plan.outline.holes, plan.policy
    spill = count_spill(plan, sum(lengths[-1]) + outlines[-1].num_anchored)
    places: list[tuple[int, int, Rule | None]] = []  # token, hole, and its rule, None for anchors
    for hole, (outline, hole_lengths) in enumerate(zip(outlines, lengths, strict=True)):
        remaining = iter(hole_lengths)
        forbid = tuple(sorted(set(outline.forbid)))
        for stretch in outline.stretches:
            if stretch.ids is None:
                leads = [stretch.leading] + [""] * (next(remaining) - 1)
                places += [(runtime.tokens.mask_id, hole, (forbid, lead)) for lead in leads]
            else:
                places += [(token, hole, None) for token in stretch.ids]
    places += [(runtime.tokens.mask_id, len(outlines) - 1, (tuple(sorted(set(outlines[-1].forbid))), ""))] * spill
    rules = [rule for _, _, rule in places]
    numbers = {rule: number for number, rule in enumerate(dict.fromkeys(rule for rule in rules if rule))}
    masks = [find_allowed(plan, rule) for rule in numbers]
    if len(places) * plan.request.n > MAX_CANVAS_TOKENS:
        message = f"the holes take {len(places)} tokens, {plan.request.n} times, of {MAX_CANVAS_TOKENS} in all"
        raise RequestError(ErrorCode.TOO_LARGE, message, "ask for fewer holes or alternatives, or a smaller max_tokens")
    anchors = np.array([rule is None for rule in rules], dtype=bool)
    max_hole = runtime.loaded.config.max_hole
    return Canvas(
        outlines=outlines,
        vocabulary=runtime.vocabulary,
        ids=np.array([token for token, _, _ in places], dtype=np.int64),
        masked=~anchors,
        confidence=anchors.astype(np.float32),
        anchored=anchors,
        hole_of=np.array([hole for _, hole, _ in places], dtype=np.int64),
        rule_of=np.array([numbers[rule] if rule else 0 for rule in rules], dtype=np.int64),
        leading=[rule[1].encode() if rule else b"" for rule in rules],
        allowed=torch.stack(masks) if masks else runtime.vocabulary.allowed()[None],
        least=np.array([outline.min_tokens for outline in outlines]),
        most=np.array([outline.need(max_hole).max_tokens for outline in outlines]),
        is_length_chosen=policy.chooses,
        spill=spill,
    )


def find_allowed(plan: Plan, rule: Rule) -> Tensor:
    """The mask [V] of tokens that a rule allows. Raises RequestError if no token has text."""
    vocabulary, policy, (forbid, leading) = plan.runtime.vocabulary, plan.policy, rule
    if not vocabulary.allowed(forbid=forbid, leading=leading).any():
        raise RequestError(ErrorCode.BAD_REQUEST, "forbid leaves no token to fill with", "forbid less")
    return vocabulary.allowed(
        forbid=forbid, leading=leading, may_delete=policy.may_delete, may_expand=policy.may_expand
    )


def count_spill(plan: Plan, total: int) -> int:
    """Positions that complete the last block behind a hole of `total`; 0 behind an anchor or for a minimum length."""
    runtime, last = plan.runtime, plan.outline.holes[-1]
    is_open = runtime.tokens.ends_text and not runtime.family.aligned and plan.policy.may_delete and not last.min_tokens
    if not is_open or not last.stretches or last.stretches[-1].ids is not None:
        return 0
    start = 0 if runtime.family.pipelined else len(plan.context_ids)
    return int(-(start + total) % runtime.loaded.config.block_size)
