"""Trains tiny models that differ in one decision of the recipe each. Knows the variants; the losses are the trainer's.

Every seed has one causal stage, whose weights all variants start from, the same rows in the same order, and the same
number of steps. Losses are means in nats over masked tokens of held-out packages, at oracle length.
"""

import copy
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from midfill_engine.families.embedded import Embedded, EmbeddedConfig
from midfill_engine.models.transformer import TransformerConfig
from midfill_engine.tokens.special import MASK, PAD
from midfill_engine.tokens.tokenizer import Tokenizer
from training.data.pack import Pack, read_pack
from training.data.rows import (
    Batch,
    Copy,
    Example,
    Noise,
    RowShape,
    collate,
    draw_example,
    draw_stream,
    draw_window,
    make_example,
)
from training.data.spans import Chooser, body, characters, one_line
from training.objective import TensorBatch, causal_loss, span_hidden, span_loss, to_device
from training.optimizer import make_optimizers, momentum_at, rate_factor, set_rates

SHARES: Final = (1.0, 0.6, 0.3)
SURE: Final = 0.9
MUON_LR: Final = 0.02
ADAM_LR: Final = 5e-3
CPU: Final = torch.device("cpu")


@dataclass(frozen=True)
class Toy:
    """Sizes of the comparison."""

    shape: RowShape = RowShape(context=192, gap=64, hole_span=96)
    dim: int = 96
    num_layers: int = 2
    num_heads: int = 4
    mlp_dim: int = 384
    rows: int = 8
    causal_steps: int = 300
    steps: int = 300
    held_out: int = 96  # rows of each kind


def as_is(batch: Batch, span: int) -> Batch:
    return batch


def true_positions(batch: Batch, span: int) -> Batch:
    """A gap takes as many positions as its canvas has, so the text after it stands where it stands in the file."""
    context, gaps = batch.context_positions.copy(), batch.gap_positions.copy()
    for row in range(len(context)):
        left = gaps[row, 0, 0]
        filled = int((batch.gap_ids[row, 0] != PAD).sum())
        starts = [0, *(np.flatnonzero(np.diff(left[:filled]) != 1) + 1)] if filled else []
        for start, end in reversed(list(zip(starts, [*starts[1:], filled], strict=True))):
            excess, after = span - (end - start), batch.gap_positions[row, 0, 0, start] + span
            context[row, context[row] >= after] -= excess
            left[end:filled] -= excess
        gaps[row] = left
    return replace(batch, context_positions=context, gap_positions=gaps)


@dataclass(frozen=True)
class Variant:
    """What differs from the recipe. `plain` is the share of all computed tokens that plain causal rows have before any
    gap, as far as they go beyond the stage that is shared.
    """

    about: str
    copies: tuple[Copy, ...] = ("masked", "masked")
    place: Callable[[Batch, int], Batch] = as_is
    plain: float = 0.5
    noise: Noise = Noise()


VARIANTS: Final = {
    "recipe": Variant(
        "constant span counted from both sides, isolated context, gaps see each other, two masked copies"
    ),
    "hybrid": Variant("one causal copy and one masked", copies=("causal", "masked")),
    "hybrid-queries": Variant("the causal copy's tokens and queries apart", copies=("tokens", "queries", "masked")),
    "causal-only": Variant("one causal copy", copies=("causal",)),
    "hybrid-plain": Variant("three quarters plain causal rows, then hybrid", copies=("causal", "masked"), plain=0.75),
    "intervals": Variant("half of the masks as one stretch of the gap", noise=Noise(interval_share=0.5)),
    "true-positions": Variant("the suffix where the canvas ends", place=true_positions),
}


@dataclass(frozen=True)
class Outcome:
    """One variant with one seed. `losses` by kind of gap and share of masked tokens; `left to right` of them what a
    token costs given those before it, the end too where the variant learns it. `sure` of single-line gaps at 0.6: the
    share of masked tokens whose likeliest token has at least 0.9, and how many of these are right. None where a variant
    has no masked copy, or no token was sure.
    """

    variant: str
    seed: int
    losses: dict[str, float]
    length_nats: float | None
    sure: float | None
    sure_right: float | None
    cpu_s: float
    sizes: dict[str, object] = field(default_factory=dict)


def ablate(
    pack: Path, tokenizer: Path, out: Path, seeds: Iterable[int], names: Iterable[str], toy: Toy | None = None
) -> list[Outcome]:
    """Runs what `out` (JSON lines, one an outcome) does not hold yet, seed by seed, and returns all outcomes in it."""
    toy, reader = toy or Toy(), Tokenizer.read(tokenizer)
    train, held_out = read_pack(pack, "train"), read_pack(pack, "validation")
    sets = held_out_sets(held_out, reader, toy)
    for seed in seeds:
        missing = [name for name in names if (name, seed) not in {(row.variant, row.seed) for row in read(out)}]
        if not missing:
            continue
        start = _train_causal(_new_model(toy, reader, seed), train, toy, seed)
        for name in missing:
            outcome = run_variant(name, copy.deepcopy(start), train, reader, sets, toy, seed)
            with out.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(outcome)) + "\n")
    return read(out)


def read(path: Path) -> list[Outcome]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Outcome(**json.loads(line, parse_constant=lambda _: None)) for line in lines]


def run_variant(
    name: str, model: Embedded, pack: Pack, tokenizer: Tokenizer, sets: dict[str, list[Example]], toy: Toy, seed: int
) -> Outcome:
    variant, started = VARIANTS[name], time.process_time()
    shape = replace(toy.shape, copies=variant.copies)
    tokens = toy.steps * toy.rows * toy.shape.computed
    optimizers = make_optimizers(model, MUON_LR, ADAM_LR)
    num_plain = round(toy.causal_steps * (variant.plain / 0.5 - 1))
    steps = round((tokens - num_plain * toy.rows * toy.shape.computed) / (toy.rows * shape.computed))
    for step in range(num_plain):
        rows = draw_stream(pack, toy.shape, toy.rows, np.random.default_rng((seed, step, 2)))
        _update(optimizers, step, 10 * num_plain, causal_loss(model, torch.from_numpy(rows)).total)
    for step in range(steps):
        rng = np.random.default_rng((seed, step))
        examples = [draw_example(pack, tokenizer, shape, rng) for _ in range(toy.rows)]
        batch = variant.place(collate(examples, shape, variant.noise, rng), toy.shape.hole_span)
        _update(optimizers, step, steps, span_loss(model, to_device(batch, CPU)).total)
    measured = _measure(model, variant, sets, toy)
    return Outcome(name, seed, *measured, time.process_time() - started, asdict(toy))


def _update(optimizers: list[torch.optim.Optimizer], step: int, num_steps: int, loss: Tensor) -> None:
    set_rates(optimizers, rate_factor(step, step / num_steps, warmup_steps=20, cooldown=0.3))
    optimizers[0].param_groups[0]["momentum"] = momentum_at(step)
    loss.backward()  # type: ignore[no-untyped-call]
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _new_model(toy: Toy, tokenizer: Tokenizer, seed: int) -> Embedded:
    transformer = TransformerConfig(
        vocab_size=tokenizer.vocab_size,
        dim=toy.dim,
        num_layers=toy.num_layers,
        num_heads=toy.num_heads,
        num_kv_heads=toy.num_heads,
        head_dim=toy.dim // toy.num_heads,
        mlp_dim=toy.mlp_dim,
    )
    model = Embedded(EmbeddedConfig(transformer, toy.shape.hole_span, toy.shape.context, toy.shape.gap))
    model.initialize(torch.Generator().manual_seed(seed))
    return model


def _train_causal(model: Embedded, pack: Pack, toy: Toy, seed: int) -> Embedded:
    optimizers = make_optimizers(model, MUON_LR, ADAM_LR)
    for step in range(toy.causal_steps):
        rows = draw_stream(pack, toy.shape, toy.rows, np.random.default_rng((seed, step, 1)))
        _update(optimizers, step, 10 * toy.causal_steps, causal_loss(model, torch.from_numpy(rows)).total)
    return model


def held_out_sets(pack: Pack, tokenizer: Tokenizer, toy: Toy) -> dict[str, list[Example]]:
    """Rows with one line, with one body, with several gaps, and with one stretch of any characters."""
    rng, shape = np.random.default_rng(31), toy.shape
    sets: dict[str, list[Example]] = {"line": [], "body": [], "several": [], "characters": []}

    def draw(kind: str, chooser: Chooser) -> None:
        while len(sets[kind]) < toy.held_out:
            language, text = draw_window(pack, tokenizer, shape.context, rng)
            span = chooser(text, rng)
            if span is None or not text[slice(*span)].strip():
                continue
            example = make_example(language, text, [span], tokenizer, shape)
            if example is not None and (kind != "body" or len(example.gaps[0]) >= 16):
                sets[kind].append(example)

    draw("line", one_line)
    draw("body", body)
    while len(sets["several"]) < toy.held_out:
        example = draw_example(pack, tokenizer, shape, rng)
        if len(example.gaps) > 1:
            sets["several"].append(example)
    draw("characters", characters)
    return sets


@torch.no_grad()
def _measure(
    model: Embedded, variant: Variant, sets: dict[str, list[Example]], toy: Toy
) -> tuple[dict[str, float], float | None, float | None, float | None]:
    """The losses, the length head's nats, the share of sure tokens, and how many of these are right."""
    losses: dict[str, float] = {}
    length = sure = sure_right = None
    for kind, examples in sets.items():
        rng = np.random.default_rng(17)
        plain = collate(examples, toy.shape, Noise(full_share=1.0, delete_share=0.0), rng)
        batch = variant.place(plain, toy.shape.hole_span)
        losses[f"{kind} left to right"] = _left_to_right(model, variant, examples, toy)
        for share in SHARES if "masked" in variant.copies else ():
            masked = to_device(mask_share(batch, share, rng), CPU)
            scored = _score(model, masked)
            losses[f"{kind} {share}"] = float(scored.nats.mean())
            if kind == "line" and share == 1.0:
                length = float(span_loss(model, masked).length)
            if kind == "line" and share == 0.6:
                is_sure = scored.confidence >= SURE
                sure = float(is_sure.float().mean())
                sure_right = float(scored.right[is_sure].float().mean()) if is_sure.any() else None
    return losses, length, sure, sure_right


def _left_to_right(model: Embedded, variant: Variant, examples: list[Example], toy: Toy) -> float:
    """The nats of whole gaps a token, each given the tokens before it: by a causal copy where the variant has one, with
    END; else by masks, with all behind it masked and the length known.
    """
    copies = tuple(copy for copy in variant.copies if copy != "masked")
    rng = np.random.default_rng(17)
    if copies:
        causal = collate(examples, replace(toy.shape, copies=copies), Noise(), rng)
        return float(_score(model, to_device(causal, CPU)).nats.sum()) / sum(
            len(gap) for row in examples for gap in row.gaps
        )
    batch = collate(examples, replace(toy.shape, copies=("masked",)), Noise(1.0, 0.0), rng)
    batch, total, count = variant.place(batch, toy.shape.hole_span), 0.0, 0
    offsets = batch.gap_positions[:, :, 0] - np.maximum.accumulate(
        np.where(np.diff(batch.gap_positions[:, :, 0], axis=2, prepend=-9) != 1, batch.gap_positions[:, :, 0], 0),
        axis=2,
    )
    present = batch.gap_ids != PAD
    for offset in range(int(offsets[present].max()) + 1):
        asked = present & (offsets == offset)
        ids = np.where(present & (offsets < offset), batch.targets, batch.gap_ids)
        one = replace(batch, gap_ids=ids, weights=asked.astype(np.float32))
        rows = np.flatnonzero(asked.any(axis=(1, 2)))
        one = Batch(**{name: value[rows] for name, value in vars(one).items()})
        nats = _score(model, to_device(one, CPU)).nats
        total, count = total + float(nats.sum()), count + len(nats)
    return total / count


def mask_share(batch: Batch, share: float, rng: np.random.Generator) -> Batch:
    """The same gaps with that share of the tokens masked, in both copies on its own."""
    present = batch.gap_ids != PAD
    masked = present & (rng.random(present.shape) < share)
    ids = np.where(masked, MASK, np.where(present, batch.targets, PAD))
    return replace(batch, gap_ids=ids, weights=masked.astype(np.float32))


@dataclass(frozen=True)
class _Scored:
    nats: Tensor  # [M]
    confidence: Tensor  # [M]
    right: Tensor  # [M]


def _score(model: Embedded, batch: TensorBatch) -> _Scored:
    """Of everything that is asked for."""
    chosen = batch.weights > 0
    logits = model.transformer.logits(span_hidden(model, batch)[1][chosen])
    targets = batch.targets[chosen]
    confidence, best = logits.softmax(dim=-1).max(dim=-1)
    return _Scored(F.cross_entropy(logits, targets, reduction="none"), confidence, best == targets)


def table(outcomes: list[Outcome]) -> str:
    """Markdown: the recipe's losses, and each variant's difference to it by seed, mean and range."""
    recipe = {row.seed: row for row in outcomes if row.variant == "recipe"}
    kinds = ("line", "several", "body", "characters")
    columns = [f"{kind} {share}" for kind in kinds for share in ("left to right", 1.0, 0.3)]
    columns = [column for column in columns if all(column in row.losses for row in recipe.values())]
    lines = ["| variant | seeds | " + " | ".join(columns) + " | length |", "|---" * (len(columns) + 3) + "|"]
    for name in VARIANTS:
        rows = [row for row in outcomes if row.variant == name and row.seed in recipe]
        if not rows:
            continue
        against = None if name == "recipe" else [recipe[row.seed] for row in rows]
        cells = [_cell(column, rows, against) for column in (*columns, "length")]
        lines.append(f"| {name} | {len(rows)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(column: str, rows: list[Outcome], against: list[Outcome] | None) -> str:
    values = _of(rows, column)
    if against is None:
        return f"{values.mean():.3f}"
    differences = values - _of(against, column)
    if len(differences) == 1:
        return f"{differences[0]:+.3f}"
    return f"{differences.mean():+.3f} ({differences.min():+.3f} to {differences.max():+.3f})"


def _of(rows: list[Outcome], column: str) -> NDArray[np.float64]:
    """Of each row; not a number where it has none."""
    found = [row.length_nats if column == "length" else row.losses.get(column) for row in rows]
    return np.array(found, np.float64)
