"""Dream-v0 and Dream-Coder (arXiv 2508.15487): Qwen2.5's shape with biases, full attention, shifted scores.

DiffuCoder (arXiv 2506.20639) has Dream's modules under other tokens, and nothing before or behind the text. DreamOn
(arXiv 2602.01326) is Dream-Coder with tokens that lengthen and shorten holes: the expand token becomes two masks; the
delete token, which is end-of-text, deletes the rest of the hole.
"""

from dataclasses import replace
from typing import Final

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.models.family import AuthorsSetting, Family, KnownModel, SpecialTokens, Values
from midfill_engine.models.shapes import find_mask, id_reader, read_qwen2_shape, read_specials, refuse, require_id
from midfill_engine.models.transformer import TransformerConfig

DIFFUCODER_PAD: Final = "<|dlm_pad|>"
EXPAND_NAMES: Final = ("<|expand|>", "<|expand_token|>", "expand_token")


def read_shape(config: Values) -> TransformerConfig:
    refuse(bool(config.get("block_size")), "attention in blocks, as DreamReasoner's is")
    return read_qwen2_shape(config)


def find_expand(files: CheckpointFiles) -> int | None:
    return files.number("expand_token_id") or files.token_id(*EXPAND_NAMES)


def read_dreamon_tokens(files: CheckpointFiles) -> SpecialTokens:
    eos = require_id(files.role_id("eos"), "eos", files)
    return read_specials(
        files,
        find_mask(files),
        with_edges=True,
        delete_ids=(files.number("delete_token_id") or eos,),
        expand_id=require_id(find_expand(files), "expand", files),
        deletes_rest=True,
    )


DREAM: Final = Family(
    name="dream",
    logit_shift=1,
    shape=read_shape,
    # The mask is config.json's (null in generation_config.json), and bos the tokenizer's (config.json has none).
    tokens=id_reader(with_edges=True, deletes_rest=True),
    model_types=("Dream",),
    authors=AuthorsSetting("DreamLM/Dream, README and eval/*.sh", sampler="dream", temperature=0.2, top_p=0.95),
    known=(
        KnownModel("Dream-org/Dream-Coder-v0-Base-7B", 7.6, "Apache-2.0"),
        KnownModel("Dream-org/Dream-Coder-v0-Instruct-7B", 7.6, "Apache-2.0"),
        KnownModel("Dream-org/Dream-v0-Base-7B", 7.6, "Apache-2.0"),
        KnownModel("Dream-org/Dream-v0-Instruct-7B", 7.6, "Apache-2.0"),
    ),
)
DIFFUCODER: Final = replace(
    DREAM,
    name="diffucoder",
    tokens=lambda files: read_specials(files, find_mask(files), delete_ids=(files.token_id(DIFFUCODER_PAD),)),
    claims=lambda files: DIFFUCODER_PAD in files.added_tokens,
    authors=AuthorsSetting("apple/ml-diffucoder, README", sampler="dream", temperature=0.2, top_p=0.95),
    known=(
        KnownModel("apple/DiffuCoder-7B-Base", 7.6, "Apple's own (apple-amlr)"),
        KnownModel("apple/DiffuCoder-7B-cpGRPO", 7.6, "Apple's own (apple-amlr)"),
    ),
)
DREAMON: Final = replace(
    DREAM,
    name="dreamon",
    tokens=read_dreamon_tokens,
    expands=True,
    sampler="entropy-bound",  # at quality 1 it settles one token a step, in the authors' order
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
