"""The pretrained base fills where it is here and nobody chose another; the command says so. No model is loaded."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from midfill_engine.starting import packaged_folder
from midfill_engine.wire import BASE, StoredModel, StoredModels
from midfill_infill import config
from midfill_infill.cli import build_app
from midfill_infill.engines.supervise import EngineSettings, claim_place, complete, default_model

HINT = "`midfill models get smollm2` gets the model that fills by default"


@pytest.fixture(autouse=True)
def own_folders(
    fake_command: Path, set_stock: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIDFILL_CONFIG", str(tmp_path / "config/config.toml"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for key in config.KEYS.values():
        monkeypatch.delenv(key.variable, raising=False)
    (tmp_path / "work/.git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    set_stock(list_stock)


def list_stock() -> StoredModels:
    files = sorted((packaged_folder() / BASE).glob("*.gguf"))
    here = [StoredModel(model=BASE, num_bytes=98_362_432, is_whole=True, folder=str(file)) for file in files]
    other = StoredModel(model="owner/name", num_bytes=15_200_000_000, is_whole=True, folder="/f")
    return StoredModels(data=[*here, other])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    file = tmp_path / "data/midfill/models/smollm2/base.gguf"
    file.parent.mkdir(parents=True)
    file.touch()
    return file


def say(*words: str) -> str:
    result = CliRunner().invoke(build_app(), list(words))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def chosen() -> str | None:
    return complete(EngineSettings(project=Path.cwd())).model


def starred() -> list[str]:
    return [line.split()[1] for line in say("models", "list").splitlines() if line.startswith("* ")]


def test_without_the_base_the_model_that_ships_fills(tmp_path: Path) -> None:
    assert default_model() is None and chosen() is None
    half = tmp_path / "data/midfill/models/smollm2/.part-1"
    half.mkdir(parents=True)
    (half / "model.gguf").touch()
    assert default_model() is None, "what is being fetched is not here"


def test_the_base_fills_once_it_is_here_unless_another_model_is_chosen(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert default_model() == chosen() == "smollm2"
    assert complete(EngineSettings("embedded")).model == "embedded"
    say("models", "use", "user/model")
    assert chosen() == "user/model"
    Path(".midfill.toml").write_text('model = "project/model"\n')
    assert chosen() == "project/model"
    monkeypatch.setenv("MIDFILL_MODEL", "environment/model")
    assert chosen() == "environment/model"
    assert default_model() == "smollm2"


def test_a_running_served_engine_goes_first(base: Path) -> None:
    claim_place(EngineSettings("served/model"))
    assert chosen() == "served/model"


def test_the_list_stars_what_fills_and_says_how_to_get_the_base(tmp_path: Path) -> None:
    assert starred() == ["embedded"] and HINT in say("models", "list")
    say("models", "use", "owner/name")
    assert starred() == ["owner/name"] and HINT in say("models", "list")


def test_the_list_stars_the_base_where_it_is_here(base: Path) -> None:
    assert starred() == ["smollm2"] and HINT not in say("models", "list")
    assert "* smollm2  0.1 GB\n" in say("models", "list")
    say("models", "use", "embedded")
    assert starred() == ["embedded"]


def test_get_says_whether_it_fills_from_now_on() -> None:
    assert say("models", "get", "smollm2").endswith("it fills from now on, in the command and in editors\n")
    assert "midfill models use owner/name" in say("models", "get", "owner/name")
    say("models", "use", "embedded")
    assert "midfill models use smollm2" in say("models", "get", "smollm2")
    assert "smollm2 fills from now on" in say("models", "get", "smollm2", "--use")
