"""The comparison of decisions: each variant changes what it says and nothing else."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from midfill_engine.families.embedded import Embedded
from midfill_engine.tokens.special import MASK, PAD
from midfill_engine.tokens.tokenizer import Tokenizer
from training.ablate import (
    CPU,
    VARIANTS,
    Outcome,
    Toy,
    ablate,
    mask_share,
    table,
    true_positions,
)
from training.data.pack import read_pack
from training.data.rows import Batch, Example, Noise, RowShape, collate, draw_example
from training.objective import span_hidden, to_device

SHAPE = RowShape(context=96, gap=48, hole_span=64)


@pytest.fixture(scope="module")
def examples(pack_folder: Path, tokenizer: Tokenizer) -> list[Example]:
    rng, found = np.random.default_rng(4), []
    pack = read_pack(pack_folder, "train")
    while len(found) < 8:
        example = draw_example(pack, tokenizer, SHAPE, rng)
        if len(example.gaps) > 1:
            found.append(example)
    return found


@pytest.fixture
def batch(examples: list[Example]) -> Batch:
    return collate(examples, SHAPE, Noise(), np.random.default_rng(5))


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Embedded:
    from training.ablate import _new_model

    made = _new_model(Toy(shape=SHAPE, dim=32, num_heads=2, mlp_dim=64), tokenizer, seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=parameter.shape[-1] ** -0.5, generator=generator)
    return made


def test_true_positions_count_the_document(batch: Batch) -> None:
    placed = true_positions(batch, SHAPE.hole_span)
    for row in range(len(batch.targets)):
        num_context, num_gap = (batch.context_ids[row] != PAD).sum(), (batch.gap_ids[row, 0] != PAD).sum()
        context, gap = placed.context_positions[row, :num_context], placed.gap_positions[row, 0, 0, :num_gap]
        assert sorted([*context, *gap]) == list(range(num_context + num_gap))
        assert (np.diff(context) > 0).all() and (np.diff(gap) > 0).all()
    assert (placed.gap_positions[:, :, 0] == placed.gap_positions[:, :, 1]).all()


def test_who_sees_whom(model: Embedded, batch: Batch) -> None:
    """A change in the last gap of a row reaches the first gap, and not the context."""
    changed = batch.gap_ids.copy()
    last = np.array([np.flatnonzero(row[0] != PAD)[-1] for row in batch.gap_ids])
    rows = np.arange(len(last))
    changed[rows, :, last] = 20
    tensors, others = to_device(batch, CPU), to_device(replace(batch, gap_ids=changed), CPU)
    with torch.no_grad():
        (context, gaps), (context_after, gaps_after) = span_hidden(model, tensors), span_hidden(model, others)
    filled = tensors.context_ids != PAD
    assert not torch.allclose(gaps[:, :, 0], gaps_after[:, :, 0], atol=1e-6)
    assert torch.allclose(context[filled], context_after[filled], atol=1e-6)


def test_share_of_masks(batch: Batch) -> None:
    rng, present = np.random.default_rng(0), batch.gap_ids != PAD
    assert (mask_share(batch, 1.0, rng).gap_ids[present] == MASK).all()
    part = mask_share(batch, 0.3, rng)
    assert 0.2 < (part.gap_ids[present] == MASK).mean() < 0.4
    assert ((part.weights > 0) == (part.gap_ids == MASK)).all() and (part.gap_ids[~present] == PAD).all()


def test_outcomes_are_kept_and_compared(pack_folder: Path, tmp_path: Path) -> None:
    toy = Toy(SHAPE, dim=32, num_heads=2, mlp_dim=64, rows=4, causal_steps=2, steps=2, held_out=4)
    paths = pack_folder, pack_folder / "tokenizer.json", tmp_path / "out.jsonl"
    outcomes = ablate(*paths, range(1), VARIANTS, toy)
    assert [row.variant for row in outcomes] == list(VARIANTS)
    first = outcomes[0].losses
    for row in outcomes[1:]:
        assert all(np.isfinite(list(row.losses.values()))) and row.losses.keys() <= first.keys()
        assert row.losses != first, row.variant
    assert ablate(*paths, range(1), VARIANTS, toy) == outcomes, "nothing is run twice"


def test_table_gives_differences_by_seed() -> None:
    columns = [f"{kind} {share}" for kind in ("line", "several", "body") for share in (1.0, 0.3)]

    def outcome(name: str, seed: int, nats: float) -> Outcome:
        return Outcome(name, seed, dict.fromkeys(columns, nats), 2.5, 0.0, 0.0, 1.0)

    rows = [outcome("recipe", 0, 5.0), outcome("recipe", 1, 6.0), outcome("hybrid", 0, 5.2), outcome("hybrid", 1, 6.0)]
    lines = table([*rows, outcome("hybrid", 2, 9.0)]).splitlines()
    assert lines[2].startswith("| recipe | 2 | 5.500 |") and len(lines) == 4
    assert lines[3].startswith("| hybrid | 2 | +0.100 (+0.000 to +0.200) |")
