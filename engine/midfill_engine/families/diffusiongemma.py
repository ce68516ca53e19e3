"""DiffusionGemma: a causal context, and a canvas of 256 tokens that attends to the context and to itself. It starts
with noise, not with masks. The transformers library computes the model (`loading/canvas_model.py`).
"""

from typing import Final

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.models.family import AuthorsSetting, Family, KnownModel, SpecialTokens, Values
from midfill_engine.models.shapes import read_specials
from midfill_engine.models.transformer import TransformerConfig


def read_tokens(files: CheckpointFiles) -> SpecialTokens:
    """`mask_id` is -1, because there is no mask token. config.json has the ids under `text_config`."""
    text = files.config.get("text_config") or {}
    eos = text.get("eos_token_id")
    if isinstance(eos, list):
        eos = eos[0]
    bos, pad = text.get("bos_token_id"), text.get("pad_token_id")
    if bos is None or eos is None:
        raise CheckpointError(f"The checkpoint at {files.folder} does not say which ids its bos and eos tokens have.")
    specials = {*read_specials(files, mask_id=bos).special_ids, eos}  # bos in place of a mask
    if pad is not None:
        specials.add(pad)
    return SpecialTokens(mask_id=-1, special_ids=tuple(sorted(specials)), opening=lambda tag: [bos], closing=(eos,))


def read_shape(config: Values) -> TransformerConfig:
    """Sizes only, because the transformers library computes the model."""
    text = config["text_config"]
    return TransformerConfig(
        vocab_size=text["vocab_size"],
        dim=text["hidden_size"],
        num_layers=text["num_hidden_layers"],
        num_heads=text["num_attention_heads"],
        num_kv_heads=text["num_key_value_heads"],
        head_dim=text.get("global_head_dim") or text["head_dim"],
        mlp_dim=text["intermediate_size"],
    )


DIFFUSION_GEMMA: Final = Family(
    name="diffusion-gemma",
    attention="canvas",
    shape=read_shape,
    tensors={},
    tokens=read_tokens,
    sampler="entropy-bound",
    quality=13 / 15,  # the checkpoint's entropy bound of 0.1 nats
    context_window=8192,
    model_types=("diffusion_gemma",),
    authors=AuthorsSetting("generation_config.json: its steps and temperatures", "entropy-bound", quality=13 / 15),
    known=(KnownModel("google/diffusiongemma-26B-A4B-it", 26, "see its page"),),
)
