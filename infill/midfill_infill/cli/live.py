"""Draws a running fill on a terminal, and colors diffs. Knows rich and previews, no engine."""

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

from midfill_engine.wire import HoleState
from midfill_infill.cli.view import FillView, describe_place
from midfill_infill.filling.candidates import Alternative
from midfill_infill.filling.fill import Preview
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, find_gaps
from midfill_infill.text.visible import visible

GUESS: Final = Style(dim=True, italic=True, color="bright_black")
MASKED: Final = Style(dim=True)
BLOCK: Final = "\N{LIGHT SHADE}"
ASCII_BLOCK: Final = "_"
_LINES_BEFORE, _LINES_AFTER = 3, 1
_DIFF_STYLES: Final = {"---": "bold", "+++": "bold", "#": "bold", "@@": "cyan", "+": "green", "-": "red"}


class LiveView(FillView):
    """Redraws the holes and the lines around them at every step, and clears what it has drawn at the end."""

    def __init__(
        self,
        document: Document,
        holes: Sequence[Hole],
        console: Console | None = None,
        frame_s: float = 0.0,
        propose: Callable[[], Alternative | None] = lambda: None,
    ) -> None:
        """`propose` returns the proposals that are shown while the engine starts, None for nothing. A step stays for at
        least `frame_s`.
        """
        self._document = document
        self._holes = holes
        self._frame_s = frame_s
        self._propose = cache(propose)
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="ellipsis")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, phrase: str) -> None:
        frame: RenderableType = Text(f"{phrase} ...", style="dim")
        proposed = self._propose()
        if proposed:
            frame = Group(self._render(Preview.of(proposed, 0, None)), frame)
        self._live.update(frame, refresh=True)

    def show(self, preview: Preview) -> None:
        self._live.update(self._render(preview), refresh=True)
        time.sleep(self._frame_s)

    def _render(self, preview: Preview) -> RenderableType:
        """The holes with the lines around them if the terminal is high enough, otherwise a part of each."""
        console = self._live.console
        block = BLOCK if console.encoding.startswith("utf") else ASCII_BLOCK
        frame = render_preview(self._document, self._holes, preview, block)
        rows = len(console.render_lines(frame, pad=False))
        if rows < console.height:
            return frame
        return _render_small(self._document, self._holes, preview, console.height)


class PrintedView(FillView):
    """Prints every step on stderr, for an output that cannot be redrawn."""

    def __init__(self, document: Document, holes: Sequence[Hole]) -> None:
        self._document, self._holes = document, holes

    def show(self, preview: Preview) -> None:
        Console(stderr=True).print(render_preview(self._document, self._holes, preview))


def render_preview(document: Document, holes: Sequence[Hole], preview: Preview, block: str = BLOCK) -> RenderableType:
    """Renders each hole with the lines around it, below a line that counts the steps."""
    parts = [_render_hole(document, hole, state, block) for hole, state in zip(holes, preview.holes, strict=True)]
    return Group(_make_head(preview), *parts)


def _render_small(document: Document, holes: Sequence[Hole], preview: Preview, height: int) -> RenderableType:
    """Renders within `height` rows: a title and the first lines of each hole. If there are more holes than rows, only
    titles, from the first hole with masked positions on.
    """
    num_rows = max(1, height - 2)
    unsettled = next((index for index, state in enumerate(preview.holes) if state.masked), 0)
    first = max(0, min(unsettled, len(holes) - num_rows))
    shown = list(zip(holes, preview.holes, strict=True))[first : first + num_rows]
    rows_each, num_extra = divmod(num_rows, len(shown))
    parts: list[Text] = []
    for index, (hole, state) in enumerate(shown):
        parts.append(_render_part(document, hole, state, rows_each + (index < num_extra)))
    return Group(_make_head(preview), *parts)


def _render_part(document: Document, hole: Hole, state: HoleState, num_rows: int) -> Text:
    """The title and the first lines of a hole, one row each."""
    title = _make_title(document, hole)
    progress = f"{state.masked} masked" if state.masked else "done"
    title.append(f"  {progress}", style="dim")
    text = Text(visible(state.text))
    for start, end in find_gaps(state.settled, len(state.text)):
        text.stylize(GUESS, start, end)
    part = Text("\n", no_wrap=True, overflow="ellipsis").join([title, *text.split("\n")[: num_rows - 1]])
    part.no_wrap, part.overflow = True, "ellipsis"
    return part


def _make_head(preview: Preview) -> Text:
    """The line above all holes: what is shown, which step it is, and how many positions are masked. A model that writes
    from the left knows no bound, and calls each open hole one position.
    """
    if preview.is_proposed:
        return Text("proposed by the file", style="bold", no_wrap=True, overflow="ellipsis")
    what = "draft"
    if preview.is_chosen:
        what = "fill"
    elif preview.is_repair:
        what = "repaired draft"
    head = Text(f"{what}, step {preview.step}", style="bold", no_wrap=True, overflow="ellipsis")
    masked = [hole.masked for hole in preview.holes]
    if max(masked, default=0) != 1:
        head.append(f" of {preview.num_steps}").append(f"  {sum(masked)} masked", style="dim")
    return head


def _make_title(document: Document, hole: Hole) -> Text:
    """The line above a hole."""
    return Text(f"-- {visible(describe_place(document, hole))}", style="cyan")


def _render_hole(document: Document, hole: Hole, state: HoleState, block: str) -> RenderableType:
    """A hole with some lines around it; guesses are gray, and masked positions without a guess are blocks."""
    lines_before = document.normalized_text(max(0, hole.start_byte - 2000), hole.start_byte).split("\n")
    lines_after = document.normalized_text(hole.end_byte, min(len(document.data), hole.end_byte + 1000)).split("\n")
    before = "\n".join(lines_before[-_LINES_BEFORE - 1 :]) + hole.lead
    after = hole.tail + "\n".join(lines_after[: _LINES_AFTER + 1])
    text = _highlight(document, visible(before + state.text + after))
    guesses = find_gaps(state.settled, len(state.text))
    for start, end in guesses:
        text.stylize(GUESS, len(before) + start, len(before) + end)
    if state.masked and not guesses:  # before the first step nothing has been guessed
        end_of_hole = len(before) + len(state.text)
        text = Text.assemble(text[:end_of_hole], (block * state.masked, MASKED), text[end_of_hole:])
    return Group(_make_title(document, hole), text)


def _highlight(document: Document, code: str) -> Text:
    """The code with its syntax in color; without colors if the lexer would strip or add characters."""
    syntax = Syntax("", document.language or "text", theme="ansi_dark", tab_size=4)
    text = Text(code)
    colored = syntax.highlight(code)
    if colored.plain.rstrip("\n") == code.rstrip("\n"):
        text.spans = [span for span in colored.spans if span.start < len(code)]
    return text


def color_diff(diff: str) -> Text:
    """A diff in color, for a terminal."""
    text = Text()
    for line in visible(diff).split("\n")[:-1]:
        style = next((style for prefix, style in _DIFF_STYLES.items() if line.startswith(prefix)), "")
        text.append(line + "\n", style=style)
    return text
