"""`midfill engine`: lists running engines and ends them. Knows their records and processes, not what they compute."""

import json
import os
import signal
import time
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from midfill_infill.cli.failures import report_failures
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.engines.records import EnginePlace, list_living
from midfill_infill.engines.supervise import SHIPPED, EngineSettings, probe
from midfill_infill.errors import MidfillError
from midfill_infill.text.visible import duration

GRACE_S: Final = 5.0  # for a process to end before it is killed
_STATES: Final = {"ok": "ready", "loading": "loading", "draining": "ending", "silent": "does not answer"}
APP: Final = typer.Typer(
    help="Running engines: `ps` lists them, `stop` ends them.", no_args_is_help=True, add_completion=False
)


@APP.command("ps")
def ps_command(json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List your engines: process, state, model, device, memory, age, and when they end by themselves."""
    with report_failures(as_json=json_output):
        rows = []
        for place, record in list_living():
            idle_s, left_s = _find_times(place)
            numbers = {"bytes": place.resident_bytes, "age_s": place.age_s, "idle_s": idle_s, "left_s": left_s}
            facts = {"pid": place.pid, "state": _find_state(place), **asdict(record), "socket": str(place.socket)}
            rows.append(facts | numbers)
        if json_output:
            print(json.dumps(rows, indent=2))
            return
        if not rows:
            print("no engine runs; the first fill starts one")
        for row in rows:
            device = f"device {row['device']}"
            if row["is_served"]:
                device += ", by `midfill serve`"
            print(f"{row['pid']}  {row['state']}  {row['model'] or SHIPPED}  {device}  {_describe(row)}")


def _find_times(place: EnginePlace) -> tuple[float | None, float | None]:
    """Seconds since an engine's last request, None if it does not answer; and seconds until it ends by itself, None too
    if it never does.
    """
    try:
        with EngineClient(Endpoint(socket=place.socket)) as client:
            idle_s, limit_s = client.idle()
    except MidfillError:
        return None, None
    return idle_s, None if limit_s is None else max(0.0, limit_s - idle_s)


def _describe(row: dict[str, Any]) -> str:
    """The memory and the times of an engine, in words."""
    words = f"up {duration(row['age_s'])}"
    if row["bytes"] is not None:
        words = f"{row['bytes'] / 1e6:.0f} MB, {words}"
    if row["left_s"] is not None:
        words += f", ends in {duration(row['left_s'])} unless asked"
    return words


def _find_state(place: EnginePlace) -> str:
    """The state of an engine, in words."""
    try:
        return _STATES.get(probe(Endpoint(socket=place.socket)) or "", "starting")
    except MidfillError:
        return "stopped"


@APP.command("stop")
def stop_command(
    model: Annotated[str | None, typer.Argument(metavar="[NAME|DIR]", help="Only engines of this model.")] = None,
) -> None:
    """End your engines, with their fills. The next fill starts one again."""
    with report_failures():
        wanted = None if model is None else EngineSettings(model).record.model  # as records have it: "" for the default
        ended = 0
        for place, record in list(list_living()):
            if place.pid is not None and wanted in (None, record.model):
                end(place, place.pid)
                print(f"ended {record.model or SHIPPED} (process {place.pid})")
                ended += 1
        if not ended and model is None:
            print("no engine runs")
        elif not ended:
            print(f"no engine of {model} runs")


def end(place: EnginePlace, pid: int) -> None:
    """Ends the engine of a place: asks its process to end, and kills it if it does not within GRACE_S."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, signal_number)
        except ProcessLookupError:
            return
        deadline_s = time.monotonic() + GRACE_S
        while time.monotonic() < deadline_s:
            if not place.is_alive:
                return
            time.sleep(0.02)
