"""SDAR (arXiv 2510.06303): Qwen3's shape, block-causal by 4 (or 8 to 64), scores not shifted."""

from typing import Final

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.models.family import AuthorsSetting, Family, KnownModel, SpecialTokens
from midfill_engine.models.shapes import LLAMA_TENSORS, TINY, read_qwen3_shape, read_writer


def read_tokens(files: CheckpointFiles) -> SpecialTokens:
    mask_id = files.number("mask_token_id")
    return read_writer(files, files.token("mask_token", "<|MASK|>") if mask_id is None else mask_id)


SDAR: Final = Family(
    name="sdar",
    attention="block_causal",
    logit_shift=0,
    shape=read_qwen3_shape,
    tensors=LLAMA_TENSORS,
    tokens=read_tokens,
    cache="block",
    lengths="until-end",
    context_window=4096,
    model_types=("sdar",),
    block_size=lambda config: config.get("block_size") or config.get("block_length") or 4,
    example={**TINY, "model_type": "sdar", "head_dim": 16, "mask_token_id": 302, "eos_token_id": 300}
    | {"bos_token_id": 300},
    example_generation={"bos_token_id": 300, "eos_token_id": [301, 300], "pad_token_id": 300},
    example_tokenizer={"bos_token": None, "eos_token": "<|endoftext|>", "mask_token": "<|MASK|>"},
    authors=AuthorsSetting("JetAstra/SDAR, README: threshold 0.9", sampler="threshold", quality=0.8, temperature=1.0),
    added_tokens=("<|endoftext|>", "<|im_end|>", "<|MASK|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
    known=(
        KnownModel("JetLM/SDAR-1.7B-Chat", 2.0, "Apache-2.0"),
        KnownModel("JetLM/SDAR-4B-Chat", 4.4, "Apache-2.0"),
        KnownModel("JetLM/SDAR-8B-Chat", 8.2, "Apache-2.0"),
    ),
)
