"""From hidden states to chosen tokens: the head, what may stand where, how sure the choice is. Knows ids, no text."""

from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

CHUNK_POSITIONS: Final = 256  # scores are widened to fp32 this many positions at a time


class BadScores(RuntimeError):
    """The model's scores are no numbers: its weights or the device are broken."""


@dataclass(frozen=True)
class Bias:
    """Sparse additions to scores: `amounts` [N] to token `tokens` [N] of row `rows` [N]."""

    rows: Tensor
    tokens: Tensor
    amounts: Tensor


@dataclass(frozen=True)
class Echo:
    """A distribution to mix in: row i keeps the share `kept[i]` of its own and gets the rest, which makes 1.

    `amounts` [N] go to `tokens` [N] of `rows` [N].
    """

    rows: Tensor
    tokens: Tensor
    amounts: Tensor
    kept: Tensor


@dataclass(frozen=True)
class Choice:
    """How M rows choose. Row i may take the tokens where `allowed` [R, V] at `rule_of[i]` is true, less the `barred`.

    `barred` maps a token to the rows [M] that may not take it. With a `temperature` the choice is a sample drawn from
    `generator`, out of the smallest set of tokens with `top_p` of the probability. `is_scaled` says whether the
    confidence is of the distribution after temperature and top-p (Dream's rule) or before (LLaDA's). `asked` [M] are
    tokens whose probability is wanted besides.
    """

    allowed: Tensor
    rule_of: Tensor
    barred: dict[int, Tensor] = field(default_factory=dict)
    temperature: float = 0.0
    top_p: float = 1.0
    is_scaled: bool = False
    generator: torch.Generator | None = None
    bias: Bias | None = None
    echo: Echo | None = None
    asked: Tensor | None = None
    needs_entropy: bool = False
    needs_margin: bool = False


@dataclass(frozen=True)
class Chosen:
    """For M rows `ids`, `confidence`, and if wanted `entropy` (nats), `margin` (probability), `asked`; each [M]."""

    ids: Tensor
    confidence: Tensor
    entropy: Tensor | None
    margin: Tensor | None
    asked: Tensor | None


def choose(scores: Tensor, choice: Choice) -> Chosen:
    """Reads `scores` [M, V], a few rows widened at a time. Everything returned is on the CPU. Raises BadScores."""
    parts = [_choose_rows(scores, choice, rows) for rows in torch.split(torch.arange(len(scores)), CHUNK_POSITIONS)]
    chosen = Chosen(
        torch.cat([part.ids for part in parts]),
        torch.cat([part.confidence for part in parts]),
        _join([part.entropy for part in parts]),
        _join([part.margin for part in parts]),
        _join([part.asked for part in parts]),
    )
    if not torch.isfinite(chosen.confidence).all():
        raise BadScores("the model's scores are not numbers")
    return chosen


def _join(parts: list[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None


def _choose_rows(scores: Tensor, choice: Choice, rows: Tensor) -> Chosen:
    wide = _restrict(scores[rows.to(scores.device)].float(), choice, rows)  # [P, V]
    scaled = _scale(wide, choice) if choice.temperature > 0 or choice.top_p < 1 else wide
    log_probs = (scaled if choice.is_scaled else wide).log_softmax(dim=-1)
    ids = (scaled + _gumbel(scaled, choice) if choice.temperature > 0 else scaled).argmax(dim=-1)
    entropy = torch.special.entr(log_probs.exp()).sum(dim=-1).cpu() if choice.needs_entropy else None
    margin = None
    if choice.needs_margin:
        best = log_probs.topk(2, dim=-1).values.exp()
        margin = (best[:, 0] - best[:, 1]).cpu()
    asked = None
    if choice.asked is not None:
        asked = log_probs.gather(1, choice.asked[rows, None].to(scores.device))[:, 0].exp().cpu()
    confidence = log_probs.gather(1, ids[:, None])[:, 0].exp().cpu()
    return Chosen(ids.cpu(), confidence, entropy, margin, asked)


def _restrict(wide: Tensor, choice: Choice, rows: Tensor) -> Tensor:
    """`wide` [P, V] with minus infinity wherever a token may not stand; columns beyond the tokenizer's too."""
    if choice.bias is not None:
        here = torch.isin(choice.bias.rows, rows)
        local = torch.searchsorted(rows, choice.bias.rows[here])
        index = (local.to(wide.device), choice.bias.tokens[here].to(wide.device))
        wide = wide.index_put(index, choice.bias.amounts[here].to(wide.device), accumulate=True)
    allowed = choice.allowed[choice.rule_of[rows]].to(wide.device)  # [P, V']
    for token, is_barred in choice.barred.items():
        allowed[:, token] &= ~is_barred[rows].to(wide.device)
    known = wide[:, : allowed.shape[1]].masked_fill(~allowed, -torch.inf)
    return known if choice.echo is None else _mix(known, choice.echo, rows).masked_fill(~allowed, -torch.inf)


def _mix(scores: Tensor, echo: Echo, rows: Tensor) -> Tensor:
    """Log probabilities of the mixture; rows that keep all of their own distribution are only normalised."""
    here = torch.isin(echo.rows, rows)
    index = (torch.searchsorted(rows, echo.rows[here]).to(scores.device), echo.tokens[here].to(scores.device))
    own = scores.softmax(dim=-1) * echo.kept[rows, None].to(scores.device)
    return own.index_put(index, echo.amounts[here].to(scores.device), accumulate=True).log()


def _scale(wide: Tensor, choice: Choice) -> Tensor:
    """Scores over the temperature, with only the nucleus left (Holtzman et al., arXiv 1904.09751)."""
    scaled = wide / choice.temperature if choice.temperature > 0 else wide
    if choice.top_p >= 1:
        return scaled
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    probs = ordered.softmax(dim=-1)
    is_out = probs.cumsum(dim=-1) - probs > choice.top_p
    return scaled.masked_fill(torch.zeros_like(is_out).scatter(1, order, is_out), -torch.inf)


def _gumbel(scores: Tensor, choice: Choice) -> Tensor:
    """Drawn on the CPU, so that a seed means the same on every device."""
    exponential = torch.empty(scores.shape).exponential_(generator=choice.generator)
    return -exponential.clamp(min=1e-30).log().to(scores.device)
