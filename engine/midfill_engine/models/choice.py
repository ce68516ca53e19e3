"""Chooses tokens from logits: allowed tokens, temperature, confidence. Knows ids, no text."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor

LEAN_POSITIONS: Final = 8  # rows at a time of a greedy or forced choice on a CPU: 20 ms, not 71, for 64 x 152k logits
CHUNK_POSITIONS: Final = 256  # rows at a time of other choices, whose logits are widened to fp32
RUN: Final = 128  # columns in a run of `_argmax`


class BadScores(RuntimeError):
    """The logits are not finite: the weights or the device are broken."""


@dataclass(eq=False)
class Choice:
    """The rules by which M rows choose tokens. Row i chooses among the tokens for which the rule `allowed[rule_of[i]]`
    is true (`allowed` is [R, V]), except for those `barred` for it: `barred` maps a token to [M], true where a row may
    not take it.

    Without a `temperature` a row takes its best token; otherwise `generator` samples one from the smallest set with
    `top_p` of the probability. With `is_scaled` the confidence is the probability after temperature and top-p (Dream),
    not before (LLaDA). `forced` [M] are tokens that the rows take whatever the rules say; their confidence is their
    probability among all tokens of the tokenizer.
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
        """The choice for these `rows` alone."""
        barred = {token: is_barred[rows] for token, is_barred in self.barred.items()}
        forced = None if self.forced is None else self.forced[rows]
        return replace(self, rule_of=self.rule_of[rows], barred=barred, forced=forced)


@dataclass(eq=False)
class Chosen:
    """What M rows chose, [M] each: the tokens' `ids`, their probabilities `confidence`, and the `entropy` (nats) of the
    distributions, if the choice needs it.
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
        choose_part = partial(_take_forced, scores)
    else:
        # Added to logits, because masked_fill is not vectorized on a CPU and takes seven times as long.
        allowed = choice.allowed.to(scores.device)
        penalties = torch.zeros(allowed.shape, device=scores.device).masked_fill(~allowed, -torch.inf)  # [R, V']
        choose_part = partial(_choose_best, scores, penalties)
        if not is_on_cpu or not choice.is_greedy or choice.needs_entropy:
            choose_part, size = partial(_choose_any_way, scores, penalties), CHUNK_POSITIONS
    starts = range(0, max(len(scores), 1), size)
    chosen = Chosen.join([choose_part(choice, slice(start, start + size)) for start in starts])
    return check(replace(chosen, confidence=chosen.confidence.cpu()))


def check(chosen: Chosen) -> Chosen:
    """Returns `chosen`. Raises BadScores if a confidence is not finite."""
    if not np.isfinite(chosen.confidence.numpy()).all():
        raise BadScores("the model's scores are not numbers")
    return chosen


def count_wide_copies(temperature: float, top_p: float) -> int:
    """How many fp32 copies of CHUNK_POSITIONS rows of logits `choose` has in memory at most: as measured, plus one."""
    if top_p < 1:
        return 9
    return 6 if temperature > 0 else 4


def _take_forced(scores: Tensor, choice: Choice, rows: slice) -> Chosen:
    """The forced tokens of these `rows`."""
    assert choice.forced is not None
    ids = choice.forced[rows]
    wide = scores[rows, : choice.allowed.shape[1]].float()
    taken = wide.gather(1, ids[:, None].to(wide.device, non_blocking=True))[:, 0]
    return Chosen(ids, (taken - wide.logsumexp(dim=1)).exp())


def _choose_best(scores: Tensor, penalties: Tensor, choice: Choice, rows: slice) -> Chosen:
    """Like `_choose_any_way` for greedy choices: in place, from the maximum and one sum, without a second copy."""
    wide = _restrict(scores[rows].float(), penalties, choice, rows)
    ids = _argmax(wide)
    best = wide.gather(1, ids[:, None])
    return Chosen(ids, wide.sub_(best).exp_().sum(dim=-1).reciprocal())


def _choose_any_way(scores: Tensor, penalties: Tensor, choice: Choice, rows: slice) -> Chosen:
    """Chooses for these `rows` as any choice says that forces no tokens."""
    log_probs = _restrict(scores[rows].float(), penalties, choice, rows).log_softmax(dim=-1)  # [P, V]
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
        on_host = torch.stack([ids.float(), *columns]).cpu()  # one copy; ids are below 2^24
        ids, columns = on_host[0].long(), list(on_host[1:])
    return Chosen(ids, *columns)


def _restrict(wide: Tensor, penalties: Tensor, choice: Choice, rows: slice) -> Tensor:
    """`wide` [P, V] plus each row's `penalties` [R, V'], without columns behind the tokenizer's: [P, V']. Barred tokens
    have minus infinity, as forbidden ones by their penalties.
    """
    rules = choice.rule_of[rows]
    if torch.equal(rules, rules[:1].expand_as(rules)):  # compared on the host, because a device would be waited for
        rules = rules[:1]
    restricted = wide[:, : penalties.shape[1]] + penalties[rules.to(wide.device)]
    for token, is_barred in choice.barred.items():
        restricted[:, token].masked_fill_(is_barred[rows].to(wide.device), -torch.inf)
    return restricted


def _argmax(values: Tensor) -> Tensor:
    """The index of each row's first maximum in `values` [P, V]. On a CPU it takes the maximum of each run first,
    because torch's argmax over all columns takes seven times as long.
    """
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
    """Logits divided by the temperature; minus infinity outside the nucleus (Holtzman et al., arXiv 1904.09751)."""
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
