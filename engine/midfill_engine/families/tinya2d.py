"""tiny-a2d: small Qwen2.5-Coder and Qwen3 models made bidirectional by the dLLM library. Scores are not shifted."""

from dataclasses import replace
from typing import Final

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.models.family import AuthorsSetting, Family, KnownModel, SpecialTokens
from midfill_engine.models.shapes import (
    LLAMA_TENSORS,
    TINY,
    need,
    read_qwen2_shape,
    read_qwen3_shape,
    read_specials,
)

MASK: Final = "<|mask|>"


def read_tokens(files: CheckpointFiles) -> SpecialTokens:
    """Raises CheckpointError, also for the block-causal variants, which only their names tell apart."""
    if "bd3lm" in files.name.lower():
        message = (
            f"The checkpoint {files.name} has block-causal attention, which is not computed here: take the mdlm one."
        )
        raise CheckpointError(message)
    return read_specials(files, need(files.token("mask_token", MASK), "mask", files))


TINY_A2D: Final = Family(
    name="tiny-a2d",
    attention="bidirectional",
    logit_shift=0,
    shape=read_qwen2_shape,
    tensors=LLAMA_TENSORS,
    tokens=read_tokens,
    model_types=("a2d-qwen2",),
    example={**TINY, "model_type": "a2d-qwen2", "eos_token_id": 301, "pad_token_id": 300},
    authors=AuthorsSetting("ZHZisZZ/dllm, examples/a2d: one token a step", sampler="topk"),
    added_tokens=("<|endoftext|>", "<|im_end|>", MASK),
    known=(KnownModel("dllm-hub/Qwen2.5-Coder-0.5B-Instruct-diffusion-mdlm-v0.1", 0.6, "Apache-2.0"),),
)
TINY_A2D_QWEN3: Final = replace(
    TINY_A2D,
    name="tiny-a2d-qwen3",
    shape=read_qwen3_shape,
    model_types=("a2d-qwen3",),
    example={**TINY_A2D.example, "model_type": "a2d-qwen3", "head_dim": 16},
    known=(KnownModel("dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1", 0.75, "Apache-2.0"),),
)
