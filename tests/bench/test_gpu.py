"""The GPU benches themselves: what is red, how calls are timed, a run at toy size, what compiles for Hopper."""

import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
import torch

from bench import green
from bench.__main__ import main as bench_main
from bench.gpu.cases import small_cases
from bench.gpu.ceilings import Ceilings, measure_ceilings
from bench.gpu.hopper import find_sums
from bench.gpu.operators import draw_table, run_case
from bench.green import find_red, stop_unless_green
from bench.measure import Clock, summarize

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def test_calls_are_timed_by_turns_and_summarized() -> None:
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
    mixed = "import pytest\n@pytest.mark.parametrize('kind', ['good', 'bad'])\ndef test_it(kind: str) -> None:\n"
    (folder / "test_mixed.py").write_text(f"{mixed}    assert kind != 'bad'\n")
    monkeypatch.setattr(green, "ROOT", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    red = find_red("test_green.py", "test_mixed.py", "test_broken.py")
    assert red == {"test_mixed.py::test_it[bad]", "test_broken.py"}
    monkeypatch.setattr(green, "_run", lambda *arguments: pytest.fail("these ran already"))
    assert find_red("test_mixed.py") == {"test_mixed.py::test_it[bad]"} and not find_red("test_green.py")
    stop_unless_green("test_green.py")
    with pytest.raises(SystemExit, match="No figures while tests fail: test_broken.py"):
        stop_unless_green("test_broken.py", "test_green.py")
    (folder / "test_green.py").write_text("")
    with pytest.raises(pytest.fail.Exception, match="ran already"):  # what has changed is measured again
        find_red("test_green.py")


@pytest.mark.parametrize("name", ["editor_latency", "host", "laptop", "latency", "load", "quality"])
def test_a_bench_does_not_run_while_its_test_is_red(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(green, "find_red", lambda *tests, folder: {f"{folder}/{tests[0]}"})
    monkeypatch.setattr(runpy, "run_module", lambda *_, **__: pytest.fail("it ran"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["bench", name])
    with pytest.raises(SystemExit, match="No figures while tests fail: (bench|lsp)/test_"):
        bench_main()


@pytest.mark.parametrize("words", [["nothing"], ["quality.known", "nowhere"], ["load", "--model", "nothing"]])
def test_what_a_user_did_wrong_is_one_sentence(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(green, "find_red", lambda *tests, folder: ())
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    monkeypatch.delitem(sys.modules, f"bench.{words[0]}", raising=False)  # runpy warns of one that is imported
    with pytest.raises(SystemExit, match="2"):
        bench_main()
    assert re.fullmatch(r".*no.*\.\n", capsys.readouterr().err)


def test_a_case_is_timed_beside_its_rivals(device: torch.device) -> None:
    case = next(case for case in small_cases(device, toy=True) if case.operator == "norm")
    result = run_case(case, Clock(device, 3, flushes=False), Ceilings(1e9, {"float32": 1e9}), rivals=False)
    assert set(result.timings) == {"ours", "torch"} and result.timings["ours"].repeats == 3
    assert result.floor_s == pytest.approx(case.num_bytes / 1e9)
    assert result.ratio("torch") == result.timings["torch"].median_s / result.timings["ours"].median_s
    assert draw_table([result], "").row_count == 1


def test_ceilings_have_a_copy_and_every_product(device: torch.device) -> None:
    ceilings = measure_ceilings(device, copy_bytes=2**16, side=16, repeats=2)
    assert ceilings.copy_bytes_per_s > 0
    assert ceilings.products("bfloat16") == ceilings.product_flops_per_s["bfloat16"] > 0
    assert ceilings.products("int8") == max(ceilings.product_flops_per_s.values())


def run_interpreted(record: Path, module: str, *options: str) -> Any:
    """The record that a bench writes of kernels that the interpreter runs."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join((".", "engine", "kernels"))}
    command = [sys.executable, "-m", module, *options, "--json", str(record)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(record.read_text())


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.skipif(torch.cuda.is_available(), reason="toy sizes are for the interpreter")
def test_operators_bench_runs_at_toy_size(tmp_path: Path) -> None:
    found = run_interpreted(tmp_path / "out.json", "bench.gpu.operators", "--only", "small")
    assert {entry["case"] for entry in found["results"]} == {"norm: 5 rows", "rotary: 5 rows"}
    assert found["machine"]["interpreted"] and found["ceilings"]["copy_bytes_per_s"] > 0


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.skipif(torch.cuda.is_available(), reason="toy sizes are for the interpreter")
def test_causal_bench_runs_at_toy_size(tmp_path: Path) -> None:
    found = run_interpreted(tmp_path / "out.json", "bench.gpu.causal", "--seconds", "1")
    assert len(found["passes"]) == 6 and found["fills"][0]["operators"] == "kernels" and found["left"]
    beam = next(one for one in found["passes"] if one["operators"] == "kernels")
    assert (beam["rows"], beam["graph_s"]) == (15, None) and beam["used_s"] > 0


def compile_for_hopper(*options: str) -> "subprocess.CompletedProcess[str]":
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": os.pathsep.join((".", "engine", "kernels")), "TRITON_DEFAULT_FP_FUSION": "1"}
    command = [sys.executable, "-m", "bench.gpu.compile", "--shape", "toy-experts", *options]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_what_a_row_sums_up_is_added_in_one_order_for_every_number_of_rows() -> None:
    """As compiled: interpreted sums are numpy's. One row, and every tile that the buckets of rows lead to."""
    rows = [option for number in (1, 32, 64, 96) for option in ("--rows", str(number))]
    result = compile_for_hopper(*rows)
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
    assert {"_matmul", "_mix", "_head"} <= set(result.stdout.split())
