"""LLaDA-8B (arXiv 2502.09992) and LLaDA-1.5: full attention, scores not shifted, tensor names of their own. iLLaDA-8B
(arXiv 2606.25331) has Llama's shape and tensor names, and a tied head.
"""

from dataclasses import replace
from typing import Final

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.models.family import LLAMA_TENSORS, AuthorsSetting, Family, KnownModel, SpecialTokens, Values
from midfill_engine.models.shapes import id_reader, read_ends, read_llama_shape, read_specials, refuse
from midfill_engine.models.transformer import TransformerConfig

# `blocks.i.ff_out` brings the MLP's width down; `transformer.ff_out` is the head; `ff_proj` is the gate.
TENSORS: Final = {
    "embedding.weight": "model.transformer.wte.weight",
    "blocks.{i}.attention_norm.weight": "model.transformer.blocks.{i}.attn_norm.weight",
    "blocks.{i}.attention.q.weight": "model.transformer.blocks.{i}.q_proj.weight",
    "blocks.{i}.attention.k.weight": "model.transformer.blocks.{i}.k_proj.weight",
    "blocks.{i}.attention.v.weight": "model.transformer.blocks.{i}.v_proj.weight",
    "blocks.{i}.attention.out.weight": "model.transformer.blocks.{i}.attn_out.weight",
    "blocks.{i}.mlp_norm.weight": "model.transformer.blocks.{i}.ff_norm.weight",
    "blocks.{i}.mlp.gate.weight": "model.transformer.blocks.{i}.ff_proj.weight",
    "blocks.{i}.mlp.up.weight": "model.transformer.blocks.{i}.up_proj.weight",
    "blocks.{i}.mlp.down.weight": "model.transformer.blocks.{i}.ff_out.weight",
    "final_norm.weight": "model.transformer.ln_f.weight",
    "head.weight": "model.transformer.ff_out.weight",
}
ILLADA_MASK_ID: Final = 5  # ML-GSAI/LLaDA's README; the published config.json does not say it
LLAMA_KEYS: Final = {
    "embedding_size": "vocab_size",
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "mlp_hidden_size": "intermediate_size",
}
# Switches of the authors' model class that are off in the published checkpoints, and not supported here.
UNSUPPORTED: Final = (
    *("bias_for_layer_norm", "include_bias", "include_qkv_bias", "attention_layer_norm", "input_emb_norm"),
    *("scale_logits", "alibi"),
)


def read_shape(config: Values) -> TransformerConfig:
    refuse(config.get("block_type", "llama") != "llama", f"blocks of the type {config.get('block_type')!r}")
    refuse(config.get("activation_type", "silu") != "silu", f"the activation {config.get('activation_type')!r}")
    refuse(config.get("layer_norm_type", "rms") != "rms", f"norms of the type {config.get('layer_norm_type')!r}")
    refuse(config.get("rope") is False, "positions other than rotary ones")
    refuse(config.get("layer_norm_with_affine") is False, "norms without a gain")
    refuse(bool(config.get("multi_query_attention")) and not config.get("n_kv_heads"), "a single head of keys")
    for key in UNSUPPORTED:
        refuse(bool(config.get(key)), key)
    renamed = {llama_key: config[key] for key, llama_key in LLAMA_KEYS.items() if config.get(key)}
    return read_llama_shape({"rms_norm_eps": 1e-5, **config, **renamed})


def read_illada_shape(config: Values) -> TransformerConfig:
    refuse(config.get("layer_norm_eps") is not None, "norms other than RMSNorm")
    return read_llama_shape(config)


def read_illada_tokens(files: CheckpointFiles) -> SpecialTokens:
    mask_ids = (files.number("mask_token_id"), files.token_id("mask_token", "<[MASK]>"), ILLADA_MASK_ID)
    mask_id = next(token_id for token_id in mask_ids if token_id is not None)
    return read_specials(files, mask_id, delete_ids=read_ends(files), deletes_rest=True)


LLADA: Final = Family(
    name="llada",
    shape=read_shape,
    tensors=TENSORS,
    tokens=id_reader(deletes_rest=True),
    context_window=4096,
    model_types=("llada",),
    authors=AuthorsSetting("ML-GSAI/LLaDA, generate.py: as many steps as tokens", sampler="topk"),
    known=(
        KnownModel("GSAI-ML/LLaDA-8B-Base", 8.0, "MIT"),
        KnownModel("GSAI-ML/LLaDA-8B-Instruct", 8.0, "MIT"),
        KnownModel("GSAI-ML/LLaDA-1.5", 8.0, "not stated"),
    ),
)
ILLADA: Final = replace(
    LLADA,
    name="illada",
    shape=read_illada_shape,
    tensors=LLAMA_TENSORS,
    tokens=read_illada_tokens,
    context_window=8192,
    model_types=("illada",),
    known=(KnownModel("GSAI-ML/iLLaDA-8B-Base", 7.6, "Apache-2.0"),),
)
