"""Causal models of Llama's, Qwen2's or Qwen3's shape: every such checkpoint that no diffusion family claims. If the
tokenizer has fill-in-the-middle tokens, prompts use them; otherwise the model reads only the text before the hole.
"""

from dataclasses import replace
from typing import Final

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.models import shapes
from midfill_engine.models.family import Family, KnownModel, SpecialTokens, Values
from midfill_engine.models.transformer import TransformerConfig

SHAPES: Final = {"llama": shapes.read_llama_shape, "qwen2": shapes.read_qwen2_shape, "qwen3": shapes.read_qwen3_shape}


def read_shape(config: Values) -> TransformerConfig:
    """The shape by the model's type. Raises CheckpointError if it is another type or has unsupported settings."""
    if config.get("model_type") not in SHAPES:
        raise CheckpointError(f"A causal model of the type {config.get('model_type')!r} is not computed here.")
    return SHAPES[config["model_type"]](config)


def read_tokens(files: CheckpointFiles) -> SpecialTokens:
    """The special ids; `opening` is bos if the tokenizer puts it before every text, by setting or template."""
    adds_bos = files.tokenizer_config.get("add_bos_token")
    if adds_bos is None:
        processor = files.tokenizer.get("post_processor") or {}
        templates = [part.get("single") for part in processor.get("processors", [processor])]
        adds_bos = any(template and "SpecialToken" in template[0] for template in templates)
    bos = files.role_id("bos") if adds_bos else None
    return replace(shapes.read_specials(files, -1), opening=lambda tag: [] if bos is None else [bos])


CAUSAL: Final = Family(
    name="causal",
    backend="causal",
    attention="causal",
    logit_shift=1,
    shape=read_shape,
    tokens=read_tokens,
    max_hole=512,
    heeds=("min_tokens", "lines", "max_ms", "seconds"),
    keeps="lines",
    model_types=tuple(SHAPES),
    known=(
        KnownModel("HuggingFaceTB/SmolLM2-135M", 0.135, "Apache-2.0"),
        KnownModel("HuggingFaceTB/SmolLM2-360M", 0.36, "Apache-2.0"),
        KnownModel("HuggingFaceTB/SmolLM2-1.7B", 1.7, "Apache-2.0"),
        KnownModel("Qwen/Qwen2.5-Coder-0.5B", 0.5, "Apache-2.0"),
        KnownModel("Qwen/Qwen2.5-Coder-1.5B", 1.5, "Apache-2.0"),
        KnownModel("Qwen/Qwen2.5-Coder-7B", 7.6, "Apache-2.0"),
        KnownModel("ByteDance-Seed/Seed-Coder-8B-Base", 8.3, "MIT"),
    ),
)
