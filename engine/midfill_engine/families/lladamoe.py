"""LLaDA-MoE-7B-A1B (arXiv 2509.24389): 64 experts, 8 a token, full attention, scores not shifted."""

from dataclasses import replace
from typing import Final

from midfill_engine.models import shapes
from midfill_engine.models.family import AuthorsSetting, Family, KnownModel, Values
from midfill_engine.models.moe import MoEConfig
from midfill_engine.models.transformer import TransformerConfig


def read_shape(config: Values) -> TransformerConfig:
    """Expert weights are not renormalized, whatever config.json says, as in the authors' code."""
    shapes.refuse((config.get("shared_expert_intermediate_size") or 0) > 0, "an expert that every token takes")
    shapes.refuse(bool(config.get("moe_router_enable_expert_bias")), "a bias in the choice of experts")
    shapes.refuse((config.get("moe_router_score_function") or "softmax") != "softmax", "another score of experts")
    shapes.refuse(config.get("partial_rotary_factor") not in (None, 1, -1), "rotary positions in a part of each head")
    shapes.refuse((config.get("routed_scaling_factor") or 1) != 1, "scaled experts")
    shapes.refuse(config.get("clip_qkv") is not None, "clipped queries, keys and values")
    shapes.refuse(config.get("qk_layernorm") is False, "queries and keys without norms")
    shapes.refuse(0 in (config.get("moe_layer_freq") or ()), "layers without experts")
    moe = MoEConfig(config["num_experts"], config["num_experts_per_tok"], config["expert_intermediate_size"])
    width = config.get("dense_intermediate_size") or config["expert_intermediate_size"]
    return replace(shapes.read_qwen3_shape(config, mlp_dim=width), moe=moe)


LLADA_MOE: Final = Family(
    name="llada-moe",
    shape=read_shape,
    tensors=shapes.MOE_TENSORS,
    tokens=shapes.id_reader("<|mask|>", deletes_rest=True),
    context_window=4096,
    model_types=("llada", "llada_moe", "lladamoe", "LLaDAMoE"),
    claims=lambda files: "num_experts" in files.config,
    authors=AuthorsSetting("inclusionAI/dInfer, README: threshold 0.8", sampler="threshold", quality=0.6),
    known=(KnownModel("inclusionAI/LLaDA-MoE-7B-A1B-Base", 7.4, "Apache-2.0"),),
)
