"""Draws docs/tour.svg, an animated picture: the shipped model fills examples/inventory.py in a real Neovim.

python docs/make_tour.py. Needs tmux and `make editors`. Frames are shown as fast as they came; only waiting is cut.
"""

import html
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.color import ColorType
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from tests.editors.tmux import Terminal  # noqa: E402 - the tests are no package that is installed
from tests.lsp.editor import server_environment  # noqa: E402

NVIM = ROOT / ".venv" / "nvim-0.12" / "bin" / "nvim"
COLUMNS, LINES = 92, 20
CHAR_WIDTH, LINE_HEIGHT, MARGIN = 9.64, 21, 12
MAX_REST_S = 2.2
FUNCTION = 28
"""The line of the body that is filled."""

Frame = tuple[float, tuple[str, ...]]


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
        shutil.copy(ROOT / "examples" / "inventory.py", folder)
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
        command = [str(NVIM), "-u", str(folder / "init.lua"), str(folder / "inventory.py")]
        with (
            end_engines(folder),
            Terminal(command, folder, environment, columns=COLUMNS, lines=LINES) as terminal,
        ):
            terminal.wait("the file", lambda screen: "class Inventory" in screen)
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


def draw(frames: list[Frame]) -> str:
    """Every different line once; a frame says which lines it shows, a style sheet when it is there."""
    starts = [0.0]
    for (before_s, _), (now_s, _) in zip(frames, frames[1:], strict=False):
        starts.append(starts[-1] + min(now_s - before_s, MAX_REST_S))
    length_s = starts[-1] + MAX_REST_S
    rows: dict[str, str] = {}
    styles, groups = [], []
    for index, (start_s, (_, lines)) in enumerate(zip(starts, frames, strict=True)):
        first, last = 100 * start_s / length_s, 100 * ([*starts, length_s][index + 1]) / length_s
        shown = f"{first:.2f}%{{visibility:visible}}" + (f"{last:.2f}%{{visibility:hidden}}" if last < 99.99 else "")
        styles.append(f"@keyframes k{index}{{0%{{visibility:{'hidden' if index else 'visible'}}}{shown}}}")
        styles.append(f"#f{index}{{animation:k{index} {length_s:.2f}s step-end infinite}}")
        uses = []
        for number, line in enumerate(lines):
            if drawn := draw_line(line):
                row = rows.setdefault(drawn, f"r{len(rows)}")
                uses.append(f'<use href="#{row}" y="{MARGIN + LINE_HEIGHT * number}"/>')
        groups.append(f'<g id="f{index}" class="f">{"".join(uses)}</g>')
    width, height = COLUMNS * CHAR_WIDTH + 2 * MARGIN, LINES * LINE_HEIGHT + 2 * MARGIN
    defs = "".join(f'<g id="{name}">{drawn}</g>' for drawn, name in rows.items())
    return (
        f'<svg viewBox="0 0 {width:.0f} {height}" xmlns="http://www.w3.org/2000/svg"><style>'
        "text{font:16px monospace;white-space:pre}.f{visibility:hidden}"
        f"{''.join(styles)}"
        "@media (prefers-reduced-motion:reduce){.f{animation:none!important}"
        f"#f{len(frames) - 1}{{visibility:visible}}}}"
        f'</style><defs>{defs}</defs><rect width="100%" height="100%" rx="8" fill="#1c1c1c"/>{"".join(groups)}</svg>\n'
    )


def draw_line(line: str) -> str:
    """One line of a terminal, its top at 0; empty where there is nothing to see."""
    text = Text.from_ansi(line)
    drawn = []
    edges = sorted({0, len(text), *(edge for span in text.spans for edge in (span.start, span.end))})
    for start, end in zip(edges, edges[1:], strict=False):
        spans = [span.style for span in text.spans if isinstance(span.style, Style) and span.start <= start < span.end]
        style = Style.combine([Style.null(), *spans])
        part = text.plain[start:end]
        x, width = MARGIN + CHAR_WIDTH * start, CHAR_WIDTH * len(part)
        fill, back = paint(style, foreground=True), paint(style, foreground=False)
        if style.reverse:
            fill, back = back or "#1c1c1c", fill
        if back and back != "#1c1c1c":
            drawn.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="{LINE_HEIGHT}" fill="{back}"/>')
        if part.strip():
            extra = ' font-weight="bold"' if style.bold else ""
            extra += ' font-style="italic"' if style.italic else ""
            extra += ' text-decoration="underline"' if style.underline or style.underline2 else ""
            drawn.append(
                f'<text x="{x:.1f}" y="16" textLength="{width:.1f}" fill="{fill}"{extra}>{html.escape(part)}</text>'
            )
    return "".join(drawn)


def paint(style: Style, *, foreground: bool) -> str:
    color = style.color if foreground else style.bgcolor
    if color is None or color.type is ColorType.DEFAULT:
        return "#bcbcbc" if foreground else ""
    return color.get_truecolor(DIMMED_MONOKAI, foreground).hex


def main() -> None:
    (ROOT / "docs" / "tour.svg").write_text(draw(play()), encoding="utf-8")


if __name__ == "__main__":
    main()
