"""A fill of 64 tokens beside llama.cpp writing 64, on the same cores, in turns, in processor seconds.

    PYTHONPATH=engine:kernels python -m bench.versus_llamacpp FOLDER [--rounds 2] [--way int8] [--json FILE]

FOLDER has `node_modules` with node-llama-cpp and @node-llama-cpp/linux-x64 (npm install --ignore-scripts); there this
writes a GGUF file in Q8_0. Both models have Qwen2.5-0.5B's shape and random weights: fair for speed at a number of
tokens a step, silent about fills. For an AVX2 machine set bench.laptop's variables, and leave llama.cpp no library for
more: of `bins/linux-x64` the files libggml-cpu-* down to haswell and alderlake.
"""

import json
import os
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from bench.laptop import CAPS, CONTEXT, CPU, GAP, HALF_B, as_bf16, as_int8, loads, make_model
from bench.measure import describe, write_record
from midfill_engine.models.transformer import TransformerConfig
from midfill_engine.tokens.tokenizer import byte_of_character

RUN: Final = Path(__file__).with_suffix(".mjs")
TOKENS_A_STEP: Final = (4, 8)
WAYS: Final = {"bf16": as_bf16, "int8": as_int8}
SLICE: Final = 16_384  # rows made at a time


@dataclass(frozen=True)
class Ratio:
    """Midfill's processor seconds over llama.cpp's: `cold` with the context, `warm` where it is kept."""

    tokens_a_step: int
    cold_cpu_s: float
    warm_cpu_s: float
    cold: float
    warm: float


def write_gguf(file: Path, config: TransformerConfig) -> None:
    """Random weights of the shape, as llama.cpp's architecture qwen2."""
    import gguf

    writer = gguf.GGUFWriter(file, "qwen2")
    heads, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    writer.add_context_length(32_768)
    writer.add_embedding_length(config.dim)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.mlp_dim)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    texts = [*byte_of_character()]
    writer.add_token_list(texts + [f"<t{index}>" for index in range(len(texts), config.vocab_size)])
    writer.add_token_merges(["! !"])
    writer.add_eos_token_id(config.vocab_size - 1)
    generator = np.random.default_rng(0)
    eight = gguf.GGMLQuantizationType.Q8_0

    def add(name: str, *shape: int) -> None:
        if len(shape) == 1:
            writer.add_tensor(name, np.ones(shape, dtype=np.float32))
            return
        scale, (rows, width) = np.float32(shape[1] ** -0.5), shape
        parts = [
            gguf.quantize(generator.standard_normal((min(SLICE, rows - at), width), dtype=np.float32) * scale, eight)
            for at in range(0, rows, SLICE)
        ]
        writer.add_tensor(name, np.concatenate(parts), raw_dtype=eight)

    add("token_embd.weight", config.vocab_size, config.dim)
    add("output_norm.weight", config.dim)
    for layer in range(config.num_layers):
        for name, *shape in (
            ("attn_norm.weight", config.dim),
            ("ffn_norm.weight", config.dim),
            ("attn_q.weight", heads, config.dim),
            ("attn_k.weight", keys, config.dim),
            ("attn_v.weight", keys, config.dim),
            ("attn_q.bias", heads),
            ("attn_k.bias", keys),
            ("attn_v.bias", keys),
            ("attn_output.weight", config.dim, heads),
            ("ffn_gate.weight", config.mlp_dim, config.dim),
            ("ffn_up.weight", config.mlp_dim, config.dim),
            ("ffn_down.weight", config.dim, config.mlp_dim),
        ):
            add(f"blk.{layer}.{name}", *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run_llama(folder: Path, file: Path) -> dict[str, float]:
    """A context and then tokens one by one, in a process of its own, on one thread."""
    script = folder / RUN.name  # node finds packages beside the script
    script.write_bytes(RUN.read_bytes())
    command = ["node", str(script), str(file), str(CONTEXT), str(GAP)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return {name: float(value) for name, value in json.loads(done.stdout.splitlines()[-1]).items()}


@torch.inference_mode()
def measure(folder: Path, file: Path, way: str, config: TransformerConfig, rounds: int) -> dict[str, float]:
    """The least of the rounds of everything."""
    work = loads(WAYS[way](make_model(config)), CONTEXT, TOKENS_A_STEP)
    least: dict[str, float] = {}
    for _ in range(rounds):
        found = run_llama(folder, file)
        for name, load in work.items():
            started = time.process_time()
            load()
            found[name] = time.process_time() - started
        least = {name: min(seconds, least.get(name, seconds)) for name, seconds in found.items()}
    return least


def compare(least: dict[str, float]) -> list[Ratio]:
    """A cold fill's first step is a pass over everything, which leaves the keys that the others use."""
    llama = least["tokens_cpu_s"]
    found = []
    for tokens in TOKENS_A_STEP:
        warm = least[f"fill at {tokens}"]
        cold = least["whole pass"] + warm - least[f"step of {GAP}"]
        found.append(Ratio(tokens, cold, warm, cold / (llama + least["context_cpu_s"]), warm / llama))
    return found


def main(
    folder: Annotated[Path, typer.Argument(help="where node_modules is")],
    rounds: Annotated[int, typer.Option(help="timed rounds")] = 2,
    way: Annotated[str, typer.Option(help="bf16 or int8")] = "int8",
    layers: Annotated[int, typer.Option(help="of the 24")] = HALF_B.num_layers,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """Midfill beside llama.cpp on this CPU."""
    torch.set_num_threads(1)
    config = replace(HALF_B, num_layers=layers)
    file = folder / f"random-{layers}.gguf"
    if not file.exists():
        write_gguf(file, config)
    least = measure(folder, file, way, config, rounds)
    ratios = compare(least)
    table = Table("tokens a step", "cold, CPU s", "warm", "cold / llama.cpp", "warm / llama.cpp")
    for row in ratios:
        table.add_row(str(row.tokens_a_step), *(f"{value:.2f}" for value in list(asdict(row).values())[1:]))
    Console(width=110).print(table, {name: round(value, 2) for name, value in least.items()})
    caps = {name: os.environ[name] for name in CAPS if name in os.environ}
    machine = describe(CPU) | {"threads": 1, "rounds": rounds, "layers": layers, "way": way} | caps
    if json_file is not None:
        write_record(json_file, {"machine": machine, "least_cpu_s": least, "results": ratios})


if __name__ == "__main__":
    typer.run(main)
