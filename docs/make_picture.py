"""Draws docs/fill.svg: frames of a real fill of examples/expenses.py by the shipped model, then the diff.

python docs/make_picture.py
"""

from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from midfill_infill.cli.diff import unified_diff
from midfill_infill.cli.live import color_diff, render_preview
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.supervise import EngineSettings, ensure_engine
from midfill_infill.fill import Filled, Options, Preview, fill
from midfill_infill.syntax.holes import body_named
from midfill_infill.text.document import Document

ROOT = Path(__file__).parent.parent
EXAMPLE = Path("examples/expenses.py")
# Rich's own template loads a web font: a reader's machine would ask a foreign host for it.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
{chrome}<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""


def run_fill(document: Document) -> tuple[list[Preview], Filled]:
    """Every step of the fill and its end."""
    holes = (body_named(document, "sum_by_payee"),)
    previews: list[Preview] = []
    with EngineClient(ensure_engine(EngineSettings(), lambda phrase: None)) as client:
        with closing(fill(document, holes, Options(), client)) as events:
            for event in events:
                if isinstance(event, Filled):
                    return previews, event
                previews.append(event)
    raise AssertionError("a fill ends with Filled")


def main() -> None:
    document = replace(Document.read(ROOT / EXAMPLE), path=EXAMPLE)
    previews, filled = run_fill(document)
    holes = tuple(placed.hole for placed in filled.fills)
    console = Console(record=True, width=76, file=StringIO(), force_terminal=True, color_system="truecolor")
    last = len(previews) - 1
    for index in sorted({0, min(1, last), len(previews) // 2, last}):  # a fill that is found takes few steps
        console.print(render_preview(document, holes, previews[index]))
        console.print()
    diff = unified_diff(EXAMPLE, document.data, filled.patch.apply(document.data))
    console.print(color_diff(diff.decode()))
    (ROOT / "docs/fill.svg").write_text(console.export_svg(title="midfill fill", theme=DIMMED_MONOKAI, code_format=SVG))


if __name__ == "__main__":
    main()
