"""Fast-dLLM v2 (arXiv 2509.26328): Qwen2.5-Instruct made block-causal by 32, scores shifted."""

from typing import Final

from midfill_engine.models.family import AuthorsSetting, Family, KnownModel
from midfill_engine.models.shapes import id_reader, read_qwen2_shape

FAST_DLLM2: Final = Family(
    name="fast-dllm-v2",
    attention="block_causal",
    logit_shift=1,
    shape=read_qwen2_shape,
    tokens=id_reader("mask_token", "<|mask|>", "|<MASK>|", ends_text=True),
    sampler="sub-blocks",
    context_window=4096,
    model_types=("Fast_dLLM_Qwen", "fast_dllm_qwen"),
    block_size=lambda config: config.get("bd_size") or 32,
    authors=AuthorsSetting("NVlabs/Fast-dLLM, v2/README: threshold 0.9", sampler="sub-blocks", quality=0.8),
    known=(
        KnownModel("Efficient-Large-Model/Fast_dLLM_v2_1.5B", 1.5, "Apache-2.0"),
        KnownModel("Efficient-Large-Model/Fast_dLLM_v2_7B", 7.6, "Apache-2.0"),
    ),
)
