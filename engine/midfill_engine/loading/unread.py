"""Reports parts of a checkpoint that nothing reads: an unknown tensor stops loading, an unknown config key is logged.

Either may change what the authors' code computes. Knows names only.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles

# Buffers that implementations compute at load and some checkpoints store.
DERIVED: Final = re.compile(r"\.(inv_freq|rotary_emb\.(cos|sin)_cached|masked_bias)$")
# Names, versions, and keys that matter only for training or other caches, or that the tensors imply.
HARMLESS: Final = frozenset(
    {"architectures", "auto_map", "model_type", "_name_or_path", "transformers_version", "torch_dtype", "dtype"}
    | {"use_cache", "attn_implementation", "_attn_implementation", "flash_attention", "pretraining_tp", "precision"}
    | {"initializer_range", "init_std", "init_fn", "init_device", "init_cutoff_factor", "output_router_logits"}
    | {"attention_dropout", "embedding_dropout", "residual_dropout", "output_dropout", "hidden_dropout"}
    | {"resid_pdrop", "use_rmsnorm", "norm_softmax", "using_split_qkv_in_self_attention"}
    | {"router_aux_loss_coef", "max_position_embeddings", "max_sequence_length", "max_window_layers", "sliding_window"}
    | {"tie_word_embeddings", "weight_tying", "mlp_ratio", "block_group_size", "alibi_bias_max", "rope_full_precision"}
    | {"attention_layer_norm_with_affine", "debug", "ep_size", "fuse_cross_entropy", "micro_forward"}
    | {"skip_checkpoint", "use_deepep", "norm_topk_prob", "score_function", "router_dtype", "norm_head", "rotary_dim"}
    | {"attention_kernel", "block_masking_probability", "mask_block_sizes", "prefix_probability", "sampling_eps"}
    | {"truncate_probability", "dlm_loss_weight", "ar_loss_weight", "dp_varying_mask_ratio"}
    | {"vocab_size", "intermediate_size", "moe_router_score_function", "router_num_group", "router_topk_group"}
)

logger = logging.getLogger(__name__)


class WatchedConfig(Mapping[str, Any]):
    """A config.json that records which keys were read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self._asked.add(key)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def unread(self) -> list[str]:
        """Meaningful keys that were not read. Ids are read elsewhere."""
        return sorted(
            key
            for key, value in self._values.items()
            if value is not None and key not in self._asked | HARMLESS and not key.endswith("token_id")
        )


def warn_of_unread_keys(files: CheckpointFiles, config: WatchedConfig) -> None:
    """Logs one warning that names all of them."""
    unread = config.unread()
    if unread:
        logger.warning("%s: config.json has what nothing here reads: %s", files.name, ", ".join(unread))


def refuse_unread_tensors(files: CheckpointFiles, used: set[str]) -> None:
    """Raises CheckpointError."""
    unread = sorted(name for name in files.shards if name not in used and not DERIVED.search(name))
    if unread:
        more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
        raise CheckpointError(
            f"The weights in {files.folder} have the tensor {unread[0]}{more}, which its family does not compute: "
            "take a checkpoint of the published form."
        )
