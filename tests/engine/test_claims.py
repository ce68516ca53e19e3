"""What a fill claims before it starts is what its tensors take."""

from collections.abc import Callable
from functools import cache

import pytest
from tests.engine import tiny
from tests.engine.in_process import works_of
from tests.engine.peak import PeakBytes

from midfill_engine.families import FAMILIES
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.wire import InfillRequest

WIDE = {
    "d_model": 256,
    "n_heads": 4,
    "n_kv_heads": 4,
    "mlp_hidden_size": 768,
    "vocab_size": 4096,
    "embedding_size": 4096,
}


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Runtime]:
    """Opens a model in a number format. States and scores outweigh all small tensors."""
    family = FAMILIES.find("llada")
    folder = tmp_path_factory.mktemp("wide")
    tiny.make_random(folder, family, config={**tiny.config_of(family.name), **WIDE})
    return cache(lambda dtype: load_runtime(str(folder), "cpu", dtype=dtype))


OPTIONS = [{}, {"n": 3}, {"temperature": 0.8}, {"temperature": 0.8, "top_p": 0.9}]
ALL = [(dtype, context, options) for dtype in ("fp32", "bf16") for context in (20, 80) for options in OPTIONS]
CASES = [  # bf16 is emulated on many CPUs
    case if case[0] == "fp32" or case == ALL[-1] else pytest.param(*case, marks=pytest.mark.soak) for case in ALL
]


@pytest.mark.parametrize("lengths", ["fixed", "calibrated", "candidates"])
@pytest.mark.parametrize(("dtype", "context", "options"), CASES)
def test_what_a_fill_claims_is_enough_for_its_largest_forward(
    lengths: str, dtype: str, context: int, options: dict[str, object], wide: Callable[[str], Runtime]
) -> None:
    """The tensors that are alive at once, measured, in each number format; and it claims no multiple of them."""
    segments = [{"text": "x = 1\n" * context}, {"hole": {"max_tokens": 48}}, {"text": "y\n"}]
    request = InfillRequest.model_validate({"segments": segments, "steps": 2, **options})
    runtime = wide(dtype)
    with PeakBytes() as memory:
        claimed, _, _ = works_of(runtime, request, lengths)
    assert memory.peak <= claimed <= 5 * memory.peak  # a search claims keys that are turned for every trial
