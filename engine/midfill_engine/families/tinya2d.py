"""tiny-a2d: small Qwen2.5-Coder and Qwen3 models made bidirectional by the dLLM library. Scores are not shifted."""

from dataclasses import replace
from typing import Final

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.models import shapes
from midfill_engine.models.family import AuthorsSetting, Family, KnownModel

MASK: Final = "<|mask|>"
BLOCK_TOKENS: Final = 32


def is_in_blocks(files: CheckpointFiles) -> bool:
    return "bd3lm" in files.name.lower()


def _in_blocks(base: Family, published: KnownModel) -> Family:
    """The block-causal variant of `base`, told by a checkpoint's name: blocks of 32, counted from the prompt's end."""
    return replace(
        base,
        name=f"{base.name}-bd3lm",
        attention="block_causal",
        tokens=shapes.id_reader("mask_token", MASK, ends_text=True),
        aligned=True,
        block_size=lambda config: BLOCK_TOKENS,
        claims=is_in_blocks,
        authors=AuthorsSetting("ZHZisZZ/dllm, examples/a2d/bd3lm: one token a step", sampler="threshold"),
        known=(published,),
    )


TINY_A2D: Final = Family(
    name="tiny-a2d",
    shape=shapes.read_qwen2_shape,
    tokens=lambda files: shapes.read_specials(
        files, shapes.require_id(files.token_id("mask_token", MASK), "mask", files)
    ),
    model_types=("a2d-qwen2",),
    claims=lambda files: not is_in_blocks(files),
    authors=AuthorsSetting("ZHZisZZ/dllm, examples/a2d: one token a step", sampler="topk"),
    known=(KnownModel("dllm-hub/Qwen2.5-Coder-0.5B-Instruct-diffusion-mdlm-v0.1", 0.6, "Apache-2.0"),),
)
TINY_A2D_QWEN3: Final = replace(
    TINY_A2D,
    name="tiny-a2d-qwen3",
    shape=shapes.read_qwen3_shape,
    model_types=("a2d-qwen3",),
    known=(KnownModel("dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1", 0.75, "Apache-2.0"),),
)
TINY_A2D_BD3LM: Final = _in_blocks(
    TINY_A2D, KnownModel("dllm-hub/Qwen2.5-Coder-0.5B-Instruct-diffusion-bd3lm-v0.1", 0.6, "Apache-2.0")
)
TINY_A2D_QWEN3_BD3LM: Final = _in_blocks(
    TINY_A2D_QWEN3, KnownModel("dllm-hub/Qwen3-0.6B-diffusion-bd3lm-v0.1", 0.75, "Apache-2.0")
)
