"""One forward for many requests: what comes of a request does not depend on the others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.in_process import denoise, drain, run_together
from torch import Tensor

from midfill_engine.backends import open_fill
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models import operators, packed
from midfill_engine.models.choice import Choice, choose
from midfill_engine.models.moe import MoEConfig
from midfill_engine.models.operators import Span, TorchOperators
from midfill_engine.models.packed import Pass, run_packed
from midfill_engine.models.transformer import Transformer, TransformerConfig
from midfill_engine.wire import InfillRequest
from training.batches import enable_batches, run_batch


@pytest.fixture(scope="module")
def transformer() -> Transformer:
    config = TransformerConfig(
        vocab_size=300, dim=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, mlp_dim=96, mlp="swiglu"
    )
    torch.manual_seed(0)
    return Transformer(config).eval()


def passes_of(lengths: list[int], seed: int) -> list[Pass]:
    generator = torch.Generator().manual_seed(seed)
    return [
        Pass(torch.randint(0, 270, (length,), generator=generator), torch.arange(length), torch.arange(length))
        for length in lengths
    ]


class OneByOne(TorchOperators):
    """As on a device whose products depend on the number of rows."""

    def __init__(self) -> None:
        self.packs_products = False


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 70), min_size=2, max_size=6), st.integers(0, 99), st.booleans())
def test_a_row_has_the_same_bits_in_every_pack(
    transformer: Transformer, lengths: list[int], seed: int, packs: bool
) -> None:
    operators = TorchOperators(torch.device("cpu"), torch.float32) if packs else OneByOne()
    passes = passes_of(lengths, seed)
    for one, alone in zip(run_packed(transformer, passes, operators), passes, strict=True):
        assert torch.equal(one.hidden, run_packed(transformer, [alone], operators)[0].hidden)


def test_experts_round_the_same_in_every_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    """With products that depend on the number of rows."""
    config = TransformerConfig(
        vocab_size=300, dim=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, mlp_dim=96, mlp="swiglu"
    )
    transformer = Transformer(replace(config, moe=MoEConfig(4, 2, 32, shared_dim=16))).eval()
    for parameter in transformer.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    linear = F.linear
    monkeypatch.setattr(F, "linear", lambda x, *parts: linear(x, *parts) * (1 + 1e-3 * x.shape[-2]))
    passes = passes_of([7, 33, 20], 1)
    for one, alone in zip(run_packed(transformer, passes, OneByOne()), passes, strict=True):
        assert torch.equal(one.hidden, run_packed(transformer, [alone], OneByOne())[0].hidden)


def test_a_pack_is_what_the_batch_computes(transformer: Transformer) -> None:
    operators = TorchOperators(torch.device("cpu"), torch.float32)
    passes = passes_of([7, 33], 1)
    for result, step in zip(run_packed(transformer, passes, operators), passes, strict=True):
        with torch.inference_mode():
            hidden = run_batch(enable_batches(transformer), step.ids[None], step.positions[None])
        torch.testing.assert_close(result.hidden, hidden[0], rtol=1e-4, atol=1e-5)


def test_the_head_scores_a_few_rows_at_a_time_and_chooses_the_same(
    transformer: Transformer, record_calls: Callable[..., list[Any]]
) -> None:
    operators = TorchOperators(torch.device("cpu"), torch.float32)
    allowed = torch.arange(300)[None] % torch.tensor([[2], [3]]) == 0
    passes = []
    for step in passes_of([5, 150, 40, 64], 1):
        size = len(step.ids)
        rules, barred = torch.arange(size) % 2, {6: torch.arange(size) % 5 == 0}
        passes += [
            replace(step, choice=Choice(allowed, rules, barred, needs_entropy=True)),
            replace(step, choice=Choice(allowed, rules, forced=torch.arange(size))),
        ]
    found = run_packed(transformer, passes, operators)
    scored = record_calls(packed, "score_rows")
    again = run_packed(transformer, passes, operators)
    counts = [sum(map(len, states)) for _, states, _ in scored]
    assert sum(counts) == 518 and max(counts) == packed.HEAD_ROWS
    whole = run_packed(transformer, passes, operators, head_rows=1024)
    for one, same, other in zip(found, again, whole, strict=True):
        assert one.chosen is not None and same.chosen is not None and other.chosen is not None
        assert torch.equal(one.chosen.ids, other.chosen.ids) and torch.equal(one.chosen.ids, same.chosen.ids)
        assert torch.equal(one.chosen.confidence, other.chosen.confidence)
        assert (one.chosen.entropy is None) == (other.chosen.entropy is None)
        if one.chosen.entropy is not None and other.chosen.entropy is not None:
            assert torch.equal(one.chosen.entropy, other.chosen.entropy)


@pytest.mark.parametrize("num_groups", (2, 6))
@pytest.mark.parametrize("masked", (False, True))
def test_attention_by_products_is_torchs_and_the_same_in_parts(masked: bool, num_groups: int) -> None:
    """Keys and values are parts of a larger memory, as those of a growing past are; three heads or one have each."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 70, 6, 16, generator=generator).transpose(1, 2)
    key, value = torch.randn(2, 1, num_groups, 150, 16, generator=generator)[..., :130, :]
    bias = torch.where(torch.ones(70, 130, dtype=torch.bool).tril(60), 0.0, -torch.inf) if masked else None
    whole = operators.attend_by_products(query, key, value, bias)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, enable_gqa=True)
    torch.testing.assert_close(whole, expected, rtol=1e-5, atol=1e-5)
    parts = operators.attend_by_products(query, key, value, bias, max_scores=6 * 130 * 32)
    torch.testing.assert_close(parts, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", (operators.MIN_PRODUCT_ROWS - 1, operators.MIN_PRODUCT_ROWS, 256))
def test_attention_in_bf16_is_near_fp32(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Whichever function this machine takes, and by products on every machine."""
    generator = torch.Generator().manual_seed(rows)
    query, key, value = (torch.randn(1, n, t, 64, generator=generator) for n, t in ((9, rows), (3, 300), (3, 300)))
    bias = torch.where(torch.ones(rows, 300, dtype=torch.bool).tril(300 - rows), 0.0, -torch.inf)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, enable_gqa=True)
    narrow = [part.bfloat16() for part in (query, key, value)]
    for lacks in (operators.lacks_bf16_attention(), True):
        monkeypatch.setattr(operators, "lacks_bf16_attention", lambda lacks=lacks: lacks)
        found = operators.attend_in_groups(*narrow, Span(0, rows, rows, bias.bfloat16()))
        torch.testing.assert_close(found.float(), expected, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("num_groups", (3, 9))
def test_attention_may_come_in_any_layout(monkeypatch: pytest.MonkeyPatch, num_groups: int) -> None:
    """On a GPU rows lie outside heads in what torch's attention returns."""
    generator = torch.Generator().manual_seed(num_groups)
    query, key, value = (torch.randn(1, n, t, 64, generator=generator) for n, t in ((9, 5), *[(num_groups, 40)] * 2))
    span = Span(0, 5, 5, torch.where(torch.ones(5, 40, dtype=torch.bool).tril(35), 0.0, -torch.inf))
    expected, attend = operators.attend_in_groups(query, key, value, span), F.scaled_dot_product_attention

    def attend_on_a_gpu(*args: Any, **options: Any) -> Tensor:
        return attend(*args, **options).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(F, "scaled_dot_product_attention", attend_on_a_gpu)
    assert torch.equal(operators.attend_in_groups(query, key, value, span), expected)


def test_long_passes_in_bf16_are_the_same_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two by products and a short one by torch's attention."""
    monkeypatch.setattr(operators, "lacks_bf16_attention", lambda: True)
    config = TransformerConfig(
        vocab_size=300, dim=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, mlp_dim=96, mlp="swiglu"
    )
    model = Transformer(config).to(torch.bfloat16).eval()
    passes = passes_of([300, 20, 270], 1)
    packing = TorchOperators(torch.device("cpu"), torch.bfloat16)
    for one, alone in zip(run_packed(model, passes, packing), passes, strict=True):
        assert torch.equal(one.hidden, run_packed(model, [alone], packing)[0].hidden)


def test_earlier_keys_stand_in_for_rows(transformer: Transformer) -> None:
    """The second half of a causal sequence from the first half's keys is as if computed whole."""
    operators = TorchOperators(torch.device("cpu"), torch.float32)
    ids, positions = torch.arange(20), torch.arange(20)
    causal = torch.ones(20, 20, dtype=torch.bool).tril()
    (whole,) = run_packed(transformer, [Pass(ids, positions, positions, attention_mask=causal)], operators)
    first = Pass(ids[:9], positions[:9], positions[:0], attention_mask=causal[:9, :9], keeps=True)
    (kept,) = run_packed(transformer, [first], operators)
    second = Pass(ids[9:], positions[9:], torch.arange(11), past=kept.own, attention_mask=causal[9:])
    (rest,) = run_packed(transformer, [second], operators)
    torch.testing.assert_close(rest.hidden, whole.hidden[9:], rtol=1e-4, atol=1e-5)


def test_a_pass_that_grows_writes_its_keys_and_values_behind_those_of_its_past(transformer: Transformer) -> None:
    operators = TorchOperators(torch.device("cpu"), torch.float32)
    ids, causal = torch.arange(20), torch.ones(20, 20, dtype=torch.bool).tril()
    (whole,) = run_packed(transformer, [Pass(ids, ids, ids, attention_mask=causal, keeps=True)], operators)
    assert whole.own is not None
    room = [(key.clone(), value.clone()) for key, value in whole.own]
    for each in room:
        for part in each:
            part[:, :, 9:] = torch.nan
    past = [(key[:, :, :9], value[:, :, :9]) for key, value in room]
    (rest,) = run_packed(transformer, [Pass(ids[9:], ids[9:], ids[:11], past, causal[9:], grows=True)], operators)
    assert rest.own is None
    torch.testing.assert_close(rest.hidden, whole.hidden[9:], rtol=1e-4, atol=1e-5)
    for pair, expected in zip(room, whole.own, strict=True):
        for part, wanted in zip(pair, expected, strict=True):
            torch.testing.assert_close(part, wanted, rtol=1e-4, atol=1e-5)


def request(index: int) -> InfillRequest:
    hole = {"hole": {"max_tokens": 4 + index % 7}}
    return InfillRequest.model_validate(
        {
            "segments": [{"text": f"x{index} = " + "a + " * index}, hole, {"text": ")\n" * (index % 3)}],
            "seed": index,
            "temperature": 0.9 if index % 3 == 0 else 0.0,
            "n": 1 + index % 2,
        }
    )


def test_sixteen_at_once_answer_as_each_alone(runtime: Runtime) -> None:
    requests = [request(index) for index in range(16)]
    runtime.contexts.clear()
    alone = [drain(denoise(runtime, one)) for one in requests]
    runtime.contexts.clear()
    together = run_together(runtime, [open_fill(runtime, one) for one in requests])
    for one, other in zip(alone, together, strict=True):
        assert (one.holes, one.alternatives) == (other.holes, other.alternatives)


def test_top_p_draws_only_from_the_likeliest_tokens() -> None:
    scores = torch.tensor([[3.0, 2.9, 1.0, 0.0]]).repeat(200, 1)
    generator = torch.Generator().manual_seed(0)

    def draw(top_p: float) -> set[int]:
        choice = Choice(
            torch.ones(1, 4, dtype=torch.bool),
            torch.zeros(200, dtype=torch.int64),
            temperature=2.0,
            top_p=top_p,
            generator=generator,
        )
        return set(choose(scores, choice).ids.tolist())

    assert draw(1.0) == {0, 1, 2, 3}
    assert draw(0.5) == {0, 1}
    assert draw(0.01) == {0}


class Counting(TorchOperators):
    def __init__(self) -> None:
        super().__init__(torch.device("cpu"), torch.float32)
        self.rows: list[int] = []

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, spans: list[Span]) -> Tensor:
        self.rows.append(len(x))
        return super().linear(x, weight, bias, spans)


def test_products_come_in_whole_tiles(transformer: Transformer) -> None:
    operators = Counting()
    run_packed(transformer, passes_of([1, 17], 0), operators)
    assert set(operators.rows) == {48}


@pytest.mark.parametrize("wanted", [[], [5], [32, 7, 7], list(range(33))])
@pytest.mark.parametrize("masked", [False, True])
def test_the_last_layer_computes_what_is_wanted(transformer: Transformer, wanted: list[int], masked: bool) -> None:
    """Its keys and values are all there; of the other layer every row is needed for them."""
    other, every = passes_of([20, 33], 2)
    mask = torch.ones(33, 33, dtype=torch.bool).tril() if masked else None
    every = replace(every, attention_mask=mask, keeps=True)
    operators = Counting()
    (whole,) = run_packed(transformer, [every], operators)
    asked = replace(every, wanted=torch.tensor(wanted, dtype=torch.int64))
    operators.rows.clear()
    some = run_packed(transformer, [replace(other, wanted=other.wanted[:2]), asked], operators)[1]
    torch.testing.assert_close(some.hidden, whole.hidden[asked.wanted], rtol=1e-4, atol=1e-5)
    assert some.own is not None and whole.own is not None
    for pair, expected in zip(some.own, whole.own, strict=True):
        assert all(torch.equal(one, of_whole) for one, of_whole in zip(pair, expected, strict=True))
    num_asked = 16 + -(-len(wanted) // 16) * 16
    assert operators.rows == [80] * 10 + [num_asked] * 4
