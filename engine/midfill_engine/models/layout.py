"""Where the tokens of a canvas stand: positions of context and holes. Knows lengths, no ids."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """`context` are visible tokens, `hole` the rest, each in document order.

    `context_positions` [Tc] and `hole_positions` [N, Th] are int64; N is 1, or 2 where heads count from the left and
    from the right. `edges` [G, 2] are the indices into the context of the token before and the token after each hole.
    """

    context_positions: Tensor
    hole_positions: Tensor
    edges: Tensor


def lay_in_a_row(text_lengths: list[int], hole_lengths: list[int], hole_span: int = 0) -> Layout:
    """Positions for text, hole, text, ..., hole, text as they follow each other, without gaps.

    `text_lengths` has one entry more than `hole_lengths`; `hole_span` is for families whose holes have a fixed room.
    """
    assert len(text_lengths) == len(hole_lengths) + 1
    context: list[Tensor] = []
    holes: list[Tensor] = [torch.arange(0)]
    edges: list[tuple[int, int]] = []
    position = seen = 0
    for index, text_length in enumerate(text_lengths):
        context.append(torch.arange(position, position + text_length))
        position, seen = position + text_length, seen + text_length
        if index < len(hole_lengths):
            holes.append(torch.arange(position, position + hole_lengths[index]))
            position += hole_lengths[index]
            edges.append((max(seen - 1, 0), seen))
    return Layout(torch.cat(context), torch.cat(holes)[None], torch.tensor(edges))
