"""The list of published models, and fetching one that was named."""

import json
from pathlib import Path

import pytest
from tests.engine import tiny
from typer.testing import CliRunner

from midfill_engine.__main__ import app
from midfill_engine.errors import StartError
from midfill_engine.families import FAMILIES
from midfill_engine.loading.catalog import as_table, list_models
from midfill_engine.loading.runtime import load_runtime
from midfill_engine.starting import is_hub_id


def test_the_best_infiller_is_named_first() -> None:
    entries = list_models()
    assert entries[0].hub_id == "Dream-org/DreamOn-v0-7B"
    assert entries[0].memory_gib == pytest.approx(14.7, abs=0.2)
    seen = [entry.sees_suffix for entry in entries]
    assert seen == sorted(seen, reverse=True)
    assert len({entry.hub_id for entry in entries}) == len(entries) >= 20
    assert len(as_table(entries)) == len(entries) + 1


def test_the_command_prints_them() -> None:
    plain = CliRunner().invoke(app, ["models"])
    assert "apple-amlr" in plain.stdout and "CC-BY-NC-4.0" in plain.stdout
    values = json.loads(CliRunner().invoke(app, ["models", "--json"]).stdout)
    assert {"hub_id", "licence", "memory_gib", "sees_suffix", "context_tokens"} <= set(values[0])


@pytest.mark.parametrize(
    ("name", "is_id"),
    [("a/b", True), ("Dream-org/DreamOn-v0-7B@main", True), ("embedded", False), ("./a/b", False), ("/a/b", False)],
)
def test_what_is_a_hub_id(name: str, is_id: bool) -> None:
    assert is_hub_id(name) is is_id


def test_a_hub_id_is_served_from_where_it_was_fetched_to(hub_cache: Path) -> None:
    folder, commit = hub_cache / "models--someone--some-model", "0" * 40
    tiny.make_random(folder / "snapshots" / commit, FAMILIES.find("llada"))
    (folder / "refs").mkdir()
    (folder / "refs/v1").write_text(commit)
    runtime = load_runtime("someone/some-model@v1", "cpu")
    assert runtime.family.name == "llada"
    assert "someone/some-model@v1" in runtime.names


@pytest.mark.usefixtures("hub_cache")
def test_what_was_not_fetched_is_one_sentence() -> None:
    with pytest.raises(StartError) as caught:
        load_runtime("someone/some-model", "cpu")
    assert caught.value.exit_code == 5
    assert "\n" not in caught.value.message
