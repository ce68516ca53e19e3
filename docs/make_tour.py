"""Draws docs/tour.svg, an animated picture: the default model fills examples/expenses.py in a real Neovim.

python docs/make_tour.py. Needs tmux, `make editors` and `midfill models get smollm2`. Frames are shown as fast as they
came; only waiting is cut.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from frames import Frame, draw

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from tests.editors.tmux import Terminal  # noqa: E402 - the tests are no package that is installed
from tests.lsp.editor import server_environment  # noqa: E402

from midfill_engine.starting import packaged_folder  # noqa: E402
from midfill_engine.wire import BASE  # noqa: E402

NVIM = ROOT / ".venv" / "nvim-0.12" / "bin" / "nvim"
COLUMNS, LINES = 100, 20
FILE, FUNCTION = "expenses.py", 54
"""The line of the body that is filled."""


def record(terminal: Terminal, frames: list[Frame], done: Callable[[str], object], rest_s: float) -> None:
    """Takes a frame at every change of the screen until it is `done` and has rested so long."""
    ends_s = time.monotonic() + 90
    changed_s = time.monotonic()
    while time.monotonic() < ends_s:
        lines = tuple(terminal.screen(styled=True).split("\n")[:LINES])
        now_s = time.monotonic()
        if not frames or frames[-1][1] != lines:
            frames.append((now_s, lines))
            changed_s = now_s
        elif now_s - changed_s > rest_s and done(terminal.screen()):
            return
        time.sleep(0.015)
    raise AssertionError(f"the screen never got there:\n{terminal.screen()}")


@contextmanager
def end_engines(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        for lock in folder.glob("*.lock"):
            os.kill(int(lock.read_text()), signal.SIGTERM)


def play() -> list[Frame]:
    """A body is filled and kept."""
    frames: list[Frame] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o700)
        shutil.copy(ROOT / "examples" / FILE, folder)
        (folder / "midfill" / "models").mkdir(parents=True)
        (folder / "midfill" / "models" / BASE).symlink_to(packaged_folder() / BASE)
        (folder / "init.lua").write_text(
            "vim.o.swapfile, vim.o.shadafile, vim.o.termguicolors, vim.o.laststatus = false, 'NONE', true, 0\n"
            "vim.o.number, vim.o.ruler, vim.o.showcmd, vim.o.shortmess = true, false, false, 'atIcFW'\n"
            f"vim.opt.runtimepath:prepend('{ROOT}/editors/nvim')\nvim.cmd.colorscheme('habamax')\n"
            f"vim.lsp.config('midfill', {{ cmd = {{ '{sys.executable}', '-m', 'midfill_lsp' }} }})\n"
            "vim.cmd('runtime plugin/midfill.lua')\n"
        )
        environment = server_environment(
            HOME=name, MIDFILL_RUNTIME_DIR=name, LANG="C.UTF-8", COLORTERM="truecolor",
            **{f"XDG_{kind}_HOME": name for kind in ("STATE", "DATA", "CONFIG", "CACHE")},
        )  # fmt: skip
        command = [str(NVIM), "-u", str(folder / "init.lua"), str(folder / FILE)]
        with (
            end_engines(folder),
            Terminal(command, folder, environment, columns=COLUMNS, lines=LINES) as terminal,
        ):
            terminal.wait("the file", lambda screen: "import" in screen)
            terminal.press(":lua vim.wait(60000, function() return #vim.lsp.get_clients() > 0 end)", "Enter")
            terminal.press(f"{FUNCTION}G", "zz", "w")
            terminal.press(":Midfill body", "Enter")  # the first fill starts the engine
            terminal.wait("the first fill", lambda screen: "◆" in screen, timeout_s=90)
            terminal.press("C-e")
            terminal.wait("the stub", lambda screen: "..." in screen)
            time.sleep(2)
            record(terminal, frames, lambda screen: True, 0.3)
            for key in ":Midfill body":
                terminal.press("-l", key)
                record(terminal, frames, lambda screen: True, 0.03)
            terminal.press("Enter")
            record(terminal, frames, lambda screen: "◆" in screen, 1.5)
            terminal.press("C-y")
            record(terminal, frames, lambda screen: "◆" not in screen, 0.6)
    return frames


def main() -> None:
    (ROOT / "docs" / "tour.svg").write_text(draw(play(), COLUMNS, LINES), encoding="utf-8")


if __name__ == "__main__":
    main()
