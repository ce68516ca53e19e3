"""The kernels behind the engine's door: fills as with torch's operators. Interpreted where there is no GPU."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine import tiny
from tests.engine.in_process import works_of
from tests.engine.requests import HEADER, NEXT, ask

from midfill_engine.families import FAMILIES
from midfill_engine.loading.runtime import Runtime
from midfill_engine.wire import HoleSegment, HoleSpec, TextSegment

PROGRAM = """
import sys
from pathlib import Path
import torch
from tests.engine.in_process import denoise, drain
from midfill_engine.loading.runtime import open_checkpoint
from midfill_engine.wire import InfillRequest

def fill(operators):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    runtime = open_checkpoint(Path(sys.argv[1]), device, torch.float32, "x", operators)
    segments = [{"text": "x = "}, {"hole": {"max_tokens": 4}}, {"text": "+ y"}]
    request = InfillRequest.model_validate({"segments": segments, "steps": 2})
    return drain(denoise(runtime, request, lengths="fixed")).holes[0]

plain, fast = fill("torch"), fill("kernels")
assert plain.text == fast.text, (plain, fast)
torch.testing.assert_close(torch.tensor(fast.confidence), torch.tensor(plain.confidence), rtol=1e-3, atol=1e-4)
"""


@pytest.mark.parametrize("name", ["sdar", "fast-dllm-v2", "d2f-dream", "nemotron-diffusion"])
def test_the_steps_of_block_causal_models_run_on_the_kernels(name: str, open_family: Callable[[str], Runtime]) -> None:
    """Also those that compute a finished block once more beside the next one."""
    pytest.importorskip("triton")
    from midfill_engine.models.fused import Sizes
    from midfill_engine.models.fused_runner import group_rows

    hole = HoleSegment(hole=HoleSpec(min_tokens=20, max_tokens=40))
    request = ask(TextSegment(text=HEADER), hole, TextSegment(text=NEXT), steps=20)
    _, works, _ = works_of(open_family(name), request)
    passes = [pass_ for work in works[1:] for pass_ in work.passes]
    groups = [group_rows(pass_) for pass_ in passes]
    assert all(0 < len(of_pass) <= Sizes().blocks for of_pass in groups)
    has_blocks = any(len(of_pass) > 1 for of_pass in groups)
    assert has_blocks or name == "d2f-dream"  # it computes all of the hole in each step


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_fill_is_as_with_torch(tmp_path: Path) -> None:
    """In a process of its own: Triton reads at its first import whether to interpret."""
    pytest.importorskip("triton")
    tiny.make_random(tmp_path, FAMILIES.find("dream"), config=tiny.config_of("dream", hidden_size=64))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stderr
