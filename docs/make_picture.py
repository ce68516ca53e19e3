"""Draws docs/fill.svg, an animated picture: the shipped model fills examples/expenses.py, and says how sure it is.

python docs/make_picture.py. Every step is shown for the time it took.
"""

import time
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path

from frames import MAX_REST_S, Frame, draw
from rich.console import Console, RenderableType

from midfill_infill.cli.live import color_diff, render_preview
from midfill_infill.cli.results import Results
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.supervise import EngineSettings, ensure_engine
from midfill_infill.filling.fill import Filled, Options, fill
from midfill_infill.syntax.holes import body_named
from midfill_infill.text.document import Document

ROOT = Path(__file__).parent.parent
EXAMPLE, FUNCTION = Path("examples/expenses.py"), "sum_by_payee"
COLUMNS = 88


def show(*parts: RenderableType) -> tuple[str, ...]:
    """The lines of a terminal under the command."""
    console = Console(width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(f"$ midfill fill {EXAMPLE} --function {FUNCTION}", *parts, sep="\n\n", highlight=False)
    assert isinstance(console.file, StringIO)
    return tuple(console.file.getvalue().rstrip().split("\n"))


def play(document: Document) -> list[Frame]:
    holes = (body_named(document, FUNCTION),)
    frames = [(time.monotonic() - MAX_REST_S / 2, show())]
    with EngineClient(ensure_engine(EngineSettings(), lambda phrase: None)) as client:
        with closing(fill(document, holes, Options(), client)) as events:
            for event in events:
                now_s = time.monotonic()
                if not isinstance(event, Filled):
                    frames.append((now_s, show(render_preview(document, holes, event))))
                    continue
                results = Results(EXAMPLE, document, event)
                diff = color_diff(results.diff(event.best).decode())
                return [*frames, (now_s, show(results.titles(1).rstrip(), diff))]
    raise AssertionError("a fill ends with Filled")


def main() -> None:
    frames = play(replace(Document.read(ROOT / EXAMPLE), path=EXAMPLE))
    (ROOT / "docs/fill.svg").write_text(draw(frames, COLUMNS, max(len(lines) for _, lines in frames)))


if __name__ == "__main__":
    main()
