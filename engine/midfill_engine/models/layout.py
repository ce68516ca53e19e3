"""Where the tokens of a canvas stand: positions of context and holes. Knows lengths, no ids."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Positions of `context` (visible tokens) and `hole` (all others), each in document order.

    `context_positions` [Tc] and `hole_positions` [N, Th] are int64; N is 2 if half of the heads count from the right,
    else 1. `edges` [G, 2] are context indices of the tokens before and after each hole.
    """

    context_positions: Tensor
    hole_positions: Tensor
    edges: Tensor


def lay_in_rooms(text_lengths: list[int], hole_lengths: list[int], rooms: list[int]) -> Layout:
    """Positions for text, hole, ..., hole, text, where hole `i` takes `rooms[i]` positions, counted from both sides."""
    assert len(text_lengths) == len(hole_lengths) + 1
    context: list[Tensor] = []
    left: list[Tensor] = [torch.arange(0)]
    right: list[Tensor] = [torch.arange(0)]
    edges: list[tuple[int, int]] = []
    position = seen = 0
    for index, text_length in enumerate(text_lengths):
        context.append(torch.arange(position, position + text_length))
        position, seen = position + text_length, seen + text_length
        if index < len(hole_lengths):
            left.append(torch.arange(position, position + hole_lengths[index]))
            position += rooms[index]
            right.append(torch.arange(position - hole_lengths[index], position))
            edges.append((max(seen - 1, 0), seen))
    return Layout(torch.cat(context), torch.stack((torch.cat(left), torch.cat(right))), torch.tensor(edges))


def lay_in_a_row(text_lengths: list[int], hole_lengths: list[int], hole_span: int = 0) -> Layout:
    """Positions without gaps, counted from the left; `hole_span` is ignored."""
    both = lay_in_rooms(text_lengths, hole_lengths, hole_lengths)
    return replace(both, hole_positions=both.hole_positions[:1])
