"""What the command says of how sure a fill is: a word, a number, and a sentence where the model that ships guesses."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from midfill_infill.candidates import BODY_ODDS, LIKELY, SURE, name_certainty
from midfill_infill.cli import build_app
from midfill_infill.cli.results import DEMONSTRATOR

Answer = Callable[..., None]


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.py").write_text("def add(a, b):\n    ...\n")


def fill(*words: str) -> tuple[str, str]:
    result = CliRunner().invoke(build_app(), ["fill", "t.py", "--hole", "2:5-2:8", *words])
    assert result.exit_code == 0
    return result.stdout, result.stderr


def test_words_go_by_thresholds() -> None:
    named = [name_certainty(certainty) for certainty in (0.0, LIKELY - 0.01, LIKELY, SURE - 0.01, SURE, 1.0)]
    assert named == ["a guess"] * 2 + ["likely"] * 2 + ["sure"] * 2


@pytest.mark.parametrize("certainty, said", [(0.9, "sure (90%)"), (0.6, "likely (60%)"), (0.04, "a guess (4%)")])
def test_diff_and_json_say_how_sure_it_is(answer: Answer, certainty: float, said: str) -> None:
    answer(certainty=certainty, model=DEMONSTRATOR)
    out, err = fill()
    assert out.splitlines()[0].endswith(f"replaced by 1, {said}")
    assert ("unsure" in err) is (certainty < LIKELY) and err.count("\n") == ("unsure" in err)
    out, err = fill("--json")
    assert json.loads(out)["holes"][0]["certainty"] == certainty
    assert ("unsure" in err) is (certainty < LIKELY)


def test_of_a_whole_body_it_is_less_sure(answer: Answer) -> None:
    answer(certainty=0.9, model=DEMONSTRATOR)
    result = CliRunner().invoke(build_app(), ["fill", "t.py", "--function", "add", "--json"])
    certainty = json.loads(result.stdout)["holes"][0]["certainty"]
    assert certainty / (1 - certainty) == pytest.approx(9 * BODY_ODDS, rel=0.02)


def test_an_engine_that_does_not_say_changes_nothing(answer: Answer) -> None:
    answer(model=DEMONSTRATOR)
    out, err = fill()
    assert out.splitlines()[0].endswith("replaced by 1") and err == ""
    assert json.loads(fill("--json")[0])["holes"][0]["certainty"] is None


def test_of_other_models_no_sentence_is_made(answer: Answer) -> None:
    answer(certainty=0.1, model="Dream-org/Dream-v0")
    out, err = fill()
    assert "a guess (10%)" in out and err == ""


def test_the_demonstrator_is_the_model_that_ships() -> None:
    config = Path(__file__).parents[2] / "engine/midfill_engine/weights/embedded/config.json"
    assert DEMONSTRATOR in json.loads(config.read_text()).values()
