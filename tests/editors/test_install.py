"""editors/install.py: from an empty home to a server, cancelled, killed, offline, twice, repaired, updated, removed."""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from tests.editors.installer import (
    INSTALLER,
    ROOT,
    TIMEOUT_S,
    Home,
    end_below,
    finish,
    make_python,
    make_wheel,
    processes_below,
    wait,
)

NOWHERE = "http://127.0.0.1:9/simple"
needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_python(tmp_path_factory.mktemp("python") / "env")


@pytest.fixture
def home(tmp_path: Path, python: str) -> Iterator[Home]:
    made = Home(tmp_path / "home", python)
    made.folder.mkdir()
    yield made
    left = processes_below(made.folder)
    end_below(made.folder)
    assert not left


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, python: str) -> Path:
    """What an installation makes."""
    folder = tmp_path_factory.mktemp("made")
    made = Home(folder / "home", python)
    made.folder.mkdir()
    assert made.install(make_wheel(folder))["kind"] == "done"
    return made.store


@pytest.fixture
def installed(home: Home, store: Path) -> Home:
    """A home with version 0.1."""
    shutil.copytree(store, home.store, symlinks=True)
    home.model.parent.mkdir(parents=True)
    home.model.write_text("weights")
    record = json.loads((home.store / "current" / "midfill.json").read_text())
    (home.store / "current" / "midfill.json").write_text(json.dumps({**record, "model": str(home.model)}))
    return home


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path)


@pytest.fixture
def installer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("midfill_install", INSTALLER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_from_an_empty_home_to_a_server_and_back(home: Home, wheel: Path) -> None:
    home.python = sys.executable
    done = home.install(wheel)
    assert (done["kind"], done["message"]) == ("done", "Midfill is installed."), done["log"]
    percents = [told["percent"] for told in done["told"]]
    assert percents == sorted(percents) and all(told["kind"] == "progress" for told in done["told"])
    assert home.serve() == "0.1" and home.model.exists()
    assert {path.name[:4] for path in home.store.iterdir()} == {"curr", "env-"}
    assert home.run("remove")["message"] == "Midfill is removed."
    assert home.files() == ["data", "with space"]


def test_a_model_that_was_here_before_stays(installed: Home, wheel: Path) -> None:
    record = installed.store / "current" / "midfill.json"
    record.write_text("{}")
    assert installed.install(wheel)["kind"] == "done"
    installed.run("remove")
    assert installed.model.exists() and not installed.store.exists()


def test_without_a_model_the_one_that_ships_fills(home: Home, wheel: Path) -> None:
    (home.folder / "data").touch()  # no model can be put there
    done = home.install(wheel)
    assert done["kind"] == "done" and "the small model that ships fills" in done["message"]
    assert home.serve() == "0.1"


@needs_proc
@pytest.mark.parametrize("way", ["SIGTERM", "end of stdin"])
def test_a_cancel_leaves_nothing_behind(home: Home, wheel: Path, tmp_path: Path, way: str) -> None:
    mark = tmp_path / "hangs"
    process = home.start("install", "--source", wheel, "--cancel-on-eof", TEST_HANGS=str(mark))
    wait("the download of the model", mark.exists)
    if way == "end of stdin":
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    else:
        process.terminate()
    done = finish(process)
    assert (done["reason"], done["message"]) == ("cancelled", "Cancelled; nothing was left behind.")
    assert home.files() == ["with space"] and not processes_below(home.folder)


@pytest.fixture
def silent_index() -> Iterator[tuple[str, threading.Event]]:
    """An index that takes a connection and says nothing; set once somebody came."""
    came = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def take() -> None:
            while True:
                try:
                    kept.append(server.accept())
                except OSError:
                    return
                came.set()

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple", came
        server.shutdown(socket.SHUT_RDWR)
        for connection, _ in kept:
            connection.close()


def test_a_cancel_while_pip_waits(home: Home, tmp_path: Path, silent_index: tuple[str, threading.Event]) -> None:
    index, came = silent_index
    wheel = make_wheel(tmp_path, needs="nosuchpackage")
    process = home.start("install", "--source", wheel, **only(index))
    assert came.wait(TIMEOUT_S)
    process.terminate()
    assert finish(process)["reason"] == "cancelled"
    assert home.files() == ["with space"]


def only(index: str) -> dict[str, str]:
    """Package installers know this index alone."""
    return {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index, "UV_INDEX_URL": index, "UV_NO_CONFIG": "1"}


def test_offline_is_one_sentence(home: Home, tmp_path: Path) -> None:
    done = home.install(make_wheel(tmp_path, needs="torch>=2"), **only(NOWHERE), https_proxy="http://127.0.0.1:9")
    assert done["reason"] == "offline", done["log"]
    assert done["message"] == "No package index can be reached: connect to the internet, and install again."
    assert home.files() == ["with space"]


@needs_proc
def test_after_a_kill_the_next_run_cleans_up(home: Home, wheel: Path, tmp_path: Path) -> None:
    mark = tmp_path / "hangs"
    process = home.start("install", "--source", wheel, TEST_HANGS=str(mark))
    wait("the download of the model", mark.exists)
    process.kill()
    end_below(home.folder)  # what it had started
    process.communicate()
    assert home.install(wheel)["kind"] == "done"
    assert sorted(path.name[:4] for path in home.store.iterdir()) == ["curr", "env-"]


def test_a_second_installation_at_the_same_time_is_refused(home: Home, wheel: Path, tmp_path: Path) -> None:
    mark = tmp_path / "hangs"
    first = home.start("install", "--source", wheel, TEST_HANGS=str(mark))
    wait("the first", mark.exists)
    assert home.install(wheel)["reason"] == "busy"
    assert first.poll() is None
    first.terminate()
    assert finish(first)["reason"] == "cancelled"


def test_an_update_keeps_the_old_one_until_it_works(installed: Home, tmp_path: Path) -> None:
    home = installed
    before = (home.store / "current").readlink()
    mark = tmp_path / "hangs"
    home.model.unlink()
    process = home.start("install", "--source", make_wheel(tmp_path, "0.2"), TEST_HANGS=str(mark))
    wait("the update", mark.exists)
    assert home.serve() == "0.1"
    process.terminate()
    assert finish(process)["reason"] == "cancelled"
    assert (home.store / "current").readlink() == before and home.serve() == "0.1"
    done = home.install(make_wheel(tmp_path, "0.2"))
    assert "making an environment" not in [told["message"] for told in done["told"]]  # a copy, in seconds
    assert home.serve() == "0.2" and (home.store / before).exists()
    assert home.install(make_wheel(tmp_path, "0.3"))["kind"] == "done"
    assert home.serve() == "0.3" and not (home.store / before).exists()


def test_the_same_version_with_other_content_is_an_update(installed: Home, tmp_path: Path) -> None:
    home, other = installed, make_wheel(tmp_path, main="print('other')")
    before = json.loads((home.store / "current" / "midfill.json").read_text())
    home.install(other)
    after = json.loads((home.store / "current" / "midfill.json").read_text())
    assert home.serve() == "other" and before["source"] != after["source"] and before["model"] == after["model"]


@pytest.mark.parametrize("broken", ["bin/python", "lib"])
def test_a_broken_environment_is_made_anew(installed: Home, wheel: Path, broken: str) -> None:
    home = installed
    target = home.store / "current" / broken
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
        target.symlink_to("/nowhere/python3")
    with pytest.raises((OSError, subprocess.CalledProcessError)):
        home.serve()
    done = home.install(wheel)
    assert "making an environment" in [told["message"] for told in done["told"]]
    assert home.serve() == "0.1" and len(list(home.store.glob("env-*"))) == 1


@needs_proc
def test_engines_end_when_they_are_updated_or_removed(installed: Home, wheel: Path) -> None:
    home = installed
    python = (home.store / "current").resolve() / "bin" / "python"
    engine = subprocess.Popen([python, "-P", "-m", "midfill_engine"], env=home.environment())
    home.install(wheel)
    assert engine.wait(TIMEOUT_S) == -signal.SIGTERM
    engine = subprocess.Popen([python, "-P", "-m", "midfill_engine"], env=home.environment())
    home.run("remove")
    assert engine.wait(TIMEOUT_S) == -signal.SIGTERM


def test_no_python_is_one_sentence(installer: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installer, "find_python", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    for system, program, wanted in [
        ("darwin", "", "brew install"), ("linux", "apt-get", "sudo apt install"), ("linux", "", "install it, or uv"),
    ]:  # fmt: skip
        if program:
            (tmp_path / program).touch(mode=0o755)
        sentence = installer.no_python(system)
        assert wanted in sentence and "Python 3.11 to 3.14" in sentence
        runner = installer.Runner(tmp_path / "env-1", None)
        with pytest.raises(installer.Failure) as caught:
            installer.Maker(runner, None).make()
        assert (caught.value.reason, caught.value.message) == ("no_python", installer.no_python())
        (tmp_path / "apt-get").unlink(missing_ok=True)


def test_uv_only_where_pip_is_not_told_of_an_index(
    installer: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "uv").touch(mode=0o755)
    config = tmp_path / "pip.conf"
    monkeypatch.setattr(Path, "expanduser", lambda path: tmp_path / "none" if path != config else path)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    config.write_text("[global]\ntimeout = 10\n")
    assert installer.find_uv() == str(tmp_path / "uv")
    config.write_text("[global]\nextra-index-url = https://mirror\n")
    assert installer.find_uv() is None
    monkeypatch.setenv("UV_INDEX_URL", "https://mirror")
    assert installer.find_uv() == str(tmp_path / "uv")
    monkeypatch.delenv("UV_INDEX_URL")
    monkeypatch.delenv("PIP_CONFIG_FILE")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror")
    assert installer.find_uv() is None


def test_an_old_python_finds_a_newer_one(installer: ModuleType, tmp_path: Path) -> None:
    programs = {"python3": "3 9", "python3.13": "3 15", "python3.12": "3 12"}
    for name, version in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho {version}\n")
        (tmp_path / name).chmod(0o755)
    assert installer.find_python() == sys.executable
    assert installer.find_python((3, 9), str(tmp_path)) == str(tmp_path / "python3.12")
    (tmp_path / "python3.12").unlink()
    assert installer.find_python((3, 9), str(tmp_path)) is None


@pytest.mark.parametrize(
    ("said", "reason", "sentence"),
    [
        ("OSError: [Errno 28] No space left on device", "no_space", "The disk is full"),
        ("The virtual environment was not created because ensurepip is not available.", "no_venv", "python3-venv"),
        ("retrying after connection broken by NewConnectionError", "offline", "connect to the internet"),
        ("ERROR: No matching distribution found for torch<2.14,>=2.11", "no_package", "has no torch<2.14,>=2.11 for"),
        ("ERROR: one\nERROR: two\n\nnote: three", "failed", "could not be installed: ERROR: two"),
        ("", "failed", "exit code 7"),
    ],
)
def test_what_fails_is_one_sentence(installer: ModuleType, said: str, reason: str, sentence: str) -> None:
    failure = installer.explain(said, 7)
    assert failure.reason == reason and sentence in failure.message and "\n" not in failure.message


def test_where_torch_comes_from(installer: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    choose, opened = partial(installer.choose_index, system="linux"), list[str]()
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: opened.append(url) or open(os.devnull))
    assert choose(None, is_gpu=False) == ["--index-url", installer.CPU_INDEX]
    assert choose("", is_gpu=False) == []
    assert choose("https://mirror", is_gpu=False) == ["--index-url", "https://mirror"]
    assert choose(None, is_gpu=True) == [] and len(opened) == 1
    monkeypatch.undo()
    assert choose(None, is_gpu=False, cpu_index="http://127.0.0.1:9") == []
    assert installer.torch_of(make_wheel(tmp_path, needs="torch<2.14,>=2.11")) == "torch<2.14,>=2.11"
    assert installer.torch_of(make_wheel(tmp_path, needs="torchvision")) is None


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_real_one_from_a_checkout_to_the_first_fill(home: Home) -> None:
    home.python = sys.executable
    done = home.run("install", "--source", ROOT, timeout_s=1700)
    if done.get("reason") == "offline":
        pytest.skip("no package index can be reached")
    assert done["message"] == "Midfill is installed.", done["log"]
    source = home.folder / "t.py"
    source.write_text("def area(width, height):\n    return width * height\n\n\ndef size(width, height):\n    ...\n")
    python = str(home.store / "current" / "bin" / "python")
    (home.folder / "runtime").mkdir(mode=0o700)
    words = [python, "-P", "-m", "midfill_infill", "fill", str(source), "--function", "size", "--json"]
    filled = subprocess.run(words, env=home.environment(), capture_output=True, text=True, timeout=300)
    assert "return width" in filled.stdout, filled.stderr
    home.run("remove")
    assert not home.store.exists() and not home.model.parent.parent.exists()


def test_make_takes_torch_from_where_the_installer_does(tmp_path: Path) -> None:
    """A Python that tells its arguments stands in for the environment's; a chosen index for the machine's."""
    (tmp_path / "bin").mkdir()
    chosen = "import install; install.choose_index = lambda asked, is_gpu: ['--index-url', 'there']; "
    told = f'[ "$1" = -c ] && exec {sys.executable} -c "{chosen}$2"\necho "$@" >> {tmp_path}/told\n'
    (tmp_path / "bin/python").write_text(f"#!/bin/sh\n{told}")
    (tmp_path / "bin/python").chmod(0o755)
    words = ["make", "--silent", f"VENV={tmp_path}", "TORCH=torch>=2", f"{tmp_path}/.engine"]
    subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    first, second = (tmp_path / "told").read_text().splitlines()
    assert first.endswith(" --index-url there torch>=2") and second.endswith(" --editable .[engine]")
