"""CoDA (arXiv 2510.03270): Qwen3-1.7B's shape, full attention, shifted scores."""

from typing import Final

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.models.family import AuthorsSetting, Family, KnownModel, SpecialTokens
from midfill_engine.models.shapes import LLAMA_TENSORS, need, read_qwen3_shape, read_specials


def read_tokens(files: CheckpointFiles) -> SpecialTokens:
    mask_id = files.number("mask_token_id")
    return read_specials(files, need(files.token("<|mask|>") if mask_id is None else mask_id, "mask", files))


CODA: Final = Family(
    name="coda",
    attention="bidirectional",
    logit_shift=1,
    shape=read_qwen3_shape,
    tensors=LLAMA_TENSORS,
    tokens=read_tokens,
    model_types=("CoDA", "coda"),
    authors=AuthorsSetting("SalesforceAIResearch/CoDA, README: defaults of its server", sampler="dream", steps=128),
    known=(KnownModel("Salesforce/CoDA-v0-Instruct", 1.7, "CC-BY-NC-4.0"),),
)
