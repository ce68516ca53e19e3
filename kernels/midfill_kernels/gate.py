"""The activation between an MLP's two products, for families whose first product is not gated in its own kernel.

S partial products, M rows, F inner width.
"""

from typing import Final, Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

Activation = Literal["swiglu", "relu2"]
B_COLUMNS: Final = 1024


def activate_reference(parts: Tensor, activation: Activation) -> Tensor:
    """The definition in fp32: silu(gate) * up (arXiv 2002.05202), or the squared ReLU (arXiv 2109.08668)."""
    total = parts.float().sum(dim=0)
    if activation == "relu2":
        return torch.nn.functional.relu(total).square()
    gate, up = total.chunk(2, dim=1)
    return torch.nn.functional.silu(gate) * up


def activate(parts: Tensor, activation: Activation, dtype: torch.dtype) -> Tensor:
    """[M, F] in `dtype` from `parts` [S, M, 2F] (the gate's columns first) for swiglu, [S, M, F] for relu2."""
    num_parts, num_rows, columns = parts.shape
    assert parts.is_contiguous()
    inner = columns // 2 if activation == "swiglu" else columns
    out = torch.empty(num_rows, inner, dtype=dtype, device=parts.device)
    b_columns = min(B_COLUMNS, triton.next_power_of_2(inner))
    _activate[(num_rows, triton.cdiv(inner, b_columns))](
        parts,
        out,
        num_rows,
        inner,
        NUM_PARTS=num_parts,
        GATED=activation == "swiglu",
        B_COLUMNS=b_columns,
        num_warps=4,
    )
    return out


@triton.jit(do_not_specialize=["num_rows"])
def _activate(
    p_parts,
    p_out,
    num_rows,
    inner,
    NUM_PARTS: tl.constexpr,
    GATED: tl.constexpr,
    B_COLUMNS: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    o_column = tl.program_id(1) * B_COLUMNS + tl.arange(0, B_COLUMNS)
    m_column = o_column < inner
    stride = inner * 2 if GATED else inner
    value = tl.zeros((B_COLUMNS,), tl.float32)
    up = tl.zeros((B_COLUMNS,), tl.float32)
    for part in tl.static_range(NUM_PARTS):
        p_row = p_parts + (part * num_rows + i_row) * stride + o_column
        value += tl.load(p_row, m_column, 0.0)
        if GATED:
            up += tl.load(p_row + inner, m_column, 0.0)
    if GATED:
        result = value / (1 + tl.exp(-value)) * up
    else:
        result = tl.maximum(value, 0.0) * tl.maximum(value, 0.0)
    tl.store(p_out + i_row * inner + o_column, result.to(p_out.dtype.element_ty), m_column)
