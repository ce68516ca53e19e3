"""Compares ways to compute the embedded model on a CPU: torch in fp32, bf16 and int8, ONNX Runtime in fp32 and int8.

    PYTHONPATH=engine:kernels python -m bench.cpu_paths [--threads 1] [--json FILE]

Weights are random, at the size that ships and at the 60 M of the recipe: speed depends on shapes alone. Every round
times each way once, in processor time of this process, so other load on the machine hits all alike; a ratio is the
median over rounds. The ONNX columns need `onnxruntime`, `onnx` and `onnxscript`, which the project does not: without
them they are left out.
"""

import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from bench.green import stop_unless_green
from bench.measure import describe, write_record
from midfill_engine.families.embedded import Embedded, EmbeddedConfig, lay_out
from midfill_engine.models.transformer import TransformerConfig

VOCABULARY: Final = 16_384
SIZES: Final = {
    "shipped": TransformerConfig(8192, dim=256, num_layers=4, num_heads=4, num_kv_heads=4, head_dim=64, mlp_dim=1024),
    "60 M": TransformerConfig(
        VOCABULARY, dim=640, num_layers=10, num_heads=10, num_kv_heads=10, head_dim=64, mlp_dim=2560
    ),
}
CONTEXT: Final = {"shipped": 304, "60 M": 512}
MASK: Final = 1

Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Timed:
    """One way at one load: processor time, how much faster than torch fp32, and how far its scores are from those.

    `error` is the root mean square of the difference over the standard deviation of the fp32 scores.
    """

    size: str
    load: str
    way: str
    cpu_ms: float
    speedup: float
    error: float


class Encode(nn.Module):
    """The context's keys and values, the last hidden states first."""

    def __init__(self, model: Embedded) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, positions: Tensor) -> list[Tensor]:
        hidden, keys = self.model.encode_context(ids, positions)
        return [hidden, *(one for pair in keys for one in pair)]


class Step(nn.Module):
    """The scores of a canvas over given keys and values."""

    def __init__(self, model: Embedded) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, positions: Tensor, past: list[Tensor]) -> list[Tensor]:
        pairs = list(zip(past[::2], past[1::2], strict=True))
        return [self.model.step(ids, positions, pairs)]


def make_model(config: TransformerConfig) -> Embedded:
    """Random weights. The head is a layer of its own: dynamic quantization sees layers only."""
    model = Embedded(EmbeddedConfig(replace(config, tied_head=False))).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.normal_(std=parameter.shape[-1] ** -0.5, generator=generator)
    return model


def to_int8(model: nn.Module) -> nn.Module:
    """Linear layers with int8 weights; activations are quantized as they come."""
    with warnings.catch_warnings(action="ignore"):  # torch.ao's successor is a package of its own
        quantize: Any = torch.ao.quantization.quantize_dynamic
        quantized: nn.Module = quantize(model, {nn.Linear}, torch.qint8)
    return quantized


def ways(module: nn.Module, inputs: list[Any], folder: Path, threads: int) -> dict[str, Call]:
    """Every way to compute the first output of `module` for `inputs`."""
    half = _cast(inputs)
    bf16, int8 = _copy(module).bfloat16(), to_int8(_copy(module))
    calls: dict[str, Call] = {
        "torch fp32": lambda: module(*inputs)[0],
        "torch bf16": lambda: bf16(*half)[0].float(),
        "torch int8": lambda: int8(*inputs)[0],
    }
    if find_spec("onnxruntime") is not None:
        calls |= onnx_ways(module, inputs, folder, threads)
    return calls


def onnx_ways(module: nn.Module, inputs: list[Any], folder: Path, threads: int) -> dict[str, Call]:
    import onnxruntime
    from onnxruntime.quantization.quant_utils import QuantType
    from onnxruntime.quantization.quantize import quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, prepared, small = (folder / f"{name}.onnx" for name in ("plain", "prepared", "small"))
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of torchvision, which nothing here needs
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(module, tuple(inputs), plain, dynamo=True, verbose=False, external_data=False)
    quant_pre_process(plain, prepared, skip_symbolic_shape=True)
    quantize_dynamic(prepared, small, weight_type=QuantType.QInt8, per_channel=True)
    flat = [one.numpy() for value in inputs for one in (value if isinstance(value, list) else [value])]
    return {
        "ONNX Runtime fp32": _session_call(onnxruntime, plain, flat, threads),
        "ONNX Runtime int8": _session_call(onnxruntime, small, flat, threads),
    }


def _session_call(onnxruntime: Any, path: Path, flat: list[Any], threads: int) -> Call:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = dict(zip((one.name for one in session.get_inputs()), flat, strict=True))
    return lambda: torch.from_numpy(session.run(None, feed)[0])


def _copy(module: nn.Module) -> nn.Module:
    made: nn.Module = type(module)(Embedded(module.model.config).eval().requires_grad_(False))  # type: ignore[arg-type, union-attr]
    made.load_state_dict(module.state_dict())
    return made


def _cast(inputs: list[Any]) -> list[Any]:
    """Floating inputs as bf16."""
    return [
        [one.bfloat16() for one in value]
        if isinstance(value, list)
        else value.bfloat16()
        if value.is_floating_point()
        else value
        for value in inputs
    ]


@torch.inference_mode()
def compare(size: str, load: str, calls: dict[str, Call], rounds: int) -> list[Timed]:
    """`rounds` rounds over all ways, after one that warms them up."""
    outputs = {way: call() for way, call in calls.items()}
    seconds: dict[str, list[float]] = {way: [] for way in calls}
    for _ in range(rounds):
        for way, call in calls.items():
            started = time.process_time()
            call()
            seconds[way].append(time.process_time() - started)
    base, wanted = np.array(seconds["torch fp32"]), outputs["torch fp32"]
    return [
        Timed(
            size,
            load,
            way,
            cpu_ms=1e3 * float(np.median(taken)),
            speedup=float(np.median(base / np.array(taken))),
            error=float((outputs[way] - wanted).square().mean().sqrt() / wanted.std()),
        )
        for way, taken in seconds.items()
    ]


@torch.inference_mode()
def measure(size: str, rounds: int, threads: int) -> list[Timed]:
    """The encoding of a full context, a step of 32 and of 64 positions behind it, and four canvases of 32 at once."""
    config, context = SIZES[size], CONTEXT[size]
    model, generator, found = make_model(config), torch.Generator().manual_seed(1), []
    ids = torch.randint(16, config.vocab_size, (1, context), generator=generator)
    layout = lay_out([context - 1, 1], [64], model.config.hole_span)
    encode = Encode(model)
    contexts = [ids, layout.context_positions[None]]
    past = [one.clone() for one in encode(*contexts)[1:]]
    loads: dict[str, tuple[nn.Module, list[Any]]] = {f"encode {context}": (encode, contexts)}
    for rows, length in ((1, 32), (1, 64), (4, 32)):
        positions = lay_out([context - 1, 1], [length], model.config.hole_span).hole_positions.expand(rows, -1, -1)
        loads[f"step {rows} x {length}"] = Step(model), [torch.full((rows, length), MASK), positions.clone(), past]
    for load, (module, inputs) in loads.items():
        with tempfile.TemporaryDirectory() as folder:
            found += compare(size, load, ways(module, inputs, Path(folder), threads), rounds)
    return found


def draw_table(found: list[Timed], title: str) -> Table:
    table = Table("model", "load", "way", "CPU ms", "times as fast", "error", title=title)
    for row in found:
        table.add_row(row.size, row.load, row.way, f"{row.cpu_ms:.1f}", f"{row.speedup:.2f}", f"{row.error:.4f}")
    return table


def main(
    threads: Annotated[int, typer.Option(help="of the CPU")] = 1,
    rounds: Annotated[int, typer.Option(help="timed rounds")] = 15,
    size: Annotated[str, typer.Option(help=f"one of {', '.join(SIZES)}, or all")] = "all",
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """The ways to compute the embedded model on this CPU, side by side."""
    stop_unless_green("test_cpu_paths.py", folder="bench")
    torch.set_num_threads(threads)
    found = [row for name in SIZES if size in (name, "all") for row in measure(name, rounds, threads)]
    machine = describe(torch.device("cpu")) | {"threads": threads, "rounds": rounds}
    Console(width=110).print(draw_table(found, f"{machine['device']}, {threads} thread(s)"))
    if json_file is not None:
        write_record(json_file, {"machine": machine, "results": found})


if __name__ == "__main__":
    typer.run(main)
