"""The families of models by name, and which family a checkpoint is of. Knows no weights, no requests."""

from typing import Final

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.models import embedded
from midfill_engine.models.coda import CODA
from midfill_engine.models.d2f import D2F_DIFFUCODER, D2F_DREAM, D2F_LLADA
from midfill_engine.models.diffucoder import DIFFUCODER
from midfill_engine.models.diffusiongemma import DIFFUSION_GEMMA
from midfill_engine.models.dream import DREAM
from midfill_engine.models.dreamon import DREAMON
from midfill_engine.models.family import Family, SpecialTokens
from midfill_engine.models.fastdllm2 import FAST_DLLM2
from midfill_engine.models.llada import LLADA
from midfill_engine.models.llada2 import LLADA2
from midfill_engine.models.lladamoe import LLADA_MOE
from midfill_engine.models.opendcoder import OPENDCODER
from midfill_engine.models.sdar import SDAR
from midfill_engine.models.stablediffcoder import STABLE_DIFFCODER
from midfill_engine.models.tinya2d import TINY_A2D, TINY_A2D_QWEN3
from midfill_engine.models.transformer import TransformerConfig
from midfill_engine.registry import Registry
from midfill_engine.tokenizer import closing_ids, opening_ids

EMBEDDED_TOKENS: Final = SpecialTokens(
    mask_id=embedded.MASK,
    special_ids=tuple(range(len(embedded.SPECIAL_TOKENS))),
    opening=opening_ids,
    closing=tuple(closing_ids()),
    delete_id=embedded.DELETE,
)
EMBEDDED: Final = Family(
    name="embedded",
    attention="context_frozen",
    logit_shift=0,
    shape=lambda config: TransformerConfig(**config["transformer"]),
    tensors={},
    tokens=lambda files: EMBEDDED_TOKENS,
    cache="frozen",
    lengths="learned",
    quality=0.5,
    fast_threshold=0.0,
    heals=True,
    shows_deleted=False,
    copies=True,
    lay_out=embedded.lay_out,
    length_buckets=embedded.LENGTH_BUCKETS,
)

# Where several share a model_type, the first that claims a checkpoint has it: the special ones come first.
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
    LLADA_MOE,
    LLADA,
    CODA,
    SDAR,
    STABLE_DIFFCODER,
    FAST_DLLM2,
    LLADA2,
    DIFFUSION_GEMMA,
)
FAMILIES: Final = Registry("model family", {family.name: family for family in _ALL})


def find_family(files: CheckpointFiles) -> Family:
    """The family that a checkpoint's config.json names. Raises CheckpointError."""
    if "family" in files.config:
        return FAMILIES.find(files.config["family"])
    kind = files.config.get("model_type")
    for family in _ALL:
        if kind in family.model_types and family.claims(files):
            return family
    known = ", ".join(sorted({kind for family in _ALL for kind in family.model_types}))
    raise CheckpointError(f"The checkpoint at {files.folder} is of the type {kind!r}; known types: {known}.")
