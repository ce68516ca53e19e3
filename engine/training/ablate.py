"""Trains tiny models that differ in one decision of the recipe each. Knows the variants; the losses are the trainer's.

Every seed has one causal stage, whose weights all variants start from, the same rows in the same order, and the same
number of computed tokens. Judged by whole held-out lines: what they cost, and what the engine makes of them when nobody
tells it their length.
"""

import copy
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from midfill_engine.families.embedded import LENGTH_BUCKETS, Embedded, EmbeddedConfig
from midfill_engine.loading import checkpoint
from midfill_engine.loading.device import choose_dtype
from midfill_engine.loading.runtime import load_runtime
from midfill_engine.models.transformer import TransformerConfig
from midfill_engine.tokens.tokenizer import Tokenizer
from training.data.pack import Pack, read_pack
from training.data.rows import (
    Copy,
    Example,
    Noise,
    RowShape,
    collate,
    draw_example,
    draw_stream,
    make_example,
)
from training.evaluate import Gap, chain_nats, draw_gaps, fill, gap_nats, is_near, length_scores, likeness
from training.lengths import refit
from training.objective import causal_loss, span_hidden, span_loss, to_device
from training.optimizer import make_optimizers, momentum_at, rate_factor, set_rates
from training.rounding import Rounding

RESAMPLES: Final = 2000
MUON_LR: Final = 0.02
ADAM_LR: Final = 5e-3
CPU: Final = torch.device("cpu")


@dataclass(frozen=True)
class Toy:
    """Sizes of the comparison; steps are of rows with two copies of the gaps."""

    shape: RowShape = RowShape(context=192, gap=64, hole_span=96)
    dim: int = 192
    num_layers: int = 2
    num_heads: int = 4
    mlp_dim: int = 768
    rows: int = 16
    causal_steps: int = 140
    steps: int = 260
    num_lines: int = 300
    bf16: bool = field(default_factory=lambda: choose_dtype(CPU) == torch.bfloat16)


@dataclass(frozen=True)
class Variant:
    """What differs from the recipe. `plain` is the share of all computed tokens that plain causal rows have before any
    gap, of which everybody has the shared stage.
    """

    about: str
    copies: tuple[Copy, ...] = ("causal", "masked")
    plain: float = 0.35


VARIANTS: Final = {
    "recipe": Variant("hybrid: one causal copy of the gaps and one masked"),
    "two-masked": Variant("two copies with complementary masks", copies=("masked", "masked")),
    "causal-only": Variant("one causal copy", copies=("causal",)),
    "queries": Variant("the causal copy's tokens and queries apart", copies=("tokens", "queries", "masked")),
    "plain-0.7": Variant("twice as many plain causal rows", plain=0.7),
    "plain-0.9": Variant("nine tenths plain causal rows", plain=0.9),
}


@dataclass(frozen=True)
class Outcome:
    """One variant with one seed. `lines` has by measure what `judge` found for each held-out line."""

    variant: str
    seed: int
    cpu_s: float
    sizes: dict[str, object]
    lines: dict[str, list[float]]


def ablate(
    pack: Path, tokenizer: Path, out: Path, seeds: Iterable[int], names: Iterable[str], toy: Toy | None = None
) -> list[Outcome]:
    """Runs what `out` (JSON lines, one an outcome) does not hold yet, seed by seed, and returns all outcomes in it."""
    toy, reader = toy or Toy(), Tokenizer.read(tokenizer)
    train, held_out = read_pack(pack, "train"), read_pack(pack, "validation")
    gaps = [gap for gap in draw_gaps(held_out, reader, toy.num_lines, toy.shape.context) if as_row(gap, reader, toy)]
    for seed in seeds:
        missing = [name for name in names if (name, seed) not in {(row.variant, row.seed) for row in read(out)}]
        if not missing:
            continue
        start = _train_causal(_new_model(toy, reader, seed), train, toy, seed)
        for name in missing:
            started, model = time.process_time(), copy.deepcopy(start)
            run_variant(VARIANTS[name], model, train, reader, toy, seed)
            cpu_s = time.process_time() - started
            judged = judge(model, VARIANTS[name], reader, pack, gaps, toy)
            outcome = Outcome(name, seed, cpu_s, asdict(toy), judged)
            with out.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(outcome)) + "\n")
    return read(out)


def read(path: Path) -> list[Outcome]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Outcome(**json.loads(line)) for line in lines]


def run_variant(variant: Variant, model: Embedded, pack: Pack, tokenizer: Tokenizer, toy: Toy, seed: int) -> None:
    shape, total = replace(toy.shape, copies=variant.copies), toy.causal_steps + toy.steps
    num_plain = max(0, round(total * variant.plain) - toy.causal_steps)
    steps = round((toy.steps - num_plain) * toy.shape.computed / shape.computed)
    trainee = _Trainee(model, toy)
    for step in range(num_plain):
        trainee.read(pack, (seed, step, 2), step / (10 * num_plain), step)
    for step in range(steps):
        rng = np.random.default_rng((seed, step))
        examples = [draw_example(pack, tokenizer, shape, rng) for _ in range(toy.rows)]
        batch = to_device(collate(examples, shape, Noise(), rng), CPU)
        trainee.update(step, step / steps, span_loss(trainee.computed, batch).total)


class _Trainee(Rounding):
    def __init__(self, model: Embedded, toy: Toy) -> None:
        super().__init__(model, toy.bf16)
        self.toy, self.optimizers = toy, make_optimizers(model, MUON_LR, ADAM_LR, self.dtype)
        self.round()

    def read(self, pack: Pack, seed: tuple[int, ...], elapsed: float, step: int) -> None:
        """A step of plain causal rows."""
        rows = draw_stream(pack, self.toy.shape, self.toy.rows, np.random.default_rng(seed))
        self.update(step, elapsed, causal_loss(self.computed, torch.from_numpy(rows)).total)

    def update(self, step: int, elapsed: float, loss: Tensor) -> None:
        set_rates(self.optimizers, rate_factor(step, elapsed, warmup_steps=20, cooldown=0.3))
        self.optimizers[0].param_groups[0]["momentum"] = momentum_at(step)
        loss.backward()  # type: ignore[no-untyped-call]
        self.collect()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.round()


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
    trainee = _Trainee(model, toy)
    for step in range(toy.causal_steps):
        trainee.read(pack, (seed, step, 1), step / (10 * toy.causal_steps), step)
    return model


def as_row(gap: Gap, tokenizer: Tokenizer, toy: Toy) -> Example | None:
    start = len(gap.prefix)
    text, span = gap.prefix + gap.middle + gap.suffix, (start, start + len(gap.middle))
    return make_example(gap.language, text, [span], tokenizer, toy.shape)


def judge(
    model: Embedded, variant: Variant, tokenizer: Tokenizer, pack: Path, gaps: Sequence[Gap], toy: Toy
) -> dict[str, list[float]]:
    """Of every line, by measure: `bytes`, nats, and what the engine's own greedy fill is like.

    `read`: nats from the left, END and so the length included. `chain`, `bound`: nats of masked tokens given their
    number, settled from the left, and in any order as a bound; `length`: what that number costs besides, by the head
    refitted as for shipping, and `chance` by how often it is true of these very lines. `exact`, `similar`, and `near`
    (a length within a quarter of the true one) by how the engine finds the length; no experts.
    """
    found: dict[str, list[float]] = defaultdict(list)
    examples = [example for gap in gaps if (example := as_row(gap, tokenizer, toy)) is not None]
    found["bytes"] = [float(len(gap.middle.encode())) for gap in gaps]
    is_masked, reads = "masked" in variant.copies, tuple(copy for copy in variant.copies if copy != "masked")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model.config = replace(model.config, causal="causal" in reads)
        checkpoint.save(folder, model, tokenizer)
        if is_masked:
            refit(folder, pack, toy.num_lines * 4)
        runtime = load_runtime(scratch, "cpu", dtype="fp32")
    if reads:
        found["read"] = _read_nats(model, reads, examples, toy)
    if is_masked:
        rng, judged = np.random.default_rng(7), runtime.loaded.model
        found["chain"] = [chain_nats(judged, example) for example in examples]
        found["bound"] = [gap_nats(judged, example, rng, 4) for example in examples]
        scored = [length_scores(judged, example) for example in examples]
        widths = np.diff(LENGTH_BUCKETS, prepend=-1)
        shares = np.bincount([bucket for _, bucket in scored], minlength=len(widths)) / len(scored)
        found["length"] = [float(np.log(widths[true]) - scores.log_softmax(0)[true]) for scores, true in scored]
        found["chance"] = [float(np.log(widths[true] / shares[true])) for _, true in scored]
    for policy in ["learned"] * is_masked + ["drafted-greedy"] * ("causal" in reads):
        for gap in gaps:
            text = fill(runtime, gap, "own", policy)
            found[f"exact {policy}"].append(float(text == gap.middle))
            found[f"similar {policy}"].append(likeness(text, gap.middle))
            found[f"near {policy}"].append(float(is_near(tokenizer, text, gap)))
    return {name: [round(value, 4) for value in values] for name, values in found.items()}


@torch.no_grad()
def _read_nats(model: Embedded, copies: tuple[Copy, ...], examples: list[Example], toy: Toy) -> list[float]:
    """The nats of whole gaps from the left, END included, of every row."""
    shape, found = replace(toy.shape, copies=copies), []
    for first in range(0, len(examples), toy.rows):
        part = examples[first : first + toy.rows]
        batch = to_device(collate(part, shape, Noise(), np.random.default_rng(17)), CPU)
        chosen = batch.weights > 0
        logits = model.transformer.logits(span_hidden(model, batch)[1][chosen])
        nats = F.cross_entropy(logits, batch.targets[chosen], reduction="none").double()
        found += torch.zeros(len(part), dtype=torch.double).index_add(0, chosen.nonzero()[:, 0], nats).tolist()
    return found


def table(outcomes: list[Outcome]) -> str:
    """Markdown: what each variant costs and fills, by the way it is read, and its difference to the recipe.

    Means over seeds with those of each; intervals are 95 %, bootstrapped over lines, of the seeds' mean.
    """
    by_variant: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_variant[outcome.variant].append(outcome)
    titles = ("variant", "read", "bits a byte", "to the recipe", "its length", "exact", "near", "similar", "CPU s")
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    recipe = {outcome.seed: outcome for outcome in by_variant["recipe"]}
    for name, rows in by_variant.items():
        for way, policy in (("masked", "learned"), ("from the left", "drafted-greedy")):
            if not all(_can(row, way) for row in rows):
                continue
            paired = [row for row in rows if row.seed in recipe]
            cells = [name, way, _by_seed([_bits(row, way) for row in rows]), _against(paired, recipe, way)]
            cells.append("" if way != "masked" else _by_seed([_bits(row, "length") for row in rows]))
            for measure in ("exact", "near", "similar"):
                found = [row.lines.get(f"{measure} {policy}") for row in rows]
                cells.append(
                    "" if None in found else _by_seed([100 * float(np.mean(each)) for each in found if each], 1)
                )
            cells.append(_by_seed([row.cpu_s for row in rows], 0))
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _can(outcome: Outcome, way: str) -> bool:
    return ("chain" if way == "masked" else "read") in outcome.lines


def _nats(outcome: Outcome, way: str) -> NDArray[np.float64]:
    """Of every line with its length. Masked tokens in the order, and the length by the means, that cost less."""
    lines = {name: np.array(values) for name, values in outcome.lines.items()}
    if way == "from the left":
        return lines["read"]
    length = min(lines["length"], lines["chance"], key=np.sum)
    return length if way == "length" else min(lines["chain"], lines["bound"], key=np.sum) + length


def _bits(outcome: Outcome, way: str) -> float:
    return float(_nats(outcome, way).sum() / np.log(2) / np.sum(outcome.lines["bytes"]))


def _by_seed(values: list[float], digits: int = 3) -> str:
    each = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{np.mean(values):.{digits}f} ({each})" if len(values) > 1 else each


def _against(rows: list[Outcome], recipe: dict[int, Outcome], way: str) -> str:
    """The mean difference in bits a byte to the recipe read from the left, its interval over lines, the seeds' own."""
    if not rows or (rows[0].variant, way) == ("recipe", "from the left"):
        return ""
    nats = np.stack([_nats(row, way) - _nats(recipe[row.seed], "from the left") for row in rows]) / np.log(2)
    num_bytes = np.array(rows[0].lines["bytes"])
    drawn = np.random.default_rng(0).integers(len(num_bytes), size=(RESAMPLES, len(num_bytes)))
    means = nats.mean(axis=0)[drawn].sum(axis=1) / num_bytes[drawn].sum(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    seeds = ", ".join(f"{value:+.3f}" for value in nats.sum(axis=1) / num_bytes.sum())
    return f"{nats.mean(axis=0).sum() / num_bytes.sum():+.3f} ({low:+.3f} to {high:+.3f}; seeds {seeds})"
