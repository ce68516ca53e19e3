"""The comparison of ways on a CPU: every way computes the same scores, within its precision."""

from pathlib import Path

import pytest
import torch

from bench import cpu_paths
from midfill_engine.models.transformer import TransformerConfig

TINY = TransformerConfig(64, dim=32, num_layers=2, num_heads=2, num_kv_heads=2, head_dim=16, mlp_dim=64)


def test_every_way_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cpu_paths.SIZES, "tiny", TINY)
    monkeypatch.setitem(cpu_paths.CONTEXT, "tiny", 24)
    monkeypatch.setattr(cpu_paths, "onnx_ways", lambda *given: {})
    found = cpu_paths.measure("tiny", rounds=2, threads=1)
    assert [(row.load, row.way) for row in found[:3]] == [
        ("encode 24", "torch fp32"),
        ("encode 24", "torch bf16"),
        ("encode 24", "torch int8"),
    ]
    assert len(found) == 12
    for row in found:
        limit = {"torch fp32": 0.0, "torch bf16": 0.05, "torch int8": 0.2}[row.way]
        assert row.error <= limit and row.cpu_ms > 0
        assert (row.error > 0) == (row.way != "torch fp32"), "another precision rounds otherwise"


def test_onnx_computes_the_same(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = cpu_paths.make_model(TINY)
    inputs = [torch.arange(16, 40)[None], torch.arange(24)[None]]
    module = cpu_paths.Encode(model)
    rows = cpu_paths.compare("tiny", "encode", cpu_paths.ways(module, inputs, tmp_path, 1), rounds=1)
    errors = {row.way: row.error for row in rows}
    assert errors["ONNX Runtime fp32"] < 1e-4 < errors["ONNX Runtime int8"] < 0.3
