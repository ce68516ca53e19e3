"""LLaDA2.0 (arXiv 2512.15745) and 2.1 (arXiv 2602.08676): block-causal mixtures of many small experts, with half of a
head's dimensions rotated. 2.1 also corrects its own tokens; only its name tells it from 2.0.
"""

from dataclasses import replace
from typing import Final

from midfill_engine.models.family import AuthorsSetting, Family, KnownModel, Values
from midfill_engine.models.moe import MoEConfig
from midfill_engine.models.shapes import MOE_TENSORS, id_reader, read_qwen3_shape, refuse
from midfill_engine.models.transformer import TransformerConfig

FUSED: Final = "model.layers.{i}.attention.query_key_value.weight"
TENSORS: Final = {
    **MOE_TENSORS,
    "embedding.weight": "model.word_embeddings.weight",
    "blocks.{i}.attention.q.weight": FUSED + "#q",
    "blocks.{i}.attention.k.weight": FUSED + "#k",
    "blocks.{i}.attention.v.weight": FUSED + "#v",
    "blocks.{i}.attention.q_norm.weight": "model.layers.{i}.attention.query_layernorm.weight",
    "blocks.{i}.attention.k_norm.weight": "model.layers.{i}.attention.key_layernorm.weight",
    "blocks.{i}.attention.out.weight": "model.layers.{i}.attention.dense.weight",
    "blocks.{i}.mlp.selection_bias": "model.layers.{i}.mlp.gate.expert_bias",
    "blocks.{i}.mlp.shared.gate.weight": "model.layers.{i}.mlp.shared_experts.gate_proj.weight",
    "blocks.{i}.mlp.shared.up.weight": "model.layers.{i}.mlp.shared_experts.up_proj.weight",
    "blocks.{i}.mlp.shared.down.weight": "model.layers.{i}.mlp.shared_experts.down_proj.weight",
}


def read_shape(config: Values) -> TransformerConfig:
    refuse(bool(config.get("use_bias")) or bool(config.get("use_qkv_bias")), "biases in attention")
    refuse(bool(config.get("expert_capacity")), "experts chosen by the block, as LLaDA2.2's are")
    refuse(config.get("split_token_id") is not None, "tokens that insert and delete, as LLaDA2.2's do")
    refuse(config.get("use_qk_norm") is False, "queries and keys without norms")
    refuse(config.get("moe_router_enable_expert_bias") is False, "a choice of experts without bias")
    shape = read_qwen3_shape(config)
    moe = MoEConfig(
        num_experts=config["num_experts"],
        num_chosen=config["num_experts_per_tok"],
        expert_dim=config["moe_intermediate_size"],
        router="sigmoid",
        renormalize=True,
        scale=config["routed_scaling_factor"],
        num_groups=config["n_group"],
        num_chosen_groups=config["topk_group"],
        shared_dim=config["moe_intermediate_size"] * (config.get("num_shared_experts") or 0),
        router_bias=True,
    )
    rope_dim = int(shape.head_dim * config.get("partial_rotary_factor", 0.5))
    return replace(shape, moe=moe, num_dense_layers=config["first_k_dense_replace"], rope_dim=rope_dim)


LLADA2: Final = Family(
    name="llada2",
    attention="block_causal",
    shape=read_shape,
    tensors=TENSORS,
    tokens=id_reader("<|mask|>", ends=("<|endoftext|>", "<|role_end|>"), ends_text=True),
    quality=0.9,
    context_window=8192,
    model_types=("llada2_moe",),
    block_size=lambda config: config.get("block_size", 32),
    authors=AuthorsSetting("`generate` of the published code: threshold 0.95", sampler="threshold", quality=0.9),
    known=(KnownModel("inclusionAI/LLaDA2.0-mini", 16.3, "Apache-2.0"),),
)
LLADA21: Final = replace(
    LLADA2,
    name="llada2.1",
    sampler="editing",
    authors=AuthorsSetting("`generate` of the published code: threshold 0.95", sampler="editing", quality=0.9),
    claims=lambda files: "llada2.1" in files.name.lower(),
    known=(KnownModel("inclusionAI/LLaDA2.1-mini", 16.3, "Apache-2.0"),),
)
