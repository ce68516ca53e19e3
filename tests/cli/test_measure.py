"""`midfill measure` with a scripted engine: the table, JSON, going on, ends, and files that stay as they are."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.fake_engine import Plan
from tests.infill.stand_in import serve
from typer.testing import CliRunner, Result

from midfill_engine.wire import ModelInfo
from midfill_infill.cli import build_app
from midfill_infill.cli.measure import open_model
from midfill_infill.filling import certainty
from midfill_infill.sandbox import copy
from midfill_infill.sandbox.mirror import Mirror
from midfill_infill.until.lab import Lab

SOURCE = '''def scale{n}(value):
    """Return the value."""
    total = value * {n}
    return total
'''


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    for number in range(12):
        (root / f"f{number}.py").write_text(SOURCE.format(n=number))
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return root


@pytest.fixture
def run(fake_command: Path, tree: Path) -> Callable[..., Result]:
    return lambda *words: CliRunner().invoke(build_app(), ["measure", *words])


def requests(path: Path) -> int:
    return sum("request" in json.loads(line) for line in path.read_text().splitlines()) if path.exists() else 0


def test_the_table_and_the_files_as_they_were(
    run: Callable[..., Result], tree: Path, set_plan: Callable[..., Plan]
) -> None:
    set_plan(rows=[["return total"]], certainty=0.6)
    before = {path.name: path.read_bytes() for path in tree.glob("*.py")}
    result = run("--model", "embedded", "--lines", "8", "--bodies", "4")
    assert result.exit_code == 0, result.output
    assert "embedded" in result.stdout and "no model" in result.stdout
    assert re.search(r"8 lines and 4 bodies of 1 to 12 lines in \d+ files", result.stdout)
    assert "embedded is the only one measured" in result.stdout
    assert {path.name: path.read_bytes() for path in tree.glob("*.py")} == before


def test_a_data_folder_that_cannot_be_written_is_told_in_one_sentence(
    run: Callable[..., Result], set_plan: Callable[..., Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_plan(rows=[["return total"]], certainty=0.6)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    result = run("--model", "embedded", "--lines", "1", "--bodies", "0")
    assert result.exit_code == 1
    assert "cannot be kept in" in result.output and "set XDG_DATA_HOME to another folder." in result.output


def test_json_holds_no_code(run: Callable[..., Result], set_plan: Callable[..., Plan], tmp_path: Path) -> None:
    set_plan(rows=[["return total"]])
    result = run("--model", "embedded", "--lines", "12", "--bodies", "0", "--json")
    told = json.loads(result.stdout)
    floor, model = told["models"]
    assert floor["is_floor"] and model["name"] == "embedded" and model["bodies"] is None
    assert model["lines"]["exact"]["of"] == 12 and 0 < model["lines"]["exact"]["percent"] < 100
    kept = "".join(path.read_text() for path in (tmp_path / "data").rglob("*.json*"))
    assert "total" not in kept + result.stdout and "scale" not in kept


def test_what_was_measured_today_is_not_filled_again(
    run: Callable[..., Result], set_plan: Callable[..., Plan], tmp_path: Path
) -> None:
    record = tmp_path / "record"
    set_plan(rows=[["return total"]], record=str(record))
    words = ("--model", "embedded", "--bodies", "0", "--lines")
    assert run(*words, "5").exit_code == 0
    first = requests(record)
    assert run(*words, "8").exit_code == 0
    assert requests(record) == first + 3 + 1  # the first gap shows which model answers
    assert run(*words, "8", "--again").exit_code == 0
    assert requests(record) == first + 3 + 1 + 8


def test_an_engine_is_as_sure_from_then_on_as_it_was_right(
    run: Callable[..., Result], set_plan: Callable[..., Plan], tree: Path
) -> None:
    set_plan(rows=[["return total"]])
    (tree / "empty.py").write_text("def f(value):\n    total = value\n\n    print(total)\n")
    fill = ["fill", "empty.py:3", "--json", "--model", "embedded"]
    before = json.loads(CliRunner().invoke(build_app(), fill).stdout)
    assert before["holes"][0]["certainty"] is None
    assert run("--model", "embedded", "--lines", "24", "--bodies", "0").exit_code == 0
    info = ModelInfo(
        id="fake", family="fake", parameters=1, device="cpu", dtype="", max_context_tokens=1, max_hole_tokens=1
    )
    assert certainty.load(info, "fake")["line"].count == 24
    after = json.loads(CliRunner().invoke(build_app(), fill).stdout)
    assert 0.2 < after["holes"][0]["certainty"] < 0.9


def test_the_texts_of_lines_are_judged_by_fitted_weights_from_then_on(
    run: Callable[..., Result], set_plan: Callable[..., Plan], tree: Path, tmp_path: Path
) -> None:
    for number in range(12, 24):
        (tree / f"f{number}.py").write_text(SOURCE.format(n=number))
    record = tmp_path / "record"
    set_plan(
        rows=[["value.x"]],
        compared=[[("value.x", 0.1), ("return total", 0.1)]],
        likelihoods={"value.x": (-5.0, -1.0), "return total": (-3.0, -9.0)},
        record=str(record),
    )
    words = ("--model", "embedded", "--bodies", "0", "--lines")
    few = run(*words, "30")
    assert few.exit_code == 0 and "fitted" not in few.stdout
    result = run(*words, "48")
    assert re.search(r"embedded: .* weights fitted here .*\(24 of 48 right in files not seen, 0 by", result.stdout)
    assert not any("judge" in line for line in record.read_text().splitlines()), "nothing was fitted before"
    assert run(*words, "1", "--again").exit_code == 0
    last = json.loads(record.read_text().splitlines()[-1])["request"]
    assert last["judge"]["follows"] < 0.85
    told = json.loads(run(*words, "1", "--json").stdout)["models"][1]["judge"]
    assert told["num_right"] == 24 and told["weights"] == last["judge"]


def test_an_engine_that_cannot_be_reached_is_told_and_the_others_are_measured(
    run: Callable[..., Result], set_plan: Callable[..., Plan]
) -> None:
    set_plan(rows=[["return total"]])
    outside = "ollama:m@http://127.0.0.1:9"
    result = run("--model", outside, "--model", "embedded", "--lines", "3", "--bodies", "0")
    assert result.exit_code == 0 and f"{outside}: " in result.stdout
    assert "embedded is the only one measured" in result.stdout
    assert run("--model", outside, "--lines", "3", "--bodies", "0").exit_code == 1


def test_an_engine_whose_fills_all_fail_gets_no_share_and_what_it_says_is_told(
    run: Callable[..., Result],
) -> None:
    with serve("ollama") as server:
        server.refuse = lambda _: (500, {"error": "model runner has crashed"})
        for lines in ("2", "9"):
            result = run("--model", f"ollama:m@{server.url}", "--lines", lines, "--bodies", "0", "--json")
            (_, measured) = json.loads(result.stdout)["models"]
            assert result.exit_code == 1 and measured["lines"] is None
            assert "in a row failed" in measured["error"] and "model runner has crashed" in measured["error"]


def test_an_engine_that_is_busy_for_a_while_is_waited_for(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midfill_infill.measuring.measure.BUSY_WAITS_S", (0.0, 0.0))
    with serve("ollama") as server:
        server.refuse = lambda _: (429, {"error": "slow down"}) if len(server.asked) < 3 else None
        result = run("--model", f"ollama:m@{server.url}", "--lines", "2", "--bodies", "0", "--json")
    (_, measured) = json.loads(result.stdout)["models"]
    assert result.exit_code == 0 and measured["lines"]["exact"]["of"] == 2 and not measured["error"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["--changed=nope"], "there is no revision 'nope'"),
        (["--lines", "0", "--bodies", "0"], "there is no line and no function body"),
        (["--model", "no such model"], "there is no model"),
        (["link.py"], "there is no line and no function body to measure in link.py"),
    ],
)
def test_bad_input_gets_one_sentence(words: list[str], said: str, run: Callable[..., Result], tree: Path) -> None:
    (tree.parent / "empty.py").touch()
    (tree / "link.py").symlink_to(tree.parent / "empty.py")
    result = run(*words)
    assert result.exit_code and said in result.output and "Traceback" not in result.output


def test_an_interrupt_prints_what_there_is(
    midfill: Callable[..., "subprocess.Popen[bytes]"], tree: Path, set_plan: Callable[..., Plan], tmp_path: Path
) -> None:
    record = tmp_path / "record"
    set_plan(rows=[["return total"]], record=str(record), step_s=0.1)
    process = midfill("measure", "--model", "embedded", "--lines", "24", "--bodies", "0", cwd=tree)
    until = time.monotonic() + 60
    while requests(record) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "embedded" in output.decode() and "24 lines" in output.decode() and b"Traceback" not in errors


def test_an_interrupt_during_the_start_of_an_engine_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started = SimpleNamespace(is_alive=False, pid=None)

    def start(*_: object) -> None:
        started.is_alive, started.pid = True, 7
        raise KeyboardInterrupt

    ended: list[int] = []
    places = iter((started, SimpleNamespace(pid=None)))
    monkeypatch.setattr("midfill_infill.engines.supervise.find_place", lambda _: next(places))
    monkeypatch.setattr("midfill_infill.engines.supervise.ensure_own", start)
    monkeypatch.setattr("midfill_infill.cli.engine.end", lambda _, pid: ended.append(pid))
    with pytest.raises(KeyboardInterrupt), open_model("embedded", "cpu", is_quiet=True):
        pass
    assert ended == [7]


@pytest.mark.skipif(not shutil.which("bwrap"), reason="no bubblewrap")
def test_bodies_with_which_a_command_passes_are_counted(
    run: Callable[..., Result], set_plan: Callable[..., Plan], tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_plan(rows=[["return value"]])
    for path in tree.glob("f*.py"):
        path.unlink()
    for name, body in {"same": "value", "other": "[value]"}.items():
        (tree / name).mkdir()
        (tree / name / "shop.py").write_text(f"def {name}(value):\n    return {body}\n")
    (tree / "check.py").write_text(  # it leaves the copy without a file whose body is filled next
        "import os, sys\nfrom same.shop import same\nfrom other.shop import other\n"
        "os.remove('same/shop.py'), os.remove('other/shop.py')\n"
        "print(same(3))\nsys.exit(same(3) != 3 or other(1) not in (1, [1]))\n"
    )
    words = [".", "--model", "embedded", "--lines", "0", "--bodies", "2", "--seed", "1", "--json"]
    plain = json.loads(run(*words).stdout)["models"][1]["bodies"]
    assert plain["passes"] is None and plain["exact"]["percent"] == 50
    command = f"{sys.executable} check.py"
    folders: list[Path] = []
    monkeypatch.setattr(copy, "Mirror", lambda root, folder: folders.append(folder) or Mirror(root, folder))
    starts: list[list[str]] = []
    start = Lab.start

    def read_and_start(lab: Lab, *holes: Any, **limits: Any) -> None:
        starts.append([(lab.runner.copy.mirror.work / name / "shop.py").read_text() for name in ("same", "other")])
        start(lab, *holes, **limits)

    monkeypatch.setattr(Lab, "start", read_and_start)
    with serve("openai") as server:
        server.parts = ["return value\n"]
        words += ["--model", f"openai:m@{server.url}", "--until", command, "--allow", sys.prefix]
        _, *models = json.loads(run(*words).stdout)["models"]
    tested, again = (model["bodies"] for model in models)
    whole = [(tree / name / "shop.py").read_text() for name in ("same", "other")]
    assert again["passes"] == tested["passes"] and starts == [whole, whole], "what both models wrote is tested once"
    (folder,) = folders
    assert not folder.exists()
    assert tested["passes"] == {"percent": 100, "low": 34.2, "high": 100.0, "of": 2}
