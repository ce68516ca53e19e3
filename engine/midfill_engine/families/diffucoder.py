"""DiffuCoder (arXiv 2506.20639): Dream's modules under other tokens. Nothing stands before or behind the text."""

from dataclasses import replace
from typing import Final

from midfill_engine.families.dream import DREAM
from midfill_engine.models.family import AuthorsSetting, KnownModel
from midfill_engine.models.shapes import find_mask, read_specials

PAD: Final = "<|dlm_pad|>"


DIFFUCODER: Final = replace(
    DREAM,
    name="diffucoder",
    tokens=lambda files: read_specials(files, find_mask(files), delete_ids=(files.token(PAD),)),
    claims=lambda files: PAD in files.added_tokens,
    authors=AuthorsSetting("apple/ml-diffucoder, README", sampler="dream", temperature=0.2, top_p=0.95),
    known=(
        KnownModel("apple/DiffuCoder-7B-Base", 7.6, "Apple's own (apple-amlr)"),
        KnownModel("apple/DiffuCoder-7B-cpGRPO", 7.6, "Apple's own (apple-amlr)"),
    ),
)
