"""iLLaDA-8B (arXiv 2606.25331): LLaDA in Llama's shape, full attention, scores in place, tied head."""

from typing import Final

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.models.family import AuthorsSetting, Family, KnownModel, SpecialTokens, Values
from midfill_engine.models.shapes import LLAMA_TENSORS, read_ends, read_llama_shape, read_specials, refuse
from midfill_engine.models.transformer import TransformerConfig

MASK_ID: Final = 5  # ML-GSAI/LLaDA's README; the published config.json does not say it


def read_shape(config: Values) -> TransformerConfig:
    refuse(config.get("layer_norm_eps") is not None, "norms other than RMSNorm")
    return read_llama_shape(config)


def read_tokens(files: CheckpointFiles) -> SpecialTokens:
    named = files.number("mask_token_id")
    mask_id = files.token("mask_token", "<[MASK]>") if named is None else named
    mask_id = MASK_ID if mask_id is None else mask_id
    return read_specials(files, mask_id, delete_ids=read_ends(files), deletes_rest=True)


ILLADA: Final = Family(
    name="illada",
    shape=read_shape,
    tensors=LLAMA_TENSORS,
    tokens=read_tokens,
    context_window=8192,
    model_types=("illada",),
    authors=AuthorsSetting("ML-GSAI/LLaDA, generate.py: as many steps as tokens", sampler="topk"),
    known=(KnownModel("GSAI-ML/iLLaDA-8B-Base", 7.6, "Apache-2.0"),),
)
