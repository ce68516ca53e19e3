"""The Neovim plugin in every Neovim that is here, headless, with a real server whose fills follow a script.

`make editors` puts Neovim 0.11 and 0.12 where this test finds them; otherwise the `nvim` of the path is used.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.editors.installer import ROOT, Home, pack
from tests.lsp.editor import SCRIPTED, server_environment

HERE = Path(__file__).parent / "nvim"
PLUGIN = ROOT / "editors" / "nvim"
MAX_LINES = 1080


def run(
    nvim: Path, folder: Path, *arguments: str, timeout_s: float = 110, **more: str
) -> subprocess.CompletedProcess[str]:
    environment = server_environment(
        TEST_PLUGIN=str(PLUGIN), TEST_SERVER=json.dumps(SCRIPTED), TEST_FOLDER=str(folder),
        TEST_PYTHON=sys.executable, HOME=str(folder),
        XDG_STATE_HOME=str(folder), XDG_DATA_HOME=str(folder), XDG_CONFIG_HOME=str(folder), XDG_CACHE_HOME=str(folder),
        **more,
    )  # fmt: skip
    command = [str(nvim), "--headless", "-u", str(HERE / "init.lua"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s)


def test_the_plugin_in_a_real_neovim(nvim: Path, tmp_path: Path) -> None:
    done = run(nvim, tmp_path, "-S", str(HERE / "run.lua"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout and " passed on " in done.stdout


@pytest.mark.parametrize("num_sequences", [8, pytest.param(2500, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])])
def test_random_sequences_leave_pending_what_must_be(nvim: Path, tmp_path: Path, num_sequences: int) -> None:
    more = {"SEQUENCES": str(num_sequences), "SEED": os.environ.get("SEED", str(num_sequences))}
    timeout_s = 110 + 2 * num_sequences
    done = run(nvim, tmp_path, "-S", str(HERE / "model.lua"), timeout_s=timeout_s, **more)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{40 * num_sequences} operations, 0 wrong" in done.stdout


def run_install(nvim: Path, home: Home, plugin: Path, scenes: str, timeout_s: float, **more: str) -> str:
    home.folder.mkdir(exist_ok=True)
    (home.folder / "runtime").mkdir(mode=0o700, exist_ok=True)
    (home.folder / "t.py").write_text(
        "def a(width, height):\n    return width * height\n\n\ndef b(width, height):\n    ...\n"
    )
    setup = ["--cmd", f"set runtimepath^={plugin}", "-u", "NORC", "-i", "NONE", "-S", str(HERE / "install.lua")]
    environment = home.environment(TEST_FOLDER=str(home.folder), SCENES=scenes, NVIM_LOG_FILE=os.devnull, **more)
    command = [str(nvim), "--headless", *setup]
    with closing(home):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("ok ")] == [
        f"ok {name}" for name in scenes.split()
    ]
    return done.stdout + done.stderr


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """The plugin with a wheel beside it."""
    plugin = tmp_path / "plugin"
    shutil.copytree(PLUGIN, plugin)
    pack(plugin / "server", SCRIPTED)
    return plugin


def test_it_installs_repairs_and_removes_its_server(nvim: Path, packed: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    scenes = "missing cancel install fill repair fill uninstall missing"
    assert "return 'ß😀'" in run_install(nvim, home, packed, scenes, timeout_s=230)
    assert not list(home.folder.rglob("env-*")) and not home.model.exists()


def test_an_installation_offline_is_one_sentence(nvim: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    shutil.copytree(PLUGIN, plugin)
    pack(plugin / "server", SCRIPTED, needs="nosuchpackage")
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "UV_NO_CONFIG": "1"}
    run_install(nvim, Home(tmp_path / "home"), plugin, "offline missing", timeout_s=230, **nowhere)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_real_server_from_the_checkout_to_the_first_fill(nvim: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    scenes = "install fill uninstall"
    told = run_install(nvim, home, PLUGIN, scenes, timeout_s=1700, TEST_WAIT_MS="800000")
    assert "return width" in told and not home.model.exists()


def test_the_plugin_stays_small() -> None:
    lines = [line for file in PLUGIN.rglob("*.lua") for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(lines) <= MAX_LINES


def test_the_help_is_written_from_the_source() -> None:
    commands = [line for line in (PLUGIN / "doc/midfill.txt").read_text().splitlines() if line.startswith(":Midfill ")]
    assert all(re.match(r":Midfill [a-z_]+ +[a-z]", line) for line in commands)
    subprocess.run([sys.executable, str(PLUGIN / "write_doc.py"), "--check"], check=True, timeout=60)
