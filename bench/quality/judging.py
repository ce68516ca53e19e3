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
from bench.quality.proposals import Local, by_product
from bench.quality.suite import Task, read_suite
from midfill_engine.judging import PATH, Candidate, JudgeWeights, shipped_weights
from midfill_engine.loading.runtime import load_runtime
from midfill_engine.wire import BASE, InfillRequest, InfillResponse, StepEvent
from midfill_infill.engines.client import EngineClient

Kind = Literal["line", "inside", "short", "body"]
LINES: Final = "line", "inside"
BODY_LENGTHS: Final = (0.2, 0.4, 0.6, 0.8, 1.0)
SHORT: Final = 2  # filled lines of a short body at most
SHARES: Final = (0.0, 0.001, 0.01, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0)
FOLLOWS: Final = (0.5, 0.7, 0.85, 1.0)
NAMED: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 12.0)
USED: Final = (0.0, 2.0, 4.0, 7.0)
BODY_AGREE: Final = (0.0, 2.0, 4.0, 8.0, 16.0)
DECAY: Final = 0.01
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
    seed: int = 5,
    model: Annotated[str, typer.Option(help="A known model, or a checkpoint's folder.")] = BASE,
) -> None:
    """Fits one kind; prints what the weights of now choose, and fitted ones in packages that they did not see."""
    torch.set_num_threads(1)
    tasks = read_suite(suite).tasks
    drawn = list(islice(bodies.draw(tasks, seed, range(1, 11)) if kind not in LINES else tasks, limit))
    gaps = [gap for gap in compare(kind, drawn, keep, model) if gap.candidates]
    now, best = shipped_weights(kind), [max(gap.likeness) for gap in gaps if gap.is_of(kind)]
    print(
        f"{len(gaps)} gaps of {len({gap.package for gap in gaps})} packages; the best candidate: {tell_likeness(best)}"
    )
    print(f"now: {tell(kind, [(now, gap) for gap in gaps])}")
    unseen = []
    for fold in range(NUM_FOLDS):
        fitted = fit(kind, [gap for gap in gaps if fold_of(gap.package) != fold])
        unseen += [(fitted, gap) for gap in gaps if fold_of(gap.package) == fold]
    print(f"fitted, in other packages: {tell(kind, unseen)}")
    found = fit(kind, gaps)
    print(f"fitted: {tell(kind, [(found, gap) for gap in gaps])}")
    known = json.loads(PATH.read_text(encoding="utf-8"))
    rounded = {name: round(value, 3) for name, value in asdict(found).items()}
    out.write_text(json.dumps({**known, kind: rounded}, indent=1) + "\n", encoding="utf-8")


class Recorder(Local):
    """An engine in this process that remembers its first answer."""

    seen: InfillResponse | None = None

    def infill(self, request: InfillRequest) -> Iterator[StepEvent | InfillResponse]:
        for message in super().infill(request):
            if isinstance(message, InfillResponse) and self.seen is None:
                self.seen = message
            yield message


def compare(kind: Kind, tasks: Sequence[Task], keep: Path, model: str) -> Iterator[Gap]:
    """The candidates that the product's engine compares for each task."""
    runtime, path = load_runtime(model, "cpu"), keep / f"{kind if kind in LINES else 'body'}.jsonl"
    keep.mkdir(parents=True, exist_ok=True)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    known = {identity: values for identity, values in map(json.loads, lines)}
    for task in tasks:
        if task.id not in known:
            recorder = Recorder(runtime)
            client = cast(EngineClient, recorder)
            by_product(client, task) if kind in LINES else bodies.write(client, {}, task)
            known[task.id] = [] if recorder.seen is None else list(list_compared(recorder.seen))
            with path.open("a", encoding="utf-8") as rows:
                rows.write(json.dumps([task.id, known[task.id]]) + "\n")
        listed = []
        for text, nats, following, certainty, names, used in known[task.id]:
            tokens = runtime.loaded.tokenizer.encode(text)
            listed.append(Candidate(text, nats, following, certainty, (("", 0.0),) * len(tokens), names, used))
        likeness = tuple(liken(each.text, task.middle) for each in listed)
        yield Gap(package_of(task), tuple(listed), likeness, bodies.count_lines(task.middle) <= SHORT)


def list_compared(answer: InfillResponse) -> Iterator[tuple[str, float, float, float, int, int]]:
    """Text, log-likelihood, that of the following text, the proposer's certainty, needed names, unused ones."""
    for each in answer.candidates[0]:
        if each.log_likelihood is not None:
            yield each.text, each.log_likelihood, each.following or 0.0, each.proposed, each.names, each.unused


def liken(text: str, truth: str) -> float:
    """2 if both are equal except for surrounding white space, otherwise their similarity in [0, 1]."""
    first, second = text.strip(), truth.strip()
    return EXACT if first == second else SequenceMatcher(None, first, second, autojunk=False).ratio()


def fit(kind: Kind, gaps: Sequence[Gap]) -> JudgeWeights:
    """Finds on a grid the scores that choose the most similar texts (exact ones count twice); then fits the odds."""
    lengths, agree = ((0.0,), (0.0,)) if kind in LINES else (BODY_LENGTHS, BODY_AGREE)
    named = NAMED if kind in LINES else (0.0,)
    ways = [
        replace(shipped_weights(kind), length=length, share=share, follows=follows, agree=weight, named=name, used=use)
        for length, share, follows, weight, name, use in product(lengths, SHARES, FOLLOWS, agree, named, USED)
    ]
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
    return dict(zip(names, regress(values, torch.tensor(right, dtype=torch.float64), DECAY), strict=True))


def tell(kind: Kind, chosen: Sequence[tuple[JudgeWeights, Gap]]) -> str:
    """The quality of the choices for texts of the kind, and the certainties of those judged as such."""
    likeness = [gap.likeness[gap.choose(weights)] for weights, gap in chosen if gap.is_of(kind)]
    pairs = []
    for weights, gap in chosen:
        if gap.is_judged_as(kind, weights if kind == "short" else shipped_weights("short")):
            first, *_ = weights.rank(gap.candidates)
            pairs.append((first.chance or 0.0, gap.likeness[gap.choose(weights)] == EXACT))
    sure = [is_right for chance, is_right in pairs if chance >= 0.5]
    found = calibrate(pairs)
    error = "-" if found is None else f"{found.error:.3f}"
    return f"{tell_likeness(likeness)}; of {len(pairs)} sure {len(sure)}, {sum(sure)} of them right, error {error}"


def tell_likeness(likeness: Sequence[float]) -> str:
    exact = np.mean([each == EXACT for each in likeness])
    return f"{100 * exact:.1f} % exact, {100 * np.mean(np.minimum(likeness, 1)):.1f} % similar"


if __name__ == "__main__":
    typer.run(main)
