"""What a serving engine grows by over fills of many sizes, one after the other.

    PYTHONPATH=engine:kernels python -m bench.growth [--model embedded] [--fills 300] [--json FILE]

Each way serves in a process of its own; contexts, gaps and files differ in every request, as an editor's do.
"""

import asyncio
import random
from pathlib import Path
from typing import Annotated, Final

import httpx
import torch
import typer

from bench.load import served
from bench.measure import describe, write_record

WAYS: Final = {"int8": ("--weights", "int8"), "bf16": ("--dtype", "bf16")}
SLICES: Final = 6
MAX_LINES: Final = 60


def resident_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def fill(client: httpx.AsyncClient, rng: random.Random) -> None:
    """A gap of 1 to 64 tokens in a file of up to twice MAX_LINES lines."""
    before, behind = (
        "".join(f"v{rng.randrange(10**6)} = {i}\n" for i in range(rng.randrange(MAX_LINES))) for _ in "ab"
    )
    segments = [{"text": before + "x = "}, {"hole": {"max_tokens": rng.randint(1, 64)}}, {"text": "\n" + behind}]
    (await client.post("/v1/infill", json={"segments": segments})).raise_for_status()


async def measure(model: str, options: tuple[str, ...], fills: int) -> dict[int, float]:
    """Resident megabytes after so many fills, from the first on."""
    rng, found = random.Random(0), {}
    async with served(model, *options) as (client, process):
        for done in range(1, fills + 1):
            await fill(client, rng)
            if done == 1 or done % (fills // SLICES) == 0:
                found[done] = round(resident_mb(process))
    return found


def main(
    model: Annotated[str, typer.Option(help="which to serve")] = "embedded",
    fills: Annotated[int, typer.Option(min=SLICES, help="of each way")] = 300,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """Memory after fills of many sizes."""
    found = {}
    for name, options in WAYS.items():
        found[name] = asyncio.run(measure(model, options, fills))
        print(name, found[name], flush=True)
    if json_file is not None:
        settings = {"machine": describe(torch.device("cpu")), "model": model}
        write_record(json_file, {**settings, "resident_mb_after_fills": found})


if __name__ == "__main__":
    typer.run(main)
