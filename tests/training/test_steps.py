"""The recipe by its command line, from a name to a measured checkpoint, at toy size and without a network."""

import json
from dataclasses import fields
from pathlib import Path

from tests.training.packages import PYTHON, SCRIPT, write_npm, write_source, write_wheel
from typer.testing import CliRunner

from midfill_engine.loading import checkpoint
from training.__main__ import app
from training.data.corpus import is_validation
from training.data.pack import read_pack
from training.data.sources import read_table
from training.train import RunConfig

TOY = (
    "--dim 32 --num-layers 1 --num-heads 2 --head-dim 16 --mlp-dim 64 --context 96 --gap 48 --hole-span 64 --rows 4"
    " --causal-rows 4 --micro-rows 4 --num-workers 1 --num-threads 1 --device cpu --deadline-s 0 --num-steps 8"
)


def step(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_from_names_to_a_measured_checkpoint(tmp_path: Path) -> None:
    archives, corpus, tokenizer = tmp_path / "archives", tmp_path / "corpus", tmp_path / "tokenizer.json"
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
    step("tokenizer", corpus, tokenizer, "--vocab-size", 400, "--share", 1)
    step("pack", corpus, tokenizer, tmp_path / "pack", "--tokens", 1_000_000, "--sets", 1)
    assert read_pack(tmp_path / "pack", "validation").package_names == (held,)
    step("train", tmp_path / "pack", tokenizer, tmp_path / "run", *TOY.split())
    step("export", tmp_path / "run", tmp_path / "model", "--name", "toy")
    assert checkpoint.load(tmp_path / "model").config.training["steps"] == 8
    report = json.loads(step("evaluate", tmp_path / "model", tmp_path / "pack", "--num-gaps", 4, "--context", 96))
    assert report["num_gaps"] == 4 and 0 < report["bits_per_byte"] < 12
    step("credits", corpus / "sources.tsv", tmp_path / "pack", tmp_path / "used.tsv", "--archives", archives)
    assert "named 1.0: MIT; recorded archive" in (tmp_path / "NOTICES.txt").read_text()
    assert {row.name for row in read_table(tmp_path / "used.tsv")} == {"named", "scripts", "types"}


def test_every_setting_of_a_run_is_an_option() -> None:
    output = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).stdout
    for field in fields(RunConfig):
        assert field.name in output or "--" + field.name.replace("_", "-") in output
