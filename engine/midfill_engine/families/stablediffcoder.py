"""Stable-DiffCoder-8B: Seed-Coder's Llama shape, block-causal by 4, scores not shifted."""

from typing import Final

from midfill_engine.models.family import AuthorsSetting, Family, KnownModel
from midfill_engine.models.shapes import id_reader, read_llama_shape

STABLE_DIFFCODER: Final = Family(
    name="stable-diffcoder",
    attention="block_causal",
    shape=read_llama_shape,
    tokens=id_reader("mask_token", "<[MASK_TOKEN]>", ends_text=True),
    context_window=4096,
    model_types=("stable_diffcoder", "seed_coder_diffusion", "llama"),
    claims=lambda files: (
        files.number("mask_token_id", "mask_id") is not None
        or files.token_id("mask_token", "<[MASK_TOKEN]>") is not None
    ),
    block_size=lambda config: config.get("block_length") or config.get("block_size") or 4,
    authors=AuthorsSetting("ByteDance-Seed/Stable-DiffCoder, README: one token a step", sampler="threshold"),
    known=(KnownModel("ByteDance-Seed/Stable-DiffCoder-8B-Base", 8.3, "MIT"),),
)
