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
from bench.quality.judging import EXACT, SEED, compare, write_weights
from bench.quality.kept import read_rows
from bench.quality.product import describe_fills
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
    if len(suites) != len(keep):
        raise typer.BadParameter("give one --keep for each suite")
    told = [fill for suite, folder in zip(suites, keep, strict=True) for fill in read_told(suite, folder, kind)]
    unseen = []
    for fold in range(NUM_FOLDS):
        scaling = fit([fill for fill in told if fold_of(fill.package) != fold])
        unseen += [(scaling, fill) for fill in told if fold_of(fill.package) == fold]
    origin = find_origin(None, "none", 1.0)
    scaling = fit(told)
    figures = {
        "date": origin.date,
        "commit": origin.commit,
        "fills": len(told),
        "packages": len({fill.package for fill in told}),
        "now": measure([(Scaling(), fill) for fill in told]),
        "scaled in other packages": measure(unseen),
        **asdict(scaling),
    }
    print(json.dumps(figures, indent=1))
    if record is not None:
        record.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    weights = json.loads(PATH.read_text(encoding="utf-8"))[kind]
    for name in ODDS:
        weights[name] *= scaling.scale
    weights["one"] += scaling.offset
    write_weights(out, kind, weights)


def read_told(path: Path, folder: Path, kind: Literal["line", "inside"]) -> Iterator[Told]:
    suite = read_suite(path)
    fills = folder / "as shipped.jsonl"
    if not fills.exists():
        weights = shipped_weights(kind)
        for gap in compare(kind, suite.tasks, folder, BASE, {**describe_fills(BASE, suite), "seed": SEED}):
            if gap.candidates:
                chance = weights.rank(gap.candidates)[0].chance or 0.0
                yield Told(gap.package, odds_of(chance), gap.likeness[gap.choose(weights)] == EXACT)
        return
    tasks = {task.id: task for task in suite.tasks}
    _, rows = read_rows(fills)
    for row in rows:
        task = tasks.get(row["id"])
        if task is not None and row["certainty"] is not None:
            is_right = row["text"].strip() == task.middle.strip()
            yield Told(package_of(task), odds_of(row["certainty"]), is_right)


def odds_of(chance: float) -> float:
    """ln odds."""
    return math.log(max(chance, LEAST) / max(1 - chance, LEAST))


def fit(told: Sequence[Told]) -> Scaling:
    """The maximum-likelihood scaling."""
    odds = torch.tensor([fill.odds for fill in told], dtype=torch.float64)
    right = torch.tensor([float(fill.is_right) for fill in told], dtype=torch.float64)
    return Scaling(*regress(torch.stack((odds, torch.ones_like(odds)), dim=1), right))


def measure(scaled: Sequence[tuple[Scaling, Told]]) -> dict[str, float]:
    """The share of fills with a certainty of SURE or more, how many are right, both in %, and the calibration error."""
    pairs = [(scaling.chance(fill), fill.is_right) for scaling, fill in scaled]
    sure = [is_right for chance, is_right in pairs if chance >= SURE]
    calibration = calibrate(pairs)
    return {
        "sure": round(100 * len(sure) / len(pairs), 1),
        "right": round(100 * sum(sure) / max(1, len(sure)), 1),
        "error": 0.0 if calibration is None else calibration.error,
    }


if __name__ == "__main__":
    typer.run(main)
