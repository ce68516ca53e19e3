"""Drives a serving engine with many clients: requests per second, latency by kind, and the effect of big prompts.

    python -m bench load [--clients 1 --clients 64] [--seconds 60] [--rounds 2] [--json FILE]

Each client asks, waits for the whole answer, thinks for a moment and asks again: three of four a line (8 tokens or
less), one of four a body (48 tokens or more). Scenes take turns, so that all see the same machine; ratios between them
mean something, seconds do not. A line is printed as each scene ends, and the record is written as often.
"""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import httpx
import torch
import typer

from bench.measure import JsonFile, describe, quantile, write_record
from bench.quality.engine import running_engine

THINKING_S: Final = 0.2
BIG: Final = "value = compute(first, second)\n" * (1_000_000 // 31)


@dataclass
class Sample:
    """Seconds of every answer of a scene by kind (`line`, `body`, `other`, `health`), and counts of other outcomes."""

    seconds: float = 0.0
    took_s: dict[str, list[float]] = field(default_factory=dict)
    refused: int = 0
    failed: int = 0

    def figures(self) -> dict[str, Any]:
        answered = sum(len(taken_s) for kind, taken_s in self.took_s.items() if kind != "health")
        quantiles = {
            f"{kind}_{name}_s": round(quantile(taken_s, share), 4)
            for kind, taken_s in self.took_s.items()
            for name, share in (("p50", 0.5), ("p99", 0.99))
        }
        counts = {"answered": answered, "refused": self.refused, "failed": self.failed}
        return {
            "seconds": round(self.seconds),
            "requests_per_s": round(answered / self.seconds, 2),
            **counts,
            **quantiles,
        }


Act = Callable[[], Awaitable[None]]


class Scene:
    """Clients that run concurrently until the time is over."""

    def __init__(self, client: httpx.AsyncClient, sample: Sample, seconds: float) -> None:
        self._client, self._sample = client, sample
        self._until_s = time.perf_counter() + seconds

    async def ask(self, kind: str, path: str, asked: dict[str, Any] | None = None) -> None:
        started_s = time.perf_counter()
        answer = await (self._client.get(path) if asked is None else self._client.post(path, json=asked))
        if answer.status_code == 429:
            self._sample.refused += 1
            await asyncio.sleep(0.5)
        elif answer.status_code != 200:
            self._sample.failed += 1
        else:
            self._sample.took_s.setdefault(kind, []).append(time.perf_counter() - started_s)

    async def line(self, rng: random.Random) -> None:
        text = f"def f{rng.randrange(10**6)}(a, b):\n    total = a + b\n    return "
        hole = {"min_tokens": 4, "max_tokens": 8, "forbid": ["\n"]}
        await self.ask("line", "/v1/infill", {"segments": [{"text": text}, {"hole": hole}, {"text": "\n"}]})

    async def body(self, rng: random.Random) -> None:
        text = f"class C{rng.randrange(10**6)}:\n    def run(self, items):\n"
        hole = {"min_tokens": 48, "max_tokens": 64}
        await self.ask(
            "body", "/v1/infill", {"segments": [{"text": text}, {"hole": hole}, {"text": "\n\nC().run([])\n"}]}
        )

    async def other(self, rng: random.Random, text: str) -> None:
        asked = {"prompt": f"# {rng.randrange(10**6)}\n{text}", "suffix": "\n", "max_tokens": 8}
        await self.ask("other", "/v1/fim/completions", asked)

    async def repeat(self, pause_s: float, act: Act) -> None:
        while time.perf_counter() < self._until_s:
            await act()
            await asyncio.sleep(pause_s)

    async def behave(self, number: int) -> None:
        """One client of many."""
        rng = random.Random(number)
        await asyncio.sleep(rng.random() * THINKING_S)
        await self.repeat(THINKING_S, lambda: self.line(rng) if rng.random() < 0.75 else self.body(rng))

    async def play(self, *parts: Awaitable[None]) -> None:
        await asyncio.gather(self.repeat(0.05, lambda: self.ask("health", "/healthz")), *parts)


Play = Callable[[Scene], Awaitable[None]]
Scenes = dict[str, Play]
Tell = Callable[[str, dict[str, Sample]], None]


def scenes(clients: list[int], big: str = BIG) -> Scenes:
    rng = random.Random(1)

    def beside(text: str) -> Play:
        return lambda scene: scene.play(
            scene.repeat(0.0, lambda: scene.line(rng)), scene.repeat(0.1, lambda: scene.other(rng, text))
        )

    return {
        "a line alone": lambda scene: scene.play(scene.repeat(THINKING_S, lambda: scene.line(rng))),
        "lines beside small prompts": beside("x = "),
        "lines beside 1 MB prompts": beside(big),
        **{
            f"{count} clients": lambda scene, count=count: scene.play(*map(scene.behave, range(count)))  # type: ignore[misc]
            for count in clients
        },
    }


async def measure(model: str, scenes: Scenes, seconds: float, rounds: int, tell: Tell) -> None:
    """Every scene in turn, `rounds` times; calls `tell` as each ends. Raises MidfillError if no engine starts."""
    samples: dict[str, Sample] = {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    with running_engine(model) as endpoint:
        transport = httpx.AsyncHTTPTransport(uds=str(endpoint.socket), limits=limits)
        async with httpx.AsyncClient(transport=transport, base_url="http://midfill", timeout=600) as client:
            await Scene(client, Sample(), 1.0).line(random.Random(0))  # the first answers warm up and do not count
            for _ in range(rounds):
                for name, play in scenes.items():
                    sample, started_s = samples.setdefault(name, Sample()), time.perf_counter()
                    await play(Scene(client, sample, seconds))
                    sample.seconds += time.perf_counter() - started_s
                    tell(name, samples)


def main(
    clients: Annotated[list[int] | None, typer.Option(help="how many at once, each a scene")] = None,
    only: Annotated[str, typer.Option(help="scenes with this in their name")] = "",
    model: Annotated[str, typer.Option(help="which to serve")] = "embedded",
    seconds: Annotated[float, typer.Option(help="of every scene in a round")] = 10.0,
    rounds: Annotated[int, typer.Option(help="in which scenes take turns")] = 3,
    json_file: JsonFile = None,
) -> None:
    """Measures a serving engine under load, by scenes."""
    settings = {"machine": describe(torch.device("cpu")), "model": model, "load": os.getloadavg()}

    def tell(name: str, samples: dict[str, Sample]) -> None:
        print(name, samples[name].figures(), flush=True)
        if json_file is not None:
            scenes_so_far = {scene: sample.figures() for scene, sample in samples.items()}
            write_record(json_file, {**settings, "scenes": scenes_so_far})

    chosen = {name: play for name, play in scenes(clients or [1, 8, 64]).items() if only in name}
    asyncio.run(measure(model, chosen, seconds, rounds, tell))


if __name__ == "__main__":
    typer.run(main)
