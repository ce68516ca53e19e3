"""Measures a checkpoint: bits per byte of held-out gaps, exact matches, completions of task files. Runs no tests.

Every number names its length condition: `oracle` gives the true number of tokens, `own` leaves it to the model.
"""

import gzip
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.denoising.causal import CausalReader
from midfill_engine.denoising.denoise import denoise, drain
from midfill_engine.families.embedded import Embedded, lay_out
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.models.packed import score_rows
from midfill_engine.models.transformer import KeyValues
from midfill_engine.tokens.special import END, MASK
from midfill_engine.tokens.tokenizer import Tokenizer, heal
from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest, Segment, TextSegment
from training.data import spans
from training.data.pack import Pack, read_pack
from training.data.rows import Example, RowShape, draw_window, make_example

Length = Literal["own", "oracle"]


@dataclass(frozen=True)
class Gap:
    """One gap with the text around it, as a user would ask for it."""

    language: str
    prefix: str
    middle: str
    suffix: str


@dataclass(frozen=True)
class Report:
    """`bits_per_byte*` bound the cost of a line given its length; exact matches are shares of `num_gaps`.

    `bits_per_byte_read` is what a line costs from the left, its length included: exact, None where the model cannot
    read so. `length_within_quarter` is of fills at their own length, in tokens.
    """

    num_gaps: int
    bits_per_byte: float
    bits_per_byte_without_suffix: float
    bits_per_byte_read: float | None
    exact_oracle: float
    exact_own: float
    exact_own_without_suffix: float
    exact_previous_line: float
    interval_own: tuple[float, float]
    interval_oracle: tuple[float, float]
    length_within_quarter: float


def evaluate(checkpoint: Path, pack: Path, num_gaps: int = 300, context: int = 256, device: str = "cpu") -> Report:
    """Held-out single lines, the same for every checkpoint of a tokenizer. `context` in tokens; decoding is greedy."""
    runtime = load_runtime(str(checkpoint), device)
    gaps = draw_gaps(read_pack(pack, "validation"), runtime.embedded.tokenizer, num_gaps, context)
    fills = [fill(runtime, gap, "own") for gap in gaps]
    own = [text == gap.middle for text, gap in zip(fills, gaps, strict=True)]
    oracle = [fill(runtime, gap, "oracle") == gap.middle for gap in gaps]
    blind = [fill(runtime, without_suffix(gap), "own") == gap.middle for gap in gaps]
    return Report(
        num_gaps=num_gaps,
        bits_per_byte=bits_per_byte(runtime, gaps, context),
        bits_per_byte_without_suffix=bits_per_byte(runtime, [without_suffix(gap) for gap in gaps], context),
        bits_per_byte_read=read_bits_per_byte(runtime, gaps, context),
        exact_oracle=float(np.mean(oracle)),
        exact_own=float(np.mean(own)),
        exact_own_without_suffix=float(np.mean(blind)),
        exact_previous_line=float(np.mean([previous_line(gap) == gap.middle for gap in gaps])),
        interval_own=wilson(sum(own), num_gaps),
        interval_oracle=wilson(sum(oracle), num_gaps),
        length_within_quarter=float(
            np.mean([is_near(runtime.embedded.tokenizer, *both) for both in zip(fills, gaps, strict=True)])
        ),
    )


def draw_gaps(pack: Pack, tokenizer: Tokenizer, num_gaps: int, context: int) -> list[Gap]:
    """Single lines without their indent, of 2 to 64 tokens, each from a window of its own."""
    rng = np.random.default_rng(2024)
    gaps: list[Gap] = []
    while len(gaps) < num_gaps:
        language, text = draw_window(pack, tokenizer, context, rng)
        span = spans.one_line(text, rng)
        if span is None:
            continue
        start = span[0] + len(text[slice(*span)]) - len(text[slice(*span)].lstrip())
        end = start + len(text[start : span[1]].rstrip())
        if 2 <= len(tokenizer.encode(text[start:end])) <= 64:
            gaps.append(Gap(language, text[:start], text[start:end], text[end:]))
    return gaps


def without_suffix(gap: Gap) -> Gap:
    return Gap(gap.language, gap.prefix, gap.middle, "")


def previous_line(gap: Gap) -> str:
    """The floor: the last filled line before the gap, again."""
    lines = [line.strip() for line in gap.prefix.split("\n") if line.strip()]
    return lines[-1] if lines else ""


def fill(runtime: Runtime, gap: Gap, length: Length, lengths: str | None = None) -> str:
    """The model's own greedy fill of one gap, without experts; `lengths` names another policy than its own."""
    num_tokens = true_tokens(runtime.embedded.tokenizer, gap)
    hole = HoleSpec(max_tokens=min(num_tokens, runtime.embedded.config.max_hole)) if length == "oracle" else HoleSpec()
    segments: list[Segment] = [TextSegment(text=gap.prefix), HoleSegment(hole=hole), TextSegment(text=gap.suffix)]
    request = InfillRequest(segments=segments, tag=gap.language, quality=1.0)
    return drain(denoise(runtime, request, lengths="fixed" if length == "oracle" else lengths)).holes[0].text


def likeness(one: str, other: str) -> float:
    """difflib's ratio, from 0 to 1."""
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def bits_per_byte(runtime: Runtime, gaps: list[Gap], context: int, num_samples: int = 4) -> float:
    """An upper bound of the bits the model needs for a gap given its length, over the gap's bytes.

    The order-agnostic bound (Uria et al. 2014; the discrete-diffusion ELBO): k uniform in 1..L, k tokens masked at
    random, their summed cross-entropy times L / k, in expectation.
    """
    rng, model = np.random.default_rng(7), runtime.embedded.model
    return _per_byte(runtime, gaps, context, lambda example: gap_nats(model, example, rng, num_samples))


def read_bits_per_byte(runtime: Runtime, gaps: list[Gap], context: int) -> float | None:
    """What whole gaps cost from the left, the END behind them included, over their bytes: exact."""
    if not runtime.embedded.config.causal:
        return None
    return _per_byte(runtime, gaps, context, lambda example: read_nats(runtime, example))


def _per_byte(runtime: Runtime, gaps: list[Gap], context: int, nats_of: Callable[[Example], float]) -> float:
    examples = [(gap, as_example(runtime, gap, context)) for gap in gaps]
    known = [(len(gap.middle.encode()), example) for gap, example in examples if example is not None]
    return sum(nats_of(example) for _, example in known) / math.log(2) / sum(num_bytes for num_bytes, _ in known)


def as_example(runtime: Runtime, gap: Gap, context: int) -> Example | None:
    config = runtime.embedded.config
    text, start = gap.prefix + gap.middle + gap.suffix, len(gap.prefix)
    shape = RowShape(context, config.max_hole, config.hole_span)
    return make_example(gap.language, text, [(start, start + len(gap.middle))], runtime.embedded.tokenizer, shape)


@torch.inference_mode()
def gap_nats(model: Embedded, example: Example, rng: np.random.Generator, num_samples: int) -> float:
    """The bound for an example with one gap, in nats."""
    targets, positions, keys = open_gap(model, example)
    length = len(targets)
    counts = torch.from_numpy(rng.integers(1, length + 1, size=num_samples))
    ranks = torch.from_numpy(rng.random((num_samples, length))).argsort(dim=1).argsort(dim=1)
    masked = (ranks < counts[:, None]).to(targets.device)
    wanted = targets.expand(num_samples, -1)  # [S, L]
    logits = model.step(wanted.masked_fill(masked, MASK), positions.expand(num_samples, -1, -1), keys)
    losses = F.cross_entropy(logits.float().transpose(1, 2), wanted, reduction="none") * masked  # [S, L]
    return float((losses.sum(dim=1).cpu() * length / counts).mean())


@torch.inference_mode()
def read_nats(runtime: Runtime, example: Example) -> float:
    """What a gap and its END cost from the left, in nats."""
    targets, positions, keys = open_gap(runtime.embedded.model, example)
    reader = CausalReader(runtime, keys, [int(positions[0, 0])])
    (result,) = runtime.run([reader.open((0, targets.tolist()), torch.arange(len(targets) + 1))])
    (scores,) = score_rows(runtime.embedded.model.transformer, [result.hidden], runtime.operators)
    return float(F.cross_entropy(scores.float(), torch.cat((targets, targets.new_tensor([END]))), reduction="sum"))


def open_gap(model: Embedded, example: Example) -> tuple[Tensor, Tensor, KeyValues]:
    """The ids [L] of the one gap of an example, its positions [2, L], and its context's keys."""
    (gap,) = example.gaps
    device = model.length_head.weight.device
    layout = lay_out([len(text) for text in example.texts], [len(gap)], model.config.hole_span)
    context = torch.tensor([[token for text in example.texts for token in text]], device=device)
    _, keys = model.encode_context(context, layout.context_positions[None].to(device))
    return torch.tensor(gap, device=device), layout.hole_positions.to(device), keys


def is_near(tokenizer: Tokenizer, text: str, gap: Gap) -> bool:
    """Whether a fill has as many tokens as the true middle, give or take a quarter."""
    return abs(len(tokenizer.encode(text)) / len(tokenizer.encode(gap.middle)) - 1) <= 0.25


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % score interval of a share (Wilson 1927)."""
    z, share = 1.96, successes / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / (1 + z * z / trials)
    return max(0.0, middle - half), min(1.0, middle + half)


def complete(
    checkpoint: Path,
    tasks: Path,
    out: Path,
    length: Length,
    split: str,
    kind: str,
    empty_suffix: bool,
    device: str = "cpu",
) -> int:
    """Writes one `{"id", "text"}` line for each task of `tasks` (JSON lines, maybe gzipped). Returns how many."""
    runtime, num_tasks = load_runtime(str(checkpoint), device), 0
    with out.open("w", encoding="utf-8") as lines:
        for row in _read_rows(tasks):
            if row.get("split", split) != split or row.get("kind", kind) != kind:
                continue
            gap = Gap("python", row["prefix"], row["middle"], "" if empty_suffix else row["suffix"])
            lines.write(json.dumps({"id": row["id"], "text": fill(runtime, gap, length)}) + "\n")
            num_tasks += 1
    return num_tasks


def true_tokens(tokenizer: Tokenizer, gap: Gap) -> int:
    """How many tokens the true middle takes in a hole, with the white space that healing gives it."""
    healed = heal(gap.prefix, gap.suffix)
    middle = gap.middle.removesuffix(healed.tail) if healed.tail else gap.middle
    return max(1, len(tokenizer.encode(healed.lead + middle)))


def _read_rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)
