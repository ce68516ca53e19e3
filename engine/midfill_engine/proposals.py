"""From scores to proposals: which token each masked position would take, and how surely. Knows no text, no sampler."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from midfill_engine.canvas import Canvas
from midfill_engine.samplers.base import Proposals, Sampler

CHUNK_POSITIONS: Final = 256  # scores are widened to fp32 this many positions at a time


class BadScores(RuntimeError):
    """The model's scores are no numbers: its weights or the device are broken."""


@dataclass(frozen=True)
class Scores:
    """A forward pass's `values` [M, V] for the M positions where `where` [B, T] was true, row by row."""

    values: Tensor
    where: Tensor

    def at(self, row: int, positions: Tensor) -> Tensor:
        """[P, V] in fp32."""
        index = self.where.flatten().cumsum(0)[row * self.where.shape[1] + positions] - 1
        return self.values[index.to(self.values.device)].float()


def propose(
    scores: Scores, canvas: Canvas, sampler: Sampler, temperatures: list[float], generators: list[torch.Generator]
) -> Proposals:
    """Reads the scores of all masked positions of the canvas; all others stay zero. Raises BadScores.

    Temperature adds Gumbel noise to the scores (Gumbel-max: the choice is then a sample); the confidence is always the
    probability without noise. Each row draws from its own generator, so its text does not depend on other rows.
    """
    shape = canvas.ids.shape
    found = Proposals(
        torch.full(shape, -1),
        torch.zeros(shape),
        torch.zeros(shape) if sampler.needs_entropy else None,
        torch.zeros(shape) if sampler.needs_margin else None,
    )
    for row in range(shape[0]):
        for positions in torch.split(canvas.masked[row].nonzero().flatten(), CHUNK_POSITIONS):
            allowed = _restrict(scores.at(row, positions), canvas, row, positions)
            _fill_in(found, allowed, row, positions, temperatures[row], generators[row])
    if not torch.isfinite(found.confidence).all():
        raise BadScores("the model's scores are not numbers")
    return found


def _restrict(scores: Tensor, canvas: Canvas, row: int, positions: Tensor) -> Tensor:
    """`scores` [P, V] with minus infinity wherever the canvas does not allow a token."""
    allowed = canvas.allowed[canvas.rule_of[positions]]  # [P, V]
    if canvas.vocabulary.delete_id is not None:
        may_delete = canvas.deletable[row, canvas.hole_of[positions]] > 0  # [P]
        allowed[:, canvas.vocabulary.delete_id] &= may_delete
    return scores.masked_fill(~allowed.to(scores.device), -torch.inf)


def _fill_in(
    found: Proposals, scores: Tensor, row: int, positions: Tensor, temperature: float, generator: torch.Generator
) -> None:
    log_probs = scores.log_softmax(dim=-1)  # [P, V]
    ids = (scores + temperature * _gumbel(scores, generator) if temperature > 0 else scores).argmax(dim=-1)
    found.ids[row, positions] = ids.cpu()
    found.confidence[row, positions] = log_probs.gather(1, ids[:, None])[:, 0].exp().cpu()
    if found.entropy is not None:
        found.entropy[row, positions] = torch.special.entr(log_probs.exp()).sum(dim=-1).cpu()
    if found.margin is not None:
        best = log_probs.topk(2, dim=-1).values.exp()
        found.margin[row, positions] = (best[:, 0] - best[:, 1]).cpu()


def _gumbel(scores: Tensor, generator: torch.Generator) -> Tensor:
    """Drawn on the CPU, so that a seed means the same on every device."""
    exponential = torch.empty(scores.shape).exponential_(generator=generator)
    return -exponential.clamp(min=1e-30).log().to(scores.device)
