"""The base in training: stored weights, trainable matrices, attention masks. Knows no text.

LoRA trains an update W + s B A of every matrix (Hu et al., arXiv 2106.09685) and keeps W frozen, in the compute type;
full training updates all weights, in fp32.
"""

from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from midfill_engine.families.causal import CAUSAL
from midfill_engine.loading import checkpoints
from midfill_engine.loading.adapter import open_files
from midfill_engine.models.transformer import Transformer, TransformerBlock, head_weight
from training.batches import enable_batches, run_batch
from training.data.cutter import Cutter, find_base
from training.data.packing import Packed

SCALE: Final = 2.0
HEAD_ROWS: Final = 2048  # rows whose logits are held at once
MATRICES: Final = ("attention.q", "attention.k", "attention.v", "attention.out", "mlp.gate", "mlp.up", "mlp.down")


class LowRank(nn.Module):
    """A frozen matrix with a LoRA update, which is zero at first."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base, self.out_features = base, base.out_features
        device = base.weight.device
        self.down = nn.Parameter(torch.randn(rank, base.in_features, device=device) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, device=device))

    def forward(self, x: Tensor) -> Tensor:
        low = F.linear(F.linear(x, self.down.to(x.dtype)), self.up.to(x.dtype))
        return torch.add(self.base(x), low, alpha=SCALE)


def block_mask(packed: Packed) -> Any:
    """The FlexAttention mask of `packed`. Not compiled: every step has a new mask, and compiling takes longer."""
    from torch.nn.attention.flex_attention import create_block_mask

    sees, length = packed.sees, len(packed.ids)
    return create_block_mask(lambda b, h, q, k: sees(q, k), None, None, length, length, device=str(packed.ids.device))


@dataclass(frozen=True)
class Base:
    """A base in training, by LoRA or with all weights except the embedding, which is also the head."""

    transformer: Transformer
    cutter: Cutter
    dtype: torch.dtype

    @classmethod
    def open(cls, name: str, rank: int, device: torch.device, dtype: torch.dtype, compiled: bool = False) -> "Base":
        """Loads the base `name`; `rank` 0 trains all weights. Raises StartError, CheckpointError."""
        files = open_files(find_base(name))
        loaded = checkpoints.load(files, CAUSAL, device, dtype if rank else torch.float32)
        files.release()
        transformer = loaded.model.transformer
        for block in enable_batches(transformer).blocks:
            assert isinstance(block, TransformerBlock)
            for path in MATRICES if rank else ():
                owner, _, leaf = path.rpartition(".")
                matrix = block.get_submodule(path)
                assert isinstance(matrix, nn.Linear)
                setattr(block.get_submodule(owner), leaf, LowRank(matrix, rank))
            if compiled:
                block.compile(dynamic=True)
        if not rank:
            transformer.requires_grad_(True)
            transformer.embedding.requires_grad_(False)
        return cls(transformer, Cutter.of(loaded.tokenizer), dtype)

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The trainable parameters."""
        return {name: value for name, value in self.transformer.named_parameters() if value.requires_grad}

    @property
    def is_mixed(self) -> bool:
        """True if the weights are wider than the compute type."""
        return self.transformer.embedding.weight.dtype != self.dtype

    def states(self, packed: Packed) -> Tensor:
        """The final hidden states [A, D] of the positions `asked`."""
        mask: Any = None
        if not packed.is_plain:
            mask = block_mask(packed) if packed.ids.is_cuda else packed.mask()
        ids, positions = (tensor.reshape(-1, tensor.shape[-1]) for tensor in (packed.ids, packed.positions))
        with torch.autocast(packed.ids.device.type, self.dtype, enabled=self.is_mixed):
            hidden = run_batch(self.transformer, ids, positions, mask, causal=mask is None)
        return hidden.flatten(0, 1).index_select(0, packed.asked)

    def nats(self, packed: Packed) -> Tensor:
        """-ln P [A] of every target."""
        states = self.states(packed)
        parts = zip(torch.split(states, HEAD_ROWS), torch.split(packed.targets, HEAD_ROWS), strict=True)
        return torch.cat([checkpoint(self._nats, *part, use_reentrant=False) for part in parts])

    def _nats(self, states: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast(states.device.type, self.dtype, enabled=self.is_mixed):
            scores = F.linear(states, head_weight(self.transformer))
        return F.cross_entropy(scores.float(), targets, reduction="none")
