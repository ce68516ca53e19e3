"""Drives a serving engine with more and more clients: throughput, waiting times by kind, what big prompts do to others.

    PYTHONPATH=engine:kernels python -m bench.load [--clients 1 --clients 8 ...] [--tree NAME=FOLDER ...] [--json FILE]

Each client asks, waits for the whole answer, thinks for a moment and asks again: three of four a line (8 tokens or
less), one of four a body (48 tokens or more). Two trees of the source (`--tree before=...`) are served side by side and
measured in turns, so that both see the same machine; ratios between them mean something, seconds do not.
"""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
import torch
import typer
from rich.console import Console
from rich.table import Table

from bench.measure import describe, write_record

ROOT: Final = Path(__file__).parents[2]
THINKING_S: Final = 0.2
BIG_CHARACTERS: Final = 1_000_000
BODIES_BEFORE_A_LINE: Final = 8


@dataclass
class Sample:
    """Seconds of every answer by kind, and what else happened."""

    seconds: float
    line_s: list[float] = field(default_factory=list)
    body_s: list[float] = field(default_factory=list)
    health_s: list[float] = field(default_factory=list)
    tokens: int = 0
    refused: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Result:
    """Of all rounds together. Seconds are those of a shared machine."""

    tree: str
    scene: str
    requests_per_s: float
    tokens_per_s: float
    line_p50_s: float
    line_p99_s: float
    body_p50_s: float
    health_p99_s: float
    refused: int
    failed: int


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def summarise(tree: str, scene: str, samples: list[Sample]) -> Result:
    lines = [value for sample in samples for value in sample.line_s]
    bodies = [value for sample in samples for value in sample.body_s]
    health = [value for sample in samples for value in sample.health_s]
    seconds = sum(sample.seconds for sample in samples)
    return Result(
        tree,
        scene,
        (len(lines) + len(bodies)) / seconds,
        sum(sample.tokens for sample in samples) / seconds,
        quantile(lines, 0.5),
        quantile(lines, 0.99),
        quantile(bodies, 0.5),
        quantile(health, 0.99),
        sum(sample.refused for sample in samples),
        sum(sample.failed for sample in samples),
    )


def line(rng: random.Random) -> dict[str, Any]:
    text = f"def f{rng.randrange(10**6)}(a, b):\n    total = a + b\n    return "
    hole = {"min_tokens": 4, "max_tokens": 8, "forbid": ["\n"]}
    return {"segments": [{"text": text}, {"hole": hole}, {"text": "\n"}]}


def body(rng: random.Random) -> dict[str, Any]:
    text = f"class C{rng.randrange(10**6)}:\n    def run(self, items):\n"
    return {"segments": [{"text": text}, {"hole": {"min_tokens": 48, "max_tokens": 64}}, {"text": "\n\nC().run([])\n"}]}


def big(rng: random.Random) -> dict[str, Any]:
    text = f"# {rng.randrange(10**6)}\n" + "value = compute(first, second)\n" * (BIG_CHARACTERS // 31)
    return {"prompt": text, "suffix": "\n", "max_tokens": 8}


async def ask(client: httpx.AsyncClient, sample: Sample, kept: list[float], path: str, asked: dict[str, Any]) -> None:
    started = time.perf_counter()
    response = await client.post(path, json=asked)
    if response.status_code == 429:
        sample.refused += 1
        await asyncio.sleep(0.5)
    elif response.status_code != 200:
        sample.failed += 1
    else:
        kept.append(time.perf_counter() - started)
        answer = response.json()
        sample.tokens += answer["stats"]["tokens"] if "stats" in answer else answer["usage"]["completion_tokens"]


async def repeat(until_s: float, pause_s: float, act: Callable[[], Awaitable[None]]) -> None:
    while time.perf_counter() < until_s:
        await act()
        await asyncio.sleep(pause_s)


async def watch_health(client: httpx.AsyncClient, sample: Sample, until_s: float) -> None:
    async def look() -> None:
        started = time.perf_counter()
        (await client.get("/healthz")).raise_for_status()
        sample.health_s.append(time.perf_counter() - started)

    await repeat(until_s, 0.05, look)


async def mixed(client: httpx.AsyncClient, num_clients: int, seconds: float) -> Sample:
    """`num_clients` at once, each with a connection of its own."""
    sample, until_s = Sample(seconds), time.perf_counter() + seconds

    async def behave(number: int) -> None:
        rng = random.Random(number)

        async def once() -> None:
            is_line = rng.random() < 0.75
            kept = sample.line_s if is_line else sample.body_s
            await ask(client, sample, kept, "/v1/infill", line(rng) if is_line else body(rng))

        await asyncio.sleep(rng.random() * THINKING_S)
        await repeat(until_s, THINKING_S, once)

    await asyncio.gather(watch_health(client, sample, until_s), *(behave(number) for number in range(num_clients)))
    sample.seconds = time.perf_counter() - (until_s - seconds)
    return sample


async def beside_big_prompts(client: httpx.AsyncClient, seconds: float, path: str = "big") -> Sample:
    """Lines, one after the other, beside another client's prompts of a megabyte (or small ones, to compare with)."""
    sample, until_s, rng = Sample(seconds), time.perf_counter() + seconds, random.Random(1)
    make = big if path == "big" else lambda rng: {**big(rng), "prompt": f"x{rng.randrange(10**6)} = "}

    async def one_line() -> None:
        await ask(client, sample, sample.line_s, "/v1/infill", line(rng))

    async def other() -> None:
        await ask(client, sample, [], "/v1/fim/completions", make(rng))

    await asyncio.gather(
        watch_health(client, sample, until_s), repeat(until_s, 0.0, one_line), repeat(until_s, 0.1, other)
    )
    return sample


async def beside_bodies(client: httpx.AsyncClient, seconds: float, num_bodies: int) -> Sample:
    """Lines, one after the other, beside `num_bodies` clients that ask for bodies without a pause."""
    sample, until_s, rng = Sample(seconds), time.perf_counter() + seconds, random.Random(1)

    async def one_line() -> None:
        await ask(client, sample, sample.line_s, "/v1/infill", line(rng))

    async def one_body() -> None:
        await ask(client, sample, sample.body_s, "/v1/infill", body(rng))

    others = (repeat(until_s, 0.0, one_body) for _ in range(num_bodies))
    await asyncio.gather(watch_health(client, sample, until_s), repeat(until_s, 0.1, one_line), *others)
    sample.seconds = time.perf_counter() - (until_s - seconds)
    return sample


@asynccontextmanager
async def served(tree: Path, model: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an engine that runs from the sources in `tree`."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "engine.sock"
        paths = os.pathsep.join(str(tree / room) for room in ("engine", "kernels"))
        command = [sys.executable, "-m", "midfill_engine", "serve", "--socket", str(socket), "--model", model]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.DEVNULL) as process:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
            transport = httpx.AsyncHTTPTransport(uds=str(socket), limits=limits)
            async with httpx.AsyncClient(transport=transport, base_url="http://midfill", timeout=600) as client:
                while not await is_ready(client):
                    await asyncio.sleep(0.2)
                yield client
            process.terminate()


async def is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return bool((await client.get("/healthz")).json()["status"] == "ok")
    except httpx.TransportError:
        return False


async def measure(trees: dict[str, Path], model: str, clients: list[int], seconds: float, rounds: int) -> list[Result]:
    """Every scene of every tree in turn, `rounds` times; each tree's engine lives all the time."""
    scenes: dict[str, Callable[[httpx.AsyncClient], Awaitable[Sample]]] = {
        "line beside small prompts": lambda client: beside_big_prompts(client, seconds, "small"),
        "line beside 1 MB prompts": lambda client: beside_big_prompts(client, seconds),
        "line alone": lambda client: beside_bodies(client, seconds, 0),
        f"line beside {BODIES_BEFORE_A_LINE} bodies": lambda client: beside_bodies(
            client, seconds, BODIES_BEFORE_A_LINE
        ),
        **{f"{count} clients": lambda client, count=count: mixed(client, count, seconds) for count in clients},  # type: ignore[misc]
    }
    samples: dict[tuple[str, str], list[Sample]] = {}
    engines = {name: served(tree, model) for name, tree in trees.items()}
    opened = {name: await engine.__aenter__() for name, engine in engines.items()}
    try:
        for client in opened.values():  # the first answers warm up and do not count
            await beside_bodies(client, 1.0, 1)
        for _ in range(rounds):
            for scene, run in scenes.items():
                for name, client in opened.items():
                    samples.setdefault((scene, name), []).append(await run(client))
    finally:
        for engine in engines.values():
            await engine.__aexit__(None, None, None)
    return [summarise(name, scene, found) for (scene, name), found in samples.items()]


def draw_table(results: list[Result]) -> Table:
    first = results[0].tree
    table = Table(
        "scene", "sources", "requests/s", "line p50", "line p99", "body p50", "healthz p99", "refused", "failed"
    )
    for result in results:
        base = next(one for one in results if (one.scene, one.tree) == (result.scene, first))
        ratio = f" ({result.requests_per_s / base.requests_per_s:.2f}x)" if result.tree != first else ""
        table.add_row(
            result.scene,
            result.tree,
            f"{result.requests_per_s:.2f}{ratio}",
            *(f"{value:.2f} s" for value in (result.line_p50_s, result.line_p99_s, result.body_p50_s)),
            f"{1000 * result.health_p99_s:.0f} ms",
            str(result.refused),
            str(result.failed),
        )
    return table


def main(
    clients: Annotated[list[int] | None, typer.Option(help="how many at once, each a scene")] = None,
    tree: Annotated[
        list[str] | None, typer.Option(help="NAME=FOLDER of sources to serve from; this one if none")
    ] = None,
    model: Annotated[str, typer.Option(help="which to serve")] = "embedded",
    seconds: Annotated[float, typer.Option(help="of every scene in a round")] = 10.0,
    rounds: Annotated[int, typer.Option(help="in which the trees take turns")] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """Load on a serving engine, by numbers of clients."""
    trees = {
        name: Path(folder).resolve() for name, _, folder in (one.partition("=") for one in tree or [f"this={ROOT}"])
    }
    results = asyncio.run(measure(trees, model, clients or [1, 4, 16, 64], seconds, rounds))
    Console(width=150).print(draw_table(results))
    if json_file is not None:
        record = {"machine": describe(torch.device("cpu")), "model": model, "seconds": seconds, "rounds": rounds}
        write_record(json_file, {**record, "results": [asdict(result) for result in results]})


if __name__ == "__main__":
    typer.run(main)
