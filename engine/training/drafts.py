"""Fits what the expert `counts` weighs: gates of contexts, the ranking of candidates, their calibration. Knows gaps.

Both files are JSON lines of {package, prefix, middle, suffix}, as `bench.quality.lines` draws them: gaps of a training
corpus with `--mixed`, and single lines of packages outside it with their tests, which files of a corpus seldom have.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midfill_engine.experts.base import Gap, Sources
from midfill_engine.experts.counts import Counts, CountsOpinion, Weights, shipped_weights
from midfill_engine.experts.features import CANDIDATE, NONE
from midfill_engine.experts.levels import BASE, Floats, Gate
from midfill_engine.experts.table import DEPTH, Table
from midfill_engine.tokens.tokenizer import heal
from training.data.corpus import fraction_of

STEPS: Final = 400
RIDGE: Final = 0.03
NUM_RIVALS: Final = 30  # of a gap's candidates, the best by the weights before
TIMES: Final = 3  # that a line of the packages counts
PLAIN: Final[Gate] = (-0.7, 1.4, -0.3)


@dataclass(frozen=True)
class Line:
    """A gap whose text is known."""

    package: str
    prefix: str
    middle: str
    suffix: str

    @property
    def gap(self) -> Gap:
        edges = heal(self.prefix, self.suffix)
        return Gap(edges.prefix, edges.suffix, edges.lead, edges.tail)


@dataclass(frozen=True)
class Ranked:
    """The columns of a gap's candidates [C, F], of none of them [N], and which is right (C: none)."""

    table: Floats
    none: Floats
    right: int


def read_lines(path: Path, limit: int | None) -> list[Line]:
    """In an order that has nothing to do with the packages."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    lines = [Line(row["package"], row["prefix"], row["middle"], row["suffix"]) for row in rows]
    return sorted(lines, key=lambda line: fraction_of(line.prefix[-200:] + line.middle))[:limit]


def blank_weights() -> Weights:
    gates = (PLAIN,) * DEPTH
    return Weights(gates, gates, np.zeros(len(CANDIDATE)), np.zeros(len(NONE)), 1.0, 0.0)


def open_line(expert: Counts, line: Line) -> CountsOpinion:
    gap = line.gap
    return expert.read(Sources([], (gap.before, gap.after), (gap,)))


def fit(gaps: Path, lines: Path, out: Path, *, num_gate_lines: int = 700, limit: int | None = None) -> Weights:
    """Writes the weights to `out`. The calibration is of packages that the weights beside it did not see."""
    corpus, packages = read_lines(gaps, limit), read_lines(lines, limit)
    blank, before = blank_weights(), shipped_weights()
    gates = [fit_gates(corpus[:num_gate_lines], blank, is_backward) for is_backward in (False, True)]
    expert = Counts(replace(before, forward=gates[0], backward=gates[1]))
    first = [cut(each, before) for each in ranked_of(expert, corpus)]
    names = sorted({line.package for line in packages})
    halves = [
        ranked_of(expert, [line for line in packages if names.index(line.package) % 2 == half]) for half in (0, 1)
    ]

    def weigh(*parts: list[Ranked]) -> Weights:
        candidate, none = fit_ranking([*first, *(cut(each, before) for part in parts for each in part * TIMES)])
        return replace(expert.weights, candidate=candidate, none=none, slope=1.0, offset=0.0)

    unseen = [(weigh(halves[1 - half]), each) for half in (0, 1) for each in halves[half]]
    slope, offset = fit_calibration(unseen)
    found = replace(weigh(*halves), slope=slope, offset=offset)
    out.write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
    return found


def ranked_of(expert: Counts, lines: Sequence[Line]) -> list[Ranked]:
    return [each for each in (rank(expert, line) for line in lines) if each is not None]


def cut(each: Ranked, weights: Weights) -> Ranked:
    """The gap with its best candidates only, and the right one."""
    best = np.argsort(-(each.table @ weights.candidate), kind="stable")[:NUM_RIVALS].tolist()
    has_right = each.right < len(each.table)
    if has_right and each.right not in best:
        best.append(each.right)
    return Ranked(each.table[best], each.none, best.index(each.right) if has_right else len(best))


def fit_gates(lines: Sequence[Line], weights: Weights, is_backward: bool) -> tuple[Gate, ...]:
    """The gates with which the words of the gaps are the likeliest, read in one direction."""
    expert = Counts(weights)
    rows = [row for line in lines for row in count_words(expert, line, is_backward)]
    totals, types, counts = torch.tensor(np.array(rows), dtype=torch.float64).unbind(1)  # each [W, DEPTH]
    gates = torch.tensor(weights.forward, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([gates], lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nats(gates, totals, types, counts) + 1e-4 * (gates - torch.tensor([0.0, 1.0, 0.0])).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return tuple((round(a, 4), round(b, 4), round(c, 4)) for a, b, c in gates.tolist())


def nats(gates: Tensor, totals: Tensor, types: Tensor, counts: Tensor) -> Tensor:
    """The mean over words of -ln p, as `levels` computes it."""
    probs = torch.full_like(totals[:, 0], BASE)
    for order in range(DEPTH):
        a, b, c = gates[order]
        total, kinds = totals[:, order].clamp(min=1), types[:, order].clamp(min=1)
        share = torch.sigmoid(a + b * (total / kinds).log() + c * total.log()) * (totals[:, order] > 0)
        probs = (1 - share) * probs + share * counts[:, order] / total
    return -probs.log().mean()


def count_words(expert: Counts, line: Line, is_backward: bool) -> Iterator[Floats]:
    """Of every word of the gap [3, DEPTH]: how often each of its contexts stood, with how many followers, with it."""
    gap, opinion = line.gap, open_line(expert, line)
    middle = line.middle[: len(line.middle) - len(gap.tail)]
    words = np.array(opinion.lexicon.cut(gap.lead + middle), np.int32)
    table, before = opinion.tables[is_backward], opinion.edges(0)[is_backward]
    stream = np.concatenate((before, words[::-1] if is_backward else words))
    places = np.arange(len(before), len(stream))
    contexts = stream[places[:, None] - np.arange(DEPTH)]
    yield from gather(table, opinion.lexicon.hashes[contexts], stream[places])


def gather(table: Table, hashes: NDArray[np.uint64], words: NDArray[np.int32]) -> NDArray[np.float64]:
    """[W, 3, DEPTH], where `hashes` [W, DEPTH] begin with the word itself."""
    found = np.zeros((len(words), 3, DEPTH))
    every = np.bincount(table.followers, minlength=1)
    found[:, 0, 0], found[:, 1, 0] = every[1:].sum(), np.count_nonzero(every[1:])
    found[:, 2, 0] = np.where(words < len(every), every[np.minimum(words, len(every) - 1)], 0)
    inner = list(table.ranges(hashes))
    for order, (starts, ends) in enumerate(table.ranges(hashes[:, 1:]), 1):
        found[:, 0, order] = ends - starts
        found[:, 1, order] = table.types(order, starts, ends - starts)
        found[:, 2, order] = np.minimum(inner[order][1] - inner[order][0], ends - starts)
    return found


def rank(expert: Counts, line: Line) -> Ranked | None:
    """None where there are no candidates."""
    candidates, table, none = open_line(expert, line).describe(0, line.gap)
    texts = [each.text for each in candidates]
    return Ranked(table, none, texts.index(line.middle) if line.middle in texts else len(texts)) if texts else None


def fit_ranking(ranked: Sequence[Ranked]) -> tuple[Floats, Floats]:
    """The weights under which what is right has the largest share, with a ridge over standardised columns."""
    table = np.concatenate([each.table for each in ranked])
    spread, none_spread = table.std(axis=0) + 1e-9, np.stack([each.none for each in ranked]).std(axis=0) + 1e-9
    none_spread[0] = 1.0
    sizes = torch.tensor([len(each.table) for each in ranked])
    owner = torch.arange(len(ranked)).repeat_interleave(sizes)
    columns = torch.tensor(table / spread)
    nones = torch.tensor(np.stack([each.none for each in ranked]) / none_spread)
    starts = sizes.cumsum(0) - sizes
    rights = torch.tensor([each.right for each in ranked])
    is_none = rights == sizes
    chosen = (starts + rights).clamp(max=len(columns) - 1)
    weights = torch.zeros(columns.shape[1] + nones.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        scores, rest = columns @ weights[: columns.shape[1]], nones @ weights[columns.shape[1] :]
        top = torch.maximum(torch.zeros(len(sizes)).double().scatter_reduce(0, owner, scores, "amax"), rest).detach()
        total = torch.zeros(len(sizes)).double().index_add(0, owner, (scores - top[owner]).exp()) + (rest - top).exp()
        value = (
            -(torch.where(is_none, rest, scores[chosen]) - top - total.log()).mean() + RIDGE * weights.square().mean()
        )
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    found = weights.detach().numpy()
    return found[: len(spread)] / spread, found[len(spread) :] / none_spread


def fit_calibration(ranked: Sequence[tuple[Weights, Ranked]]) -> tuple[float, float]:
    """Platt's curve (1999) of the first candidate's share: its slope and offset."""
    shares = [weights.shares(each.table, each.none) for weights, each in ranked]
    clear = torch.tensor([min(max(float(np.max(each)), 1e-6), 1 - 1e-6) for each in shares])
    firsts = [float(np.argmax(share) == each.right) for share, (_, each) in zip(shares, ranked, strict=True)]
    logits, is_right = (clear / (1 - clear)).log(), torch.tensor(firsts)
    curve = torch.tensor([1.0, 0.0], requires_grad=True)
    optimizer = torch.optim.LBFGS([curve], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.binary_cross_entropy_with_logits(curve[0] * logits + curve[1], is_right)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    slope, offset = curve.tolist()
    return round(slope, 4), round(offset, 4)
