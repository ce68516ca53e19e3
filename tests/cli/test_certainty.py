"""What the command says of how sure a fill is: a word, a number, and a sentence if the model that ships is unsure."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from midfill_infill.cli import build_app
from midfill_infill.cli.results import DEMONSTRATOR
from midfill_infill.filling import written
from midfill_infill.filling.candidates import LIKELY, SURE, describe_certainty
from midfill_infill.proposals import Proposal

Answer = Callable[..., None]


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.py").write_text("def add(a, b):\n    ...\n")


def fill(*words: str) -> tuple[str, str]:
    result = CliRunner().invoke(build_app(), ["fill", "t.py", "--hole", "2:5-2:8", *words])
    assert result.exit_code == 0
    return result.stdout, result.stderr


def fill_lines(words: list[str]) -> str:
    return CliRunner().invoke(build_app(), words).stdout


def test_words_go_by_thresholds() -> None:
    named = [
        describe_certainty(certainty, is_suggestion=True)
        for certainty in (0.0, LIKELY - 0.01, LIKELY, SURE - 0.01, SURE, 1.0)
    ]
    assert [name.partition(" (")[0] for name in named] == ["a suggestion"] * 2 + ["likely"] * 2 + ["sure"] * 2
    assert describe_certainty(0.04, is_suggestion=False) == "exact in 4%"
    assert describe_certainty(None, is_suggestion=True) == ""
    assert describe_certainty(0.62, is_suggestion=False) == "likely (exact in 62%)"


@pytest.mark.parametrize(
    "certainty, said",
    [(0.9, "sure (exact in 90%)"), (0.6, "likely (exact in 60%)"), (0.04, "a suggestion (exact in 4%)")],
)
def test_diff_and_json_say_how_sure_it_is(answer: Answer, certainty: float, said: str) -> None:
    answer(certainty=certainty, model=DEMONSTRATOR)
    out, err = fill()
    assert out.splitlines()[0].endswith(f"replaced by 1, {said}")
    assert ("unsure" in err) is (certainty < LIKELY) and err.count("\n") == ("unsure" in err)
    out, err = fill("--json")
    assert json.loads(out)["holes"][0]["certainty"] == certainty
    assert ("unsure" in err) is (certainty < LIKELY)


def test_an_engine_that_does_not_say_changes_nothing(answer: Answer) -> None:
    answer(model=DEMONSTRATOR)
    out, err = fill()
    assert out.splitlines()[0].endswith("replaced by 1") and err == ""
    assert json.loads(fill("--json")[0])["holes"][0]["certainty"] is None


def test_a_suggestion_of_another_model_adds_no_sentence_about_the_demonstrator(answer: Answer) -> None:
    answer(certainty=0.1, model="Dream-org/Dream-v0")
    out, err = fill()
    assert "a suggestion (exact in 10%)" in out and "drafted" not in out and err == ""


def test_a_fill_that_the_model_did_not_draft_says_where_it_comes_from(
    answer: Answer, set_proposals: Callable[..., None]
) -> None:
    set_proposals(Proposal("return a", 0.4, "like `total`"))
    answer(rows=[["return ("]], certainty=0.3)
    assert fill()[0].splitlines()[0].endswith("replaced by 1, a suggestion (exact in 40%), like `total`")
    assert json.loads(fill("--json")[0])["holes"][0]["origin"] == "like `total`"


def test_the_demonstrator_is_the_model_that_ships() -> None:
    config = Path(__file__).parents[2] / "engine/midfill_engine/weights/embedded/config.json"
    assert DEMONSTRATOR in json.loads(config.read_text()).values()


@pytest.mark.parametrize("way", [["--write"], ["--write", "--json"]])
def test_a_suggestion_is_shown_and_written_only_when_asked_for(answer: Answer, way: list[str]) -> None:
    answer(certainty=0.4)
    before = Path("t.py").read_text()
    words = ["fill", "t.py", "--hole", "2:5-2:8", *way]
    held = CliRunner().invoke(build_app(), words)
    assert held.exit_code == 6 and Path("t.py").read_text() == before and "return a + b" in held.stdout
    said = "1 of 1 fill not written: t.py:2 a suggestion (exact in 40%); give --min-certainty 0 to write it anyway"
    assert said in held.stderr
    assert CliRunner().invoke(build_app(), [*words, "--min-certainty", "0.41"]).exit_code == 6
    assert Path("t.py").read_text() == before
    written = CliRunner().invoke(build_app(), [*words, "--min-certainty", "0.4"])
    assert written.exit_code == 0 and "return a + b" in Path("t.py").read_text()


def test_a_filter_passes_on_no_suggestion(answer: Answer) -> None:
    answer(certainty=0.4)
    words = ["fill", "-", "--stdin-filename", "t.py", "--hole", "2:5-2:8"]
    source = Path("t.py").read_text()
    held = CliRunner().invoke(build_app(), words, input=source)
    assert (held.exit_code, held.stdout) == (6, "") and "--min-certainty 0" in held.stderr
    assert "return a + b" in CliRunner().invoke(build_app(), [*words, "--min-certainty", "0"], input=source).stdout


def test_of_several_fills_the_suggestions_alone_are_held_back(answer: Answer) -> None:
    Path("t.py").write_text("def f(a, b):\n    a = 1\n    b = 2\n")
    answer(rows=[["x = (", "b = a"]], compared=[[["a = b", 0.04]], []], certainty=0.9)
    words = ["fill", "t.py", "--hole", "2:5-2:10", "--hole", "3:5-3:10", "--write", "--json"]
    assert "t.py:2: 1 of 3 lines replaced by 1, a suggestion (exact in 4%)" in fill_lines(words[:-2])
    result = CliRunner().invoke(build_app(), words)
    assert result.exit_code == 6 and "1 of 2 fills not written: t.py:2 a suggestion (exact in 4%)" in result.stderr
    assert Path("t.py").read_text() == "def f(a, b):\n    a = 1\n    b = a\n"
    report = json.loads(result.stdout)
    assert [hole["origin"] for hole in report["holes"]] == ["drafted"] * 2
    assert report["written"] is True and [hole["written"] for hole in report["holes"]] == [False, True]


def test_what_was_written_unseen_is_a_suggestion_until_it_is_kept(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    answer(rows=[["return a + b"]], certainty=0.9)
    Path("u.py").write_text("def add(a, b):\n    ...\n")
    assert "sure (exact in 90%)" in fill("--write")[0] and "return a + b" in Path("t.py").read_text()
    assert "a suggestion (exact in 45%)" in fill_lines(["fill", "u.py:2"])
    written.forget(["return a + b"])
    assert "sure (exact in 90%)" in fill_lines(["fill", "u.py:2"])
