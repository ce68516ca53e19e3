"""What a person watches while a fill runs, and the coloured diff after it. Knows rich and previews, no engine."""

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

from midfill_infill.fill import Candidate, HolePreview, Preview
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_infill.text.visible import visible

GUESS: Final = Style(dim=True, italic=True, color="bright_black")
MASKED: Final = Style(dim=True)
BLOCK: Final = "\N{LIGHT SHADE}"
_LINES_BEFORE, _LINES_AFTER = 3, 1


class View(Protocol):
    """What a fill is shown on."""

    def note(self, phrase: str) -> None: ...

    def show(self, preview: Preview) -> None: ...


def open_view(
    document: Document, holes: Sequence[Hole], *, live: bool, frame_s: float = 0.0
) -> AbstractContextManager[View]:
    """The live view on a terminal, else one that notes on stderr what takes long, if a person reads it.

    Every step stays for at least `frame_s`; if that is asked for, it is printed where there is no terminal too.
    """
    console = Console()
    if live and console.is_terminal and not console.is_dumb_terminal:
        return LiveView(document, holes, console, frame_s)
    if live and frame_s:
        return PrintedView(document, holes)
    return QuietView()


class QuietView:
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def note(self, phrase: str) -> None:
        if sys.stderr.isatty():
            print(f"{phrase} ...", file=sys.stderr)

    def show(self, preview: Preview) -> None:
        return None


class PrintedView(QuietView):
    """Every step one below the other on stderr, where nothing can be redrawn."""

    def __init__(self, document: Document, holes: Sequence[Hole]) -> None:
        self._document = document
        self._holes = holes
        self._console = Console(stderr=True)

    def show(self, preview: Preview) -> None:
        self._console.print(render_preview(self._document, self._holes, preview))


class LiveView:
    """Redraws the holes in their surroundings at every step; leaves nothing behind."""

    def __init__(self, document: Document, holes: Sequence[Hole], console: Console, frame_s: float = 0.0) -> None:
        self._document = document
        self._holes = holes
        self._frame_s = frame_s
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="ellipsis")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def note(self, phrase: str) -> None:
        self._live.update(Text(f"{phrase} ...", style="dim"), refresh=True)

    def show(self, preview: Preview) -> None:
        self._live.update(render_preview(self._document, self._holes, preview), refresh=True)
        time.sleep(self._frame_s)


def render_preview(document: Document, holes: Sequence[Hole], preview: Preview) -> RenderableType:
    """Every hole among its neighbouring lines, under a line that counts the steps."""
    what = "repair step" if preview.repair else "step"
    masked = sum(hole.masked for hole in preview.holes)
    head = Text(f"{what} {preview.step} of {preview.num_steps}", style="bold")
    head.append(f"  {masked} masked", style="dim")
    return Group(head, *map(_render_hole, [document] * len(holes), holes, preview.holes))


def _render_hole(document: Document, hole: Hole, preview: HolePreview) -> RenderableType:
    before = document.decode(max(0, hole.start_byte - 2000), hole.start_byte)
    after = document.decode(hole.end_byte, min(len(document.data), hole.end_byte + 1000))
    before = "\n".join(_lines(before)[-_LINES_BEFORE - 1 :]) + hole.lead
    after = hole.tail + "\n".join(_lines(after)[: _LINES_AFTER + 1])
    text = _highlighted(document, visible(before + preview.text + after))
    guesses = _gaps(preview.settled, len(preview.text))
    for start, end in guesses:
        text.stylize(GUESS, len(before) + start, len(before) + end)
    if preview.masked and not guesses:  # before the first step nothing has been guessed
        at = len(before) + len(preview.text)
        text = Text.assemble(text[:at], (BLOCK * preview.masked, MASKED), text[at:])
    line, _ = document.position_at(hole.start_byte)
    title = f"{document.path or 'text'}:{line}" + (f" {hole.name}" if hole.name else "")
    return Group(Text(f"-- {visible(title)}", style="cyan"), text)


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _highlighted(document: Document, code: str) -> Text:
    """`code` in colours, character for character: the lexer must not strip or add any."""
    syntax = Syntax("", document.language or "text", theme="ansi_dark", tab_size=4)
    text = Text(code)
    colored = syntax.highlight(code)
    if colored.plain.rstrip("\n") == code.rstrip("\n"):
        text.spans = [span for span in colored.spans if span.start < len(code)]
    return text


def _gaps(settled: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    edges = [0, *(edge for span in settled for edge in span), length]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]


def print_diffs(diffs: Sequence[str], candidates: Sequence[Candidate]) -> None:
    """The diff of every candidate in colours, the best first."""
    console = Console()
    for number, (diff, candidate) in enumerate(zip(diffs, candidates, strict=True), start=1):
        if len(diffs) > 1:
            console.print(Text(f"alternative {number}, new syntax errors: {candidate.new_errors}", style="bold"))
        console.print(color_diff(diff), soft_wrap=True, end="")


def color_diff(diff: str) -> Text:
    text = Text()
    for line in visible(diff).split("\n")[:-1]:
        text.append(line + "\n", style=_diff_style(line))
    return text


def _diff_style(line: str) -> str:
    for prefix, style in (("---", "bold"), ("+++", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red")):
        if line.startswith(prefix):
            return style
    return ""
