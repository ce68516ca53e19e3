"""`python -m gpu prepare` at home, `work` on the lent machine, one a call, `join` at home. Knows the command line."""

import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpu.machine import MIB, Limits, State
from gpu.parcels import fill_calls, link, size_of
from gpu.parcels import join as join_parts
from gpu.plans import PLANS
from gpu.stay import ROOT, Stay
from training.data.pack import check_squeezed

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
MARGIN_S = 25.0  # of a call, for packing its results
BRIEF_S = 240


def tree_bytes() -> int:
    """What travels with every call anyway: files that git knows or does not ignore."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return sum((ROOT / name).stat().st_size for name in names if name and (ROOT / name).is_file())


@app.command()
def prepare(
    items: Annotated[list[Path], typer.Argument(help="squeezed sets, wheels, parts of a snapshot; in order of need")],
    out: Annotated[Path, typer.Option(help="folder to make, below the repository's root and ignored by git")] = Path(
        "runs/calls"
    ),
    plan: Annotated[str, typer.Option(help=f"one of {', '.join(PLANS)}")] = "first",
    in_mib: Annotated[int, typer.Option(help="what one call may bring, in MiB")] = 64,
) -> None:
    """Check what is to travel, divide it among calls, and print the command of each call."""
    for folder in (item for item in items if item.is_dir()):
        check_squeezed(folder)
    room = in_mib * MIB - tree_bytes()
    calls = fill_calls(items, room)
    shutil.rmtree(out, ignore_errors=True)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout
    for number, bring in enumerate(calls, 1):
        for item in bring:
            link(item.resolve(), out / str(number) / item.name)
        (out / str(number)).mkdir(parents=True, exist_ok=True)
        (out / str(number) / "commit").write_text(commit)
        size = sum(map(size_of, bring)) / MIB
        print(f"call {number} brings {out / str(number)}, {size:.1f} MiB beside a tree of {tree_bytes() / MIB:.1f}:")
        is_brief = 1 < number < len(calls)  # the next set is due
        print(f"  {command_of(out / str(number), plan)}{f' --call-s {BRIEF_S}' if is_brief else ''}")
    print("every further call, until it says that nothing is left, and again after a call that was lost:")
    print(f"  {command_of(out / '0', plan)}")


def command_of(carried: Path, plan: str) -> str:
    return f'PYTHONPATH=engine:kernels python3 -m gpu work {carried} --out "$OUT" --plan {plan}'


@app.command()
def work(
    carried: Annotated[Path, typer.Argument(help="what came along with this call; may be missing")],
    out: Annotated[Path, typer.Option(help="folder whose files go home")],
    plan: Annotated[str, typer.Option(help=f"one of {', '.join(PLANS)}")] = "first",
    call_s: Annotated[float, typer.Option(help="how long a call may last, in seconds")] = Limits.call_s,
    before_s: Annotated[
        float, typer.Option(help="what had gone of the stay when the first call began")
    ] = Limits.before_s,
    out_mib: Annotated[float, typer.Option(help="the largest file that can go home, in MiB")] = 16,
    bring: Annotated[str, typer.Option(help="what of the run to send home: snapshot, snapshot-average, plateau")] = "",
    state: Annotated[Path | None, typer.Option(help="folder that outlives the call; below the temporary one")] = None,
) -> None:
    """Do what is due, on the lent machine: the same command for every call."""
    if plan not in PLANS:
        raise typer.BadParameter(f"There is no plan named {plan!r}; known: {', '.join(PLANS)}.")
    limits = replace(Limits(), call_s=call_s, before_s=before_s, out_file_bytes=int(out_mib * MIB))
    ends_at = time.time() + call_s - MARGIN_S
    state = state or Path(tempfile.gettempdir(), "midfill-stay")
    for folder in (out, state):
        folder.mkdir(parents=True, exist_ok=True)
    opened = State.open(state, before_s)
    opened.calls += 1
    opened.write(state)
    Stay(PLANS[plan], limits, state.resolve(), carried.resolve(), out.resolve(), ends_at, opened).work(bring)


@app.command()
def join(
    parts: Annotated[Path, typer.Argument(help="folder with NAME.parts.json and its parts")],
    target: Annotated[Path, typer.Argument(help="folder to make")],
    name: str = "model",
) -> None:
    """Put together what came home in parts."""
    target.resolve().parent.mkdir(parents=True, exist_ok=True)
    join_parts(parts, name, target.resolve())
    print(target)


if __name__ == "__main__":
    app()
