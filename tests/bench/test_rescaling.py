"""Certainties that are made to agree with what was right."""

import json
from pathlib import Path
from typing import Literal

import pytest

from bench.quality import rescaling
from bench.quality.rescaling import ODDS, Scaling, Told, fit, measure
from midfill_engine.judging import PATH


def make_told(odds: float, right: int, count: int = 100, package: str = "a") -> list[Told]:
    return [Told(package, odds, index < right) for index in range(count)]


def test_odds_that_are_too_small_are_stretched() -> None:
    """ln odds of 1 and -1, where 88 and 12 of 100 are right: those of 2 and -2."""
    told = make_told(1.0, 88) + make_told(-1.0, 12)
    scaling = fit(told)
    assert scaling.scale == pytest.approx(2.0, abs=0.02) and scaling.offset == pytest.approx(0.0, abs=1e-3)
    assert measure([(Scaling(), each) for each in told])["error"] == pytest.approx(0.149, abs=1e-3)
    assert measure([(scaling, each) for each in told]) == {"sure": 50.0, "right": 88.0, "error": 0.0}


@pytest.mark.parametrize("kind", ["line", "inside"])
def test_the_weights_of_one_kind_are_scaled_and_no_others(kind: Literal["line", "inside"], tmp_path: Path) -> None:
    rows: list[dict[str, str]] = []
    kept: list[dict[str, object]] = [{"of": {}}]
    for index in range(120):
        package = "abcdef"[index % 6]
        identity, is_right = f"{package}/{index}", index % 4 != 0
        sides = {"prefix": "a = 1\n", "middle": "b = 2", "suffix": "\n"}
        rows.append({"id": identity, "group": f"{package}/x.py", "kind": "single", "language": "python", **sides})
        made = {"text": "b = 2", "certainty": 0.6} if is_right else {"text": "c", "certainty": 0.4}
        kept.append({"id": identity, "cpu_ms": 1.0, **made})
    (tmp_path / "suite.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "as shipped.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    rescaling.main([tmp_path / "suite.jsonl"], [tmp_path], kind, tmp_path / "out", tmp_path / "record")
    before, after = json.loads(PATH.read_text()), json.loads((tmp_path / "out").read_text())
    record = json.loads((tmp_path / "record").read_text())
    assert record["scaled in other packages"]["error"] < record["now"]["error"]
    assert all(after[other] == before[other] for other in before if other != kind)
    assert {name for name in before[kind] if after[kind][name] != before[kind][name]} <= set(ODDS)
    assert after[kind]["ahead"] == pytest.approx(before[kind]["ahead"] * record["scale"], abs=1e-3)
