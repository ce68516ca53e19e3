"""The model families by name; finds the family of a checkpoint. Knows no weights, no requests."""

from typing import Final

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.families.causal import CAUSAL
from midfill_engine.families.coda import CODA
from midfill_engine.families.d2f import D2F_DIFFUCODER, D2F_DREAM, D2F_LLADA
from midfill_engine.families.diffusiongemma import DIFFUSION_GEMMA
from midfill_engine.families.dream import DIFFUCODER, DREAM, DREAMON
from midfill_engine.families.embedded import EMBEDDED
from midfill_engine.families.fastdllm2 import FAST_DLLM2
from midfill_engine.families.llada import ILLADA, LLADA
from midfill_engine.families.llada2 import LLADA2, LLADA21
from midfill_engine.families.lladamoe import LLADA_MOE
from midfill_engine.families.nemotrondiffusion import NEMOTRON_DIFFUSION
from midfill_engine.families.opendcoder import OPENDCODER
from midfill_engine.families.sdar import SDAR, SDAR_MOE
from midfill_engine.families.stablediffcoder import STABLE_DIFFCODER
from midfill_engine.families.tinya2d import TINY_A2D, TINY_A2D_BD3LM, TINY_A2D_QWEN3, TINY_A2D_QWEN3_BD3LM
from midfill_engine.models.family import Family
from midfill_engine.registry import Registry

# In order of precedence: of families with the same model_type the first that claims a checkpoint gets it.
_ALL: Final = (
    EMBEDDED,
    D2F_DIFFUCODER,
    D2F_DREAM,
    D2F_LLADA,
    DREAMON,
    DIFFUCODER,
    DREAM,
    OPENDCODER,
    TINY_A2D,
    TINY_A2D_QWEN3,
    TINY_A2D_BD3LM,
    TINY_A2D_QWEN3_BD3LM,
    LLADA_MOE,
    LLADA,
    ILLADA,
    CODA,
    SDAR,
    SDAR_MOE,
    STABLE_DIFFCODER,
    FAST_DLLM2,
    NEMOTRON_DIFFUSION,
    LLADA21,
    LLADA2,
    DIFFUSION_GEMMA,
    CAUSAL,
)
FAMILIES: Final = Registry("model family", {family.name: family for family in _ALL})


def find_family(files: CheckpointFiles) -> Family:
    """The family of a checkpoint, by its config.json. Raises CheckpointError if no family claims it."""
    if "family" in files.config:
        return FAMILIES.find(files.config["family"])
    model_type = files.config.get("model_type")
    for family in _ALL:
        if model_type in family.model_types and family.claims(files):
            return family
    known_types = ", ".join(sorted({known_type for family in _ALL for known_type in family.model_types}))
    message = f"The checkpoint at {files.folder} is of the type {model_type!r}; known types: {known_types}."
    raise CheckpointError(message)
