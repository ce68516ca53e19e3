"""Getting, choosing and removing models, the configuration, and which engine a fill gets. Engines are scripted."""

import errno
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cli.fake_engine import Plan, read_record
from typer.testing import CliRunner

from midfill_engine.caches import CACHES
from midfill_engine.wire import ModelInfo, StoredModel, StoredModels
from midfill_infill import config
from midfill_infill.cli import build_app
from midfill_infill.engines import supervise
from midfill_infill.engines.records import EnginePlace, EngineRecord, list_living
from midfill_infill.engines.supervise import EngineSettings, claim_place, complete, ensure_engine, find_place
from midfill_infill.errors import MidfillError
from midfill_infill.filling import certainty, written

SetPlan = Callable[..., Plan]
SetStock = Callable[[Callable[..., StoredModels]], None]
Midfill = Callable[..., subprocess.Popen[bytes]]
HUB = "owner/name"


@pytest.fixture(autouse=True)
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MIDFILL_CONFIG", str(tmp_path / "config/config.toml"))
    for key in config.KEYS.values():
        monkeypatch.delenv(key.variable, raising=False)
    (tmp_path / "work/.git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "config/config.toml"


def say(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(build_app(), list(words))
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_every_setting_says_where_it_comes_from(user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say("config", "model", "user/model")
    say("config", "quality", "0.5")
    Path(".midfill.toml").write_text('device = "cpu"\nquality = 1\n')
    monkeypatch.setenv("MIDFILL_DTYPE", "fp32")
    Path("deep/inside").mkdir(parents=True)
    monkeypatch.chdir("deep/inside")
    shown = json.loads(say("config", "--json"))
    assert {name: (each["value"], each["source"]) for name, each in shown.items()} == {
        "model": ("user/model", "user"),
        "engine": (None, "default"),
        "context": (None, "default"),
        "device": ("cpu", "project"),
        "dtype": ("fp32", "environment"),
        "quality": (1, "project"),
        "seconds": ([3.0, 1.0], "default"),
        "cache": (None, "default"),
        "weights": (None, "default"),
    }
    assert "quality  1  (project, " in say("config")
    assert config.load()["quality"].value == 0.5, "a project's file counts only where it is asked for"
    assert [config.choose_quality(flag, Path.cwd()) for flag in (None, 0.25, "authors")] == [1.0, 0.25, "authors"]
    assert config.choose_quality(None) == 0.5
    say("config", "quality", "--unset")
    assert config.choose_quality(None) is None
    assert user_file.read_text() == 'model = "user/model"\n'


@pytest.mark.parametrize(
    "old", ["seconds = [\n  3.0, # seconds\n  1.0,\n]\n", "'seconds' = 3\n", '"seconds"= [3, 1]\r\n']
)
def test_a_setting_is_replaced_however_it_is_written(user_file: Path, old: str) -> None:
    user_file.parent.mkdir()
    user_file.write_bytes(f"\ufeff# seconds\u2028 = 4\r\n{old}model = 'x'".encode())
    user_file.chmod(0o600)
    assert config.load()["model"].value == "x"
    linked = user_file.rename(user_file.with_name("mine.toml"))
    user_file.symlink_to(linked.name)
    say("config", "seconds", "2")
    assert user_file.is_symlink() and linked.stat().st_mode & 0o777 == 0o600
    assert linked.read_bytes().decode() == "seconds = 2.0\n# seconds\u2028 = 4\r\nmodel = 'x'"
    say("config", "seconds", "--unset")
    assert linked.read_bytes().decode() == "# seconds\u2028 = 4\r\nmodel = 'x'"


@pytest.mark.parametrize("is_record", [False, True], ids=["settings", "record"])
def test_a_file_that_cannot_be_written_stays_as_it_was(
    is_record: bool, user_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = EnginePlace.at(tmp_path / "engine")
    write = (lambda: place.write(EngineRecord("b"))) if is_record else (lambda: config.set_for_user("model", "b"))
    write_bytes = Path.write_bytes

    def fill_disk(path: Path, data: bytes) -> int:
        write_bytes(path, data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    config.set_for_user("model", "a")
    place.write(EngineRecord("a"))
    monkeypatch.setattr(Path, "write_bytes", fill_disk)
    with pytest.raises((OSError, MidfillError), match="(?i)space"):
        write()
    assert place.record == EngineRecord("a") and config.load()["model"].value == "a"
    assert [*tmp_path.glob("*.part")] == [*user_file.parent.glob("*.part")] == []


def change_setting(index: int) -> None:
    config.set_for_user([*config.KEYS][index], ["a", "openai:m", "off", "cpu", "fp32", "int8", "0", "3"][index])


def change_certainty(index: int) -> None:
    model = ModelInfo(
        id=str(index), family="f", parameters=1, device="cpu", dtype="fp32", max_context_tokens=9, max_hole_tokens=9
    )
    certainty.save(model, "m", {})


@pytest.mark.parametrize(
    ("change", "count"),
    [
        (change_setting, lambda: sum(setting.source == "user" for setting in config.load().values())),
        (change_certainty, lambda: len(json.loads((certainty.folder() / "certainty.json").read_text()))),
        (lambda index: written.remember([f"line {index}"]), lambda: len(written.load())),
    ],
    ids=["settings", "certainty", "written"],
)
def test_changes_at_the_same_time_are_all_kept(
    change: Callable[[int], None],
    count: Callable[[], int],
    user_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(8)))
    assert count() == 8


@pytest.mark.parametrize("value", ["a\udcff", "a\x7f"])
def test_what_no_file_can_hold_changes_nothing(user_file: Path, value: str) -> None:
    say("config", "model", "user/model")
    with pytest.raises(MidfillError, match="no settings file can hold"):
        config.set_for_user("model", value)
    assert user_file.read_text() == 'model = "user/model"\n'


def test_a_project_may_turn_the_context_off_and_not_on(user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.shows_related() and config.shows_related(Path.cwd())
    say("config", "context", "off")
    assert not config.shows_related()
    say("config", "context", "on")
    Path(".midfill.toml").write_text('context = "off"\n')
    assert config.shows_related() and not config.shows_related(Path.cwd())
    monkeypatch.setenv("MIDFILL_CONTEXT", "on")
    assert config.shows_related(Path.cwd()), "the user's own word for one shell"
    Path(".midfill.toml").write_text('context = "on"\n')
    assert "a project may only turn it off" in say("config", code=2)
    for words in ("yes", "100", "3e3"):
        assert "takes on, off, or a number of tokens" in say("config", "context", words, code=2)


def test_a_number_of_tokens_is_for_the_engine_of_another_project(
    user_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("config", "engine", "ollama:m")
    assert supervise.ensure_engine().context_tokens is None
    say("config", "context", "8192")
    assert config.shows_related() and "context  8192" in say("config", "context")
    assert supervise.ensure_engine().info.max_context_tokens == 8192
    Path(".midfill.toml").write_text("context = 9000\n")
    assert "run `midfill config context 9000` for yourself" in say("config", code=2)
    monkeypatch.setenv("MIDFILL_CONTEXT", "4096")
    assert supervise.ensure_engine().context_tokens == 4096


def test_a_project_file_is_looked_for_within_the_repository_only(tmp_path: Path) -> None:
    (tmp_path / ".midfill.toml").write_text('device = "cpu"\n')
    assert config.load(Path.cwd())["device"].source == "default"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model = 3", "sets model to 3, and it takes a model's name"),
        ("quality = 2", "from 0 to 1"),
        ("quality = true", "from 0 to 1"),
        ("seconds = 0", "seconds for a body and for a line, such as 3 1, or off"),
        ("seconds = [1, 2, 3]", "seconds for a body and for a line"),
        ("seconds = [true]", "seconds for a body and for a line"),
        ('colour = "red"', "'colour', which is not a setting; known are model"),
        ("device = ", "cannot be read"),
    ],
)
def test_a_wrong_file_is_named(text: str, words: str, user_file: Path) -> None:
    user_file.parent.mkdir()
    user_file.write_text(text)
    output = say("config", code=2)
    assert words in output and str(user_file) in output


def test_seconds_are_for_a_body_and_a_line(user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.choose_seconds() == ((3.0, 1.0), False)
    assert "seconds  3 1  (default)" in say("config", "seconds")
    for words, stored, seconds in (
        (["6"], "6.0", (6.0, 2.0)),
        (["4.5", "0.5"], "[4.5, 0.5]", (4.5, 0.5)),
        (["4.5 2"], "[4.5, 2.0]", (4.5, 2.0)),
        (["off"], '"off"', None),
    ):
        assert f"seconds  {' '.join(words)}  (user, " in say("config", "seconds", *words).replace("6.0", "6")
        assert user_file.read_text() == f"seconds = {stored}\n" and config.choose_seconds() == (seconds, True)
    for words in (["0"], ["soon"], ["1", "2", "3"], ["nan"], ["1e9"]):
        assert "it takes seconds for a body and for a line" in say("config", "seconds", *words, code=2)
    monkeypatch.setenv("MIDFILL_SECONDS", "2 1")
    assert config.choose_seconds() == ((2.0, 1.0), True)
    monkeypatch.delenv("MIDFILL_SECONDS")
    Path(".midfill.toml").write_text("seconds = [8, 2]\n")
    assert config.choose_seconds(Path.cwd()) == ((8, 2), True) and config.choose_seconds() == (None, True)


def test_wrong_values_are_not_written(user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "takes one of auto, cpu" in say("config", "device", "toaster", code=2)
    assert "no setting 'colour'" in say("config", "colour", "red", code=2)
    assert "cache is 'nonsense', and it takes one of none, prefix" in say("config", "cache", "nonsense", code=2)
    for words in (
        ["models", "use", "nosuch"],
        ["models", "use", ""],
        ["config", "model", "no.gguf"],
        ["config", "model", ""],
    ):
        said = say(*words, code=5)
        assert "there is no model" in said and "known are smollm2, embedded and OWNER/NAME on the hub" in said
    Path("page.gguf").write_text("<html>Not found</html>")
    assert "page.gguf is no GGUF file that can be read" in say("models", "use", "page.gguf", code=5)
    assert not user_file.exists()
    monkeypatch.setenv("MIDFILL_QUALITY", "high")
    assert "MIDFILL_QUALITY is 'high'" in say("config", code=2)


def test_the_caches_that_can_be_set_are_those_that_there_are() -> None:
    assert all(config.KEYS["cache"].allows(name) for name in CACHES)
    assert config.KEYS["cache"].expected == f"one of {', '.join(CACHES)}"


def test_a_file_or_folder_that_is_chosen_is_marked(set_stock: SetStock) -> None:
    set_stock(lambda *_: StoredModels(data=[]))
    for name in ("a.gguf", "folder"):
        Path(name).write_bytes(b"GGUF") if name.endswith("f") else Path(name).mkdir()
        assert f"{Path(name).absolute()} fills from now on" in say("models", "use", name)
        marked = [line for line in say("models", "list").splitlines() if line.startswith("* ")]
        assert marked == [f"* {Path(name).absolute()}"]


def test_other_lines_of_the_users_file_stay(user_file: Path) -> None:
    user_file.parent.mkdir()
    user_file.write_text('# mine\nmodel = "old"\ncache = "dual"\n')
    say("models", "use", "new/one")
    assert user_file.read_text() == 'model = "new/one"\n# mine\ncache = "dual"\n'


def test_a_list_says_where_more_is_and_what_is_removed_though_it_is_chosen_comes_again(
    set_stock: SetStock, user_file: Path
) -> None:
    here = [
        StoredModel(model=name, num_bytes=15_200_000_000, is_whole=True, folder="/f") for name in (HUB, "other/one")
    ]

    def list_stock(*options: str) -> StoredModels:
        if options:
            gone = next(each for each in here if each.model == options[-1])
            here.remove(gone)
            return StoredModels(data=[gone])
        return StoredModels(data=here)

    set_stock(list_stock)
    say("models", "use", HUB)
    assert f"* {HUB}  15.2 GB" in say("models", "list") and "--published" not in say("models", "list")
    assert say("models", "rm", "other/one") == "removed other/one, 15.2 GB\n"
    assert "the next fill downloads it again, unless you run `midfill models use embedded`" in say("models", "rm", HUB)
    assert "--published" in say("models", "list")


def test_the_chosen_model_is_what_every_caller_gets(fake_command: Path, user_file: Path) -> None:
    say("models", "use", HUB)
    ensure_engine()
    assert [record.model for _, record in list_living()] == [HUB]
    assert find_place(EngineSettings(HUB)) == find_place(EngineSettings())
    assert find_place(EngineSettings("embedded")) != find_place(EngineSettings())


def test_flags_go_before_the_environment_and_that_before_files(monkeypatch: pytest.MonkeyPatch, runtime: Path) -> None:
    say("config", "model", "user/model")
    Path(".midfill.toml").write_text('model = "project/model"\n')
    here = EngineSettings(project=Path.cwd())
    assert (complete(here).model, complete(here).may_fetch) == ("project/model", False)
    assert complete(EngineSettings()).model == "user/model"
    monkeypatch.setenv("MIDFILL_MODEL", "environment/model")
    assert (complete(here).model, complete(here).may_fetch) == ("environment/model", True)
    assert complete(EngineSettings("flag/model", project=Path.cwd())).model == "flag/model"


def test_what_serve_runs_is_what_fills_use_until_it_ends(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say("config", "model", "user/model")
    place = claim_place(EngineSettings("served/model", "cpu"))
    assert complete(EngineSettings()).model == "served/model"
    assert find_place(EngineSettings()) == place == find_place(EngineSettings("served/model"))
    assert find_place(EngineSettings("served/model", "cuda")) != place
    assert complete(EngineSettings("other/model")).model == "other/model"
    monkeypatch.setenv("MIDFILL_MODEL", "environment/model")
    assert complete(EngineSettings()).model == "environment/model"
    monkeypatch.delenv("MIDFILL_MODEL")
    with pytest.raises(MidfillError, match="midfill engine stop"):
        claim_place(EngineSettings("served/model", "cpu"))
    for name in os.listdir("/proc/self/fd"):
        if os.path.exists(link := f"/proc/self/fd/{name}") and os.readlink(link) == str(place.lock):
            os.close(int(name))
    assert complete(EngineSettings()).model == "user/model"


def test_a_second_copy_is_not_loaded_for_who_leaves_the_device_open(fake_command: Path) -> None:
    first = ensure_engine(EngineSettings("a", "cpu"))
    assert ensure_engine(EngineSettings("a")) == first
    assert ensure_engine(EngineSettings("a", "cuda")) != first
    assert len((fake_command / "starts").read_text().split()) == 2


def test_a_model_of_the_hub_is_fetched_before_the_engine_starts_and_no_limit_ends_that(
    fake_command: Path, set_plan: SetPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_plan(fetch_s=9.0, record=str(tmp_path / "record"))
    monkeypatch.setattr(supervise, "_SAY_EVERY_S", 0.0)
    phrases: list[str] = []
    ensure_engine(EngineSettings(HUB), phrases.append, start_timeout_s=8.0)
    assert phrases[3] == "getting owner/name: 300.0 MB of 1.0 GB, 50.0 MB/s"
    assert phrases[-1] in ("starting the engine", "loading the model")
    ensure_engine(EngineSettings(HUB))
    assert read_record(tmp_path / "record") == [{"fetch": HUB, "cached_only": False}]


def test_a_project_alone_has_nothing_fetched(fake_command: Path, set_plan: SetPlan, tmp_path: Path) -> None:
    set_plan(record=str(tmp_path / "record"))
    Path(".midfill.toml").write_text(f'model = "{HUB}"\n')
    ensure_engine(EngineSettings(project=Path.cwd()))
    assert read_record(tmp_path / "record") == [{"fetch": HUB, "cached_only": True}]


def test_a_failed_download_says_why(fake_command: Path, set_plan: SetPlan) -> None:
    set_plan(fetch_fails='{"code": "fetch_failed", "message": "no room", "next_step": "make some"}')
    with pytest.raises(MidfillError) as error:
        ensure_engine(EngineSettings(HUB))
    assert (error.value.sentence, error.value.exit_code) == ("no room; make some.", 5)
    set_plan(fetch_fails="Traceback: something")
    with pytest.raises(MidfillError, match="exit code 3 .Traceback: something."):
        ensure_engine(EngineSettings(HUB))


def test_get_shows_progress_and_an_interrupt_says_how_to_go_on(midfill: Midfill, set_plan: SetPlan) -> None:
    process = midfill("models", "get", HUB, "--use")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert b"owner/name is here: /cache/there" in out and b"fills from now on" in out
    assert b"900.0 MB of 1.0 GB" in err
    set_plan(fetch_stalls=True)
    process = midfill("models", "get", HUB)
    assert process.stderr is not None
    while b"300.0 MB" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err.endswith(b"stopped with 300.0 MB of 1.0 GB here; run `midfill models get owner/name` to go on.\n")


def test_an_idle_engine_of_the_model_ends_where_another_starts(fake_command: Path, set_plan: SetPlan) -> None:
    ensure_engine(EngineSettings("a", dtype="bf16"))
    ensure_engine(EngineSettings("a", dtype="fp32"))
    assert len(list(list_living())) == 2, "the first was asked a moment ago"
    set_plan(idle_s=supervise.IDLE_S + 1)
    say("engine", "stop")
    ensure_engine(EngineSettings("a", dtype="bf16"))
    ensure_engine(EngineSettings("b"))
    ensure_engine(EngineSettings("a", dtype="fp32"))
    until = time.monotonic() + 60
    while len(list(list_living())) > 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert sorted((record.model, record.dtype) for _, record in list_living()) == [("a", "fp32"), ("b", "")]


def test_files_of_engines_that_are_long_gone_are_swept(fake_command: Path) -> None:
    ensure_engine(EngineSettings("old"))
    ensure_engine(EngineSettings("young"))
    say("engine", "stop")
    ensure_engine(EngineSettings("lives"))
    for place in [find_place(EngineSettings(name)) for name in ("old", "lives")]:
        for file in (place.lock, place.log):
            os.utime(file, (1, 1))
    ensure_engine(EngineSettings("new"))
    left = {find_place(EngineSettings(name)).lock for name in ("young", "lives", "new")}
    assert set(fake_command.glob("*.lock")) == left and not find_place(EngineSettings("old")).log.exists()
    assert find_place(EngineSettings("lives")).is_alive


def test_engines_are_listed_and_ended(fake_command: Path) -> None:
    assert "no engine runs" in say("engine", "ps")
    ensure_engine(EngineSettings("a"))
    ensure_engine(EngineSettings("b"))
    assert [(row["model"], row["state"]) for row in json.loads(say("engine", "ps", "--json"))] == [
        ("b", "ready"),
        ("a", "ready"),
    ]
    lines = say("engine", "ps").splitlines()
    assert len(lines) == 2 and all(re.search(r" \d+ MB, up \d s, ends in 30 min unless asked$", line) for line in lines)
    assert "ended a" in say("engine", "stop", "a")
    assert [record.model for _, record in list_living()] == ["b"]
    assert "no engine of a runs" in say("engine", "stop", "a")
    assert "ended b" in say("engine", "stop") and not list(list_living())
