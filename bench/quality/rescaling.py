"""`python -m bench quality.rescaling SUITES --keep FOLDER`: makes certainties agree with what was right.

Reads the fills that `quality.proposals` kept, or the candidates that `quality.judging` did, fits a scale and an offset
of their ln odds (Platt 1999) and applies both to the odds of the engine's weights of one kind. What is chosen stays the
same. Knows no engine.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import torch
import typer

from bench.quality.calibration import calibrate
from bench.quality.fitting import NUM_FOLDS, SURE, fold_of, package_of, regress
from bench.quality.judging import EXACT, compare
from bench.quality.report import find_origin
from bench.quality.suite import read_suite
from midfill_engine.judging import PATH, shipped_weights
from midfill_engine.wire import BASE

ODDS: Final = "ahead", "likely", "proposed", "one"
LEAST: Final = 1e-6


@dataclass(frozen=True)
class Told:
    """A fill of a package: its certainty as log odds, and whether it was right."""

    package: str
    odds: float
    is_right: bool


@dataclass(frozen=True)
class Scaling:
    """ln odds -> `scale` * ln odds + `offset`."""

    scale: float = 1.0
    offset: float = 0.0

    def chance(self, told: Told) -> float:
        return 1 / (1 + math.exp(-self.scale * told.odds - self.offset))


def main(
    suites: Annotated[list[Path], typer.Argument(help="As bench.quality.lines writes them, with --inside for inside.")],
    keep: Annotated[list[Path], typer.Option(help="For each suite the folder of its fills.")],
    kind: Annotated[
        Literal["line", "inside"], typer.Option(help="The weights to change: of a line, or inside.")
    ] = "line",
    out: Annotated[Path, typer.Option(help="The file of weights.")] = PATH,
    record: Annotated[Path | None, typer.Option(help="A JSON file for the figures.")] = None,
) -> None:
    """Prints how good certainties are as they are, and scaled by the fills of other packages."""
    told = [each for suite, folder in zip(suites, keep, strict=True) for each in read_told(suite, folder, kind)]
    unseen = []
    for fold in range(NUM_FOLDS):
        scaling = fit([each for each in told if fold_of(each.package) != fold])
        unseen += [(scaling, each) for each in told if fold_of(each.package) == fold]
    found = fit(told)
    figures = {
        **{name: value for name, value in asdict(find_origin(None, "none", 1.0)).items() if name in ("date", "commit")},
        "fills": len(told),
        "packages": len({each.package for each in told}),
        "now": measure([(Scaling(), each) for each in told]),
        "scaled in other packages": measure(unseen),
        **asdict(found),
    }
    print(json.dumps(figures, indent=1))
    if record is not None:
        record.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    known = json.loads(PATH.read_text(encoding="utf-8"))
    scaled = known[kind] | {name: found.scale * known[kind][name] for name in ODDS}
    scaled["one"] += found.offset
    rounded = {name: round(value, 3) for name, value in scaled.items()}
    out.write_text(json.dumps({**known, kind: rounded}, indent=1) + "\n", encoding="utf-8")


def read_told(suite: Path, folder: Path, kind: Literal["line", "inside"]) -> Iterator[Told]:
    tasks, fills = {task.id: task for task in read_suite(suite).tasks}, folder / "as shipped.jsonl"
    if not fills.exists():
        weights = shipped_weights(kind)
        for gap in compare(kind, [*tasks.values()], folder, BASE):
            if gap.candidates:
                chance = weights.rank(gap.candidates)[0].chance or 0.0
                yield Told(gap.package, odds_of(chance), gap.likeness[gap.choose(weights)] == EXACT)
        return
    for row in fills.read_text(encoding="utf-8").splitlines():
        identity, text, certainty, *_ = json.loads(row)
        if identity in tasks and certainty is not None:
            is_right = text.strip() == tasks[identity].middle.strip()
            yield Told(package_of(tasks[identity]), odds_of(certainty), is_right)


def odds_of(chance: float) -> float:
    """ln odds."""
    return math.log(max(chance, LEAST) / max(1 - chance, LEAST))


def fit(told: Sequence[Told]) -> Scaling:
    """The maximum-likelihood scaling."""
    odds = torch.tensor([each.odds for each in told], dtype=torch.float64)
    right = torch.tensor([float(each.is_right) for each in told], dtype=torch.float64)
    return Scaling(*regress(torch.stack((odds, torch.ones_like(odds)), dim=1), right))


def measure(scaled: Sequence[tuple[Scaling, Told]]) -> dict[str, float]:
    """The share of fills with a certainty of SURE or more, how many are right, both in %, and the calibration error."""
    pairs = [(scaling.chance(each), each.is_right) for scaling, each in scaled]
    sure, found = [is_right for chance, is_right in pairs if chance >= SURE], calibrate(pairs)
    return {
        "sure": round(100 * len(sure) / len(pairs), 1),
        "right": round(100 * sum(sure) / max(1, len(sure)), 1),
        "error": 0.0 if found is None else found.error,
    }


if __name__ == "__main__":
    typer.run(main)
