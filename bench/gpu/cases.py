"""The timed operators: real shapes, torch's best alternatives, and the least bytes and operations that each needs.

A case draws new inputs for every set, so that nothing timed is in the cache. Toy cases run interpreted on a CPU: they
show that the bench works, their times mean nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.measure import Call
from midfill_kernels.cached_attention import CachedSequence, cached_attention, schedule_cached
from midfill_kernels.head import predict_tokens
from midfill_kernels.matmul import gated_matmul, matmul
from midfill_kernels.norm import add_rms_norm
from midfill_kernels.rotary import Heads, norm_rotate_store, rotary_tables

Make = Callable[[], dict[str, Call]]
OURS: Final = "ours"
TOY_ROWS: Final[tuple[int, ...]] = (5,)


@dataclass(frozen=True)
class Case:
    """`make` draws inputs and returns the calls by name, `ours` among them. `test` is the operator's test file."""

    operator: str
    label: str
    test: str
    num_bytes: float
    flops: float
    make: Make
    product: str = "bfloat16"
    sets: int = 3


def cached_cases(device: torch.device, toy: bool) -> Iterator[Case]:
    """G10, G11: one editor behind a long context, and sixteen mixed gaps."""
    shapes = {"7B": Heads(28, 4, 128), "8B": Heads(32, 32, 128)}
    mixes = {
        "1 x 64 behind 2048": [(64, 2048)],
        "1 x 64 behind 8192": [(64, 8192)],
        "16 mixed": [(32 + 16 * index, 512 + 384 * (index % 8)) for index in range(16)],
    }
    if toy:
        shapes, mixes = {"toy": Heads(4, 2, 16)}, {"1 x 64 behind 40": [(16, 40)]}
    for name, heads in shapes.items():
        for label, mix in mixes.items():
            yield _gap_case(name, heads, label, mix, device)


def _gap_case(name: str, heads: Heads, label: str, mix: list[tuple[int, int]], device: torch.device) -> Case:
    dtype = choose_dtype(device)
    slots, rows = sum(context for _, context in mix), sum(gap for gap, _ in mix)
    token_bytes = 2 * heads.key_value * heads.width * dtype.itemsize

    def make() -> dict[str, Call]:
        q = torch.randn(rows, heads.query, heads.width, device=device, dtype=dtype)
        own = torch.randn(2, rows, heads.key_value, heads.width, device=device, dtype=dtype)
        cache = torch.randn(2, slots, heads.key_value, heads.width, device=device, dtype=dtype)
        starts = [sum(context for _, context in mix[:index]) for index in range(len(mix))]
        sequences = [CachedSequence(gap, start, context) for (gap, context), start in zip(mix, starts, strict=True)]
        schedule = schedule_cached(sequences, (heads.query, heads.key_value), device)
        joined = [
            [torch.cat((cache[side, start : start + context], own[side, first : first + gap])) for side in (0, 1)]
            for (gap, context), start, first in zip(mix, starts, _firsts(mix), strict=True)
        ]
        queries = [q[first : first + gap] for (gap, _), first in zip(mix, _firsts(mix), strict=True)]
        calls: dict[str, Call] = {
            OURS: lambda: cached_attention(q, (own[0], own[1]), (cache[0], cache[1]), schedule),
            "SDPA": lambda: [_sdpa(query, *pair) for query, pair in zip(queries, joined, strict=True)],
            "SDPA, joining": lambda: [
                _sdpa(
                    query,
                    torch.cat((cache[0, start : start + context], own[0, first : first + gap])),
                    torch.cat((cache[1, start : start + context], own[1, first : first + gap])),
                )
                for query, (gap, context), start, first in zip(queries, mix, starts, _firsts(mix), strict=True)
            ],
        }
        if device.type == "cuda":
            calls["FlexAttention"] = _flex(queries, joined)
        return calls

    flops = sum(4.0 * gap * (context + gap) * heads.query * heads.width for gap, context in mix)
    num_bytes = (slots + rows) * token_bytes + 2 * rows * heads.query * heads.width * dtype.itemsize
    return Case("cached attention", f"{name}, {label}", "test_cached_attention.py", num_bytes, flops, make)


def _firsts(mix: list[tuple[int, int]]) -> list[int]:
    return [sum(gap for gap, _ in mix[:index]) for index in range(len(mix))]


def _sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    query, key, value = (tensor.transpose(0, 1)[None] for tensor in (q, k, v))
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def _flex(queries: list[Tensor], joined: list[list[Tensor]]) -> Call:
    """All sequences packed in one call, with a block mask by sequence."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    device = queries[0].device
    q = torch.cat(queries).transpose(0, 1)[None]
    k, v = (torch.cat([pair[side] for pair in joined]).transpose(0, 1)[None] for side in (0, 1))
    of_query = torch.cat([torch.full((len(query),), index) for index, query in enumerate(queries)]).to(device)
    of_key = torch.cat([torch.full((len(pair[0]),), index) for index, pair in enumerate(joined)]).to(device)
    mask = create_block_mask(
        lambda batch, head, i, j: of_query[i] == of_key[j], None, None, q.shape[2], k.shape[2], device=str(device)
    )
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(q, k, v, block_mask=mask, enable_gqa=True)


def head_cases(device: torch.device, toy: bool) -> Iterator[Case]:
    """G13, G14: the vocabulary product with what a sampler needs of it."""
    width, vocabulary = 3584, 152_064
    row_counts: tuple[int, ...] = (16, 64, 128, 256, 1024)
    if toy:
        width, vocabulary = 64, 200
        row_counts = TOY_ROWS
    dtype = choose_dtype(device)
    for rows in row_counts:

        def make(rows: int = rows) -> dict[str, Call]:
            x = torch.randn(rows, width, device=device, dtype=dtype)
            weight = torch.randn(vocabulary, width, device=device, dtype=dtype) * width**-0.5
            calls: dict[str, Call] = {
                OURS: lambda: predict_tokens(x, weight),
                "torch": lambda: choose_plainly(x, weight),
            }
            if device.type == "cuda":
                compiled = torch.compile(choose_plainly, mode="max-autotune-no-cudagraphs", dynamic=False)
                calls["torch.compile"] = lambda: compiled(x, weight)
            return calls

        num_bytes = float(vocabulary * width * dtype.itemsize)
        flops = 2.0 * rows * width * vocabulary
        yield Case("head", f"{rows} rows", "test_head.py", num_bytes, flops, make, sets=2)


def choose_plainly(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Best column, its probability, entropy: the library's product, then fp32 softmax, as published samplers do."""
    probabilities = F.linear(x, weight).float().softmax(dim=-1)
    best, ids = probabilities.max(dim=-1)
    return ids, best, -(probabilities * (probabilities + 1e-10).log()).sum(dim=-1)


def matmul_cases(device: torch.device, toy: bool) -> Iterator[Case]:
    """The four products of a layer."""
    shapes = {"qkv": (4608, 3584), "out": (3584, 3584), "down": (3584, 18944)}
    gated = (2 * 18944, 3584)
    row_counts: tuple[int, ...] = (16, 64, 128, 256, 512)
    gated_counts: tuple[int, ...] = (16, 64, 256)
    if toy:
        shapes, gated = {"out": (128, 256)}, (2 * 128, 128)
        row_counts = gated_counts = TOY_ROWS
    for name, shape in shapes.items():
        for rows in row_counts:
            yield _matmul_case(name, shape, rows, device)
    for rows in gated_counts:
        yield _gated_case(gated, rows, device)


def _matmul_case(name: str, shape: tuple[int, int], rows: int, device: torch.device) -> Case:
    dtype = choose_dtype(device)

    def make() -> dict[str, Call]:
        weight = torch.randn(shape, device=device, dtype=dtype) * shape[1] ** -0.5
        x = torch.randn(rows, shape[1], device=device, dtype=dtype)
        return {OURS: lambda: matmul(x, weight), "torch": lambda: F.linear(x, weight)}

    num_bytes = float(shape[0] * shape[1] * dtype.itemsize)
    flops = 2.0 * rows * shape[0] * shape[1]
    return Case("matmul", f"{name}, {rows} rows", "test_matmul.py", num_bytes, flops, make)


def _gated_case(shape: tuple[int, int], rows: int, device: torch.device) -> Case:
    dtype = choose_dtype(device)

    def make() -> dict[str, Call]:
        weight = torch.randn(shape, device=device, dtype=dtype) * shape[1] ** -0.5
        x = torch.randn(rows, shape[1], device=device, dtype=dtype)
        return {OURS: lambda: gated_matmul(x, weight, dtype), "torch": lambda: _gate_plainly(F.linear(x, weight))}

    num_bytes = float(shape[0] * shape[1] * dtype.itemsize)
    return Case("gated matmul", f"{rows} rows", "test_matmul.py", num_bytes, 2.0 * rows * shape[0] * shape[1], make)


def _gate_plainly(joint: Tensor) -> Tensor:
    gate, up = joint.chunk(2, dim=-1)
    return F.silu(gate) * up


def small_cases(device: torch.device, toy: bool) -> Iterator[Case]:
    """The operators between the products: little work, dominated by launches and passes over memory."""
    dtype = choose_dtype(device)
    rows, dim, heads = 256, 3584, Heads(28, 4, 128)
    if toy:
        (rows,), dim, heads = TOY_ROWS, 64, Heads(4, 2, 16)

    def make_norm() -> dict[str, Call]:
        parts = torch.randn(4, rows, dim, device=device)
        residual, gain = torch.randn(rows, dim, device=device, dtype=dtype), torch.ones(dim, device=device, dtype=dtype)

        def plainly() -> Tensor:
            return F.rms_norm(parts.sum(dim=0).to(dtype) + residual, (dim,), gain, 1e-6)

        return {OURS: lambda: add_rms_norm(parts, residual, gain, 1e-6), "torch": plainly, **_compiled(plainly, device)}

    def make_rotary() -> dict[str, Call]:
        parts = torch.randn(2, rows, heads.columns, device=device)
        tables = rotary_tables(torch.arange(rows, device=device), heads.width, 1e6)
        keys, values = torch.empty(2, rows, heads.key_value, heads.width, device=device, dtype=dtype).unbind()

        def plainly() -> Tensor:
            q, k, v = torch.split(
                parts.sum(dim=0).view(rows, -1, heads.width), [heads.query, *[heads.key_value] * 2], 1
            )
            keys[:], values[:] = _turn(k, tables).to(dtype), v.to(dtype)
            return _turn(q, tables).to(dtype)

        return {OURS: lambda: norm_rotate_store(parts, heads, tables, keys, values), "torch": plainly}

    yield Case("norm", f"{rows} rows", "test_norm.py", rows * dim * (4 * 4 + 3.0 * dtype.itemsize), 0, make_norm)
    yield Case(
        "rotary", f"{rows} rows", "test_rotary.py", rows * heads.columns * (8.0 + dtype.itemsize), 0, make_rotary
    )


def _compiled(call: Call, device: torch.device) -> dict[str, Call]:
    return {"torch.compile": torch.compile(call, dynamic=False)} if device.type == "cuda" else {}


def _turn(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = (table[:, None] for table in tables)
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def choose_dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


CASES: Final = {
    "cached attention": cached_cases,
    "head": head_cases,
    "matmul": matmul_cases,
    "small": small_cases,
}
