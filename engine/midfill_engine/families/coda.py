"""CoDA (arXiv 2510.03270): Qwen3-1.7B's shape, full attention, shifted scores."""

from typing import Final

from midfill_engine.models.family import AuthorsSetting, Family, KnownModel
from midfill_engine.models.shapes import find_mask, read_qwen3_shape, read_specials

CODA: Final = Family(
    name="coda",
    logit_shift=1,
    shape=read_qwen3_shape,
    tokens=lambda files: read_specials(files, find_mask(files, "<|mask|>")),
    model_types=("CoDA", "coda"),
    authors=AuthorsSetting("SalesforceAIResearch/CoDA, README: defaults of its server", sampler="dream", steps=128),
    known=(KnownModel("Salesforce/CoDA-v0-Instruct", 1.7, "CC-BY-NC-4.0"),),
)
