"""`python -m bench quality.fitting GAPS OUT`: everything that proposers weigh, fitted on gaps whose text is known.

These are the conditional logit of lines, how often a line is a whole body, and how often bodies of similar functions
are right. `GAPS` are JSON lines as `bench.quality.lines --mixed` draws them. Knows gaps; no model.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import torch
import typer

from bench.quality import bodies
from bench.quality.calibration import ENOUGH, threshold_of
from bench.quality.suite import Task, read_suite
from midfill_infill.proposals import Surroundings
from midfill_infill.proposals.lines import Scene, weigh
from midfill_infill.proposals.siblings import find_siblings
from midfill_infill.proposals.weights import ProposalWeights
from training.data.corpus import fraction_of

STEPS: Final = 200
DECAY: Final = 0.002
NUM_FOLDS: Final = 3
SURE: Final = 0.5
NUM_BODIES: Final = 400
LIKENESS: Final = (0.9, 0.8, 0.7, 0.5, 0.0)
ODDS: Final = (1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.01)
BLANK: Final = ProposalWeights({}, {}, 1.0, [])

Columns = Mapping[str, float]


@dataclass(frozen=True)
class Ranked:
    """The features of a gap's candidates and of "none of them", and the index of the right one, None if none is."""

    package: str
    is_line: bool
    candidates: Sequence[Columns]
    none: Columns
    right: int | None


def main(
    gaps: Annotated[Path, typer.Argument(help="Gaps, by `bench.quality.lines --mixed`.")],
    out: Annotated[Path, typer.Argument(help="The weights to write.")],
    limit: Annotated[int | None, typer.Option(min=1, help="So many gaps.")] = None,
) -> None:
    """Fits the weights, and prints how sure they are of lines of packages that they have not seen."""
    torch.set_num_threads(1)
    tasks = read_suite(gaps, limit=limit).tasks
    ranked = [gap for gap in map(rank, tasks) if gap is not None and gap.is_line]
    lines, unseen = fit_lines(ranked)
    print(tell(unseen))
    weights = fit_bodies(lines, list(islice(bodies.draw(tasks, 5), NUM_BODIES)))
    out.write_text(json.dumps(asdict(weights), indent=1) + "\n", encoding="utf-8")


def rank(task: Task) -> Ranked | None:
    """The features of a gap's candidates; None if there are no candidates."""
    scene = Scene.between([task.prefix, task.suffix], 0, tuple(fields["text"] for fields in task.references))
    candidates = scene.candidates()
    if not candidates:
        return None
    texts = [candidate.text for candidate in candidates]
    right = texts.index(task.middle) if task.middle in texts else None
    is_line = "\n" not in task.middle.strip()
    return Ranked(package_of(task), is_line, scene.describe(candidates), scene.describe_none(), right)


def package_of(task: Task) -> str:
    return task.group.partition("/")[0]


def fit_lines(ranked: Sequence[Ranked]) -> tuple[ProposalWeights, list[tuple[float, bool]]]:
    """The weights of all gaps; and for each line its certainty by weights of other packages, and if it was right."""
    unseen = []
    for fold in range(NUM_FOLDS):
        fitted = fit_logit([gap for gap in ranked if fold_of(gap.package) != fold])
        unseen += [judge(fitted, gap) for gap in ranked if fold_of(gap.package) == fold]
    return fit_logit(ranked), unseen


def fold_of(package: str) -> int:
    return int(NUM_FOLDS * fraction_of(package))


def minimize(compute_loss: Callable[[], torch.Tensor], weights: list[torch.Tensor]) -> None:
    """Changes `weights` until the loss is least."""
    optimizer = torch.optim.LBFGS(weights, max_iter=STEPS, line_search_fn="strong_wolfe")

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = compute_loss()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(step)  # type: ignore[no-untyped-call]


def regress(values: torch.Tensor, right: torch.Tensor, decay: float = 0.0) -> list[float]:
    """The weights of a logistic regression of `right` [R] on columns `values` [R, F], with a penalty of `decay` times
    the squares of the weights of standardized columns.
    """
    spread = values.std(dim=0).clamp(min=1e-6)
    weights = torch.zeros(values.shape[1], dtype=values.dtype, requires_grad=True)

    def compute_loss() -> torch.Tensor:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(values @ weights, right)
        return loss + decay * (weights * spread).square().sum()

    minimize(compute_loss, [weights])
    fitted: list[float] = weights.tolist()
    return fitted


def fit_logit(ranked: Sequence[Ranked]) -> ProposalWeights:
    """Fits a conditional logit, with a penalty on the weights of standardized columns."""
    line = Table.of([row for gap in ranked for row in gap.candidates])
    none = Table.of([gap.none for gap in ranked])
    sizes = torch.tensor([len(gap.candidates) for gap in ranked])
    owner = torch.arange(len(ranked)).repeat_interleave(sizes)
    has_right = torch.tensor([gap.right is not None for gap in ranked])
    starts = sizes.cumsum(0) - sizes
    chosen = starts + torch.tensor([gap.right or 0 for gap in ranked])

    def compute_loss() -> torch.Tensor:
        scores = line.values @ line.weights
        rest = none.values @ none.weights
        highest = torch.full((len(sizes),), -torch.inf).scatter_reduce(0, owner, scores, "amax")
        top = torch.maximum(highest, rest).detach()
        total = torch.zeros(len(sizes)).index_add(0, owner, (scores - top[owner]).exp()) + (rest - top).exp()
        lost = top + total.log() - torch.where(has_right, scores[chosen], rest)
        return lost.mean() + DECAY * (line.weights.square().sum() + none.weights[1:].square().sum())

    minimize(compute_loss, [line.weights, none.weights])
    of_line, shift = line.unscaled()
    of_none, none_shift = none.unscaled()
    of_none["one"] = round(of_none["one"] + none_shift - shift, 4)
    return replace(BLANK, line=of_line, none=of_none)


@dataclass(frozen=True)
class Table:
    """Standardized columns [R, F] by name, and the weights to fit."""

    names: Sequence[str]
    values: torch.Tensor
    mean: np.ndarray
    spread: np.ndarray
    weights: torch.Tensor

    @classmethod
    def of(cls, rows: Sequence[Columns]) -> "Table":
        names = sorted(rows[0], key=lambda name: name != "one")
        values = np.array([[float(row[name]) for name in names] for row in rows])
        mean, spread = values.mean(axis=0), values.std(axis=0)
        constant = spread < 1e-6
        mean, spread = np.where(constant, 0.0, mean), np.where(constant, 1.0, spread)
        scaled = torch.tensor((values - mean) / spread, dtype=torch.float32)
        return cls(names, scaled, mean, spread, torch.zeros(len(names), requires_grad=True))

    def unscaled(self) -> tuple[dict[str, float], float]:
        """The weights for the original columns, and the constant that all scores then lack."""
        weights = self.weights.detach().double().numpy() / self.spread
        rounded = [round(value, 4) for value in weights.tolist()]
        return dict(zip(self.names, rounded, strict=True)), -float(self.mean @ weights)


def judge(weights: ProposalWeights, gap: Ranked) -> tuple[float, bool]:
    """The certainty of the first candidate, and whether it is right."""
    scores = [dot(weights.line, row) for row in gap.candidates]
    scores.append(dot(weights.none, gap.none))
    shares = np.exp(np.array(scores) - max(scores))
    best = int(np.argmax(shares[:-1]))
    return float(shares[best] / shares.sum()), best == gap.right


def dot(weights: Mapping[str, float], columns: Columns) -> float:
    return math.fsum(weights[name] * value for name, value in columns.items())


def tell(pairs: Sequence[tuple[float, bool]]) -> str:
    sure = [is_right for certainty, is_right in pairs if certainty >= SURE]
    num_right = sum(is_right for _, is_right in pairs)
    first = 100 * num_right / len(pairs)
    share = 100 * len(sure) / len(pairs)
    right = 100 * sum(sure) / max(1, len(sure))
    return (
        f"{len(pairs)} lines of packages left out of the fit, the first right in {first:.1f} %: {share:.1f} % with"
        f" certainty {SURE} and more, of which {right:.1f} % right; {ENOUGH:.0%} right from {threshold_of(pairs)}"
    )


def fit_bodies(weights: ProposalWeights, tasks: Sequence[Task]) -> ProposalWeights:
    """The weights, with the fitted worth of texts as whole bodies."""
    alike: list[tuple[float, bool]] = []
    lines: list[tuple[float, bool]] = []
    for task in tasks:
        around, wanted = bodies.look_around(task), split(task.middle)
        for text, likeness, _ in find_siblings(around, 0)[:1]:
            alike.append((likeness, split(text) == wanted))
        for text, share in lines_as_bodies(weights, around):
            lines.append((share, split(text) == wanted))
    siblings = []
    below = math.inf
    for least in LIKENESS:
        rights = [is_right for likeness, is_right in alike if least <= likeness < below]
        siblings.append((least, round((sum(rights) + 0.5) / (len(rights) + 10), 3)))
        print(f"{len(rights)} bodies alike by {least} and more: {sum(rights)} right")
        below = least
    odds = min(ODDS, key=lambda odds: loss_of(replace(weights, body_odds=odds), lines))
    print(f"{len(lines)} lines as whole bodies: {sum(is_right for _, is_right in lines)} right, odds {odds}")
    return replace(weights, siblings=siblings, body_odds=odds)


def split(body: str) -> list[str]:
    return list(map(str.strip, body.strip().split("\n")))


def lines_as_bodies(weights: ProposalWeights, around: Surroundings) -> Iterator[tuple[str, float]]:
    candidates, shares = weigh(Scene.of(around, 0), weights)
    for candidate, share in zip(candidates, shares, strict=True):
        if share >= 0.01:
            yield candidate.line, share


def loss_of(weights: ProposalWeights, lines: Sequence[tuple[float, bool]]) -> float:
    losses = []
    for share, is_right in lines:
        chance = weights.as_body(share)
        losses.append(math.log(max(1e-9, chance if is_right else 1 - chance)))
    return -math.fsum(losses)


if __name__ == "__main__":
    typer.run(main)
