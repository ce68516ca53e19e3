"""What a stay does: benches in order of worth, and the run that is trained. Numbers and options only."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

Options = Mapping[str, str | int | float | bool]


@dataclass(frozen=True)
class Bench:
    """`python -m MODULE ARGUMENTS --json NAME.json`: `limit_s` at most, begun by second `latest_s` of the stay."""

    name: str
    module: str
    arguments: tuple[str, ...]
    limit_s: float
    latest_s: float


@dataclass(frozen=True)
class Way:
    """One way to run the trainer: variables of the environment, and whether it compiles."""

    environment: Mapping[str, str] = field(default_factory=dict)
    compiles: bool = True

    @property
    def name(self) -> str:
        return " ".join(
            [*(f"{key}={value}" for key, value in self.environment.items()), *["plain"] * (not self.compiles)]
        )


@dataclass(frozen=True)
class Plan:
    """`train` are options of `python -m training train`; the run ends at second `train_end_s` of the stay, and what
    comes home of it has the rest. `test_files` below tests/kernels, all where it is empty."""

    train: Options
    benches: tuple[Bench, ...] = ()
    test_files: tuple[str, ...] = ()
    tests_s: float = 200
    ways: tuple[Way, ...] = (Way(), Way({"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"}), Way(compiles=False))
    preflight_rows: int = 128
    preflight_s: float = 200
    train_end_s: float = 1560
    finish_s: float = 120
    refit_rows: int = 1000
    device: str = "cuda"


def _steps(shape: str, precision: str, limit_s: float, latest_s: float) -> Bench:
    arguments = ("--shape", shape, "--precision", precision, "--repeats", "60", "--no-rivals")
    return Bench(f"steps-{shape}-{precision}", "bench.steps", arguments, limit_s, latest_s)


# The hybrid won the comparison of small models; there a causal start of 0.7 was better for drafts and worse for masks
# than 0.35, with one seed. A cooldown of 0.3 would leave the gaps no step at the full rate.
RECIPE: Final[Options] = {
    "bf16": True,
    "ar_fraction": 0.7,
    "cooldown": 0.2,
    "snapshot_s": 240,
}
FIRST: Final = Plan(
    RECIPE,
    (
        _steps("7B", "bf16", 90, 420),
        _steps("7B", "fp8", 70, 420),
        _steps("8B", "bf16", 60, 400),
        Bench(
            "operators",
            "bench.operators",
            ("--only", "gap attention", "--only", "head", "--repeats", "50", "--no-rivals"),
            50,
            440,
        ),
    ),
)
SECOND: Final = replace(
    FIRST,
    benches=(
        Bench("serving-7B", "bench.serving", ("--shape", "7B"), 120, 420),
        Bench("tune-7B", "bench.tune", ("--shape", "7B"), 150, 500),
        _steps("0.5B", "bf16", 50, 520),
        Bench("steps-7B-rivals", "bench.steps", ("--shape", "7B", "--precision", "bf16", "--repeats", "60"), 200, 560),
    ),
)
TOY: Final = Plan(
    {
        "device": "cpu", "num_steps": 30, "num_workers": 1, "num_threads": 1, "dim": 32, "num_layers": 2,
        "num_heads": 2, "head_dim": 16, "mlp_dim": 64, "context": 96, "gap": 48, "hole_span": 64, "rows": 8,
        "causal_rows": 8, "micro_rows": 4, "warmup_steps": 5, "snapshot_s": 1, "ar_fraction": 0.3,
    },
    test_files=("test_gate.py",),
    tests_s=600,
    ways=(Way(compiles=False),),
    preflight_rows=4,
    preflight_s=600,
    finish_s=600,
    refit_rows=16,
    device="cpu",
)  # fmt: skip
PLANS: Final = {"first": FIRST, "second": SECOND, "toy": TOY}
