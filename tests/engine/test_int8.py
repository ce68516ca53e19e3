"""Products of 8-bit whole numbers: exact, alone as in company, near the original; a model packed so still fills."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.engine import tiny
from tests.engine.in_process import denoise, drain
from torch import nn

from midfill_engine.errors import StartError
from midfill_engine.families import FAMILIES
from midfill_engine.loading import runtime as loading_runtime
from midfill_engine.loading.runtime import load_runtime
from midfill_engine.models import int8
from midfill_engine.models.int8 import (
    LEVELS,
    FbgemmWeight,
    Format,
    Int8Operators,
    OneDnnWeight,
    Rotation,
    choose_format,
    quantize_rows,
    rotate,
)
from midfill_engine.models.operators import KEPT_VALUES, LaidOperators, OperatorsError, Span, TorchOperators
from midfill_engine.models.packed import Pass, run_packed, score_rows
from midfill_engine.models.transformer import head_weight
from midfill_engine.wire import InfillRequest

CPU = torch.device("cpu")


@pytest.fixture(params=[FbgemmWeight, OneDnnWeight], ids=lambda weight: weight.__name__)
def coarse(request: pytest.FixtureRequest) -> Format:
    """Weights rounded in pairs add up on every processor; the finer ones do on some."""
    form = Format(request.param, in_pairs=True)
    try:
        form.lay([torch.ones(16, 16)])
    except (RuntimeError, AttributeError) as error:
        pytest.skip(str(error))
    return form


@pytest.mark.parametrize("shape", [(16, 24, 40), (64, 896, 512), (48, 130, 17)])
def test_a_product_is_that_of_the_rounded_numbers(shape: tuple[int, int, int], coarse: Format) -> None:
    num_rows, dim, width = shape
    weight, x = torch.randn(width, dim), torch.randn(num_rows, dim)
    for form in (coarse, choose_format()):
        whole, columns = quantize_rows(weight, in_pairs=form.in_pairs)
        rows = (x * (127 / x.abs().amax(1, keepdim=True))).round()
        scale = x.abs().amax(1, keepdim=True) / 127 * columns
        narrowed, scales = form.narrow(x)
        found = form.lay([weight]).multiply(narrowed) * scales
        torch.testing.assert_close(found, (rows.double() @ whole.double().t()).float() * scale, rtol=1e-5, atol=1e-5)
        error = (found - F.linear(x, weight)).norm() / F.linear(x, weight).norm()
        assert error < (0.025 if form.in_pairs else 0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_the_same_bits_beside_a_row_eight_times_as_large(dtype: torch.dtype, coarse: Format) -> None:
    for form in (coarse, choose_format()):
        operators = Int8Operators(CPU, dtype, form=form)
        linear = nn.Linear(256, 272, bias=True)
        packed = operators.lay([linear.weight])
        x = torch.randn(320, 256).to(dtype)
        alone = [operators.product(x[:rows].clone(), packed, linear.bias.detach()) for rows in (16, 23)]
        x[23:] *= 8
        whole = operators.product(x, packed, linear.bias.detach())
        assert whole.dtype == dtype and all(torch.equal(part, whole[: len(part)]) for part in alone)


def test_both_libraries_multiply_to_the_same_bits(coarse: Format) -> None:
    weight, x = torch.randn(272, 256), torch.randn(40, 256)
    forms = (coarse, Format(OneDnnWeight, in_pairs=True))
    first, second = (form.lay([weight]).multiply(form.narrow(x)[0]) for form in forms)
    assert torch.equal(first, second)


class SaturatingWeight(OneDnnWeight):
    def multiply(self, rows: torch.Tensor) -> torch.Tensor:
        return super().multiply(rows).clamp(max=127 * 100 * 256)


class WrongWeight(FbgemmWeight):
    def multiply(self, rows: torch.Tensor) -> torch.Tensor:
        return super().multiply(rows) + 1


def test_a_processor_that_adds_in_sixteen_bits_gets_weights_rounded_in_pairs() -> None:
    saturating = Format(SaturatingWeight, in_pairs=False)
    assert choose_format([saturating, int8.FORMATS[1]]) == int8.FORMATS[1]
    with pytest.raises(int8.OperatorsError, match="not exact"):
        choose_format([saturating, Format(WrongWeight, in_pairs=True)])


def test_two_neighbors_never_overflow_sixteen_bits() -> None:
    weight = torch.randn(200, 64)
    weight[:2, :2] = torch.tensor([[63.5, 63.5], [63.5, -63.5]])  # the scale is 1, and both are rounded up
    values, scales = quantize_rows(weight, in_pairs=True)
    pairs = values.int().abs().unflatten(1, (-1, 2)).sum(2)
    assert pairs.max() == LEVELS + 1 and (2 * LEVELS + 1) * int(pairs.max()) < 2**15
    assert ((values * scales[:, None] - weight).abs() <= scales[:, None] / 2 + 1e-6).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rotated_row_has_the_same_bits_alone(dtype: torch.dtype) -> None:
    x = torch.randn(300, 1536).to(dtype)
    whole = rotate(x)
    assert all(torch.equal(rotate(x[-count:]), whole[-count:]) for count in (1, 5, 16, 33, 128))
    torch.testing.assert_close(rotate(whole), x.float(), rtol=1e-4, atol=1e-4)


def test_rotated_rows_with_a_few_large_channels_keep_the_small_ones(coarse: Format) -> None:
    weight, x, gain = torch.randn(96, 256), torch.randn(40, 256), torch.rand(256) + 0.5
    x[:, ::50] *= 100
    wanted, errors = x @ weight.t(), []
    ways = [(Rotation(), x), (Rotation(gain, rotates_columns=True), rotate(x / gain)), (Rotation(rotates_rows=True), x)]
    for rotation, rows in ways:
        narrowed, scales = coarse.narrow(rows)
        found = coarse.lay([weight], rotation).multiply(narrowed) * scales
        errors.append(float(((rotate(found) if rotation.rotates_rows else found) - wanted).norm() / wanted.norm()))
    assert errors[1] < errors[0] / 1.5 and errors[2] < errors[0] * 1.1


@pytest.mark.parametrize("family", ["dream", "llada", "tiny-a2d"])
def test_a_packed_model_fills_and_holds_no_second_copy(family: str, tmp_path: Path) -> None:
    tiny.make_random(tmp_path, FAMILIES.find(family))
    plain, packed = (load_runtime(str(tmp_path), "cpu", dtype="fp32", weights=name) for name in ("stored", "int8"))
    assert plain.loaded.num_parameters == packed.loaded.num_parameters
    block = packed.loaded.model.transformer.blocks[0]
    assert block.mlp.down.weight.numel() == block.attention.q.weight.numel() == KEPT_VALUES
    transformer = packed.loaded.model.transformer
    assert transformer.head is None or transformer.head.weight.numel() == KEPT_VALUES
    original, gain = plain.loaded.model.transformer, plain.loaded.model.transformer.final_norm.weight
    states = torch.randn(20, transformer.config.dim, generator=torch.Generator().manual_seed(0))
    wide = score_rows(original, [states], plain.operators)[0]
    narrow = score_rows(transformer, [rotate(states / gain)], packed.operators)[0]
    assert 0 < (wide - narrow).norm() / wide.norm() < 0.03
    ids, positions = torch.arange(40) % 256, torch.arange(40)
    hidden = [runtime.run([Pass(ids, positions, wanted=torch.arange(40))])[0].hidden for runtime in (plain, packed)]
    error = (hidden[0] - rotate(hidden[1]) * gain).norm() / hidden[0].norm()
    assert 0 < error < 0.05
    request = InfillRequest.model_validate({"segments": [{"text": "x = "}, {"hole": {"max_tokens": 5}}], "steps": 2})
    assert drain(denoise(packed, request, lengths="fixed")).holes


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("family", ["opendcoder", "llada-moe"])
def test_a_model_packed_at_once_is_the_one_packed_block_by_block(family: str, is_tied: bool, tmp_path: Path) -> None:
    config = {**tiny.config_of(family), "tie_word_embeddings": is_tied}
    tiny.make_random(tmp_path, FAMILIES.find(family), config=config)
    plain, packed = (load_runtime(str(tmp_path), "cpu", dtype="fp32", weights=name) for name in ("stored", "int8"))
    operators = Int8Operators(CPU, torch.float32)
    operators.pack(plain.loaded.model.transformer)
    step = Pass(torch.arange(40), torch.arange(40), wanted=torch.arange(40))
    (found,) = run_packed(plain.loaded.model.transformer, [step], operators)
    assert torch.equal(found.hidden, packed.run([step])[0].hidden)


@pytest.mark.parametrize(("family", "states"), [("opendcoder", torch.float32), ("llada-moe", torch.bfloat16)])
def test_states_are_in_fp32_where_all_products_are(family: str, states: torch.dtype, tmp_path: Path) -> None:
    """Experts multiply in bf16. Keys and values stay in bf16: they are the largest."""
    tiny.make_random(tmp_path, FAMILIES.find(family))
    runtime = load_runtime(str(tmp_path), "cpu", dtype="bf16", weights="int8")
    places = torch.arange(40)
    (found,) = runtime.run([Pass(places, places, places, keeps=True)])
    assert found.hidden.dtype == states and found.own is not None
    assert {part.dtype for pair in found.own for part in pair} == {torch.bfloat16}
    scores = score_rows(runtime.loaded.model.transformer, [found.hidden], runtime.operators)[0]
    assert scores.dtype == states and bool(scores.isfinite().all())


@pytest.mark.parametrize("weights", ["stored", "int8"])
def test_passes_with_masks_are_the_same_beside_each_other(weights: str, tmp_path: Path) -> None:
    """Few rows, whose heads are folded, and many."""
    tiny.make_random(tmp_path, FAMILIES.find("opendcoder"))
    runtime = load_runtime(str(tmp_path), "cpu", dtype="fp32", weights=weights)
    passes = [
        Pass(places + num, places, places, attention_mask=places[:, None] >= places - num % 3)
        for num in (5, 7, 16, 40)
        if len(places := torch.arange(num))
    ]
    for step, found in zip(passes, runtime.run(passes), strict=True):
        assert torch.equal(runtime.run([step])[0].hidden, found.hidden)


def test_a_pass_in_int8_has_the_same_bits_alone_and_beside_others(tmp_path: Path) -> None:
    tiny.make_random(tmp_path, FAMILIES.find("dream"))
    runtime = load_runtime(str(tmp_path), "cpu", dtype="fp32", weights="int8")
    passes = [Pass(torch.arange(num) + num, torch.arange(num), wanted=torch.arange(num)) for num in (5, 40, 17, 64)]
    together = runtime.run(passes)
    for step, found in zip(passes, together, strict=True):
        assert torch.equal(runtime.run([step])[0].hidden, found.hidden)


@pytest.mark.parametrize("is_tied", [True, False])
def test_the_embedding_is_looked_up_in_int8_and_the_head_stays_packed(is_tied: bool, tmp_path: Path) -> None:
    family = FAMILIES.find("opendcoder")
    tiny.make_random(tmp_path, family, config={**tiny.config_of(family.name), "tie_word_embeddings": is_tied})
    plain, packed = (load_runtime(str(tmp_path), "cpu", dtype="fp32", weights=name) for name in ("stored", "int8"))
    transformer, operators = packed.loaded.model.transformer, packed.operators
    assert transformer.embedding.weight.dtype == torch.int8 and packed.info.dtype == "float32"
    assert isinstance(operators, Int8Operators) and id(head_weight(transformer)) in operators._packed
    ids, stored = torch.arange(320), rotate(plain.loaded.embedding_weight)
    error = (transformer.embedding(ids) - stored[ids]).abs()
    assert 0 < error.max() and (error <= stored.abs().amax(dim=1, keepdim=True) / 127 / 2 + 1e-6).all()


@pytest.fixture
def laid() -> LaidOperators:
    try:
        return LaidOperators()
    except OperatorsError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("family", ["opendcoder", "llada-moe"])
def test_bf16_weights_are_laid_out_once_and_multiply_as_before(
    family: str, laid: LaidOperators, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.make_random(tmp_path, FAMILIES.find(family))
    runtime = load_runtime(str(tmp_path), "cpu", dtype="bf16")
    assert isinstance(runtime.operators, LaidOperators)
    plain_operators = TorchOperators(CPU, torch.bfloat16)
    monkeypatch.setattr(loading_runtime, "choose_operators", lambda *_, **__: plain_operators)
    plain = load_runtime(str(tmp_path), "cpu", dtype="bf16")
    assert type(plain.operators) is TorchOperators and plain.info.weights == runtime.info.weights
    steps = [Pass(torch.arange(num), torch.arange(num), wanted=torch.arange(num)) for num in (5, 40, 64)]
    for found, wanted in zip(runtime.run(steps), plain.run(steps), strict=True):
        torch.testing.assert_close(found.hidden.float(), wanted.hidden.float(), rtol=0.05, atol=0.05)
    for step, found in zip(steps, runtime.run(steps), strict=True):
        assert torch.equal(runtime.run([step])[0].hidden, found.hidden)


@pytest.mark.parametrize("weights", ["stored", "int8"])
@pytest.mark.parametrize("family", ["opendcoder", "llada-moe"])
def test_a_pass_may_want_keys_and_values_alone(family: str, weights: str, tmp_path: Path) -> None:
    """Whatever multiplies: the last layer's products are of no rows then, in a pack of such passes only, too."""
    tiny.make_random(tmp_path, FAMILIES.find(family))
    runtime = load_runtime(str(tmp_path), "cpu", weights=weights)
    places = torch.arange(20)
    (whole,) = runtime.run([Pass(places, places, places, keeps=True)])
    for found in runtime.run([Pass(places, places, places[:0], keeps=True)] * 2):
        assert not len(found.hidden) and found.own is not None and whole.own is not None
        for pair, expected in zip(found.own, whole.own, strict=True):
            assert all(torch.equal(one, other) for one, other in zip(pair, expected, strict=True))


def test_weights_that_would_fill_the_memory_stay_mapped(
    laid: LaidOperators, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading_runtime, "free_bytes", lambda _: 1000)
    tiny.make_random(tmp_path, FAMILIES.find("dream"))
    assert type(load_runtime(str(tmp_path), "cpu", dtype="bf16").operators) is TorchOperators


def test_where_nothing_can_be_laid_out_weights_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AttributeError("_reorder_linear_weight")

    monkeypatch.setattr(LaidOperators, "lay", fail)
    tiny.make_random(tmp_path, FAMILIES.find("dream"))
    runtime = load_runtime(str(tmp_path), "cpu", dtype="bf16")
    assert type(runtime.operators) is TorchOperators


def test_the_default_model_is_in_int8_where_the_machine_multiplies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.make_random(tmp_path, FAMILIES.find("opendcoder"))
    monkeypatch.setattr(loading_runtime, "find_model", lambda _: tmp_path)
    assert isinstance(load_runtime("smollm2", "cpu").operators, Int8Operators)
    for form in int8.FORMATS:
        monkeypatch.setattr(form.weight, "of", lambda *_: torch.ops.quantized.gone)
    assert not isinstance(load_runtime("smollm2", "cpu").operators, Int8Operators)
    with pytest.raises(StartError, match="no 8-bit product"):
        load_runtime("smollm2", "cpu", weights="int8")


def test_unknown_weights_are_refused(tmp_path: Path) -> None:
    tiny.make_random(tmp_path, FAMILIES.find("dream"))
    with pytest.raises(StartError, match="known: stored, int8"):
        load_runtime(str(tmp_path), "cpu", weights="int3")


def test_int8_weights_are_refused_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.make_random(tmp_path, FAMILIES.find("dream"))
    monkeypatch.setattr(loading_runtime, "choose_device", lambda _: torch.device("cuda"))
    with pytest.raises(StartError, match="int8 weights are for CPUs, and the model is on the device 'cuda'") as caught:
        load_runtime(str(tmp_path), "cuda", weights="int8")
    assert caught.value.next_step == "use --operators torch and --weights stored"


def test_one_span_is_not_copied() -> None:
    operators = Int8Operators(CPU, torch.float32)
    x, weight = torch.randn(32, 64), torch.randn(16, 64)
    assert torch.equal(operators.linear(x, weight, None, [Span(0, 30, 32)]), F.linear(x, weight))
