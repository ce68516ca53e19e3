"""Finding and loading a model, and choosing where it runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.in_process import denoise, drain
from torch import Tensor
from torch.nn import RMSNorm

from midfill_engine.errors import StartError
from midfill_engine.loading import device, runtime
from midfill_engine.loading.runtime import find_model, load_runtime, open_checkpoint
from midfill_engine.models import packed
from midfill_engine.models.packed import feed_forward
from midfill_engine.wire import InfillRequest


def test_a_folder_is_loaded_under_its_names(checkpoint_folder: Path) -> None:
    loaded = load_runtime(str(checkpoint_folder), "cpu")
    assert loaded.names == ("random", str(checkpoint_folder), "embedded")
    assert loaded.info.device == "cpu"
    before = loaded.info.weights
    with torch.no_grad():
        loaded.loaded.model.transformer.embedding.weight[5] += 1e-3
    assert len(before) == 16 and load_runtime(str(checkpoint_folder), "cpu").info.weights == before
    assert replace(loaded).info.weights != before


@pytest.mark.parametrize(
    ("model", "where", "known"),
    [
        ("nonsense", "cpu", "shipped models"),
        ("{folder}", "abacus", "auto, cpu, cuda, mps"),
        ("{empty}", "cpu", "config"),
        ("{strange}", "cpu", "no model family named 'strange'"),
    ],
)
def test_an_error_of_loading_says_why_and_what_to_do(
    checkpoint_folder: Path, tmp_path: Path, model: str, where: str, known: str
) -> None:
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "config.json").write_text('{"family": "strange"}')
    with pytest.raises(StartError) as caught:
        load_runtime(model.format(folder=checkpoint_folder, empty=tmp_path, strange=strange), where)
    assert known in caught.value.message
    assert caught.value.exit_code == 5
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("present", "chosen"), [((True, True), "cuda"), ((False, True), "mps"), ((False, False), "cpu")]
)
def test_auto_takes_the_fastest_device(present: tuple[bool, bool], chosen: str) -> None:
    assert device.choose_device("auto", {"cuda": present[0], "mps": present[1], "cpu": True}).type == chosen
    assert list(device.find_devices()) == ["cuda", "mps", "cpu"]


def test_threads_are_for_large_models_on_a_cpu() -> None:
    asked = [("cpu", 5_000_000), ("cpu", 135_000_000), ("cuda", 135_000_000), ("mps", 7_000_000_000)]
    chosen = [device.choose_num_threads(torch.device(where), parameters, 8) for where, parameters in asked]
    assert chosen == [1, 8, 1, 1]


def test_a_gpu_keeps_prompts_of_more_users(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = iter((24 * 2**30, 2**29))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (0, next(totals)))
    kinds = ("cpu", "cuda", "cuda")
    assert [device.prefix_bytes(torch.device(kind)) for kind in kinds] == [2**26, 3 * 2**29, 2**26]


def test_a_number_format_may_be_forced(checkpoint_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, else by the environment; neither says what the machine has."""
    monkeypatch.setenv("MIDFILL_DTYPE", "bf16")
    dtypes = [load_runtime(str(checkpoint_folder), "cpu", dtype=name).info.dtype for name in ("auto", "fp32", "bf16")]
    assert dtypes == ["bfloat16", "float32", "bfloat16"]
    monkeypatch.setenv("MIDFILL_DTYPE", "fp64")
    with pytest.raises(StartError, match="'fp64'; known: auto, fp32, bf16, fp16") as refused:
        load_runtime(str(checkpoint_folder), "cpu")
    assert "unset MIDFILL_DTYPE" in refused.value.next_step, "--dtype auto, which means the same, does not help"


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [({"avx2"}, torch.float32), ({"avx2", "avx512_bf16"}, torch.bfloat16), ({"amx_bf16"}, torch.bfloat16)],
)
def test_a_cpu_computes_in_bf16_only_where_it_has_it(
    monkeypatch: pytest.MonkeyPatch, flags: set[str], dtype: torch.dtype
) -> None:
    monkeypatch.delenv("MIDFILL_DTYPE", raising=False)
    assert device.choose_dtype(torch.device("cpu"), flags=frozenset(flags)) is dtype
    assert device.choose_dtype(torch.device("cuda")) is torch.bfloat16
    assert device.choose_dtype(torch.device("mps")) is torch.float32


def test_fp16_is_for_apples_gpus(checkpoint_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.choose_dtype(torch.device("mps"), "fp16") is torch.float16
    monkeypatch.setenv("MIDFILL_DTYPE", "fp16")
    with pytest.raises(StartError, match="on the device 'cpu' use fp32, bf16 or auto"):
        load_runtime(str(checkpoint_folder), "cpu")


@pytest.mark.parametrize(
    ("where", "capability", "hip", "expected"),
    [
        ("cuda", (9, 0), None, True),
        ("cuda", (8, 9), None, False),
        ("cuda", (9, 4), "6.2", False),
        ("mps", (9, 0), None, False),
        ("cpu", (9, 0), None, False),
    ],
)
def test_kernels_are_chosen_on_gpus_where_they_were_measured(
    monkeypatch: pytest.MonkeyPatch, where: str, capability: tuple[int, int], hip: str | None, expected: bool
) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert device.is_measured(torch.device(where)) is expected


def test_without_working_kernels_torch_computes_unless_kernels_are_asked_for(
    checkpoint_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernels refuse a CPU, as they refuse a GPU on which their steps differ from torch's."""
    monkeypatch.setattr(runtime, "is_measured", lambda _: True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert load_runtime(str(checkpoint_folder), "cpu", dtype="fp32").fused is None and not caplog.records
    assert load_runtime(str(checkpoint_folder), "cpu", dtype="bf16").fused is None
    assert "the kernels do not work here: the kernels need" in caplog.text
    with pytest.raises(StartError, match="the kernels need"):
        load_runtime(str(checkpoint_folder), "cpu", "kernels", dtype="bf16")


@pytest.mark.parametrize("suffix", ["\n\n\nprint(add(1, 2))\n", ""])
def test_in_fp16_nothing_of_the_shipped_model_overflows(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, since no Apple machine is at hand: what masks, norms and scores are given there, too."""
    states: list[Tensor] = []

    def listen(*asked: Any) -> Tensor:
        states.append(feed_forward(*asked))
        return states[-1]

    monkeypatch.setattr(packed, "feed_forward", listen)
    request = InfillRequest.model_validate(
        {"segments": [{"text": "def add(a, b):\n    "}, {"hole": {"max_tokens": 24}}, {"text": suffix}]}
    )
    wide, narrow = (
        open_checkpoint(find_model("embedded"), torch.device("cpu"), dtype, "embedded")
        for dtype in (torch.float32, torch.float16)
    )
    texts = [[hole.text for hole in drain(denoise(runtime, request)).holes] for runtime in (wide, narrow)]
    assert texts[0] == texts[1] and narrow.info.dtype == "float16"
    assert {state.dtype for state in states} == {torch.float32, torch.float16}
    assert all(state.isfinite().all() for state in states)


def test_a_norm_in_fp16_bears_rows_whose_squares_it_cannot_hold() -> None:
    rows = torch.randn(16, 64) * 3000
    norm = RMSNorm(64, 1e-6, elementwise_affine=False)
    found = norm(rows.half()).float()
    torch.testing.assert_close(found, norm(rows), rtol=2e-3, atol=2e-3)
