"""SDAR (arXiv 2510.06303): Qwen3's shape or Qwen3-MoE's (128 experts), block-causal in blocks of 4 to 64 tokens, whose
size the configuration names. The state of a position scores that position.
"""

from dataclasses import replace
from typing import Final

from midfill_engine.models.family import AuthorsSetting, Family, KnownModel, Values
from midfill_engine.models.moe import MoEConfig
from midfill_engine.models.shapes import MOE_TENSORS, id_reader, read_qwen3_shape, refuse
from midfill_engine.models.transformer import TransformerConfig


def read_moe_shape(config: Values) -> TransformerConfig:
    """Qwen3-MoE's shape. Raises CheckpointError unless all layers have experts."""
    refuse(config.get("decoder_sparse_step", 1) != 1 or bool(config.get("mlp_only_layers")), "layers without experts")
    moe = MoEConfig(
        num_experts=config["num_experts"],
        num_chosen=config["num_experts_per_tok"],
        expert_dim=config["moe_intermediate_size"],
        renormalize=bool(config.get("norm_topk_prob")),
    )
    return replace(read_qwen3_shape(config), moe=moe)


SDAR: Final = Family(
    name="sdar",
    attention="block_causal",
    shape=read_qwen3_shape,
    tokens=id_reader("mask_token", "<|MASK|>", ends_text=True),
    context_window=4096,
    model_types=("sdar",),
    block_size=lambda config: config.get("block_size") or config.get("block_length") or 4,
    # Quality 0.8 is their threshold of 0.9, see `StepState.threshold`.
    authors=AuthorsSetting("JetAstra/SDAR, README: threshold 0.9", sampler="threshold", quality=0.8, temperature=1.0),
    known=(
        KnownModel("JetLM/SDAR-1.7B-Chat", 2.0, "Apache-2.0"),
        KnownModel("JetLM/SDAR-4B-Chat", 4.4, "Apache-2.0"),
        KnownModel("JetLM/SDAR-8B-Chat", 8.2, "Apache-2.0"),
    ),
)
SDAR_MOE: Final = replace(
    SDAR,
    name="sdar-moe",
    shape=read_moe_shape,
    tensors=MOE_TENSORS,
    model_types=("sdar_moe",),
    known=(KnownModel("JetLM/SDAR-30B-A3B-Chat", 30.5, "Apache-2.0"),),
)
