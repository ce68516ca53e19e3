"""Measures the autoregressive baseline on the gaps that `evaluate` uses. Knows greedy decoding; trains nothing."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.denoising.outline import encode_before_space
from midfill_engine.loading import checkpoint
from midfill_engine.models.transformer import KeyValues, Transformer
from midfill_engine.tokens.special import EOS, SPECIAL_TOKENS
from midfill_engine.tokens.tokenizer import heal
from midfill_engine.tokens.vocabulary import Vocabulary
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
        bits_per_byte=_bits_per_byte(baseline, gaps),
        bits_per_byte_without_suffix=_bits_per_byte(baseline, [without_suffix(gap) for gap in gaps]),
        exact_own=right / num_gaps,
        interval_own=wilson(right, num_gaps),
        median_fill_s=float(np.median(seconds)),
    )


def _bits_per_byte(baseline: "Baseline", gaps: list[Gap]) -> float:
    return sum(map(baseline.nats, gaps)) / math.log(2) / sum(len(gap.middle.encode()) for gap in gaps)


class Baseline:
    """A checkpoint trained with `--objective fim`. `context` in tokens; None takes the checkpoint's own limit."""

    def __init__(self, folder: Path, context: int | None = None) -> None:
        loaded = checkpoint.load(folder)
        self.transformer: Transformer = loaded.model.transformer
        self.tokenizer, self.context = loaded.tokenizer, context or loaded.config.max_context
        self.num_parameters = loaded.parameters
        pieces = [self.tokenizer.token_bytes(index) for index in range(self.tokenizer.vocab_size)]
        # What ends a fill stands where the engine's models have what shortens one: never first where a fill has a lead.
        self.vocabulary = Vocabulary(pieces, range(len(SPECIAL_TOKENS)), delete_ids=[EOS])

    def parts(self, gap: Gap) -> tuple[Ids, Ids, str, str]:
        """The prompt, the middle's ids, and what healing put before the middle and took off its end."""
        healed = heal(gap.prefix, gap.suffix)
        middle = healed.lead + (gap.middle.removesuffix(healed.tail) if healed.tail else gap.middle)
        prefix, suffix, middle_ids = self.tokenizer.encode_batch([healed.prefix, healed.suffix, middle])
        return prompt_ids(gap.language, *trim(prefix, suffix, self.context)), middle_ids, healed.lead, healed.tail

    @torch.inference_mode()
    def fill(self, gap: Gap, num_tokens: int | None = None) -> str:
        """Greedy until EOS, or exactly `num_tokens`, of the tokens that the engine's models may choose from."""
        prompt, _, lead, tail = self.parts(gap)
        found = encode_before_space(self.tokenizer.encode, len(lead) - 1)
        may_end = num_tokens is None
        allowed = self.vocabulary.allowed(leading=lead[-1:], may_delete=may_end)
        later = self.vocabulary.allowed(may_delete=may_end)
        ids, past = [*prompt, *found], None
        while len(found) < (num_tokens or MAX_NEW_TOKENS):
            hidden, past = self._forward(ids, past)
            scores = self.transformer.logits(hidden[0, -1]).masked_fill(~allowed, -math.inf)
            token = int(scores.argmax())
            if token == EOS:
                break
            found.append(token)
            ids, allowed = [token], later
        text = self.tokenizer.decode_bytes(found).decode("utf-8", errors="ignore")
        return text.removeprefix(lead) + tail

    def _forward(self, ids: Ids, past: KeyValues | None) -> tuple[Tensor, KeyValues]:
        """The hidden states of `ids` behind `past`, and the keys and values of both."""
        first = 0 if past is None else past[0][0].shape[2]
        positions = torch.arange(first, first + len(ids))[None]
        hidden, own = self.transformer(torch.tensor([ids]), positions, causal=past is None, past=past)
        if past is None:
            return hidden, own
        both = zip(past, own, strict=True)
        return hidden, [(torch.cat((old[0], new[0]), 2), torch.cat((old[1], new[1]), 2)) for old, new in both]

    @torch.inference_mode()
    def nats(self, gap: Gap, knows_length: bool = False) -> float:
        """What the gap costs: its tokens and the EOS, or given its number of tokens, where none of them is EOS."""
        prompt, middle, _, _ = self.parts(gap)
        targets = torch.tensor(middle if knows_length else [*middle, EOS])
        ids = [*prompt, *middle]
        hidden, _ = self._forward(ids, None)
        logits = self.transformer.logits(hidden[0, len(prompt) - 1 :][: len(targets)])
        if knows_length:
            logits[:, EOS] = -math.inf
        return float(F.cross_entropy(logits, targets, reduction="sum"))
