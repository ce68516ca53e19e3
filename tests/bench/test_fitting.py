"""What the proposer of lines weighs, fitted on lines that are known."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.quality import fitting
from bench.quality.fitting import Ranked, fit_ranking, judge, open_line, read_lines, tell
from midfill_infill.proposals.counts import Counts, Weights
from midfill_infill.proposals.features import CANDIDATE, NONE
from midfill_infill.proposals.table import DEPTH

BLOCK = "def f{0}(self):\n    value = self.read({0})\n    check(value)\n    return value\n\n\n"


def write_lines(path: Path, packages: list[str]) -> Path:
    """Lines that stand in every block, and one that is new."""
    rows = []
    for package in packages:
        text = "".join(BLOCK.format(f"{package}{index}") for index in range(6))
        for index in range(6):
            for wanted in ("check(value)", "return value", f"value = self.read({package}{index})"):
                start = text.index(wanted, text.index(f"def f{package}{index}("))
                end = start + len(wanted)
                rows.append({"package": package, "prefix": text[:start], "middle": wanted, "suffix": text[end:]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_fitted_weights_find_what_is_right_in_packages_they_never_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fitting, "STEPS", 10)
    gaps = write_lines(tmp_path / "gaps", ["ape", "bee"])
    lines = write_lines(tmp_path / "lines", ["cat", "dog", "eel", "fox", "gnu"])
    found = fitting.fit(gaps, lines, tmp_path / "out")
    kept = Weights.of(json.loads((tmp_path / "out").read_text()))
    assert kept.to_json() == found.to_json() and len(kept.forward) == DEPTH
    assert "90 lines of packages left out" in capsys.readouterr().out
    counts = Counts(kept)
    new = read_lines(write_lines(tmp_path / "new", ["hen"]), None)
    known = [line for line in new if "read" not in line.middle]
    firsts = [open_line(counts, line).propose(0, line.gap)[0] for line in known]
    assert [first.text for first in firsts] == [line.middle for line in known]
    assert min(first.certainty for first in firsts) > 0.4


@pytest.mark.parametrize("column", [0, 7])
def test_the_column_that_decides_gets_the_weight(column: int) -> None:
    rng = np.random.default_rng(column)
    ranked = []
    for _ in range(60):
        table = rng.normal(size=(5, len(CANDIDATE)))
        ranked.append(Ranked("p", True, table, rng.normal(size=len(NONE)), int(np.argmax(table[:, column]))))
    candidate, none = fit_ranking(ranked, num_units=0)
    assert int(np.argmax(np.abs(candidate.linear))) == column and candidate.linear[column] > 1
    weights = Weights((), (), candidate, none, 1.0, 0.0)
    assert np.mean([judge(weights, each)[1] for each in ranked]) > 0.9


def test_sure_lines_are_told() -> None:
    pairs = [(0.9, True), (0.8, True), (0.6, False), (0.2, False)]
    assert tell(pairs) == (
        "4 lines of packages left out of the fit: 75.0 % with certainty 0.5 and more, of which 66.7 % right;"
        " 75% right from 0.8"
    )
