"""What proposers weigh, fitted on gaps that are known."""

import json
import random
from pathlib import Path

import pytest

from bench.quality import fitting
from bench.quality.fitting import Ranked, fit_logit, judge, tell
from midfill_infill.proposals.lines import Scene, weigh
from midfill_infill.proposals.weights import ProposalWeights

BLOCK = "def f{0}(self):\n    value = self.read({0})\n    check(value)\n    return value\n\n\n"


def write_gaps(path: Path, packages: list[str]) -> Path:
    """Lines that stand in every block, and one that is new."""
    rows = []
    for package in packages:
        text = "".join(BLOCK.format(f"{package}{index}") for index in range(6))
        for index in range(6):
            for wanted in ("check(value)", "return value", f"value = self.read({package}{index})"):
                start = text.index(wanted, text.index(f"def f{package}{index}("))
                sides = {"prefix": text[:start], "middle": wanted, "suffix": text[start + len(wanted) :]}
                row = {"id": f"{package}/{len(rows)}", "group": f"{package}/{len(rows)}.py", "kind": "single"}
                rows.append({**row, "language": "python", **sides, "references": []})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_fitted_weights_find_what_is_right_in_packages_they_never_saw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = write_gaps(tmp_path / "gaps.jsonl", ["ape", "bee", "cat", "dog", "eel", "fox", "gnu"])
    fitting.main(gaps, tmp_path / "out")
    assert "126 lines of packages left out" in capsys.readouterr().out
    kept = ProposalWeights(**json.loads((tmp_path / "out").read_text()))
    text = "".join(BLOCK.format(f"hen{index}") for index in range(6))
    start = text.index("check(value)", text.index("def fhen4"))
    candidates, shares = weigh(Scene.between([text[:start], text[start + len("check(value)") :]], 0, ()), kept)
    share, best = max(zip(shares, (each.text for each in candidates), strict=True))
    assert best == "check(value)" and share > 0.4
    assert [least for least, _ in kept.siblings] == sorted(fitting.LIKENESS, reverse=True) and kept.body_odds <= 1


@pytest.mark.parametrize("column", ["a", "c"])
def test_the_column_that_decides_gets_the_weight(column: str) -> None:
    rng, ranked = random.Random(column), []
    for _ in range(60):
        rows = [{name: rng.gauss(0, 1) for name in "abcd"} for _ in range(5)]
        right = max(range(5), key=lambda index: rows[index][column])
        ranked.append(Ranked("p", True, rows, {"one": 1.0, "x": rng.gauss(0, 1)}, right))
    weights = fit_logit(ranked)
    assert max(weights.line, key=lambda name: abs(weights.line[name])) == column and weights.line[column] > 1
    assert sum(judge(weights, each)[1] for each in ranked) > 54


def test_the_report_of_a_fit_counts_sure_lines() -> None:
    pairs = [(0.9, True), (0.8, True), (0.6, False), (0.2, False)]
    assert tell(pairs) == (
        "4 lines of packages left out of the fit, the first right in 50.0 %: 75.0 % with certainty 0.5 and more, of"
        " which 66.7 % right; 75% right from 0.8"
    )
