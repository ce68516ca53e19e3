"""DreamOn (arXiv 2602.01326): Dream-Coder with tokens that lengthen and shorten holes. The expand token becomes two
masks; the delete token, which is end-of-text, deletes the rest of the hole.
"""

from dataclasses import replace
from typing import Final

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.families.dream import DREAM
from midfill_engine.models.family import AuthorsSetting, KnownModel, SpecialTokens
from midfill_engine.models.shapes import find_mask, need, read_specials

EXPAND_NAMES: Final = ("<|expand|>", "<|expand_token|>", "expand_token")


def find_expand(files: CheckpointFiles) -> int | None:
    return files.number("expand_token_id") or files.token(*EXPAND_NAMES)


def read_tokens(files: CheckpointFiles) -> SpecialTokens:
    eos = need(files.role("eos"), "eos", files)
    return read_specials(
        files,
        find_mask(files),
        with_edges=True,
        delete_ids=(files.number("delete_token_id") or eos,),
        expand_id=need(find_expand(files), "expand", files),
        deletes_rest=True,
    )


DREAMON: Final = replace(
    DREAM,
    name="dreamon",
    tokens=read_tokens,
    lengths="expand",
    sampler="entropy-bound",  # at 1 the authors' order, one token a step
    quality=1.0,  # two tokens a step cost the authors' weights 5 points of pass@1
    claims=lambda files: find_expand(files) is not None,
    authors=AuthorsSetting(
        "DreamLM/DreamOn, eval/*.sh: from 64 masks with room for 64",
        sampler="entropy",
        temperature=0.2,
        top_p=0.9,
        max_tokens=64,
    ),
    known=(KnownModel("Dream-org/DreamOn-v0-7B", 7.6, "Apache-2.0"),),
)
