"""Measures the autoregressive baseline on the gaps that `evaluate` uses. Knows greedy decoding; trains nothing."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F

from midfill_engine import checkpoint
from midfill_engine.models.embedded import EOS
from midfill_engine.models.transformer import Transformer
from midfill_engine.tokenizer import heal
from training.data.fim import prompt_ids, trim
from training.data.pack import read_pack
from training.data.rows import Ids
from training.evaluate import Gap, draw_gaps, wilson, without_suffix

MAX_NEW_TOKENS: Final = 96


@dataclass(frozen=True)
class BaselineReport:
    """`bits_per_byte*` are exact, unlike the diffusion model's bound, and pay for the length too (the EOS)."""

    num_gaps: int
    bits_per_byte: float
    bits_per_byte_without_suffix: float
    exact_own: float
    interval_own: tuple[float, float]
    median_fill_s: float


def evaluate_baseline(folder: Path, pack: Path, num_gaps: int = 300, context: int = 256) -> BaselineReport:
    """The same held-out single lines as `training.evaluate`, filled greedily until EOS."""
    baseline = Baseline(folder, context)
    gaps = draw_gaps(read_pack(pack, "validation"), baseline.tokenizer, num_gaps, context)
    right, seconds = 0, []
    for gap in gaps:
        started = time.perf_counter()
        right += baseline.fill(gap) == gap.middle
        seconds.append(time.perf_counter() - started)
    return BaselineReport(
        num_gaps=num_gaps,
        bits_per_byte=baseline.bits_per_byte(gaps),
        bits_per_byte_without_suffix=baseline.bits_per_byte([without_suffix(gap) for gap in gaps]),
        exact_own=right / num_gaps,
        interval_own=wilson(right, num_gaps),
        median_fill_s=float(np.median(seconds)),
    )


class Baseline:
    """A checkpoint trained with `--objective fim`."""

    def __init__(self, folder: Path, context: int) -> None:
        loaded = checkpoint.load(folder)
        self.transformer: Transformer = loaded.model.transformer
        self.tokenizer, self.context = loaded.tokenizer, context

    def parts(self, gap: Gap) -> tuple[Ids, Ids, str, str]:
        """The prompt, the middle's ids, and what healing put before the middle and took off its end."""
        healed = heal(gap.prefix, gap.suffix)
        middle = healed.lead + (gap.middle.removesuffix(healed.tail) if healed.tail else gap.middle)
        prefix, suffix, middle_ids = self.tokenizer.encode_batch([healed.prefix, healed.suffix, middle])
        return prompt_ids(gap.language, *trim(prefix, suffix, self.context)), middle_ids, healed.lead, healed.tail

    @torch.inference_mode()
    def fill(self, gap: Gap) -> str:
        ids, _, lead, tail = self.parts(gap)
        found: Ids = []
        hidden, past = self.transformer(torch.tensor([ids]), torch.arange(len(ids))[None], causal=True)
        while len(found) < MAX_NEW_TOKENS:
            token = int(self.transformer.logits(hidden[0, -1]).argmax())
            if token == EOS:
                break
            position = torch.tensor([[len(ids) + len(found)]])
            found.append(token)
            hidden, own = self.transformer(torch.tensor([[token]]), position, past=past)
            past = [
                (torch.cat((old[0], new[0]), dim=2), torch.cat((old[1], new[1]), dim=2))
                for old, new in zip(past, own, strict=True)
            ]
        text = self.tokenizer.decode_bytes(found).decode("utf-8", errors="replace")
        return text.removeprefix(lead) + tail

    @torch.inference_mode()
    def bits_per_byte(self, gaps: list[Gap]) -> float:
        bits, num_bytes = 0.0, 0
        for gap in gaps:
            prompt, middle, _, _ = self.parts(gap)
            ids = torch.tensor([[*prompt, *middle, EOS]])
            hidden, _ = self.transformer(ids[:, :-1], torch.arange(ids.shape[1] - 1)[None], causal=True)
            logits = self.transformer.logits(hidden[0, len(prompt) - 1 :])
            bits += float(F.cross_entropy(logits, ids[0, len(prompt) :], reduction="sum")) / math.log(2)
            num_bytes += len(gap.middle.encode())
        return bits / num_bytes
