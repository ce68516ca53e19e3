"""`midfill refactor generate` and `merge`: put fills into the journal of a planned run. Shells around refactor/."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from midfill_engine.wire import Wish
from midfill_infill import config
from midfill_infill.cli import options
from midfill_infill.cli.options import option
from midfill_infill.cli.refactor.common import RootOption, RunOption, open_run, plural, reported, say
from midfill_infill.cli.until import read_goal, warn_of
from midfill_infill.engines.notes import note
from midfill_infill.engines.supervise import EngineSettings
from midfill_infill.errors import SOME_FAILED, MidfillError
from midfill_infill.filling.fill import Options
from midfill_infill.refactor.generating import engines
from midfill_infill.refactor.generating.generate import Progress, generate
from midfill_infill.refactor.generating.ray_workers import RayWorkers
from midfill_infill.refactor.generating.shards import Shard, merge, open_part
from midfill_infill.refactor.generating.until import generate_until
from midfill_infill.refactor.journal.records import State
from midfill_infill.text.visible import duration


def generate_command(
    root: RootOption = Path("."),
    run: RunOption = None,
    jobs: Annotated[int, option("N", "Holes in flight.", "--jobs", "-j", min=1, max=256)] = 4,
    model: options.ModelOption = None,
    device: options.DeviceOption = "auto",
    steps: options.StepsOption = None,
    quality: options.QualityOption = None,
    max_tokens: options.MaxTokensOption = None,
    ray: Annotated[int, option("N", "Start this many Ray actors, each with an engine.", min=0, max=4096)] = 0,
    ray_address: Annotated[str | None, option("ADDRESS", "A Ray cluster to join.")] = None,
    ray_env: Annotated[
        Path | None, option("FILE.json", "A Ray runtime environment, for nodes that lack packages.")
    ] = None,
    shard: Annotated[str | None, option("I/N", "Generate only this part, into --out; `merge` combines parts.")] = None,
    out: Annotated[Path | None, option("FILE", "Output file of a shard.")] = None,
    until: options.UntilOption = None,
    tries: options.TriesOption = 20,
    command_timeout: options.CommandTimeoutOption = None,
    sandbox: options.SandboxOption = True,
    allow: options.AllowOption = None,
    env: options.EnvOption = None,
) -> None:
    """Fill the holes of a run. Every fill is journaled; run it again after any interruption and it goes on.

    With --until a hole at a time is filled until the command passes with the tests that import its file, which go in
    the place of {tests}, or behind a bare pytest.
    """
    with reported():
        if (shard is None) != (out is None):
            raise MidfillError("bad_shard", "--shard and --out go together", "give both")
        part_of = None if shard is None else Shard.parse(shard)
        used_quality = config.choose_quality(quality, Path.cwd())
        presets: tuple[Wish, ...] = () if quality is not None else ("quality",)
        fill_options = Options(steps=steps, quality=used_quality, max_tokens=max_tokens, presets=presets)
        goal = None
        if until is not None:
            goal = read_goal(until, tries, command_timeout, sandbox, allow, env)
            warn_of(goal.command)
            if ray or shard:
                raise MidfillError("bad_request", "--until fills one hole at a time", "leave out --ray and --shard")
        settings = EngineSettings(model=model, device=device, project=Path.cwd())
        with (
            _open_engine(settings, ray, ray_address, ray_env) as (engine, answered),
            open_run(root, run, "" if shard else "generate") as (place, journal),
        ):
            meter = Meter(answered)
            num_jobs = max(jobs, 2 * ray)
            if goal is not None:
                progress = generate_until(journal, place, engine, fill_options, goal, meter, say)
            elif part_of is not None and out is not None:
                with open_part(journal, out) as part:
                    progress = generate(
                        part, place.root, engine, fill_options, jobs=num_jobs, show=meter, only=part_of.takes
                    )
            else:
                progress = generate(journal, place.root, engine, fill_options, jobs=num_jobs, show=meter)
        num_broken = progress.done - progress.accepted - progress.failed
        say(
            f"{plural(progress.done, 'hole')} in {duration(progress.elapsed_s)}: {progress.accepted} clean,"
            f" {num_broken} with syntax errors, {progress.failed} failed"
        )
        if progress.unfilled_before:
            say(f"{plural(progress.unfilled_before, 'hole')} got no good fill before: see `midfill refactor status`")
        if progress.accepted < progress.done or progress.unfilled_before:
            raise typer.Exit(SOME_FAILED)


@contextmanager
def _open_engine(
    settings: EngineSettings, ray: int, address: str | None, environment: Path | None
) -> Iterator[tuple[engines.Engine, Mapping[str, int]]]:
    """Opens the engine that fills: `ray` actors if that is not 0, otherwise the local engine. Yields it, and how many
    holes each node of the cluster has answered so far.
    """
    if not ray:
        with closing(engines.LocalEngine(settings, note)) as engine:
            yield engine, {}
        return
    with closing(RayWorkers(settings, ray, address, _read_environment(environment))) as workers:
        for node, count in sorted(workers.placement.items()):
            say(f"{node}: {plural(count, 'actor')}")
        yield workers, workers.answered


def _read_environment(path: Path | None) -> dict[str, Any]:
    """The runtime environment for Ray in a JSON file; empty for None. Raises MidfillError."""
    if path is None:
        return {}
    try:
        environment = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise MidfillError("bad_request", f"{path} cannot be read ({error})", "give a JSON file") from None
    if not isinstance(environment, dict):
        raise MidfillError("bad_request", f"{path} is not a JSON object", "see Ray's page on runtime environments")
    return environment


class Meter:
    """Prints how far a run is, and how many holes each node has `answered`: on a terminal by a line that changes,
    otherwise by a new line every 10 s.
    """

    def __init__(self, answered: Mapping[str, int]) -> None:
        self._answered = answered
        self._is_terminal = sys.stderr.isatty()
        self._next_s = time.monotonic() + (0.0 if self._is_terminal else 10.0)

    def __call__(self, progress: Progress) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s and progress.done < progress.total:
            return
        self._next_s = now_s + (0.2 if self._is_terminal else 10.0)
        percent = 100 * progress.accepted / max(1, progress.done)
        text = f"{progress.done}/{progress.total} holes, {percent:.0f} % clean, {progress.per_minute:.0f} a minute"
        if progress.left_s:
            text += f", {duration(progress.left_s)} left"
        nodes = ", ".join(f"{node} {count}" for node, count in sorted(self._answered.items()))
        if nodes:
            text += f"; {nodes}"
        if self._is_terminal:
            end = "\n" if progress.done >= progress.total else ""
            print(f"\r\x1b[K{text}", end=end, file=sys.stderr, flush=True)
        else:
            say(text)


def merge_command(
    parts: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files that shards wrote.")],
    root: RootOption = Path("."),
    run: RunOption = None,
) -> None:
    """Take the answers of shards into the run's journal. Holes that have a fill already keep it."""
    with reported():
        with open_run(root, run, "merge") as (_, journal):
            num_taken = merge(journal, parts)
            num_planned = journal.counts().get(State.PLANNED, 0)
        say(f"{plural(num_taken, 'hole')} taken from {plural(len(parts), 'part')}, {num_planned} still planned")
