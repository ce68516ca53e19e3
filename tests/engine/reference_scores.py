"""Compares every family's scores with those of its published reference code.

The references ran once, each on the tiny checkpoint that `tiny.make_random` writes for its family, in fp32; what they
said is in tests/engine/parity/. Anybody who has a family's code can run it on the same checkpoint and compare.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from tests.engine import tiny
from torch import Tensor

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.loading import checkpoints
from midfill_engine.models.family import Family, Layout
from midfill_engine.models.operators import TorchOperators
from midfill_engine.models.packed import Pass, run_packed
from midfill_engine.models.sequence import Frame, TokenSequence
from midfill_engine.models.transformer import head_weight

RECORDED = Path(__file__).parent / "parity"


@dataclass(frozen=True)
class Parity:
    """`error` is the largest difference of two scores over the largest score; `agreement` the share of equal top-1.

    `error_unshifted` is what the other shift convention would give: it must be large for the comparison to mean much.
    """

    family: str
    num_positions: int
    error: float
    agreement: float
    error_unshifted: float


def recorded_families() -> list[str]:
    return sorted(path.stem for path in RECORDED.glob("*.safetensors"))


def compare(family: Family, folder: Path) -> Parity:
    """Writes the family's tiny checkpoint to `folder`, runs it and compares."""
    recorded = load_file(RECORDED / f"{family.name}.safetensors")
    tiny.make_random(folder, family)
    loaded = checkpoints.load(CheckpointFiles(folder), family)
    ids, reference = recorded["ids"], recorded["scores"]
    ours = score(loaded, family, ids, family.logit_shift)
    other = score(loaded, family, ids, 1 - family.logit_shift)
    largest = reference.abs().max()
    return Parity(
        family.name,
        len(ids),
        float((ours - reference).abs().max() / largest),
        float((ours.argmax(-1) == reference.argmax(-1)).float().mean()),
        float((other - reference).abs().max() / largest),
    )


@torch.inference_mode()
def score(loaded: checkpoints.LoadedModel, family: Family, ids: Tensor, shift: int) -> Tensor:
    """The scores [T, V] of every position of `ids` [T], as the engine computes them.

    All are context, but where blocks are counted from the end of the prompt: that has a third of them there.
    """
    places = torch.arange(len(ids))
    end = len(ids) // 3 if family.pipelined else len(ids)
    layout = Layout(places[:end], places[None, end:], torch.empty(0, 2, dtype=torch.int64))
    block_size = loaded.config.block_size
    mask_id = family.tokens(loaded.files).mask_id
    shifted = replace(family, logit_shift=shift)
    frame = Frame(layout, shifted, block_size)
    every = places.numpy()
    rows, mask = frame.score_rows, TokenSequence(frame, ids.numpy(), mask_id).attention_mask(every, every)
    step = Pass(ids, torch.from_numpy(frame.positions[0]), wanted=torch.from_numpy(rows), attention_mask=mask)
    transformer = loaded.model.transformer
    (result,) = run_packed(transformer, [step], TorchOperators(torch.device("cpu"), torch.float32))
    return result.hidden @ head_weight(transformer).T
