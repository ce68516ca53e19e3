"""D2F (arXiv 2508.09192): LoRA adapters that make full-attention models decode several blocks at a time.

The prompt is one block; every block of 16 behind it attends to itself and all before (the authors' evaluation code).
Only its name tells that an adapter or checkpoint is D2F.
"""

from dataclasses import replace
from typing import Final

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.families.dream import DIFFUCODER, DREAM
from midfill_engine.families.llada import LLADA
from midfill_engine.models.family import AuthorsSetting, Family, KnownModel, SpecialTokens

BLOCK_TOKENS: Final = 16


def _force(base: Family, published: KnownModel) -> Family:
    """The family of models that discrete diffusion forcing made from those of `base`."""

    def read_tokens(files: CheckpointFiles) -> SpecialTokens:
        """No closing ids, because the model ends its text itself; no markers, as `base` was not trained with them."""
        return replace(base.tokens(files), closing=(), deletes_rest=False, ends_text=True, markers=None)

    return replace(
        base,
        name=f"d2f-{base.name}",
        attention="block_causal",
        tokens=read_tokens,
        sampler="pipeline",
        quality=0.8,
        pipelined=True,
        authors=AuthorsSetting("Discrete-Diffusion-Forcing, D2F-eval/*.sh", sampler="pipeline", quality=0.8),
        block_size=lambda config: BLOCK_TOKENS,
        claims=lambda files: "d2f" in files.name.lower() and base.claims(files),
        known=(published,),
    )


D2F_DREAM: Final = _force(DREAM, KnownModel("SJTU-Deng-Lab/D2F_Dream_Base_7B_Lora", 7.6, "not stated"))
D2F_DIFFUCODER: Final = _force(
    DIFFUCODER, KnownModel("SJTU-DENG-Lab/D2F_DiffuCoder_Instruct_7B_Lora", 7.6, "Apache-2.0")
)
D2F_LLADA: Final = _force(LLADA, KnownModel("SJTU-Deng-Lab/D2F_LLaDA_Instruct_8B_Lora", 8.0, "not stated"))
