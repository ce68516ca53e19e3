"""One command for every bench that this machine can run; each writes a record beside the others.

    PYTHONPATH=engine:kernels python -m bench.run [--folder engine/bench/results]

With a GPU: operators, steps and fills of the three shapes, fills through the engine. Without: the embedded model. Files
are named by date, device and bench; steps are drawn too.
"""

import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import torch
import typer

from bench.measure import ROOT, processor_name

ON_GPU: Final = ("bench.operators", "bench.steps", "bench.serving")
ON_CPU: Final = ("bench.embedded",)
DRAWN: Final = ("bench.steps", "bench.embedded")


def name_record(bench: str) -> str:
    """Such as 2026-01-31-nvidia-h100-80gb-hbm3-steps.json."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else processor_name()
    plain = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return f"{datetime.now(UTC):%Y-%m-%d}-{plain}-{bench.removeprefix('bench.')}.json"


def main(
    folder: Annotated[Path, typer.Option(help="where records go")] = ROOT / "engine/bench/results",
) -> None:
    """Runs each bench in a process of its own, so that one leaves the next all the memory."""
    codes = []
    for bench in ON_GPU if torch.cuda.is_available() else ON_CPU:
        record = folder / name_record(bench)
        codes.append(subprocess.run([sys.executable, "-m", bench, "--json", str(record)]).returncode)
        if bench in DRAWN and codes[-1] == 0 and find_spec("matplotlib"):
            codes.append(subprocess.run([sys.executable, "-m", "bench.draw", str(record)]).returncode)
    sys.exit(any(codes))


if __name__ == "__main__":
    typer.run(main)
