"""Open-dCoder: Qwen2.5-Coder-0.5B with full attention and shifted scores. Its mask was added to the tokenizer."""

from typing import Final

from midfill_engine.models.family import AuthorsSetting, Family, KnownModel
from midfill_engine.models.shapes import read_qwen2_shape, read_specials, require_id

MASK: Final = "<M>"

OPENDCODER: Final = Family(
    name="opendcoder",
    logit_shift=1,
    shape=read_qwen2_shape,
    tokens=lambda files: read_specials(files, require_id(files.token_id("mask_token", MASK), "mask", files)),
    model_types=("qwen2", "qwen2_diffusion"),
    claims=lambda files: files.token_id("mask_token", MASK) is not None and MASK in files.added_tokens,
    authors=AuthorsSetting(
        "Open-dLLM, eval/eval_infill/run_eval.sh, there with the true length",
        sampler="p2",
        steps=64,
        temperature=0.6,
        top_p=0.95,
    ),
    known=(KnownModel("fredzzp/open-dcoder-0.5B", 0.5, "Apache-2.0"),),
)
