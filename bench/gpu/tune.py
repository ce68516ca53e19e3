"""Times tiles for the products of a shape and prints the best: what `choose_tile` should return on this GPU.

    python -m bench gpu.tune [--shape 7B] [--json FILE]

`inner` and `splits` fix the order of sums, so the best pair is chosen for all row counts together; the rest may differ
by row count. Tiles are compiled in parallel processes that need no GPU.
"""

import itertools
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Final

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from bench.gpu.cases import choose_dtype
from bench.gpu.hopper import compiled
from bench.green import stop_unless_green
from bench.measure import Clock, choose_device, describe, write_record
from midfill_kernels.matmul import SHARED_BYTES, Tile, choose_tile, matmul

WIDTHS: Final[dict[str, dict[str, tuple[int, int]]]] = {
    "7B": {"qkv": (4608, 3584), "out": (3584, 3584), "down": (3584, 18944)},
    "8B": {"qkv": (12288, 4096), "out": (4096, 4096), "down": (4096, 12288)},
    "0.5B": {"qkv": (1152, 896), "out": (896, 896), "down": (896, 4864)},
    "toy": {"out": (64, 128)},
}
ROWS: Final = (16, 64, 256)
WORKERS: Final = 14
REPEATS: Final = 50


@dataclass(frozen=True)
class Trial:
    """A tile's median time for a product of `shape` at a row count."""

    product: str
    num_rows: int
    tile: Tile
    seconds: float


def list_tiles(num_rows: int, width: int) -> list[Tile]:
    """Tiles that fit into shared memory, one or two programs a multiprocessor."""
    rows = min(128, max(16, 1 << (num_rows - 1).bit_length()))
    tiles = []
    for cols, inner, splits, warps in itertools.product((64, 128, 256), (64, 128), (1, 2, 4, 8), (4, 8)):
        stages = min(6, 2 * SHARED_BYTES // (inner * 2 * (cols + rows)))
        if stages < 2 or splits * inner > width or cols * rows // (32 * warps) > 128:
            continue
        tiles.append(Tile(cols, rows, inner, splits, warps, stages))
    return tiles


def compile_tile(shape: tuple[int, int], num_rows: int, tile: Tile) -> None:
    """Puts the kernel into Triton's cache."""
    meta = torch.device("meta")
    with compiled(inspects=False):
        matmul(*draw(shape, num_rows, meta, torch.bfloat16), tile=tile)


def draw(shape: tuple[int, int], num_rows: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows and a weight."""
    weight = torch.randn(shape, device=device, dtype=dtype) * shape[1] ** -0.5
    return torch.randn(num_rows, shape[1], device=device, dtype=dtype), weight


def try_product(name: str, shape: tuple[int, int], device: torch.device, clock: Clock) -> list[Trial]:
    """Times every tile at every row count, on fresh data, the default among them."""
    trials = []
    dtype = choose_dtype(device)
    for num_rows in ROWS if device.type == "cuda" else (5,):
        sets = [draw(shape, num_rows, device, dtype) for _ in range(3)]
        tiles = list_tiles(num_rows, shape[1]) if device.type == "cuda" else [Tile(32, 16, 64, 2)]
        for tile in {*tiles, choose_tile(sets[0][1], num_rows)}:
            calls = [lambda pair=pair, tile=tile: matmul(*pair, tile=tile) for pair in sets]
            trials.append(Trial(name, num_rows, tile, clock.time(calls).median_s))
    return trials


def choose_order(trials: Sequence[Trial]) -> tuple[int, int]:
    """The (inner, splits) whose best tiles, over all row counts, have the smallest product of times."""
    rows = {trial.num_rows for trial in trials}
    best: dict[tuple[int, int], dict[int, float]] = {}
    for trial in trials:
        times = best.setdefault((trial.tile.inner, trial.tile.splits), {})
        times[trial.num_rows] = min(trial.seconds, times.get(trial.num_rows, trial.seconds))
    complete = {order: prod(times.values()) for order, times in best.items() if set(times) == rows}
    return min(complete, key=lambda order: complete[order])


def main(
    shape: Annotated[str, typer.Option(help=f"one of {', '.join(WIDTHS)}")] = "7B",
    json_file: Annotated[Path | None, typer.Option("--json", help="write all trials here")] = None,
) -> None:
    """Prints the best tile of each product and row count beside the default."""
    device = choose_device()
    if shape not in WIDTHS:
        sys.exit(f"Known shapes: {', '.join(WIDTHS)}.")
    stop_unless_green("test_matmul.py")
    products = WIDTHS[shape if device.type == "cuda" else "toy"]
    if device.type == "cuda":
        with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as pool:
            for widths in products.values():
                for num_rows in ROWS:
                    for tile in list_tiles(num_rows, widths[1]):
                        pool.submit(compile_tile, widths, num_rows, tile)
    clock = Clock(device, REPEATS if device.type == "cuda" else 2, flushes=device.type == "cuda")
    trials, table = [], Table("product", "rows", "default", "best of the order", "tile")
    for name, widths in products.items():
        of_product = try_product(name, widths, device, clock)
        trials += of_product
        order = choose_order(of_product)
        weight = draw(widths, 1, torch.device("meta"), choose_dtype(device))[1]
        for num_rows in sorted({trial.num_rows for trial in of_product}):
            here = [trial for trial in of_product if trial.num_rows == num_rows]
            of_order = [trial for trial in here if (trial.tile.inner, trial.tile.splits) == order]
            best = min(of_order, key=lambda trial: trial.seconds)
            usual = next(trial.seconds for trial in here if trial.tile == choose_tile(weight, num_rows))
            table.add_row(name, str(num_rows), f"{usual * 1e6:.1f} us", f"{best.seconds * 1e6:.1f} us", str(best.tile))
    Console(width=150).print(table)
    if json_file is not None:
        write_record(json_file, {"machine": describe(device), "trials": trials})


if __name__ == "__main__":
    typer.run(main)
