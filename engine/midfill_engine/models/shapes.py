"""Reads a checkpoint's shape and special ids, by the keys and names that several published families share."""

from collections.abc import Callable, Mapping
from typing import Final

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.models.family import LLAMA_TENSORS, Markers, SpecialTokens, Values
from midfill_engine.models.fim_names import FIM_NAMES
from midfill_engine.models.transformer import TransformerConfig, Yarn

MOE_TENSORS: Final[Mapping[str, str]] = {
    **LLAMA_TENSORS,
    "blocks.{i}.mlp.router.weight": "model.layers.{i}.mlp.gate.weight",
    "blocks.{i}.mlp.gate": "model.layers.{i}.mlp.experts.{e}.gate_proj.weight",
    "blocks.{i}.mlp.up": "model.layers.{i}.mlp.experts.{e}.up_proj.weight",
    "blocks.{i}.mlp.down": "model.layers.{i}.mlp.experts.{e}.down_proj.weight",
}


def read_llama_shape(
    config: Values, *, attention_bias: bool = False, qk_norm: bool = False, mlp_dim: int | None = None
) -> TransformerConfig:
    """The shape that Llama's, Qwen2's and Qwen3's keys describe. Raises CheckpointError for unsupported settings."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    keeps_scores = rope.get("mscale") is not None and rope.get("mscale") == rope.get("mscale_all_dim")
    has_yarn = rope_type == "yarn" and keeps_scores  # YaRN with other keys scales the scores too
    refuse(rope_type != "default" and not has_yarn, "scaled rotary positions")
    refuse(bool(config.get("use_sliding_window")), "sliding-window attention")
    other_types = set(config.get("layer_types") or ()) - {"full_attention"}
    refuse(bool(other_types), f"layers of the type {', '.join(sorted(other_types))}")
    refuse(bool(config.get("use_mrope")), "rotary positions in several dimensions")
    refuse(config.get("hidden_act", "silu") != "silu", f"the activation {config.get('hidden_act')!r}")
    # Every Qwen2 has biases at queries, keys and values, and says so in this key or not at all.
    refuse(bool(config.get("attention_bias")) and not attention_bias, "biases in attention")
    refuse(bool(config.get("mlp_bias")), "biases in its MLPs")
    num_heads = config["num_attention_heads"]
    yarn = None
    if has_yarn:
        betas = rope.get("beta_fast") or 32.0, rope.get("beta_slow") or 1.0
        yarn = Yarn(rope["factor"], rope["original_max_position_embeddings"], *betas)
    return TransformerConfig(
        vocab_size=config["vocab_size"],
        dim=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=num_heads,
        num_kv_heads=config.get("num_key_value_heads") or num_heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // num_heads,
        mlp_dim=config["intermediate_size"] if mlp_dim is None else mlp_dim,
        mlp="swiglu",
        norm_eps=config.get("rms_norm_eps", 1e-6),
        norm_gain=True,
        qk_norm=qk_norm,
        attention_bias=attention_bias,
        rope_base=float(config.get("rope_theta") or rope.get("rope_theta", 10000.0)),
        yarn=yarn,
    )


def read_qwen2_shape(config: Values) -> TransformerConfig:
    return read_llama_shape(config, attention_bias=True)


def read_qwen3_shape(config: Values, mlp_dim: int | None = None) -> TransformerConfig:
    return read_llama_shape(config, qk_norm=True, mlp_dim=mlp_dim)


def refuse(is_unsupported: bool, what: str) -> None:
    """Raises CheckpointError if `is_unsupported`, because the checkpoint asks for `what`."""
    if is_unsupported:
        raise CheckpointError(f"The checkpoint's config.json asks for {what}, which this engine does not compute.")


def require_id(token_id: int | None, what: str, files: CheckpointFiles) -> int:
    """Returns `token_id`. Raises CheckpointError if it is None, because the files do not say the id of token `what`."""
    if token_id is None:
        raise CheckpointError(f"The checkpoint at {files.folder} does not say which id its {what} token has.")
    return token_id


def read_specials(
    files: CheckpointFiles,
    mask_id: int,
    *,
    with_edges: bool = False,
    delete_ids: tuple[int | None, ...] = (),
    expand_id: int | None = None,
    deletes_rest: bool = False,
    ends_text: bool = False,
) -> SpecialTokens:
    """Special ids from the files; `mask_id` -1 is none. `with_edges`: bos (if not eos) before a text, eos behind it."""
    eos, bos = files.role_id("eos"), files.role_id("bos")
    deletions = tuple(dict.fromkeys(token for token in delete_ids if token is not None))
    special_ids = {*files.added_tokens.values(), mask_id, *deletions, expand_id}
    for role in ("eos", "pad", "bos"):
        special_ids |= {files.role_id(role), *files.numbers(f"{role}_token_id")}
    bos_ids = [bos] if with_edges and bos is not None and bos != eos else []
    return SpecialTokens(
        mask_id=mask_id,
        special_ids=tuple(sorted(token for token in special_ids if token is not None and token >= 0)),
        opening=lambda tag: list(bos_ids),
        closing=(eos,) if with_edges and eos is not None else (),
        delete_ids=deletions,
        expand_id=expand_id,
        deletes_rest=deletes_rest,
        ends_text=ends_text,
        markers=read_markers(files),
    )


def read_ends(files: CheckpointFiles, *names: str) -> tuple[int | None, ...]:
    """The ids, or None, of what ends a text: the tokenizer's and the configurations' eos, and the tokens `names`."""
    return (files.role_id("eos"), *files.numbers("eos_token_id"), *(files.token_id(name) for name in names))


def find_mask(files: CheckpointFiles, *names: str) -> int:
    """The mask's id in config.json, otherwise that of an added token of one of these names. Raises CheckpointError."""
    mask_id = files.number("mask_token_id", "mask_id")
    if mask_id is None:
        mask_id = files.token_id(*names)
    return require_id(mask_id, "mask", files)


def id_reader(*masks: str, ends: tuple[str, ...] = (), **options: bool) -> Callable[[CheckpointFiles], SpecialTokens]:
    """A reader of special ids for models whose text ends in end-of-text or one of the tokens `ends`. `masks` are names
    that the mask can have, `options` those of `read_specials`.
    """
    return lambda files: read_specials(files, find_mask(files, *masks), delete_ids=read_ends(files, *ends), **options)


def read_markers(files: CheckpointFiles) -> Markers | None:
    """Fill-in-the-middle ids of Qwen2.5-Coder, StarCoder and Granite, DeepSeek-Coder, or Seed-Coder."""
    for names, suffix_first in FIM_NAMES:
        prefix, suffix, middle = map(files.token_id, names)
        if prefix is not None and suffix is not None and middle is not None:
            return Markers(prefix, suffix, middle, suffix_first)
    return None
