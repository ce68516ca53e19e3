"""The comparison of decisions: each variant changes what it says and nothing else."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from midfill_engine.families.embedded import Embedded, lay_out
from midfill_engine.tokens.special import MASK, PAD
from midfill_engine.tokens.tokenizer import Tokenizer
from training.ablate import CPU, VARIANTS, Outcome, Toy, ablate, table
from training.data.pack import read_pack
from training.data.rows import Batch, Example, Noise, RowShape, collate, draw_example
from training.evaluate import chain_nats, gap_nats
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


def test_outcomes_are_kept_and_judged_by_whole_lines(pack_folder: Path, tmp_path: Path) -> None:
    toy = Toy(SHAPE, dim=32, num_heads=2, mlp_dim=64, rows=4, causal_steps=2, steps=2, num_lines=6, bf16=False)
    paths = pack_folder, pack_folder / "tokenizer.json", tmp_path / "out.jsonl"
    outcomes = ablate(*paths, range(1), VARIANTS, toy)
    assert [row.variant for row in outcomes] == list(VARIANTS)
    for row in outcomes:
        copies, found = VARIANTS[row.variant].copies, row.lines
        assert ("chain" in found) == ("masked" in copies) == ("exact learned" in found)
        assert ("read" in found) == (set(copies) != {"masked"})
        assert ("exact drafted-greedy" in found) == ("causal" in copies)
        assert {len(values) for values in found.values()} == {len(found["bytes"])}
        assert all(np.isfinite(values).all() for values in found.values())
    costs = [row.lines.get("read", row.lines.get("chain")) for row in outcomes]
    assert all(one != other for index, one in enumerate(costs) for other in costs[:index]), "each variant is another"
    assert ablate(*paths, range(1), VARIANTS, toy) == outcomes, "nothing is run twice"
    assert len(table(outcomes).splitlines()) == 2 + sum(
        ("chain" in row.lines) + ("read" in row.lines) for row in outcomes
    )


def test_a_chain_of_masks_is_what_its_steps_cost(model: Embedded, examples: list[Example]) -> None:
    """Token by token, each in a forward of its own; for one token it is the bound, too."""
    row = Example([[1, *range(20, 30)], [40, 41, 2]], [[50, 51, 52]])
    layout = lay_out([11, 3], [3], model.config.hole_span)
    context = torch.tensor([row.texts[0] + row.texts[1]])
    nats = 0.0
    with torch.no_grad():
        for place, token in enumerate(row.gaps[0]):
            ids = torch.tensor([row.gaps[0][:place] + [MASK] * (3 - place)])
            nats -= float(model.full(context, ids, layout)[0, place].log_softmax(dim=0)[token])
    assert chain_nats(model, row) == pytest.approx(nats, rel=1e-4)
    one = replace(row, gaps=[[50]])
    assert chain_nats(model, one) == pytest.approx(gap_nats(model, one, np.random.default_rng(0), 2), rel=1e-5)


def test_table_counts_the_length_and_compares_line_by_line() -> None:
    def outcome(name: str, seed: int, **lines: list[float]) -> Outcome:
        nats = {key: [value * math.log(2) for value in values] for key, values in lines.items()}
        return Outcome(name, seed, 1.0, {}, {"bytes": [4.0, 4.0], **nats})

    def masked(seed: int, length: float) -> Outcome:
        return outcome("two-masked", seed, chain=[4.0, 8.0], bound=[8.0, 8.0], length=[length] * 2, chance=[2.0, 2.0])

    rows = [
        outcome("recipe", 0, read=[4.0, 8.0]),
        outcome("recipe", 1, read=[4.0, 8.0]),
        masked(0, 1.0),
        masked(1, 5.0),
    ]
    lines = table(rows).splitlines()
    assert lines[2].startswith("| recipe | from the left | 1.500 (1.500, 1.500) |  |")
    masked_line = "| two-masked | masked | 1.875 (1.750, 2.000) | +0.375 (+0.375 to +0.375; seeds +0.250, +0.500) |"
    assert lines[3].startswith(masked_line + " 0.375 (0.250, 0.500) |")
