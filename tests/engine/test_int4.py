"""Products with 4-bit weights: those of the rounded numbers, alone as in company; numbers of 4-bit files stay."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants
from tests.engine import tiny
from tests.engine.in_process import denoise, drain

from midfill_engine.errors import StartError
from midfill_engine.families import FAMILIES
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.models.int4 import GROUP, Int4Operators, Int4Weight, Levels
from midfill_engine.models.operators import KEPT_VALUES, OperatorsError
from midfill_engine.models.packed import Pass, score_rows
from midfill_engine.models.transformer import head_weight
from midfill_engine.wire import InfillRequest

CPU = torch.device("cpu")


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device(request.param)


@pytest.mark.parametrize(("width", "dim"), [(40, 32), (64, 96), (130, 576), (1000, 4864)])
def test_a_product_is_that_of_the_rounded_numbers(width: int, dim: int, device: torch.device) -> None:
    """On a GPU, too, of the numbers as a CPU rounds them."""
    operators = Int4Operators(device)
    weights = torch.randn(width, dim), 10 * torch.randn(24, dim) + 3
    x, bias = torch.randn(21, dim).bfloat16(), torch.randn(width + 24).bfloat16()
    widened = torch.cat([Levels.of(weight, CPU).widen() for weight in weights])
    wanted = x.float() @ widened.t() + bias.float()
    found = operators.product(x.to(device), operators.lay(weights), bias.to(device))
    assert found.dtype == torch.bfloat16 and found.shape == (21, width + 24)
    torch.testing.assert_close(found.float().cpu(), wanted, rtol=0.01, atol=0.01 * float(wanted.std()))


def test_numbers_are_rounded_to_the_nearest_of_sixteen_levels() -> None:
    weight = torch.randn(100, 320)
    matrix = Levels.of(weight, CPU)
    scales = matrix.scalings.float()[..., 0].t().repeat_interleave(GROUP, dim=1)
    assert matrix.levels.max() == 15 and matrix.levels.min() == 0
    assert ((matrix.widen() - weight).abs() <= 0.55 * scales).all()  # half a level, and what bf16 rounds off
    assert (matrix.widen() - weight).abs().max() > 0.4 * scales.min()


def test_a_group_of_equal_numbers_keeps_them() -> None:
    weight = torch.tensor([0.0, 0.25, -3.0])[:, None].expand(3, 2 * GROUP)
    assert torch.equal(Levels.of(weight, CPU).widen(), weight)
    assert torch.equal(Levels.of(weight, CPU, finds_grids=True).widen(), weight)


def make_q4_k(num_rows: int, dim: int) -> np.ndarray:
    """Random blocks of 256 numbers in Q4_K: factors of scales and minima in fp16, 12 bytes with both of 8 groups, and
    128 bytes of levels. Minima are 8 times the scales, about as in trained models.
    """
    random = np.random.default_rng(0)
    blocks = random.integers(0, 256, (num_rows, dim // 256, 144), dtype=np.uint8)
    factors = random.uniform(0.001, 0.01, (*blocks.shape[:2], 1)).astype(np.float16)
    blocks[..., 0:2], blocks[..., 2:4] = factors.view(np.uint8), (8 * factors).view(np.uint8)
    scales = random.integers(1, 16, (*blocks.shape[:2], 8), dtype=np.uint8)
    blocks[..., 4:8] = blocks[..., 8:12] = scales[..., :4]
    blocks[..., 12:16] = scales[..., 4:] | scales[..., 4:] << 4
    return blocks.reshape(num_rows, -1)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q4_K"])
def test_numbers_of_a_file_with_four_bits_stay(kind: str) -> None:
    stored_type = GGMLQuantizationType[kind]
    if kind == "Q4_K":
        data = make_q4_k(64, 512)
    else:
        data = quants.quantize(np.random.default_rng(0).standard_normal((64, 512), dtype=np.float32), stored_type)
    stored = torch.from_numpy(quants.dequantize(data, stored_type))
    spans = stored.view(64, -1, GROUP).amax(2) - stored.view(64, -1, GROUP).amin(2)
    steps = (spans / 15).repeat_interleave(GROUP, dim=1)
    errors, rounded = ((Levels.of(stored, CPU, finds_grids=finds).widen() - stored).abs() for finds in (True, False))
    assert (errors <= 0.1 * steps + 1e-6).all()  # scales are rounded to bf16
    if kind != "Q4_1":  # whose levels the library lays from the least to the largest number, as we do
        assert (rounded > 0.3 * steps).any()
    weight = torch.randn(64, 512)
    found = Levels.of(weight, CPU, finds_grids=True)
    assert torch.equal(found.levels, Levels.of(weight, CPU).levels)


def load_pair(folder: Path, family: str, device: torch.device, *, is_tied: bool = False) -> tuple[Runtime, Runtime]:
    """A random model with weights as stored on a CPU, and in 4 bits."""
    config = {**tiny.config_of(family), "tie_word_embeddings": is_tied}
    tiny.make_random(folder, FAMILIES.find(family), config=config)
    return load_runtime(str(folder), "cpu", dtype="fp32"), load_runtime(str(folder), device.type, weights="int4")


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("family", ["dream", "llada", "opendcoder", "llada-moe"])
def test_a_packed_model_fills_and_holds_no_second_copy(
    family: str, is_tied: bool, device: torch.device, tmp_path: Path
) -> None:
    plain, packed = load_pair(tmp_path, family, device, is_tied=is_tied)
    transformer = packed.loaded.model.transformer
    assert plain.loaded.num_parameters == packed.loaded.num_parameters and packed.info.dtype == "bfloat16"
    assert transformer.blocks[0].attention.q.weight.numel() == KEPT_VALUES
    assert transformer.embedding.weight.dtype == torch.bfloat16
    assert head_weight(transformer).numel() == (transformer.embedding.weight.numel() if is_tied else KEPT_VALUES)
    ids = torch.arange(40) % 256
    step = Pass(ids, torch.arange(40), wanted=torch.arange(40))
    logs = []
    for runtime in (plain, packed):
        hidden = runtime.run([step])[0].hidden
        scores = score_rows(runtime.loaded.model.transformer, [hidden], runtime.operators)[0]
        logs.append(scores.double().log_softmax(1).cpu())
    divergence = (logs[0].exp() * (logs[0] - logs[1])).sum(1).mean()
    assert 0 < divergence < 0.05
    request = InfillRequest.model_validate({"segments": [{"text": "x = "}, {"hole": {"max_tokens": 5}}], "steps": 2})
    assert drain(denoise(packed, request, lengths="fixed")).holes


def test_a_weight_takes_five_bits() -> None:
    matrix = Int4Weight.of(Levels.of(torch.randn(896, 4864), CPU))
    num_bytes = sum(part.numel() * part.itemsize for part in (matrix.values, matrix.scalings))
    assert num_bytes == 896 * 4864 * 5 / 8


def test_a_pass_has_the_same_bits_alone_and_beside_others(device: torch.device, tmp_path: Path) -> None:
    _, packed = load_pair(tmp_path, "dream", device)
    passes = [Pass(torch.arange(num) + num, torch.arange(num), wanted=torch.arange(num)) for num in (5, 40, 17, 64)]
    for step, found in zip(passes, packed.run(passes), strict=True):
        assert torch.equal(packed.run([step])[0].hidden, found.hidden)


def test_a_model_with_rows_of_other_lengths_is_refused(tmp_path: Path) -> None:
    config = tiny.config_of("opendcoder", hidden_size=48, num_attention_heads=2, num_key_value_heads=1)
    tiny.make_random(tmp_path, FAMILIES.find("opendcoder"), config=config)
    with pytest.raises(StartError, match="rows of a multiple of 32 numbers, and some have 48"):
        load_runtime(str(tmp_path), "cpu", weights="int4")


def test_another_number_format_and_kernels_are_refused(tmp_path: Path) -> None:
    tiny.make_random(tmp_path, FAMILIES.find("opendcoder"))
    with pytest.raises(StartError, match="multiplied in bf16 alone"):
        load_runtime(str(tmp_path), "cpu", dtype="fp32", weights="int4")
    for weights in ("int4", "int8"):
        with pytest.raises(StartError, match="kernels multiply weights as they are stored"):
            load_runtime(str(tmp_path), "cpu", "kernels", weights=weights)


def test_a_device_without_such_products_or_with_wrong_ones_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise NotImplementedError

    multiply = Int4Weight.multiply
    monkeypatch.setattr(Int4Weight, "multiply", lambda *given: multiply(*given) * 1.1)
    with pytest.raises(OperatorsError, match="not exact"):
        Int4Operators(CPU)
    monkeypatch.setattr(Int4Weight, "multiply", fail)
    with pytest.raises(OperatorsError, match="no product with 4-bit weights"):
        Int4Operators(CPU)
