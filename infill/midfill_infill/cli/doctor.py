"""`midfill doctor`: reports what is installed, what runs, what is wrong, and what to do. May start an engine."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from midfill_infill.cli.failures import report_failures
from midfill_infill.cli.options import DeviceOption, ModelOption
from midfill_infill.engines import installed, supervise
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.discovery import LocalServer, find_servers
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.engines.installed import engine_command, engine_environment
from midfill_infill.engines.notes import note
from midfill_infill.engines.supervise import EngineSettings, ensure_engine, find_place, named_endpoint, probe
from midfill_infill.errors import MidfillError
from midfill_infill.text.visible import plural

LARGE_PARAMETERS: Final = 200_000_000
_STATES: Final = {"ok": "running", "loading": "loading its model", "silent": "does not answer yet"}
_PACKAGES: Final = ("pydantic", "tree-sitter", "pygls", "torch", "tokenizers", "fastapi", "triton")


@dataclass(frozen=True)
class Finding:
    """One line of the report. `problem` is a sentence with the next step; empty if all is well."""

    name: str
    value: str
    problem: str = ""


def doctor_command(model: ModelOption = None, device: DeviceOption = "auto") -> None:
    """Check the installation and the engine. Ends with exit code 1 if something is wrong."""
    with report_failures():
        problems = 0
        for finding in examine(EngineSettings(model, device, project=Path.cwd())):
            mark = "!!" if finding.problem else "ok"
            print(f"{mark}  {finding.name:<9} {finding.value}".rstrip())
            if finding.problem:
                problems += 1
                print(f"    {'':<9} {finding.problem}")
        if problems:
            print(f"{plural(problems, 'problem')} found")
        else:
            print("all is well")
    if problems:
        raise typer.Exit(1)


def examine(settings: EngineSettings) -> Iterator[Finding]:
    """Yields all lines of the report. Starts the engine for `settings` if it is installed and does not run."""
    system = f"{platform.system()} {platform.machine()}"
    yield Finding("midfill", f"{installed.distribution_version()}, Python {platform.python_version()} on {system}")
    yield Finding("python", sys.executable)
    versions = [(name, installed.package_version(name)) for name in _PACKAGES]
    yield Finding("packages", ", ".join(f"{name} {version}" for name, version in versions if version))
    yield Finding("memory", describe_memory())
    yield from find_others()
    yield from examine_engine(settings)


def find_others(servers: Iterable[LocalServer] | None = None) -> Iterator[Finding]:
    """Yields the engines of other projects that run here, with the commands that make them fill."""
    for server in find_servers() if servers is None else servers:
        commands = ", ".join(f"`midfill config engine {setting}`" for setting in server.settings)
        yield Finding("found", f"{server.name} at {server.url}; to fill with it: {commands}")


def examine_engine(settings: EngineSettings) -> Iterator[Finding]:
    """Yields what there is to say about the engine that fills, and about its models; starts it if necessary."""
    try:
        named = named_endpoint()
        if named is None:
            supervise.check_installed()
            place = find_place(settings)
            state = _STATES.get(probe(Endpoint(socket=place.socket)) or "", "was not running, starting it")
            yield Finding("socket", f"{place.socket} ({state})")
            yield Finding("log", str(place.log))
        endpoint = ensure_engine(settings, note)
        with EngineClient(endpoint) as client:
            infos = client.models()
            if endpoint.is_outside and not endpoint.remote_host:
                client.connect()
    except MidfillError as error:
        yield Finding("engine", error.title.lower(), error.sentence)
        return
    if endpoint.is_outside:
        state = "not asked" if endpoint.remote_host else "listens, not asked"
        yield Finding("engine", f"{endpoint.title}, {state}: only a fill sends it anything")
        return
    where = f"answers at {endpoint}"
    if named is None and place.pid:
        where += f", process {place.pid}"
    yield Finding("engine", where)
    for info in infos:
        facts = f"{info.parameters / 1e6:.1f}M parameters, sees {info.max_context_tokens} tokens"
        yield Finding("model", f"{info.id} on {info.device} in {info.dtype}, {facts}")
        if info.cache:
            yield Finding("cache", describe_cache(info.cache))
        advice = what_is_slow(info.parameters, info.device, info.dtype)
        if advice:
            yield Finding("speed", advice)


def what_is_slow(parameters: int, device: str, dtype: str) -> str | None:
    """Advice for a large model on a CPU, None for other models; docs/lab/laptop.md has measured the ratios."""
    if device != "cpu" or parameters < LARGE_PARAMETERS:
        return None
    gain = "up to twice" if dtype == "float32" else "about 1.4 times"
    step = f"`midfill config weights int8` makes a pass over the context {gain} as fast"
    return f"{parameters / 1e9:.1f}B parameters on a CPU: {step}"


def describe_cache(cache: str) -> str:
    """A cache by its name, and whether its results are exact."""
    if cache in ("none", "frozen", "block"):
        return f"{cache}, exact"
    return f"{cache}, approximate; `midfill config cache none` is exact, docs/caches.md compares their cost"


def describe_memory() -> str:
    """Total and available memory as the engine counts them; the total alone if no engine is installed."""
    try:
        ended = subprocess.run([*engine_command(), "memory"], env=engine_environment(), capture_output=True, check=True)
        memory = json.loads(ended.stdout)
        return f"{memory['total_bytes'] / 2**30:.1f} GiB, {memory['available_bytes'] / 2**30:.1f} GiB available"
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError):
        return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB"
