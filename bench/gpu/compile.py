"""Compiles every kernel of a step for Hopper GPUs, without a GPU, and prints the compiler's statistics.

    python -m bench gpu.compile [--rows 64] [--shape 7B]

It shows stack frames (spilled registers), missing tensor-core instructions and too much shared memory, and sums whose
order depends on the number of rows, because then a row's bits would depend on the other rows. Exits with 1 if anything
does not fit, or if several `--rows` sum in different orders.
"""

import sys
from dataclasses import replace
from typing import Annotated, Final

import torch
import typer
from rich.console import Console
from rich.table import Table

from bench.gpu.hopper import Program, compiled
from bench.gpu.shapes import SHAPES
from midfill_engine.models.fused import FusedModel, Rows, make_room, pack_transformer
from midfill_engine.models.transformer import Transformer, TransformerConfig
from midfill_kernels.cached_attention import (
    BranchedSequence,
    CachedSequence,
    StackPlace,
    cached_attention,
    schedule_branched,
    schedule_cached,
)
from midfill_kernels.head import Rules, predict_tokens
from midfill_kernels.rotary import rotary_tables

SHARED_LIMIT_BYTES: Final = 232_448  # of a block on compute capability 9.0
CONTEXT: Final = 2048
META: Final = torch.device("meta")


def compile_step(config: TransformerConfig, num_rows: int) -> list[Program]:
    """The kernels of a layer, of one with experts too, and of the head, at the real sizes; tensors without memory."""
    config = replace(config, num_layers=config.num_dense_layers + 1)
    with META:
        transformer = Transformer(config).to(torch.bfloat16).requires_grad_(False)
    model = pack_transformer(transformer, CONTEXT)
    heads = model.heads
    rows = Rows(
        rotary_tables(torch.arange(num_rows, device=META), heads.width, model.config.rope_base),
        schedule_cached(
            [CachedSequence(num_rows, 0, CONTEXT)], (heads.query, heads.key_value), META, num_rows=num_rows
        ),
        make_room(model.config, num_rows, model.embedding),
    )
    with compiled() as programs:
        model.hidden(torch.zeros(num_rows, dtype=torch.int64, device=META), rows)
        _attend_to_branches(model, rows)
        _choose_by_rules(model, num_rows)
    return programs


def _attend_to_branches(model: FusedModel, rows: Rows) -> None:
    """Attention of rows that see a past, and themselves by bits."""
    num_rows, heads = rows.own.shape[2], model.heads
    past = StackPlace(CONTEXT, 0, 16, 16, 16)
    sequence = BranchedSequence(num_rows, past, StackPlace(), torch.ones(num_rows, num_rows, dtype=torch.bool))
    schedule = schedule_branched([sequence], (heads.query, heads.key_value), META, num_rows=num_rows)
    q = torch.zeros(num_rows, heads.query, heads.width, dtype=model.embedding.dtype, device=META)
    cached_attention(q, (rows.own[0, 0], rows.own[0, 1]), (model.embedding, model.embedding), schedule)


def _choose_by_rules(model: FusedModel, num_rows: int) -> None:
    """The head as the engine asks it: not every row may take every token."""
    normed = torch.zeros(num_rows, model.config.dim, dtype=model.embedding.dtype, device=META)
    allowed = torch.ones(2, model.config.vocab_size, dtype=torch.bool, device=META)
    rules = Rules(allowed, torch.zeros(num_rows, dtype=torch.int32, device=META))
    predict_tokens(normed, model.head, rules=rules)


def main(
    rows: Annotated[list[int] | None, typer.Option(help="rows of a step")] = None,
    shape: Annotated[list[str] | None, typer.Option(help=f"any of {', '.join(SHAPES)}")] = None,
) -> None:
    """Prints registers, stack, shared memory and tensor-core instructions of every kernel."""
    table = Table("shape", "rows", "kernel", "registers", "stack", "shared", "warps", "tensor cores")
    seen: set[tuple[object, ...]] = set()
    sums: dict[tuple[object, ...], set[tuple[str, ...]]] = {}
    misfits = 0
    for name in shape or ["7B", "8B", "0.5B", "135M"]:
        for num_rows in rows or [64]:
            for launch, program in enumerate(compile_step(SHAPES[name], num_rows)):
                misfits += program.shared_bytes > SHARED_LIMIT_BYTES
                sums.setdefault((name, program.name, launch), set()).add(program.sums)
                facts = (program.name, program.registers, program.stack_bytes, program.shared_bytes, program.warps)
                if facts not in seen:
                    seen.add(facts)
                    table.add_row(*(str(cell) for cell in (name, num_rows, *facts, program.tensor_core)))
    Console(width=130).print(table)
    wandering = [" ".join(map(str, place[:2])) for place, orders in sums.items() if len(orders) > 1]
    for place in wandering:
        print(f"{place}: the order of its sums depends on the number of rows")
    sys.exit(bool(misfits or wandering))


if __name__ == "__main__":
    typer.run(main)
