"""The heavy operators of a forward pass in torch: attention and matrix products. Knows no request."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from midfill_engine.models.moe import ROW_TILE, MixtureOfExperts
from midfill_engine.models.transformer import MLP, Attention, Transformer

MAX_FOLDED_ROWS: Final = 16  # on a CPU, `attend_in_groups` folds at most so many rows
CHECKED_ROWS: Final = (ROW_TILE, 2 * ROW_TILE, 5 * ROW_TILE, 8 * ROW_TILE)  # numbers of rows for `is_same_alone`
MIN_PRODUCT_ROWS: Final = 32  # with fewer, compiling two products takes as long as they save
MIN_PRODUCT_KEYS: Final = 256  # likewise
MAX_SCORES: Final = 2**23  # that attention computes at once
KEPT_VALUES: Final = 256  # of a packed matrix, for the digest of the weights


class OperatorsError(ValueError):
    """These operators cannot compute this model here; the message says why."""


@dataclass(frozen=True)
class Span:
    """A sequence's rows of a pack, from `start` up to `end`; rows of padding follow up to `padded_end`. `bias` [T, P +
    T] is 0 where attention to its past and itself is allowed, otherwise -inf; None allows all. With `grows` the memory
    of its past has room for its own keys and values, which are written there.
    """

    start: int
    end: int
    padded_end: int
    bias: Tensor | None = None
    grows: bool = False

    def repeat_bias(self, count: int) -> Tensor | None:
        """The bias [count T, P + T] of `count` heads that share keys, if there is one; computed once for all layers."""
        if self.bias is not None and count not in self._repeated:
            self._repeated[count] = self.bias.repeat(count, 1)
        return self._repeated.get(count)

    @cached_property
    def _repeated(self) -> dict[int, Tensor]:
        return {}


class TorchOperators:
    """Heavy operators of a forward pass. A row's bits do not depend on the other rows of the pack: `packs_products`
    tells whether one product over all rows guarantees that on this device; otherwise each span gets its own product.
    Span starts and the number of rows are multiples of `row_tile`.
    """

    row_tile: int = ROW_TILE

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN, we think, compiles a kernel for each new length
        self.packs_products = rows_are_independent(device, dtype)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, spans: list[Span]) -> Tensor:
        """`x` [R, D], `weight` [N, D] -> [R, N]."""
        if self.packs_products:
            return F.linear(x, weight, bias)
        return pile([F.linear(x[span.start : span.padded_end], weight, bias) for span in spans])

    def linears(self, x: Tensor, parts: Sequence[nn.Linear], spans: list[Span]) -> list[Tensor]:
        """The products of `x` [R, D] with several matrices."""
        return [self.linear(x, part.weight, part.bias, spans) for part in parts]

    def mix(self, experts: MixtureOfExperts, rows: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """For `rows` [R, D] the sum [R, D] of the outputs of the `chosen` [R, k] experts times their `weights`."""
        return experts.mix(rows, chosen, weights)

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        pasts: list[tuple[Tensor, Tensor] | None],
        spans: list[Span],
        query_spans: list[Span],
    ) -> Tensor:
        """`query` [A, H, E], `key` and `value` [R, K, E] -> [A, H, E]. The queries of each sequence attend to its past
        and to the keys of its span. `query_spans` are `spans` if all rows have queries; otherwise they count the rows
        that do, and have their biases.
        """
        parts = []
        for span, query_span, past in zip(spans, query_spans, pasts, strict=True):
            q = query[query_span.start : query_span.end].transpose(0, 1)[None]
            k = key[span.start : span.end].transpose(0, 1)[None]
            v = value[span.start : span.end].transpose(0, 1)[None]
            if past is not None:
                k = join(past[0], k, span.grows)
                v = join(past[1], v, span.grows)
            mixed = attend_in_groups(q, k, v, query_span)[0].transpose(0, 1)
            padding = query_span.padded_end - query_span.end
            if padding:
                mixed = F.pad(mixed, (0, 0, 0, 0, 0, padding))
            parts.append(mixed)
        return pile(parts)


def join(past: Tensor, own: Tensor, grows: bool) -> Tensor:
    """`past` [1, K, P, E] and `own` [1, K, T, E] -> [1, K, P + T, E]. With `grows` the result is in the memory of
    `past`, because a copy of 1,300 keys took a sixth of a step of five rows.
    """
    if not grows:
        return torch.cat((past, own), dim=2)
    num_past = past.shape[2]
    whole = past.as_strided((*past.shape[:2], num_past + own.shape[2], past.shape[3]), past.stride())
    whole[:, :, num_past:] = own
    return whole


def attend_in_groups(query: Tensor, key: Tensor, value: Tensor, span: Span) -> Tensor:
    """`query` [1, H, T, E] of the rows of `span`, `key` and `value` [1, K, L, E] -> [1, H, T, E].

    Folds the heads that share keys into rows where that helps: on a CPU few rows take a third of the time (5 rows,
    1,000 keys), and on a GPU torch's kernel that takes a bias cannot share keys among heads.
    """
    num_heads, num_groups, num_rows = query.shape[1], key.shape[1], query.shape[2]
    on_cpu = query.device.type == "cpu"
    is_large = num_rows >= MIN_PRODUCT_ROWS and key.shape[2] >= MIN_PRODUCT_KEYS
    if on_cpu and is_large and query.dtype == torch.bfloat16 and lacks_bf16_attention():
        return attend_by_products(query, key, value, span.bias)
    shares = num_heads != num_groups
    folds = num_rows <= MAX_FOLDED_ROWS if on_cpu else span.bias is not None
    if not shares or not folds:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=span.bias, enable_gqa=shares)
    folded = query.reshape(1, num_groups, -1, query.shape[3])
    bias = span.repeat_bias(num_heads // num_groups)
    return F.scaled_dot_product_attention(folded, key, value, attn_mask=bias).reshape(query.shape)


def attend_by_products(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, max_scores: int = MAX_SCORES
) -> Tensor:
    """Attention by two matrix products, a part of the rows at a time. `query` [1, H, T, E], `key` and `value`
    [1, K, L, E], `bias` [T, L] -> [1, H, T, E].
    """
    num_heads, num_rows, width = query.shape[1:]
    num_groups, num_keys = key.shape[1:3]
    mixed = torch.empty_like(query)
    grouped = (query * width**-0.5).view(num_groups, -1, num_rows, width)
    grouped_mixed = mixed.view(num_groups, -1, num_rows, width)
    size = max(max_scores // (num_heads * num_keys), 1)
    for start in range(0, num_rows, size):
        part = grouped[:, :, start : start + size]
        scores = torch.bmm(part.reshape(num_groups, -1, width), key[0].transpose(1, 2))
        if bias is not None:
            scores.view(num_groups, -1, part.shape[2], num_keys).add_(bias[start : start + size])
        grouped_mixed[:, :, start : start + size] = torch.bmm(scores.softmax(dim=2), value[0]).view(part.shape)
    return mixed


@cache
def lacks_bf16_attention() -> bool:
    """True if the CPU multiplies bf16 but torch's attention does not: it takes 2.5 times as long as two products."""
    return torch.cpu._is_avx512_bf16_supported() and not torch.cpu._is_amx_tile_supported()


@cache
def rows_are_independent(device: torch.device, dtype: torch.dtype) -> bool:
    """True if a row of a matrix product has the same bits whatever the number of rows, if that is a multiple of 16."""
    generator = torch.Generator().manual_seed(0)
    for dim, width in ((64, 272), (256, 1024), (896, 512)):
        weight = torch.randn(width, dim, generator=generator).to(device, dtype)
        x = torch.randn(20 * ROW_TILE, dim, generator=generator).to(device, dtype)
        if not is_same_alone(partial(F.linear, weight=weight), x, CHECKED_ROWS):
            return False
    return True


def is_same_alone(multiply: Callable[[Tensor], Tensor], x: Tensor, counts: Sequence[int]) -> bool:
    """True if the last `count` rows of `x` [R, D] have the same products alone as beside all, for each of `counts`."""
    whole = multiply(x)
    return all(torch.equal(multiply(x[-count:]), whole[-count:]) for count in counts)


def pile(parts: Sequence[Tensor]) -> Tensor:
    """The `parts` [N, ...], one below the other. A single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


class PackedOperators(TorchOperators):
    """Torch's operators, but with another product for packed weights, which a subclass defines. Matrices with the same
    input are packed as one.
    """

    packs_tied_head = True

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(device, dtype)
        self.device = device
        self._dtype = dtype
        self._packed: dict[int, Any] = {}  # by the id() of a weight, the first one if matrices are packed together

    def lay(self, weights: Sequence[Tensor]) -> Any:
        """The `weights` [N, D], one below the other, in the layout that `product` takes."""
        raise NotImplementedError

    def product(self, x: Tensor, packed: Any, bias: Tensor | None) -> Tensor:
        """`x` [R, D] -> [R, N] in the type of `x`. A row's bits do not depend on the other rows."""
        raise NotImplementedError

    def pack(self, module: nn.Module) -> None:
        """Packs the matrices of attention and MLPs, and the head. Experts stay as they are. An embedding that is also
        the head stays too; with `packs_tied_head` a copy is packed. Skips matrices that are not loaded yet.
        """
        for part in module.modules():
            if isinstance(part, MixtureOfExperts):
                self.row_tile = ROW_TILE
            elif isinstance(part, Attention):
                self._pack_together([part.q, part.k, part.v])
                self._pack_together([part.out])
            elif isinstance(part, MLP):
                self._pack_together([part.up] if part.gate is None else [part.gate, part.up])
                self._pack_together([part.down])
            elif isinstance(part, Transformer) and part.head is not None:
                self._pack_together([part.head])
            elif isinstance(part, Transformer) and self.packs_tied_head:
                self._packed[id(part.embedding.weight)] = self.lay([part.embedding.weight])

    def _pack_together(self, parts: Sequence[nn.Linear]) -> None:
        """Packs the matrices of `parts` as one, and cuts them down to their first KEPT_VALUES numbers."""
        if parts[0].weight.is_meta:
            return
        packed = self.lay([part.weight for part in parts])
        for part in parts:
            kept = part.weight.flatten()[:KEPT_VALUES].to(self.device, self._dtype, copy=True)
            part.weight = nn.Parameter(kept, requires_grad=False)
        self._packed[id(parts[0].weight)] = packed

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, spans: list[Span]) -> Tensor:
        packed = self._packed.get(id(weight))
        if packed is None:
            return super().linear(x, weight, bias, spans)
        return self.product(x, packed, bias)

    def linears(self, x: Tensor, parts: Sequence[nn.Linear], spans: list[Span]) -> list[Tensor]:
        packed = self._packed.get(id(parts[0].weight))
        if packed is None:
            return super().linears(x, parts, spans)
        bias = None
        if parts[0].bias is not None:
            bias = torch.cat([part.bias for part in parts])
        products = self.product(x, packed, bias)
        return list(torch.split(products, [part.out_features for part in parts], dim=1))


class LaidOperators(PackedOperators):
    """Multiplies bf16 weights in oneDNN's layout, into which torch's linear converts them in every call. torch's
    functions for this are private.
    """

    def __init__(self) -> None:
        """Raises OperatorsError if torch has no such product here, or if its results depend on the other rows."""
        super().__init__(torch.device("cpu"), torch.bfloat16)
        generator = torch.Generator().manual_seed(0)
        weight = torch.randn(272, 256, generator=generator).bfloat16()
        x = torch.randn(320, 256, generator=generator).bfloat16()
        try:
            multiply = partial(self.product, packed=self.lay([weight]), bias=None)
            is_near = torch.allclose(multiply(x).float(), F.linear(x, weight).float(), rtol=0.02, atol=0.02)
            is_good = is_near and is_same_alone(multiply, x, CHECKED_ROWS)
        except (RuntimeError, AttributeError, NotImplementedError) as error:
            raise OperatorsError(f"this machine's torch lays no bf16 weights out ({type(error).__name__})") from error
        if not is_good:
            raise OperatorsError("this machine's laid out products depend on the other rows")

    def lay(self, weights: Sequence[Tensor]) -> Tensor:
        laid: Tensor = torch.ops.mkldnn._reorder_linear_weight(pile(weights).to(torch.bfloat16), None)
        return laid

    def product(self, x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return product
