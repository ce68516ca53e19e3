"""`python -m bench.quality.fitting GAPS LINES OUT`: fits what the proposer `lines` weighs. Knows gaps.

These are gates of contexts, the ranking of candidates, and their calibration. Both files are JSON lines of {package,
prefix, middle, suffix}, as `bench.quality.lines` draws them: gaps of a training corpus with `--mixed`, and single lines
of packages outside it with their tests, which files of a corpus seldom have.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor

from midfill_infill.proposals.counts import Counted, Counts, Texts, Weights
from midfill_infill.proposals.features import CANDIDATE, NONE
from midfill_infill.proposals.gap import Gap
from midfill_infill.proposals.levels import BASE, Floats, Gate
from midfill_infill.proposals.ranking import Ranker
from midfill_infill.proposals.table import DEPTH, Table
from training.data.corpus import fraction_of

STEPS: Final = 400
STEPS_OF_RANKING: Final = 120
DECAY: Final = 0.003
NUM_UNITS: Final = 32
NUM_FOLDS: Final = 3
CORPUS_TURNS: Final = 3  # how often each gap of the corpus counts: only there are bodies and rests of lines
NUM_RIVALS: Final = 30  # of a gap's candidates, the best by a first, linear fit
ENOUGH: Final = 0.75
SURE: Final = 0.5
PLAIN: Final[Gate] = (-0.7, 1.4, -0.3)


@dataclass(frozen=True)
class Line:
    """A gap whose text is known."""

    package: str
    prefix: str
    middle: str
    suffix: str
    references: tuple[str, ...] = ()

    @property
    def gap(self) -> Gap:
        return Gap.between(self.prefix, self.suffix)


@dataclass(frozen=True)
class Ranked:
    """The columns of a gap's candidates [C, F], of none of them [N], and which is right (C: none)."""

    package: str
    is_line: bool
    table: Floats
    none: Floats
    right: int


def read_lines(path: Path, limit: int | None) -> list[Line]:
    """In an order that has nothing to do with the packages."""
    with path.open(encoding="utf-8") as rows:
        lines = list(map(_line, map(json.loads, rows)))
    return sorted(lines, key=lambda line: fraction_of(line.prefix[-200:] + line.middle))[:limit]


def _line(row: dict[str, Any]) -> Line:
    references = tuple(each["text"] for each in row.get("references", ()))
    return Line(row["package"], row["prefix"], row["middle"], row["suffix"], references)


def blank_weights() -> Weights:
    gates = (PLAIN,) * DEPTH
    return Weights(gates, gates, Ranker.plain([0.0] * len(CANDIDATE)), Ranker.plain([0.0] * len(NONE)), 1.0, 0.0)


def open_line(counts: Counts, line: Line) -> Counted:
    return counts.read(Texts((line.gap.before, line.gap.after), line.references))


def main(
    gaps: Annotated[Path, typer.Argument(help="Gaps of a corpus, by `bench.quality.lines --mixed`.")],
    lines: Annotated[Path, typer.Argument(help="Lines of packages outside it.")],
    out: Annotated[Path, typer.Argument(help="The weights to write.")],
    limit: Annotated[int | None, typer.Option(min=1, help="So many of each.")] = None,
) -> None:
    """Fits the weights, and prints how sure they are of lines of packages that they have not seen."""
    fit(gaps, lines, out, limit=limit)


def fit(gaps: Path, lines: Path, out: Path, *, num_gate_lines: int = 700, limit: int | None = None) -> Weights:
    """Writes the weights to `out`. The calibration is of lines of packages that its weights did not see."""
    corpus, packages = read_lines(gaps, limit), read_lines(lines, limit)
    gates = [fit_gates(corpus[:num_gate_lines], blank_weights(), is_backward) for is_backward in (False, True)]
    counts = Counts(replace(blank_weights(), forward=gates[0], backward=gates[1]))
    found, unseen = fit_ranking_of(counts.weights, ranked_of(counts, corpus), ranked_of(counts, packages))
    out.write_text(dump(found), encoding="utf-8")
    print(tell(unseen))
    return found


def dump(weights: Weights) -> str:
    """A row of numbers a line."""
    text = json.dumps(weights.to_json(), indent=1)
    return re.sub(r"\[[^][{}]*\]", lambda row: re.sub(r"\s+", " ", row.group()), text) + "\n"


def fit_ranking_of(
    gates: Weights, corpus: Sequence[Ranked], packages: Sequence[Ranked]
) -> tuple[Weights, list[tuple[float, bool]]]:
    """The ranking of both, calibrated across the packages; and how sure it was of their lines unseen, and right."""
    first, _ = fit_ranking([*corpus[::3], *packages], num_units=0)
    short = CORPUS_TURNS * [cut(each, first) for each in corpus] + [cut(each, first) for each in packages]

    def weigh(keeps: Callable[[str], bool]) -> Weights:
        candidate, none = fit_ranking([each for each in short if keeps(each.package)])
        return replace(gates, candidate=candidate, none=none, slope=1.0, offset=0.0)

    unseen = []
    for fold in range(NUM_FOLDS):
        fitted = weigh(lambda package, fold=fold: fold_of(package) != fold)  # type: ignore[misc]
        unseen += [(fitted, each) for each in packages if fold_of(each.package) == fold and each.is_line]
    slope, offset = fit_calibration(unseen)
    calibrated = [(replace(fitted, slope=slope, offset=offset), each) for fitted, each in unseen]
    return replace(weigh(lambda package: True), slope=slope, offset=offset), [judge(*each) for each in calibrated]


def judge(weights: Weights, each: Ranked) -> tuple[float, bool]:
    """The certainty of the first candidate, and whether it is right."""
    shares = weights.shares(each.table, each.none)
    return float(np.max(weights.certainties(shares))), int(np.argmax(shares)) == each.right


def tell(pairs: Sequence[tuple[float, bool]]) -> str:
    sure = [is_right for certainty, is_right in pairs if certainty >= SURE]
    share, right = 100 * len(sure) / len(pairs), 100 * sum(sure) / max(1, len(sure))
    return (
        f"{len(pairs)} lines of packages left out of the fit: {share:.1f} % with certainty {SURE} and more,"
        f" of which {right:.1f} % right; {ENOUGH:.0%} right from {threshold_of(pairs)}"
    )


def threshold_of(pairs: Sequence[tuple[float, bool]]) -> float | None:
    """The least certainty from which on ENOUGH are right; None where there is none."""
    found, num_right = None, 0
    for count, (certainty, is_right) in enumerate(sorted(pairs, reverse=True), 1):
        num_right += is_right
        if num_right >= ENOUGH * count:
            found = round(certainty, 3)
    return found


def fold_of(package: str) -> int:
    return int(NUM_FOLDS * fraction_of(package))


def ranked_of(counts: Counts, lines: Sequence[Line]) -> list[Ranked]:
    return [each for each in (rank(counts, line) for line in lines) if each is not None]


def cut(each: Ranked, ranker: Ranker) -> Ranked:
    """The gap with its best candidates only, and the right one."""
    best = np.argsort(-ranker.scores(each.table), kind="stable")[:NUM_RIVALS].tolist()
    has_right = each.right < len(each.table)
    if has_right and each.right not in best:
        best.append(each.right)
    return replace(each, table=each.table[best], right=best.index(each.right) if has_right else len(best))


def fit_gates(lines: Sequence[Line], weights: Weights, is_backward: bool) -> tuple[Gate, ...]:
    """The gates with which the words of the gaps are the likeliest, read in one direction."""
    blank = Counts(weights)
    rows = [row for line in lines for row in count_words(blank, line, is_backward)]
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


def count_words(counts: Counts, line: Line, is_backward: bool) -> Iterator[Floats]:
    """Of every word of the gap [3, DEPTH]: how often each of its contexts stood, with how many followers, with it."""
    gap, counted = line.gap, open_line(counts, line)
    middle = line.middle[: len(line.middle) - len(gap.tail)]
    words = np.array(counted.lexicon.cut(gap.lead + middle), np.int32)
    table, before = counted.tables[is_backward], counted.edges(0)[is_backward]
    stream = np.concatenate((before, words[::-1] if is_backward else words))
    places = np.arange(len(before), len(stream))
    contexts = stream[places[:, None] - np.arange(DEPTH)]
    yield from gather(table, counted.lexicon.hashes[contexts], stream[places])


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


def rank(counts: Counts, line: Line) -> Ranked | None:
    """None where there are no candidates."""
    candidates, table, none = open_line(counts, line).describe(0, line.gap)
    texts = [each.text for each in candidates]
    if not texts:
        return None
    right = texts.index(line.middle) if line.middle in texts else len(texts)
    return Ranked(line.package, "\n" not in line.middle.strip(), table, none, right)


def fit_ranking(ranked: Sequence[Ranked], num_units: int = NUM_UNITS) -> tuple[Ranker, Ranker]:
    """What gives the right ones the largest shares, with a penalty on weights of standardised columns."""
    table, nones = np.concatenate([each.table for each in ranked]), np.stack([each.none for each in ranked])
    layers = [Layers.of(each, size) for each, size in ((table, num_units), (nones, num_units // 2))]
    sizes = torch.tensor([len(each.table) for each in ranked])
    rights = torch.tensor([each.right for each in ranked])
    owner = torch.arange(len(ranked)).repeat_interleave(sizes)
    chosen = (sizes.cumsum(0) - sizes + rights).clamp(max=len(table) - 1)
    parameters = [each for layer in layers for each in layer.parameters]
    optimizer = torch.optim.LBFGS(parameters, max_iter=STEPS_OF_RANKING, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        scores, rest = (layer.scores() for layer in layers)
        top = torch.maximum(torch.full((len(sizes),), -torch.inf).scatter_reduce(0, owner, scores, "amax"), rest)
        top = top.detach()
        total = torch.zeros(len(sizes)).index_add(0, owner, (scores - top[owner]).exp()) + (rest - top).exp()
        lost = top + total.log() - torch.where(rights == sizes, rest, scores[chosen])
        penalty = sum(each.square().sum() for each in parameters)
        value = lost.mean() + DECAY * penalty
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    candidate, none = (layer.ranker() for layer in layers)
    none.linear[NONE.index("one")] += layers[0].constant - layers[1].constant
    return candidate, none


@dataclass(frozen=True)
class Layers:
    """A ranker that is fitted, over standardised columns [R, F]."""

    columns: Tensor
    mean: Floats
    spread: Floats
    parameters: list[Tensor]  # linear, inner, bias, outer

    @classmethod
    def of(cls, table: Floats, num_units: int) -> "Layers":
        mean, spread = table.mean(axis=0), table.std(axis=0)
        is_constant = spread < 1e-6
        mean, spread = np.where(is_constant, 0.0, mean), np.where(is_constant, 1.0, spread)
        generator, size = torch.Generator().manual_seed(0), table.shape[1]
        inner = 0.15 * torch.randn(size, num_units, generator=generator)
        outer = 0.1 * torch.randn(num_units, generator=generator)
        parameters = [torch.zeros(size), inner, torch.zeros(num_units), outer]
        columns = torch.tensor((table - mean) / spread, dtype=torch.float32)
        return cls(columns, mean, spread, [each.requires_grad_() for each in parameters])

    def scores(self) -> Tensor:
        linear, inner, bias, outer = self.parameters
        return self.columns @ linear + torch.tanh(self.columns @ inner + bias) @ outer

    @property
    def constant(self) -> float:
        return float(self.mean @ (self.parameters[0].detach().double().numpy() / self.spread))

    def ranker(self) -> Ranker:
        """For columns as they are; all its scores are `constant` too high."""
        linear, inner, bias, outer = (each.detach().double().numpy() for each in self.parameters)
        inner = inner / self.spread[:, None]
        return Ranker(linear / self.spread, inner, bias - self.mean @ inner, outer)


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


if __name__ == "__main__":
    typer.run(main)
