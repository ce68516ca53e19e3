"""The benches themselves: floors against numbers worked out by hand, the loops they compare with, a run at toy size."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import green
from bench.cases import small_cases
from bench.ceilings import Ceilings
from bench.draw import draw, read_points
from bench.fused import make_random
from bench.green import concerning, find_red, stop_unless_green
from bench.hopper import find_sums
from bench.measure import Clock, summarize
from bench.operators import draw_table, run_case
from bench.plain import PlainModel, fill_plainly, fill_with_dual_cache
from bench.shapes import LLADA_8B, QWEN_7B, QWEN_HALF_B, TOY, pass_flops, step_floor
from midfill_engine.models.fused import PRECISIONS
from midfill_kernels.gap_attention import GapSequence
from midfill_kernels.settle import open_fills

ROOT = Path(__file__).parent.parent.parent
COPY, BF16, FP8 = 3.0e12, 800e12, 1400e12


@pytest.mark.parametrize(
    ("shape", "precision", "context", "gap", "milliseconds"),
    [
        (LLADA_8B, "bf16", 2048, 64, 5.36),
        (LLADA_8B, "fp8", 2048, 64, 2.86),
        (QWEN_7B, "bf16", 2048, 64, 4.80),
        (QWEN_7B, "fp8", 2048, 64, 2.45),
        (QWEN_HALF_B, "bf16", 2048, 64, 0.35),
    ],
)
def test_floors(shape, precision, context, gap, milliseconds) -> None:  # type: ignore[no-untyped-def]
    """Milliseconds at 3 TB/s and 800 (fp8: 1,400) TFLOP/s, worked out by hand from the published sizes."""
    floor = step_floor(shape, precision, 1, context, gap)
    seconds = floor.seconds(COPY, FP8 if precision == "fp8" else BF16)
    assert seconds * 1e3 == pytest.approx(milliseconds, abs=0.06)


def test_floor_of_an_encoding() -> None:
    assert pass_flops(LLADA_8B, 2048, 2048) / 1e12 == pytest.approx(30.8, abs=0.1)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_random_model_is_as_large_as_its_floor_says(precision) -> None:  # type: ignore[no-untyped-def]
    model = make_random(TOY, precision, 4, torch.device("cpu"))
    floor = step_floor(TOY, precision, 1, 0, 8)
    assert model.weight_bytes == pytest.approx(floor.layer_bytes + floor.head_bytes, rel=0.07)


def test_the_plain_model_agrees_with_the_fused(device: torch.device) -> None:
    model = make_random(replace(TOY, num_layers=1), "bf16", 16, device, torch.float32)
    plain, context = PlainModel(model), torch.randint(0, 300, (5,), device=device)
    gap = torch.randint(0, 300, (2,), device=device)
    model.encode(context, torch.arange(5)[None], [5], torch.arange(5, device=device))
    fills = open_fills([gap], [torch.ones(2)], [2], [2.0], [0], device)
    hidden = model.hidden(fills.ids, model.open_batch(fills, torch.arange(5, 7)[None], [GapSequence(2, 0, 5)]).rows)
    _, past = plain.hidden(context, torch.arange(5, device=device))
    expected, _ = plain.hidden(gap, torch.arange(5, 7, device=device), past)
    torch.testing.assert_close(hidden, expected, rtol=1e-3, atol=1e-3)


def test_the_published_loops_settle_everything_and_agree_on_one_step(device: torch.device) -> None:
    plain = PlainModel(make_random(TOY, "bf16", 16, device, torch.float32))
    ids = torch.randint(2, 300, (20,), device=device)
    masked = torch.zeros(20, dtype=torch.bool, device=device)
    masked[7:13] = True
    ids[masked] = 1
    at_once = fill_plainly(plain, ids, masked, per_step=6)
    assert torch.equal(at_once, fill_with_dual_cache(plain, ids, masked, per_step=6))
    for fill in (fill_plainly, fill_with_dual_cache):
        slow = fill(plain, ids, masked, per_step=2)
        assert torch.equal(slow[~masked], ids[~masked]) and slow.shape == ids.shape


def test_medians_and_turns() -> None:
    seen: list[int] = []
    timing = Clock(torch.device("cpu"), 6, flushes=False).time([lambda: seen.append(0), lambda: seen.append(1)])
    assert seen == [0, 1] + [0, 1] * 3 and timing.repeats == 6
    assert summarize([3.0, 1.0, 2.0]).median_s == 2.0 and summarize([3.0, 1.0, 2.0]).fastest_s == 1.0


def test_the_red_tests_are_found_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tests/kernels"
    folder.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (folder / "test_green.py").write_text("def test() -> None:\n    assert True\n")
    (folder / "test_broken.py").write_text("import what_is_nowhere\n")
    mixed = "import pytest\n@pytest.mark.parametrize('kind', ['plain', 'fp8'])\ndef test_it(kind: str) -> None:\n"
    (folder / "test_mixed.py").write_text(f"{mixed}    assert kind != 'fp8'\n")
    monkeypatch.setattr(green, "ROOT", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    red = find_red("test_green.py", "test_mixed.py", "test_broken.py")
    assert red == {"test_mixed.py::test_it[fp8]", "test_broken.py"}
    monkeypatch.setattr(green, "_run", lambda *arguments: pytest.fail("these ran already"))
    assert find_red("test_mixed.py") == {"test_mixed.py::test_it[fp8]"} and not find_red("test_green.py")
    stop_unless_green("test_green.py")
    with pytest.raises(SystemExit, match="No figures while tests fail: test_broken.py"):
        stop_unless_green("test_broken.py", "test_green.py")
    (folder / "test_green.py").write_text("")
    with pytest.raises(pytest.fail.Exception, match="ran already"):  # what has changed is measured again
        find_red("test_green.py")


def test_a_red_format_takes_no_other_formats_figures() -> None:
    red = ["test_matmul.py::test_matmul[fp8-1]", "test_norm.py::test_norm_straight_to_fp8", "test_head.py::test[1-40]"]
    assert concerning(red, "plain") == ["test_head.py::test[1-40]"] == concerning(red, "int4", "plain")
    assert concerning(red, "fp8") == sorted(red)
    assert concerning(red[:2], "plain") == []


def test_a_case_is_timed_beside_its_rivals() -> None:
    device = torch.device("cpu")
    case = next(case for case in small_cases(device, toy=True) if case.operator == "gate")
    result = run_case(case, Clock(device, 3, flushes=False), Ceilings(1e9, {"float32": 1e9}))
    assert set(result.timings) == {"ours", "torch"} and result.timings["ours"].repeats == 3
    assert result.floor_s == pytest.approx(case.num_bytes / 1e9)
    assert result.ratio("torch") == result.timings["torch"].median_s / result.timings["ours"].median_s
    assert draw_table([result], "").row_count == 1


def record_of(**parts: object) -> dict[str, Any]:
    machine = {"device": "test", "date": "2026-01-01", "commit": "0", "dtype": "float32", "interpreted": False}
    ceilings = {"copy_bytes_per_s": 1e9, "product_flops_per_s": {"float32": 1e11}}
    return {"machine": machine, "ceilings": ceilings, **parts}


def test_a_record_of_steps_is_drawn(tmp_path: Path) -> None:
    loads = [(context, gap) for context in (512, 2048) for gap in (16, 64)]
    points = [
        {"context": context, "gap": gap, "timing": {"median_s": 0.02}, "flops": 1e9, "bytes": 2e7}
        for context, gap in loads
    ]
    steps = [
        {
            "shape": "7B",
            "precision": "bf16",
            "load": {"batch": batch, "context": context, "gap": gap},
            "step": {"median_s": 0.005},
            "floor_s": 0.004,
        }
        for context, gap in loads
        for batch in (1, 16)
    ]
    found = read_points(record_of(points=points, steps=steps))
    assert len(found) == 8 and [point.floor_s for point in found] == [0.02] * 4 + [0.004] * 4
    floor = step_floor(QWEN_7B, "bf16", 1, 512, 16)
    assert (found[4].bytes, found[4].flops) == (floor.total_bytes, floor.total_flops)
    for out in (tmp_path / "one.svg", tmp_path / "two.svg"):
        draw(record_of(points=points, steps=steps), out)
    picture = (tmp_path / "one.svg").read_text()
    assert "7B bf16, gap 64" in picture and "embedded, context 2048" in picture
    assert picture == (tmp_path / "two.svg").read_text()
    with pytest.raises(ValueError, match="no steps"):
        read_points(record_of(results=[]))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.skipif(torch.cuda.is_available(), reason="toy sizes are for the interpreter")
def test_operators_bench_runs_at_toy_size(tmp_path: Path) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(("engine", "kernels"))}
    record = tmp_path / "out.json"
    command = [sys.executable, "-m", "bench.operators", "--only", "small", "--json", str(record)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    found = json.loads(record.read_text())
    assert {entry["case"] for entry in found["results"]} == {"norm: 5 rows", "gate: 5 rows", "rotary: 5 rows"}
    assert found["machine"]["interpreted"] and found["ceilings"]["copy_bytes_per_s"] > 0


def compile_for_hopper(*options: str) -> "subprocess.CompletedProcess[str]":
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": os.pathsep.join(("engine", "kernels")), "TRITON_DEFAULT_FP_FUSION": "1"}
    command = [sys.executable, "-m", "bench.compile", "--shape", "toy", *options]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_what_a_row_sums_up_is_added_in_one_order_for_every_number_of_rows() -> None:
    """As compiled: interpreted sums are numpy's. One row, and every tile that the buckets of rows lead to."""
    rows = [option for number in (1, 32, 64, 96) for option in ("--rows", str(number))]
    result = compile_for_hopper("--precision", "bf16", *rows)
    assert result.returncode == 0, result.stdout + result.stderr


def test_sums_are_told_from_other_reductions() -> None:
    reduction = """%a = "tt.reduce"(%b) <{axis = 0 : i32}> ({
    ^bb0(%c: f32, %d: f32):
      %e = arith.OPERATION %c, %d : f32
      tt.reduce.return %e : f32
    }) : (tensor<64xCOLUMNSxf32, #mma>) -> tensor<COLUMNSxf32, #ttg.slice<{dim = 0, parent = #mma}>>"""
    layout = "#mma = #ttg.nvidia_mma<{warpsPerCTA = [WARPS, 1], instrShape = [16, COLUMNS, 16]}>\n"

    def sums(operation: str, warps: int, columns: int) -> tuple[str, ...]:
        text = layout + reduction
        for word, value in {"OPERATION": operation, "WARPS": str(warps), "COLUMNS": str(columns)}.items():
            text = text.replace(word, value)
        return find_sums(text)

    assert sums("maxnumf", 4, 16) == ()
    assert len(sums("addf", 4, 16)) == 1 and sums("addf", 4, 16) == sums("addf", 4, 64) != sums("addf", 8, 64)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_all_kernels_compile_for_hopper_even_for_one_row() -> None:
    """A size of 1 is a constant to the compiler: what works interpreted may fail there."""
    result = compile_for_hopper("--rows", "1", "--rows", "40")
    assert result.returncode == 0, result.stdout + result.stderr
