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
from torch import Tensor

from midfill_engine.families.embedded import Embedded, EmbeddedConfig
from midfill_engine.models.transformer import TransformerConfig
from midfill_engine.tokens.special import EXPAND, MASK, PAD
from midfill_engine.tokens.tokenizer import Tokenizer
from training.data.pack import Pack, read_pack
from training.data.rows import (
    AS_REQUESTED,
    DEFAULT_MIX,
    SHORT_GAPS,
    Batch,
    Example,
    GapMix,
    Noise,
    RowShape,
    collate,
    draw_example,
    draw_stream,
    draw_window,
    make_example,
)
from training.data.spans import Chooser, body, characters, one_line
from training.objective import Hidden, TensorBatch, causal_loss, span_hidden, span_loss, to_device
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


def blind_hidden(model: Embedded, batch: TensorBatch) -> tuple[Tensor, Tensor]:
    """As `span_hidden`, but a gap sees the context and itself, and no other gap."""
    present = batch.context_ids != PAD  # [B, C]
    hidden, context = model.transformer(batch.context_ids, batch.context_positions, mask=present[:, None, None])
    left = batch.gap_positions[:, 0]  # [B, G]
    gap = F.pad((left.diff(dim=1) != 1).cumsum(dim=1), (1, 0))  # [B, G]
    same = (gap[:, :, None] == gap[:, None]).repeat_interleave(2, dim=0)  # [2B, G, G]
    before = present.repeat_interleave(2, dim=0)[:, None].expand(-1, same.shape[1], -1)
    gaps, _ = model.transformer(
        batch.gap_ids.flatten(0, 1),
        model.by_head(batch.gap_positions).repeat_interleave(2, dim=0),
        mask=torch.cat((before, same), dim=2)[:, None],
        past=[(key.repeat_interleave(2, dim=0), value.repeat_interleave(2, dim=0)) for key, value in context],
    )
    return hidden, gaps.unflatten(0, (-1, 2))


def full_hidden(model: Embedded, batch: TensorBatch) -> tuple[Tensor, Tensor]:
    """Everything sees everything: the context is computed with each copy of the gaps, so twice."""
    ids = torch.cat((batch.context_ids.repeat_interleave(2, dim=0), batch.gap_ids.flatten(0, 1)), dim=1)
    context = batch.context_positions[:, None].expand(-1, 2, -1)
    positions = model.by_head(torch.cat((context, batch.gap_positions), dim=2)).repeat_interleave(2, dim=0)
    hidden, _ = model.transformer(ids, positions, mask=(ids != PAD)[:, None, None])
    hidden = hidden.unflatten(0, (-1, 2))  # [B, 2, C + G, D]
    num_context = batch.context_ids.shape[1]
    return hidden[:, 0, :num_context], hidden[:, :, num_context:]


def as_is(batch: Batch, span: int) -> Batch:
    return batch


def left_only(batch: Batch, span: int) -> Batch:
    """All heads count from the text before the gap."""
    positions = batch.gap_positions.copy()
    positions[:, 1] = positions[:, 0]
    return replace(batch, gap_positions=positions)


def true_positions(batch: Batch, span: int) -> Batch:
    """A gap takes as many positions as its canvas has, so the text after it stands where it stands in the file."""
    context, gaps = batch.context_positions.copy(), batch.gap_positions.copy()
    for row in range(len(context)):
        left = gaps[row, 0]
        filled = int((batch.gap_ids[row, 0] != PAD).sum())
        starts = [0, *(np.flatnonzero(np.diff(left[:filled]) != 1) + 1)] if filled else []
        for start, end in reversed(list(zip(starts, [*starts[1:], filled], strict=True))):
            excess, after = span - (end - start), batch.gap_positions[row, 0, start] + span
            context[row, context[row] >= after] -= excess
            left[end:filled] -= excess
        gaps[row, 1] = left
    return replace(batch, context_positions=context, gap_positions=gaps)


def keep_tokens(example: Example, rng: np.random.Generator) -> Example:
    return example


def merge_tokens(example: Example, rng: np.random.Generator) -> Example:
    """In a quarter of the gaps, each pair of neighbours becomes one EXPAND with a chance of one half (DreamOn)."""
    return replace(example, gaps=[_merge(gap, rng) if rng.random() < 0.25 else gap for gap in example.gaps])


def _merge(ids: list[int], rng: np.random.Generator) -> list[int]:
    pairs = [ids[start : start + 2] for start in range(0, len(ids), 2)]
    return [token for pair in pairs for token in ([EXPAND] if len(pair) == 2 and rng.random() < 0.5 else pair)]


@dataclass(frozen=True)
class Variant:
    """What differs from the recipe. `short` is the share of steps that begin with short gaps only."""

    about: str
    hidden: Hidden = span_hidden
    place: Callable[[Batch, int], Batch] = as_is
    change: Callable[[Example, np.random.Generator], Example] = keep_tokens
    short: float = 0.0
    mix: GapMix = DEFAULT_MIX
    certainty: float = 0.0


VARIANTS: Final = {
    "recipe": Variant("constant span counted from both sides, isolated context, gaps see each other, DELETE only"),
    "true-positions": Variant("the suffix where the canvas ends", place=true_positions),
    "left-only": Variant("constant span counted from the left alone", place=left_only),
    "blind-gaps": Variant("gaps of a row do not see each other", hidden=blind_hidden),
    "full-attention": Variant("the context sees the gaps", hidden=full_hidden),
    "expand": Variant("EXPAND for pairs of tokens in a quarter of the gaps", change=merge_tokens),
    "short-first": Variant("a third of the steps with gaps of at most 12 tokens, no bodies", short=1 / 3),
    "more-bodies": Variant("one row in five has a body", mix=GapMix(body_share=1 / 5)),
    "few-gaps": Variant("one to three gaps in every row", mix=AS_REQUESTED),
    "half-few-gaps": Variant("one to three gaps in half of the rows", mix=GapMix(few_share=0.5)),
    "no-characters": Variant("no gap of any characters", mix=GapMix(character_share=0.0)),
    "more-characters": Variant("two gaps in five of any characters", mix=GapMix(character_share=0.4)),
    "certainty": Variant("certainty forcing, weight 2, in the last 15 % of the steps", certainty=2.0),
}


@dataclass(frozen=True)
class Outcome:
    """One variant with one seed. `losses` by kind of gap and share of masked tokens; `sure` of single-line gaps at 0.6:
    the share of masked tokens whose likeliest token has at least 0.9, and how many of these are right."""

    variant: str
    seed: int
    losses: dict[str, float]
    length_nats: float
    sure: float
    sure_right: float
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
    return [Outcome(**json.loads(line)) for line in lines]


def run_variant(
    name: str, model: Embedded, pack: Pack, tokenizer: Tokenizer, sets: dict[str, list[Example]], toy: Toy, seed: int
) -> Outcome:
    variant, started = VARIANTS[name], time.process_time()
    optimizers = make_optimizers(model, MUON_LR, ADAM_LR)
    for step in range(toy.steps):
        mix = SHORT_GAPS if step < variant.short * toy.steps else variant.mix
        rng = np.random.default_rng((seed, step))
        examples = [draw_example(pack, tokenizer, toy.shape, rng, mix) for _ in range(toy.rows)]
        examples = [variant.change(example, rng) for example in examples]
        batch = variant.place(collate(examples, toy.shape, Noise(), rng), toy.shape.hole_span)
        certainty = variant.certainty if step >= 0.85 * toy.steps else 0.0
        _update(optimizers, step, toy.steps, span_loss(model, to_device(batch, CPU), certainty, variant.hidden).total)
    losses, others = _measure(model, variant, sets, toy)
    return Outcome(name, seed, losses, *others, time.process_time() - started, asdict(toy))


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
) -> tuple[dict[str, float], tuple[float, float, float]]:
    """The losses, then (length head's nats, share of sure tokens, how many of these are right)."""
    losses, length, sure = {}, float("nan"), (float("nan"), float("nan"))
    for kind, examples in sets.items():
        rng = np.random.default_rng(17)
        plain = collate(examples, toy.shape, Noise(full_share=1.0, delete_share=0.0), rng)
        batch = variant.place(plain, toy.shape.hole_span)
        for share in SHARES:
            masked = to_device(mask_share(batch, share, rng), CPU)
            scored = _score(model, masked, variant.hidden)
            losses[f"{kind} {share}"] = float(scored.nats.mean())
            if kind == "several" and variant.hidden in (span_hidden, blind_hidden):
                other = blind_hidden if variant.hidden is span_hidden else span_hidden
                losses[f"{kind} {share} seen otherwise"] = float(_score(model, masked, other).nats.mean())
            if kind == "line" and share == 1.0:
                length = float(span_loss(model, masked, hidden=variant.hidden).length)
            if kind == "line" and share == 0.6:
                is_sure = scored.confidence >= SURE
                sure = float(is_sure.float().mean()), float(scored.right[is_sure].float().mean())
    return losses, (length, *sure)


def mask_share(batch: Batch, share: float, rng: np.random.Generator) -> Batch:
    """The same gaps with that share of the tokens masked, in both copies on its own."""
    present = np.broadcast_to((batch.gap_ids[:, :1] != PAD), batch.gap_ids.shape)
    masked = present & (rng.random(present.shape) < share)
    ids = np.where(masked, MASK, np.where(present, batch.targets[:, None], PAD))
    return replace(batch, gap_ids=ids, weights=masked.astype(np.float32))


@dataclass(frozen=True)
class _Scored:
    nats: Tensor  # [M]
    confidence: Tensor  # [M]
    right: Tensor  # [M]


def _score(model: Embedded, batch: TensorBatch, hidden: Hidden) -> _Scored:
    """Of every masked token."""
    chosen = batch.weights > 0
    logits = model.transformer.logits(hidden(model, batch)[1][chosen])
    targets = batch.targets[:, None].expand_as(chosen)[chosen]
    confidence, best = logits.softmax(dim=-1).max(dim=-1)
    return _Scored(F.cross_entropy(logits, targets, reduction="none"), confidence, best == targets)


def table(outcomes: list[Outcome]) -> str:
    """Markdown: the recipe's losses, and each variant's difference to it by seed, mean and range."""
    recipe = {row.seed: row for row in outcomes if row.variant == "recipe"}
    kinds = ("line", "several", "body", "characters")
    columns = [f"{kind} {share}" for kind in kinds for share in (1.0, 0.3)]
    columns = [column for column in columns if all(column in row.losses for row in outcomes)]
    lines = ["| variant | seeds | " + " | ".join(columns) + " | length |", "|---" * (len(columns) + 3) + "|"]
    for name in VARIANTS:
        rows = [row for row in outcomes if row.variant == name and row.seed in recipe]
        if not rows:
            continue
        cells = [_cell([_of(row, column) for row in rows], None) for column in (*columns, "length")]
        if name != "recipe":
            cells = [
                _cell([_of(row, column) for row in rows], [_of(recipe[row.seed], column) for row in rows])
                for column in (*columns, "length")
            ]
        lines.append(f"| {name} | {len(rows)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _of(row: Outcome, column: str) -> float:
    return row.length_nats if column == "length" else row.losses[column]


def _cell(values: list[float], against: list[float] | None) -> str:
    if against is None:
        return f"{np.mean(values):.3f}"
    differences = np.array(values) - np.array(against)
    if len(differences) == 1:
        return f"{differences[0]:+.3f}"
    return f"{differences.mean():+.3f} ({differences.min():+.3f} to {differences.max():+.3f})"
