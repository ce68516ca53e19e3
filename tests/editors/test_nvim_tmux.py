"""The Neovim plugin as its user sees it: in a terminal, by keys, on the true screen of every Neovim that is here."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.editors.installer import ROOT
from tests.editors.tmux import Terminal
from tests.lsp.editor import SCRIPTED, server_environment
from tests.lsp.gate import Gate

HERE = Path(__file__).parent / "nvim"
PLUGIN = ROOT / "editors" / "nvim"
SOURCE = "# 😀\nimport os\n\n\ndef first(a):\n    '''Doc.'''\n    ...\n\n\ndef second(b):\n    return b + 1\n"
FILL, GUESS = "return 'ß😀'", "return '😀ß' or x"


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    (tmp_path / "gate").mkdir()
    return Gate(tmp_path / "gate")


@pytest.fixture
def terminal(nvim: Path, tmp_path: Path, gate: Gate) -> Iterator[Terminal]:
    if not shutil.which("tmux"):
        pytest.skip("no tmux here")
    (tmp_path / "code.py").write_text(SOURCE, encoding="utf-8")
    environment = server_environment(
        TEST_PLUGIN=str(PLUGIN), TEST_SERVER=json.dumps(SCRIPTED), HOME=str(tmp_path), LANG="C.UTF-8",
        **{f"XDG_{name}_HOME": str(tmp_path) for name in ("STATE", "DATA", "CONFIG", "CACHE")},
    )  # fmt: skip
    settings = f"lua vim.lsp.config('midfill', {{ settings = {{ midfill = {{ model = '{gate.model}' }} }} }})"
    command = [str(nvim), "--cmd", settings, "-u", str(HERE / "init.lua"), str(tmp_path / "code.py")]
    with Terminal(command, tmp_path, environment) as terminal:
        terminal.wait("the file", lambda screen: "def second" in screen)
        terminal.press(":lua vim.wait(20000, function() return #vim.lsp.get_clients() > 0 end)", "Enter")
        yield terminal


def test_a_fill_on_the_screen(terminal: Terminal, gate: Gate) -> None:
    terminal.press("G", ":Midfill body", "Enter")
    terminal.wait("a preview", lambda screen: GUESS in screen)
    assert "    return b + 1" in terminal.screen(), "a preview leaves the text alone"
    gate.open()
    terminal.wait("the fill", lambda screen: FILL in screen and "return b + 1" not in screen)
    terminal.wait("the keys of a pending fill", lambda screen: "<C-y> keep" in screen)
    terminal.press("C-y")
    terminal.wait("accept", lambda screen: "<C-y> keep" not in screen and FILL in screen)
    terminal.press("u")
    terminal.wait("the old text after one undo", lambda screen: "return b + 1" in screen and FILL not in screen)


def test_ghost_text_and_health_on_the_screen(terminal: Terminal, gate: Gate) -> None:
    gate.open()
    terminal.press("7G", "o")
    terminal.wait("ghost text", lambda screen: FILL in screen)
    terminal.press("C-l")
    terminal.press("Escape")
    terminal.wait("the accepted text", lambda screen: f"    {FILL}" in screen and "INSERT" not in screen)
    terminal.press(":checkhealth midfill", "Enter")
    screen = terminal.wait("the report", lambda screen: "Midfill is ready" in screen)
    assert "server command" in screen and "ERROR" not in screen
