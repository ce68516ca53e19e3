"""`python -m bench quality.judging KIND SUITE KEEP OUT`: what decides among the engine's candidates, fitted.

Fills a line, a part of one or the body of a function (KIND line, inside, or short and body) of every file of SUITE,
keeps what the engine compared in the folder KEEP, and writes the weights that choose best into the JSON file OUT. Knows
no engine.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Final, Literal, cast

import numpy as np
import torch
import typer

from bench.quality import bodies
from bench.quality.calibration import calibrate
from bench.quality.fitting import NUM_FOLDS, fold_of, package_of, regress
from bench.quality.kept import Facts, KeptFile
from bench.quality.product import Local, ModelName, by_product, describe_fills
from bench.quality.suite import Task, read_suite
from midfill_engine.judging import PATH, Candidate, JudgeWeights, shipped_weights
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.wire import BASE, InfillRequest, InfillResponse, StepEvent
from midfill_infill.engines.client import EngineClient

Kind = Literal["line", "inside", "short", "body"]
# Text, log-likelihood, that of the following text, the proposer's certainty, needed names, unused ones.
Compared = tuple[str, float, float, float, int, int]
LINES: Final = "line", "inside"
BODY_LENGTHS: Final = (0.2, 0.4, 0.6, 0.8, 1.0)
SHORT: Final = 2  # filled lines of a short body at most
SHARES: Final = (0.0, 0.001, 0.01, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0)
FOLLOWS: Final = (0.5, 0.7, 0.85, 1.0)
NAMED: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 12.0)
USED: Final = (0.0, 2.0, 4.0, 7.0)
BODY_AGREE: Final = (0.0, 2.0, 4.0, 8.0, 16.0)
DECAY: Final = 0.01
SEED: Final = 5
EXACT: Final = 2.0  # the likeness of equal texts


@dataclass(frozen=True)
class Gap:
    """The candidates that the engine compared for a gap, and the similarity of each to the true text."""

    package: str
    candidates: tuple[Candidate, ...]
    likeness: tuple[float, ...]
    is_short: bool

    def choose(self, weights: JudgeWeights) -> int:
        scores = weights.score(self.candidates)
        return scores.index(max(scores))

    def is_of(self, kind: Kind) -> bool:
        """True if the true text is of the kind."""
        return kind in LINES or self.is_short == (kind == "short")

    def is_judged_as(self, kind: Kind, short: JudgeWeights) -> bool:
        """True if weights of this kind give the first candidate's chance; `short` are the weights of short bodies."""
        is_short = "\n" not in self.candidates[self.choose(short)].text.strip()
        return kind in LINES or is_short == (kind == "short")


def main(
    kind: Annotated[Kind, typer.Argument(help="line, inside, short or body.")],
    suite: Annotated[Path, typer.Argument(help="As bench.quality.lines writes it, with --inside for inside.")],
    keep: Annotated[Path, typer.Argument(help="A folder: what was compared is kept there, and not compared again.")],
    out: Annotated[Path, typer.Argument(help="The weights to change.")] = PATH,
    limit: Annotated[int, typer.Option(min=1)] = 200,
    seed: int = SEED,
    model: ModelName = BASE,
) -> None:
    """Fits one kind; prints what the weights of now choose, and fitted ones in packages that they did not see."""
    torch.set_num_threads(1)
    read = read_suite(suite)
    facts = {**describe_fills(model, read), "seed": seed}
    drawn = read.tasks if kind in LINES else bodies.draw(read.tasks, seed, range(1, 11))
    gaps = [gap for gap in compare(kind, list(islice(drawn, limit)), keep, model, facts) if gap.candidates]
    now = shipped_weights(kind)
    best = [max(gap.likeness) for gap in gaps if gap.is_of(kind)]
    num_packages = len({gap.package for gap in gaps})
    print(f"{len(gaps)} gaps of {num_packages} packages; the best candidate: {tell_likeness(best)}")
    print(f"now: {tell(kind, [(now, gap) for gap in gaps])}")
    unseen = []
    for fold in range(NUM_FOLDS):
        fitted = fit(kind, [gap for gap in gaps if fold_of(gap.package) != fold])
        unseen += [(fitted, gap) for gap in gaps if fold_of(gap.package) == fold]
    print(f"fitted, in other packages: {tell(kind, unseen)}")
    weights = fit(kind, gaps)
    print(f"fitted: {tell(kind, [(weights, gap) for gap in gaps])}")
    write_weights(out, kind, asdict(weights))


def write_weights(out: Path, kind: Kind, weights: dict[str, float]) -> None:
    """The shipped weights, with others for one kind."""
    known = json.loads(PATH.read_text(encoding="utf-8"))
    known[kind] = {name: round(value, 3) for name, value in weights.items()}
    out.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


class Recorder(Local):
    """An engine in this process that remembers its first answer."""

    seen: InfillResponse | None = None

    def infill(self, request: InfillRequest) -> Iterator[StepEvent | InfillResponse]:
        for message in super().infill(request):
            if isinstance(message, InfillResponse) and self.seen is None:
                self.seen = message
            yield message


def compare(kind: Kind, tasks: Sequence[Task], keep: Path, model: str, facts: Facts) -> Iterator[Gap]:
    """The candidates that the product's engine compares for each task. Raises KeptError if KEEP has others."""
    runtime = load_runtime(model, "cpu")
    name = kind if kind in LINES else "body"
    with KeptFile(keep / f"{name}.jsonl", facts) as kept:
        known = {row["id"]: row["compared"] for row in kept.rows}
        for task in tasks:
            if task.id not in known:
                known[task.id] = ask(kind, runtime, task)
                kept.add({"id": task.id, "compared": known[task.id]})
            listed = []
            for text, nats, following, certainty, names, used in known[task.id]:
                tokens = runtime.loaded.tokenizer.encode(text)
                listed.append(Candidate(text, nats, following, certainty, (("", 0.0),) * len(tokens), names, used))
            likeness = tuple(liken(candidate.text, task.middle) for candidate in listed)
            yield Gap(package_of(task), tuple(listed), likeness, bodies.count_lines(task.middle) <= SHORT)


def ask(kind: Kind, runtime: Runtime, task: Task) -> list[Compared]:
    """What the engine compared when the product filled a gap."""
    recorder = Recorder(runtime)
    client = cast(EngineClient, recorder)
    if kind in LINES:
        by_product(client, task)
    else:
        bodies.write(client, {}, task)
    return [] if recorder.seen is None else list(list_compared(recorder.seen))


def list_compared(answer: InfillResponse) -> Iterator[Compared]:
    for hole in answer.candidates[0]:
        if hole.log_likelihood is not None:
            yield hole.text, hole.log_likelihood, hole.following or 0.0, hole.proposed, hole.names, hole.unused


def liken(text: str, truth: str) -> float:
    """2 if both are equal except for surrounding white space, otherwise their similarity in [0, 1]."""
    first, second = text.strip(), truth.strip()
    if first == second:
        return EXACT
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


def fit(kind: Kind, gaps: Sequence[Gap]) -> JudgeWeights:
    """Finds on a grid the scores that choose the most similar texts (exact ones count twice); then fits the odds."""
    grid = {"length": BODY_LENGTHS, "share": SHARES, "follows": FOLLOWS, "agree": BODY_AGREE, "named": (0.0,)}
    if kind in LINES:
        grid |= {"length": (0.0,), "agree": (0.0,), "named": NAMED}
    grid["used"] = USED
    shipped = shipped_weights(kind)
    ways = [replace(shipped, **dict(zip(grid, values, strict=True))) for values in product(*grid.values())]
    sized = [gap for gap in gaps if gap.is_of(kind)]
    best = max(ways, key=lambda weights: sum(gap.likeness[gap.choose(weights)] for gap in sized))
    short = best if kind == "short" else shipped_weights("short")
    return replace(best, **fit_odds(best, [gap for gap in gaps if gap.is_judged_as(kind, short)]))


def fit_odds(weights: JudgeWeights, gaps: Sequence[Gap]) -> dict[str, float]:
    """Logistic regression for the chance that the chosen candidate is right."""
    rows, right = [], []
    for gap in gaps:
        chosen = gap.choose(weights)
        rows.append(weights.describe(gap.candidates, weights.score(gap.candidates), chosen))
        right.append(float(gap.likeness[chosen] == EXACT))
    names = list(rows[0])
    values = torch.tensor([[row[name] for name in names] for row in rows], dtype=torch.float64)
    weights_of_names = regress(values, torch.tensor(right, dtype=torch.float64), DECAY)
    return dict(zip(names, weights_of_names, strict=True))


def tell(kind: Kind, chosen: Sequence[tuple[JudgeWeights, Gap]]) -> str:
    """The quality of the choices for texts of the kind, and the certainties of those judged as such."""
    likeness = []
    pairs = []
    for weights, gap in chosen:
        similarity = gap.likeness[gap.choose(weights)]
        if gap.is_of(kind):
            likeness.append(similarity)
        if gap.is_judged_as(kind, weights if kind == "short" else shipped_weights("short")):
            first, *_ = weights.rank(gap.candidates)
            pairs.append((first.chance or 0.0, similarity == EXACT))
    sure = [is_right for chance, is_right in pairs if chance >= 0.5]
    calibration = calibrate(pairs)
    error = "-" if calibration is None else f"{calibration.error:.3f}"
    return f"{tell_likeness(likeness)}; of {len(pairs)} sure {len(sure)}, {sum(sure)} of them right, error {error}"


def tell_likeness(likeness: Sequence[float]) -> str:
    exact = np.mean(np.equal(likeness, EXACT))
    similar = np.mean(np.minimum(likeness, 1))
    return f"{100 * exact:.1f} % exact, {100 * similar:.1f} % similar"


if __name__ == "__main__":
    typer.run(main)
