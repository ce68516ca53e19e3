"""Dream-v0 and Dream-Coder (arXiv 2508.15487): Qwen2.5's shape with biases, full attention, shifted scores."""

from typing import Final

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.models.family import AuthorsSetting, Family, KnownModel, SpecialTokens, Values
from midfill_engine.models.shapes import LLAMA_TENSORS, find_mask, read_ends, read_qwen2_shape, read_specials, refuse
from midfill_engine.models.transformer import TransformerConfig


def read_shape(config: Values) -> TransformerConfig:
    refuse(bool(config.get("block_size")), "attention in blocks, as DreamReasoner's is")
    return read_qwen2_shape(config)


def read_tokens(files: CheckpointFiles) -> SpecialTokens:
    """The mask id is config.json's: Dream-v0's generation_config.json says null. An over-long hole ends in eos.

    The bos is the tokenizer's, `<|beginoftext|>`, which the authors' code puts first: config.json has eos in its place.
    """
    mask_id = find_mask(files)
    return read_specials(files, mask_id, with_edges=True, delete_ids=read_ends(files), deletes_rest=True)


DREAM: Final = Family(
    name="dream",
    attention="bidirectional",
    logit_shift=1,
    shape=read_shape,
    tensors=LLAMA_TENSORS,
    tokens=read_tokens,
    model_types=("Dream",),
    authors=AuthorsSetting("DreamLM/Dream, README and eval/*.sh", sampler="dream", temperature=0.2, top_p=0.95),
    known=(
        KnownModel("Dream-org/Dream-Coder-v0-Base-7B", 7.6, "Apache-2.0"),
        KnownModel("Dream-org/Dream-Coder-v0-Instruct-7B", 7.6, "Apache-2.0"),
        KnownModel("Dream-org/Dream-v0-Base-7B", 7.6, "Apache-2.0"),
        KnownModel("Dream-org/Dream-v0-Instruct-7B", 7.6, "Apache-2.0"),
    ),
)
