"""From hidden states to chosen tokens: head, allowed tokens, confidence. Knows ids, no text."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

LEAN_POSITIONS: Final = 8  # rows per greedy or forced choice on a CPU: 71 -> 20 ms for 64 x 152k logits
CHUNK_POSITIONS: Final = 256  # logits are widened to fp32 this many positions at a time
RUN: Final = 128  # columns per run


class BadScores(RuntimeError):
    """The logits are not finite: the weights or the device are broken."""


@dataclass(frozen=True)
class Choice:
    """The rules by which M rows choose tokens: row i chooses where `allowed` [R, V] is true at `rule_of[i]`, but not
    among the `barred`, which maps a token to the rows [M] that may not take it.

    With a `temperature` tokens are sampled with `generator` from the smallest set with `top_p` of the probability.
    `is_scaled`: confidence is taken after temperature and top-p (Dream) instead of before (LLaDA). `forced` [M] are
    tokens that the rows take whatever the rules say; their confidence is their probability among all tokens.
    """

    allowed: Tensor
    rule_of: Tensor
    barred: dict[int, Tensor] = field(default_factory=dict)
    temperature: float = 0.0
    top_p: float = 1.0
    is_scaled: bool = False
    generator: torch.Generator | None = None
    forced: Tensor | None = None
    needs_entropy: bool = False

    @property
    def is_greedy(self) -> bool:
        """True if each row takes its best allowed token."""
        return self.temperature == 0 and self.top_p >= 1 and self.forced is None

    def take(self, rows: slice) -> "Choice":
        """The choice of these rows alone."""
        barred = {token: is_barred[rows] for token, is_barred in self.barred.items()}
        forced = None if self.forced is None else self.forced[rows]
        return replace(self, rule_of=self.rule_of[rows], barred=barred, forced=forced)


@dataclass(frozen=True)
class Chosen:
    """For M rows: `ids`, their probabilities `confidence`, and if requested the distributions' `entropy` (nats); each
    [M].
    """

    ids: Tensor
    confidence: Tensor
    entropy: Tensor | None = None

    @classmethod
    def join(cls, parts: Sequence["Chosen"]) -> "Chosen":
        entropy = [part.entropy for part in parts if part.entropy is not None]
        return cls(
            torch.cat([part.ids for part in parts]),
            torch.cat([part.confidence for part in parts]),
            torch.cat(entropy) if entropy else None,
        )


def choose(scores: Tensor, choice: Choice) -> Chosen:
    """Chooses from the logits `scores` [M, V], widening a few rows at a time. Returns CPU tensors. Raises BadScores."""
    is_on_cpu = scores.device.type == "cpu"
    size = LEAN_POSITIONS if is_on_cpu else CHUNK_POSITIONS
    if choice.forced is not None:
        choose_rows = _take_forced
    elif is_on_cpu and choice.is_greedy and not choice.needs_entropy:
        choose_rows = _choose_best
    else:
        choose_rows, size = _choose_rows, CHUNK_POSITIONS
    starts = range(0, max(len(scores), 1), size)
    chosen = Chosen.join([choose_rows(scores, choice, slice(start, start + size)) for start in starts])
    return check(replace(chosen, confidence=chosen.confidence.cpu()))


def check(chosen: Chosen) -> Chosen:
    """Raises BadScores."""
    if not np.isfinite(chosen.confidence.numpy()).all():
        raise BadScores("the model's scores are not numbers")
    return chosen


def count_wide_copies(temperature: float, top_p: float) -> int:
    """Upper bound of fp32 copies of CHUNK_POSITIONS rows of logits that `choose` holds: as measured, plus one."""
    if top_p < 1:
        return 9
    return 6 if temperature > 0 else 4


def _take_forced(scores: Tensor, choice: Choice, rows: slice) -> Chosen:
    assert choice.forced is not None
    ids, known = choice.forced[rows], scores[rows, : choice.allowed.shape[1]].float()
    taken = known.gather(1, ids[:, None].to(known.device, non_blocking=True))[:, 0]
    return Chosen(ids, (taken - known.logsumexp(dim=1)).exp())


def _choose_best(scores: Tensor, choice: Choice, rows: slice) -> Chosen:
    """Like `_choose_rows` for greedy choices: in place, from the maximum and one sum, without a second copy."""
    known = _restrict(scores[rows].float(), choice, rows)
    ids = _argmax(known)
    best = known.gather(1, ids[:, None])
    return Chosen(ids, known.sub_(best).exp_().sum(dim=-1).reciprocal())


def _choose_rows(scores: Tensor, choice: Choice, rows: slice) -> Chosen:
    log_probs = _restrict(scores[rows].float(), choice, rows).log_softmax(dim=-1)  # [P, V]
    scaled = _scale(log_probs, choice)
    if choice.is_scaled and (choice.temperature > 0 or choice.top_p < 1):
        log_probs = scaled.log_softmax(dim=-1)
    noisy = scaled
    if choice.temperature > 0:
        noisy = scaled + _gumbel(scaled, choice)
    ids = _argmax(noisy)
    columns = [log_probs.gather(1, ids[:, None])[:, 0].exp()]
    if choice.needs_entropy:
        columns.append(torch.special.entr(log_probs.exp()).sum(dim=-1))
    if ids.device.type != "cpu":
        numbers = torch.stack([ids.float(), *columns]).cpu()  # one copy; ids are below 2^24
        ids, columns = numbers[0].long(), list(numbers[1:])
    return Chosen(ids, *columns)


def _restrict(wide: Tensor, choice: Choice, rows: slice) -> Tensor:
    """`wide` [P, V] with minus infinity at forbidden tokens, and without columns beyond the tokenizer's."""
    # Adding is vectorized on a CPU; masked_fill is not and takes seven times as long.
    allowed = choice.allowed.to(wide.device)
    penalties = torch.zeros(allowed.shape, device=wide.device).masked_fill(~allowed, -torch.inf)  # [R, V']
    rules = choice.rule_of[rows]
    if torch.equal(rules, rules[:1].expand_as(rules)):  # asked on the host: a device would be waited for
        rules = rules[:1]
    known = wide[:, : allowed.shape[1]] + penalties[rules.to(wide.device)]
    for token, is_barred in choice.barred.items():
        known[:, token].masked_fill_(is_barred[rows].to(wide.device), -torch.inf)
    return known


def _argmax(values: Tensor) -> Tensor:
    """The first maximum of each row of `values` [P, V]; in runs on a CPU, where torch takes seven times as long."""
    num_runs = values.shape[1] // RUN
    if values.device.type != "cpu" or num_runs < 2:
        return values.argmax(dim=-1)
    width = num_runs * RUN
    runs = values[:, :width].reshape(len(values), num_runs, RUN)
    run = runs.amax(dim=-1).argmax(dim=-1)
    ids: Tensor = run * RUN + runs[torch.arange(len(values)), run].argmax(dim=-1)
    if values.shape[1] == width:
        return ids
    last = width + values[:, width:].argmax(dim=-1)
    is_larger = values.gather(1, last[:, None]) > values.gather(1, ids[:, None])
    return torch.where(is_larger[:, 0], last, ids)


def _scale(wide: Tensor, choice: Choice) -> Tensor:
    """Logits divided by temperature, restricted to the nucleus (Holtzman et al., arXiv 1904.09751)."""
    scaled = wide
    if choice.temperature > 0:
        scaled = wide / choice.temperature
    if choice.top_p >= 1:
        return scaled
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    probs = ordered.softmax(dim=-1)
    is_out = probs.cumsum(dim=-1) - probs > choice.top_p
    return scaled.masked_fill(torch.zeros_like(is_out).scatter(1, order, is_out), -torch.inf)


def _gumbel(scores: Tensor, choice: Choice) -> Tensor:
    """Gumbel noise, drawn on the CPU so that a seed means the same on every device."""
    exponential = torch.empty(scores.shape).exponential_(generator=choice.generator)
    return -exponential.clamp(min=1e-30).log().to(scores.device)
