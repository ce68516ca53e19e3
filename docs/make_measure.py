"""Draws docs/measure.svg: the table of `midfill measure`, as a terminal shows it.

python docs/make_measure.py FOLDER [OPTION ...] runs the command in a folder; what was measured there today is not filled again.
"""

import os
import subprocess
import sys
from pathlib import Path

from frames import draw
from rich.console import Console

COLUMNS = 124


def main() -> None:
    folder, *words = sys.argv[1:]
    command = [sys.executable, "-P", "-m", "midfill_infill", "measure", *words]
    said = subprocess.run(command, cwd=folder, env={**os.environ, "COLUMNS": str(COLUMNS)}, capture_output=True, check=True)
    console = Console(width=COLUMNS, color_system="truecolor", force_terminal=True)
    with console.capture() as capture:
        console.print(f"$ midfill {' '.join(command[4:])}", said.stdout.decode(), sep="\n", highlight=False, markup=False)
    lines = tuple(capture.get().rstrip().split("\n"))
    (Path(__file__).parent / "measure.svg").write_text(draw([(0.0, lines)], COLUMNS, len(lines)))


if __name__ == "__main__":
    main()
