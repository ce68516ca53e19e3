"""Nemotron-Labs-Diffusion (NVIDIA, 2026): Ministral 3's dense shape that reads causally and decodes in blocks of 32.

Finished text attends causally. A block attends to all finished text and to itself. Its first token is scored by the
last token before it, the others by their own states (`generate` of the published code).
"""

from dataclasses import replace
from typing import Final

from midfill_engine.models.family import LLAMA_TENSORS, AuthorsSetting, Family, KnownModel, Values
from midfill_engine.models.shapes import id_reader, read_llama_shape, refuse
from midfill_engine.models.transformer import TransformerConfig

WINDOW: Final = 4096


def read_shape(config: Values) -> TransformerConfig:
    """Llama's shape. Llama 4 scales queries from `original_max_position_embeddings` on: refused if within WINDOW."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    paradigm = config.get("dlm_paradigm", "bidirectional")
    refuse(paradigm != "bidirectional", f"{paradigm} attention")
    is_scaled = bool(rope.get("llama_4_scaling_beta")) and rope["original_max_position_embeddings"] < WINDOW
    refuse(is_scaled, f"queries that are scaled within its first {WINDOW} positions")
    return read_llama_shape(config)


NEMOTRON_DIFFUSION: Final = Family(
    name="nemotron-diffusion",
    attention="block_causal",
    shape=read_shape,
    tensors={ours: theirs.replace("model.", "encoder.") for ours, theirs in LLAMA_TENSORS.items()}
    | {"head.weight": "diffusion_head.weight"},
    tokens=lambda files: replace(id_reader(with_edges=True, ends_text=True)(files), closing=()),  # bos, but no eos
    sampler="seeded-blocks",
    context_window=WINDOW,
    pipelined=True,
    hybrid=True,
    model_types=("nemotron_labs_diffusion",),
    block_size=lambda config: config.get("block_size") or 32,
    # The threshold is fast_threshold + (1 - fast_threshold) * quality.
    authors=AuthorsSetting("its README: blocks of 32, threshold 0.9", sampler="seeded-blocks", quality=0.8),
    known=(
        KnownModel("nvidia/Nemotron-Labs-Diffusion-3B", 3.8, "see its page"),
        KnownModel("nvidia/Nemotron-Labs-Diffusion-8B", 8.5, "see its page"),
    ),
)
