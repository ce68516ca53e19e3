"""`midfill fill --until`: what is refused before the first try, what a try says, what is written."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from tests.cli.fake_engine import read_record, read_report
from tests.until.shops import PYTEST, SHOP, UNITTEST, needs_bubblewrap
from typer.testing import CliRunner

from midfill_infill.cli import build_app

Answer = Callable[..., None]
RIGHT = "return price - price * rate / 100"
pytestmark = needs_bubblewrap


def fill(*words: str, until: str = PYTEST) -> Result:
    return CliRunner().invoke(build_app(), ["fill", "shop.py", "--until", until, *words])


def test_the_first_that_passes_is_the_fill(shop: Path, answer: Answer) -> None:
    answer(rows=[["return price * rate"], ["return price - rate"], [RIGHT]], certainty=0.5)
    result = fill()
    assert result.exit_code == 0 and "+    return price - rate\n" in result.stdout
    assert result.stdout.startswith("# try 2 of 2: passed\n")
    first, second = result.stderr.splitlines()
    assert first.startswith("try 1   failed") and "return price * rate  # assert 1000 == 90" in first and " s " in first
    assert second.startswith("try 2   passed") and "return price - rate" in second and "likely (exact in 50%)" in second
    assert (shop / "shop.py").read_text() == SHOP, "nothing is written unasked"


def test_write_writes_what_passed(shop: Path, answer: Answer) -> None:
    answer(rows=[["return rate"], [RIGHT]], certainty=0.01)
    assert fill("--write").exit_code == 0
    assert (shop / "shop.py").read_text() == SHOP.replace("...", RIGHT)


def test_where_none_passes_the_best_is_marked_and_nothing_written(shop: Path, answer: Answer) -> None:
    (shop / "tests/test_more.py").write_text("import shop\n\ndef test_low():\n    assert shop.discount(1, 1) == 1\n")
    answer(rows=[["return rate"], ["return price * rate"], ["return 1"]])
    result = fill("--write", until=PYTEST)
    assert result.exit_code == 7 and (shop / "shop.py").read_text() == SHOP
    assert result.stdout.startswith("# try 1 of 4: failed, 2 tests pass, the best of them\n")
    advice = "there are no other candidates, so give a larger --model"
    assert f"midfill: none of 4 tries passes: `{PYTEST}`; {advice}.\n" in result.stderr
    result = fill("--tries", "2", until=PYTEST)
    assert f"midfill: none of 2 tries passes: `{PYTEST}`; give more --tries, or a larger --model.\n" in result.stderr


def test_json_has_all_tries(shop: Path, answer: Answer) -> None:
    answer(rows=[["return rate"], [RIGHT]], certainty=0.5)
    report = read_report(fill("--json").stdout)
    assert report.passes is True and report.tries is not None and not report.written
    assert [(each.verdict, each.tests_passed, each.code) for each in report.tries] == [
        ("failed", 1, 1),
        ("passed", 2, 0),
    ]
    assert report.tries[0].reason is not None and report.tries[0].reason.startswith("assert 10 == 90")
    assert report.tries[0].texts == ["return rate"] and report.tries[0].is_warm and report.tries[0].seconds > 0
    failed = fill("--json", "--tries", "1")
    assert failed.exit_code == 7 and json.loads(failed.stdout)["passes"] is False


def test_tries_are_counted(shop: Path, answer: Answer) -> None:
    answer(rows=[[f"return {number}"] for number in range(8)])
    assert fill("--tries", "5").stderr.count("failed") == 5


def test_a_command_that_passes_without_a_fill_is_refused(shop: Path, answer: Answer) -> None:
    result = fill(until="true")
    assert result.exit_code == 2 and "`true` passes already, without a fill; give a command that fails" in result.stderr


@pytest.mark.parametrize("line", ["nowhere-at-all -q", "cd . && nowhere-at-all", "./shop.py"])
def test_a_command_that_cannot_be_run_is_named(shop: Path, answer: Answer, line: str) -> None:
    result = fill(until=line)
    assert result.exit_code == 2 and "cannot be run; give another command." in result.stderr


def test_an_import_error_elsewhere_is_said(shop: Path, answer: Answer) -> None:
    (shop / "tests/test_shop.py").write_text(
        "import nowhere_at_all\nimport shop\n\ndef test_a(): shop.discount(1, 1)\n"
    )
    result = fill()
    assert result.exit_code == 2
    assert "fails before it comes to discount: ModuleNotFoundError: No module named 'nowhere_at_all'" in result.stderr
    assert fill(until=f"{sys.executable} -c 'import nowhere_at_all'").exit_code == 2
    compiled = fill(until="echo 'a.ts(3,5): error TS2322: no type'; echo 'Found 1 error.'; exit 2")
    assert "fails before it comes to discount: TS2322: no type" in compiled.stderr


def test_a_test_that_fails_without_coming_here_is_said(shop: Path, answer: Answer) -> None:
    (shop / "tests/test_more.py").write_text("import shop\n\ndef test_sum():\n    assert shop.total([1]) == 2\n")
    result = fill()
    assert result.exit_code == 2
    assert "fails in tests/test_more.py::test_sum, which does not come to discount: assert 1 == 2" in result.stderr


def test_a_test_that_catches_everything_still_comes_here(shop: Path, answer: Answer) -> None:
    caught = "def test_a():\n    try:\n        got = shop.discount(9, 0)\n    except Exception:\n        got = None\n"
    (shop / "tests/test_shop.py").write_text(f"import shop\n\n{caught}    assert got == 9\n")
    answer(rows=[[RIGHT]])
    assert fill().exit_code == 0


def test_a_flaky_command_is_refused(shop: Path, answer: Answer) -> None:
    (shop / "check.py").write_text("import os\nassert os.urandom(1)[0] > 127\n")
    for _ in range(20):
        if "of 2 times without a fill; make it deterministic first" in (result := fill(until=UNITTEST)).stderr:
            assert result.exit_code == 5
            return
    raise AssertionError("a coin fell alike in 20 pairs of throws")


def test_a_pass_that_does_not_repeat_is_none(shop: Path, answer: Answer, tmp_path: Path) -> None:
    """Runs 1 and 2 are of the tree as it is, 3 looks who comes here, 4 passes."""
    answer(rows=[[RIGHT]])
    runs = tmp_path / "runs"
    runs.mkdir()
    count = f"import os, shop\nn = len(os.listdir({str(runs)!r}))\nopen(f'{runs}/{{n}}', 'w')\n"
    (shop / "check.py").write_text(f"{count}assert shop.discount(100, 10) == 90 and n < 4\n")
    result = fill("--no-sandbox", until=UNITTEST)
    assert result.exit_code == 5 and "passes and fails with the same fill" in result.stderr
    assert "without a sandbox: the command, and every fill it runs, can do whatever you can" in result.stderr


def test_a_try_is_ended_after_its_time(shop: Path, answer: Answer) -> None:
    answer(rows=[["while price:\n        pass"], [RIGHT]])
    result = fill("--command-timeout", "4")
    assert result.exit_code == 0 and "try 1   too slow" in result.stderr


def test_any_command_will_do(shop: Path, answer: Answer) -> None:
    answer(rows=[["return rate / 0"], [RIGHT]])
    result = fill(until=UNITTEST)
    assert result.exit_code == 0 and "# ZeroDivisionError: division by zero" in result.stderr
    assert fill(until=f"cd . && {UNITTEST}").exit_code == 0


def test_env_and_allow_are_as_in_verify(
    shop: Path, answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SETTING", "x")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "price").write_text("90")
    read = f"import os, shop\nprice = int(open('{tmp_path}/data/price').read())\n"
    (shop / "check.py").write_text(f"{read}assert shop.discount(100, 10) == price\nos.environ['MY_SETTING']\n")
    answer(rows=[[RIGHT]])
    assert "FileNotFoundError" in fill(until=UNITTEST).stderr
    assert "KeyError" in fill("--allow", str(tmp_path / "data"), until=UNITTEST).stderr
    words = ("--env", "MY_SETTING", "--allow", str(tmp_path / "data"))
    result = fill(*words, "--env", "NOT_SET", "--env", "OWN=1", until=UNITTEST)
    assert result.exit_code == 0 and re.findall("--env .*", result.stderr) == [
        "--env NOT_SET: the variable is not set, so the command does not get it"
    ]


def test_the_command_runs_in_the_users_working_directory(
    shop: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=shop, check=True)
    monkeypatch.chdir(shop / "tests")
    (shop / "tests/run.py").write_text("import sys\nsys.path[:0] = ['..']\nimport shop\nassert shop.discount(9, 0)\n")
    answer(rows=[[RIGHT]])
    result = CliRunner().invoke(build_app(), ["fill", "../shop.py", "--until", f"{sys.executable} run.py"])
    assert result.exit_code == 0, result.stderr


def test_several_holes_jointly_then_hole_by_hole(shop: Path, answer: Answer, tmp_path: Path) -> None:
    (shop / "shop.py").write_text(SHOP.replace("return sum(prices)", "..."))
    answer(rows=[[RIGHT, "return len(prices)"], ["return rate", "return sum(prices)"]])
    result = fill("--stubs", "--json")
    tries = read_report(result.stdout).tries
    assert result.exit_code == 0 and tries is not None
    assert sorted(each.texts for each in tries[:2]) == [["return price - price * rate / 100", "return len(prices)"],
                                                        ["return rate", "return sum(prices)"]]  # fmt: skip
    assert tries[-1].texts == [RIGHT, "return sum(prices)"] and len(tries) <= 4, "of each what did not fail"
    answer(rows=[[RIGHT, "return len(prices)"]], record=str(tmp_path / "record"))
    assert fill("--stubs").exit_code == 7
    holes = [
        [segment["hole"] for segment in entry["request"]["segments"] if "hole" in segment]
        for entry in read_record(tmp_path / "record")
    ]
    assert [len(each) for each in holes][:4] == [2, 1, 1, 2], "jointly, then one hole and the other, then again"


def test_the_line_at_fault_is_drafted_anew_while_the_rest_stays(shop: Path, answer: Answer, tmp_path: Path) -> None:
    wrong, right = "part = rate / 0\n    return price - rate", "part = rate / 100\n    return price - rate"
    answer(rows=[[wrong]], repaired=[[right]], record=str(tmp_path / "record"))
    result = fill()
    assert result.exit_code == 0 and result.stdout.startswith("# try 3 of 3: passed"), "behind what is like `total`"
    requests = [entry["request"] for entry in read_record(tmp_path / "record")]
    (hole,) = [segment["hole"] for segment in requests[1]["segments"] if "hole" in segment]
    assert hole["draft"] == wrong and [wrong[a:b] for a, b in hole["keep"]] == ["\n    return price - rate"]
    assert requests[1]["temperature"] > 0 and requests[1]["seed"] > 0 and requests[1]["n"] == 8


def test_what_tests_say_is_shown_to_the_model_and_in_no_fill(shop: Path, answer: Answer, tmp_path: Path) -> None:
    answer(rows=[[RIGHT]], record=str(tmp_path / "record"))
    result = fill()
    (first, *_) = [entry["request"] for entry in read_record(tmp_path / "record")]
    assert "# assert shop.discount(100, 10) == 90\n" in first["segments"][0]["text"]
    assert "assert" not in result.stdout


def test_the_bar_tells_of_drafts_and_of_tries(shop: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("midfill_infill.cli.until.can_draw", lambda _: True)
    monkeypatch.setattr("rich.progress.Progress.update", lambda bar, task, **told: said.append(told["description"]))
    answer(rows=[[RIGHT]])
    assert fill().exit_code == 0
    assert list(dict.fromkeys(said)) == ["drafts", "tries"]


def test_what_cannot_be_tested_is_said(shop: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, said in (
        (("--until", ""), "the command is empty"),
        (("--until", "'"), "is not a command"),
        (("--until", "true", "--take", "1"), "leave out --take"),
        (("--until", "true", "--allow", "/nowhere"), "/nowhere does not exist"),
    ):
        result = CliRunner().invoke(build_app(), ["fill", "shop.py", *words])
        assert result.exit_code in (2, 3) and said in result.stderr, words
    result = CliRunner().invoke(build_app(), ["fill", "-", "--until", "true"], input=SHOP)
    assert result.exit_code == 2
    monkeypatch.setenv("HOME", str(shop))
    assert "is not a project" in fill().stderr


@pytest.mark.usefixtures("no_bubblewrap")
def test_without_bubblewrap_it_must_be_said(shop: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fill().exit_code == 5 and "give --no-sandbox" in fill().stderr
    answer(rows=[[RIGHT]])
    assert fill("--no-sandbox").exit_code == 0
    subprocess.run(["git", "init", "-q"], cwd=shop, check=True)
    monkeypatch.chdir(shop / "tests")
    result = CliRunner().invoke(build_app(), ["fill", "../shop.py", "--no-sandbox", "--until", f"cd .. && {UNITTEST}"])
    assert result.exit_code == 0, result.stderr
