"""The recipe by its command line, from a name to an adapter that fills, at toy size and without a network."""

import json
import runpy
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from tests.engine.in_process import denoise, drain
from tests.training.packages import PYTHON, SCRIPT, write_npm, write_source, write_wheel
from typer.testing import CliRunner

from midfill_engine.loading.runtime import load_runtime
from midfill_engine.wire import InfillRequest
from training.__main__ import app
from training.data.corpus import is_validation, read_corpus
from training.data.pack import read_pack
from training.data.sources import read_table
from training.train import RunConfig

TOY = "--rank 2 --num-steps 4 --row-tokens 96 --step-tokens 96 --num-validation-rows 2 --dtype fp32"


def step(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_from_names_to_an_adapter_that_fills(base: Path, tmp_path: Path) -> None:
    archives, corpus = tmp_path / "archives", tmp_path / "corpus"
    held = next(name for name in map("held{}".format, range(400)) if is_validation(name))
    texts = {f"{number}.py": write_source(PYTHON, number) for number in range(30)}
    write_wheel(tmp_path / "registry", "named", texts)
    write_wheel(archives, held, {f"{number}.py": write_source(PYTHON, 100 + number) for number in range(6)})
    for number, (name, suffix) in enumerate((("scripts", "js"), ("types", "ts"))):
        write_npm(
            archives, name, {f"{index}.{suffix}": write_source(SCRIPT, 100 * number + index) for index in range(9)}
        )
    suite = tmp_path / "suite.jsonl"
    suite.write_text(json.dumps({"prefix": texts["3.py"], "middle": "", "suffix": ""}) + "\n")
    (tmp_path / "names.txt").write_text("named\n")

    step("sources", archives, "--python", tmp_path / "names.txt", "--folder", tmp_path / "registry")
    counts = json.loads(step("filter", archives, corpus, "--evaluation", suite))
    assert counts["evaluation"] == 1 and counts["kept"] == 29 + 6 + 18
    assert {row.name: row.kept_bytes > 0 for row in read_table(corpus / "sources.tsv")} == dict.fromkeys(
        ("named", held, "scripts", "types"), True
    )
    step("pack", corpus, tmp_path / "pack", "--model", base, "--tokens", 1_000_000, "--sets", 1)
    assert read_pack(tmp_path / "pack", "validation").package_names == (held,)
    step("train", tmp_path / "pack", tmp_path / "run", "--model", base, *TOY.split())
    shutil.copytree(base, tmp_path / base.name)
    step("export", tmp_path / "run/snapshot", tmp_path / "adapter")
    runtime = load_runtime(str(tmp_path / "adapter"), "cpu")
    request = InfillRequest.model_validate({"segments": [{"text": "def f(a):\n    return "}, {"hole": {}}]})
    assert drain(denoise(runtime, request)).holes[0].text
    step("credits", corpus / "sources.tsv", tmp_path / "pack", tmp_path / "used.tsv", "--archives", archives)
    assert "named 1.0: MIT; recorded archive" in (tmp_path / "NOTICES.txt").read_text()
    assert {row.name for row in read_table(tmp_path / "used.tsv")} == {"named", "scripts", "types"}


def test_a_repository_of_ones_own_becomes_a_corpus(tmp_path: Path) -> None:
    """The files that git tracks, links and other languages aside."""
    own = tmp_path / "own"
    own.mkdir()
    for number, name in enumerate(("a.py", "lib/b.ts", "untracked.py", "notes.txt", "naïve.py")):
        (own / name).parent.mkdir(exist_ok=True)
        (own / name).write_text(write_source(SCRIPT if name.endswith("ts") else PYTHON, number))
    (own / "link.py").symlink_to("untracked.py")
    subprocess.run(["git", "init", "--quiet"], cwd=own, check=True)
    subprocess.run(["git", "add", "a.py", "lib", "notes.txt", "link.py", "naïve.py"], cwd=own, check=True)
    assert json.loads(step("collect", tmp_path / "corpus", own)) == {"kept": 3}
    assert [file.name for file in read_corpus(tmp_path / "corpus")] == ["own/a.py", "own/naïve.py", "own/lib/b.ts"]


def test_every_setting_of_a_run_is_an_option() -> None:
    output = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).stdout
    for field in fields(RunConfig):
        assert field.name in output or "--" + field.name.replace("_", "-") in output


@pytest.mark.parametrize("words", [["export", "nowhere", "out"], ["filter", "nowhere", "out"], ["collect", "out", "."]])
def test_what_a_user_did_wrong_is_one_sentence(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["training", *words])
    monkeypatch.delitem(sys.modules, "training.__main__")  # to run it again is a warning
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module("training", run_name="__main__")
    assert capsys.readouterr().err.count("\n") == 1
