"""One context and many holes in one pass: the losses of the holes one by one, whatever stands beside them."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from training import model
from training.batches import run_batch
from training.data.cutter import Cutter
from training.data.loader import pack_all
from training.data.pack import read_pack
from training.data.packing import Packed, pack_rows, size_of, stack_rows
from training.data.rows import Row, RowShape, draw_row
from training.model import Base

SHAPES = [
    RowShape("tree", 500),
    RowShape("tree", 500, sentinels=True),
    RowShape("tree", 500, sentinels=True, masked=True),
]


@pytest.fixture(scope="module")
def learner(base: Path) -> Base:
    return Base.open(str(base), 0, torch.device("cpu"), torch.float32)


def draw_rows(pack_folder: Path, cutter: Cutter, shape: RowShape, count: int) -> list[Row]:
    rng, pack = np.random.default_rng(1), read_pack(pack_folder, "train")
    return [draw_row(pack, cutter, shape, rng) for _ in range(count)]


def pack(rows: list[Row], cutter: Cutter, shape: RowShape, length: int | None = None) -> Packed:
    return pack_rows(rows, np.random.default_rng(2), cutter.sentinels[-1] if shape.masked else None, length)


@torch.no_grad()
def nats_of(learner: Base, packed: Packed) -> Tensor:
    return learner.nats(packed)[packed.weights > 0]


@torch.no_grad()
def test_branches_of_a_tree_cost_what_they_cost_one_by_one(learner: Base, pack_folder: Path, cutter: Cutter) -> None:
    for shape in SHAPES[:2]:
        (row,) = draw_rows(pack_folder, cutter, shape, 1)
        assert len(row.branches) > 2
        alone = [nats_of(learner, pack_rows([Row(row.context, row.weights)], np.random.default_rng(0)))]
        for branch in row.branches:
            ids = row.context[: branch.start] + branch.lead + branch.ids
            plain = stack_rows([Row(ids, [1.0] * len(ids))])
            assert plain.is_plain
            alone.append(nats_of(learner, plain)[-len(branch.ids) :])
        found = nats_of(learner, pack([row], cutter, shape))
        torch.testing.assert_close(found, torch.cat(alone), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_masked_copy_sees_its_lead_and_itself_alone(learner: Base, pack_folder: Path, cutter: Cutter) -> None:
    """Its states are those of the copy behind the lead, without the causal copy; no causal token sees a masked one."""
    shape = SHAPES[2]
    (row,) = draw_rows(pack_folder, cutter, shape, 1)
    branch, mask_id = row.branches[0], cutter.sentinels[-1]
    packed = pack([Row(row.context, row.weights, (branch,))], cutter, shape)
    copy = packed.ids[-len(branch.ids) :]
    assert (copy == mask_id).any()
    ids = torch.tensor([*row.context[: branch.start], *branch.lead, *copy.tolist()])
    size, places = len(ids), torch.arange(len(ids))
    seen = (places[:, None] >= places[None]) | (places[:, None] >= size - len(copy))
    states = run_batch(learner.transformer, ids[None], places[None], seen)
    asked = packed.asked >= len(packed.ids) - len(copy)
    torch.testing.assert_close(learner.states(packed)[asked], states[0, -len(copy) :][copy == mask_id])
    without = pack_rows([Row(row.context, row.weights, (branch,))], np.random.default_rng(0))
    torch.testing.assert_close(learner.nats(packed)[~asked], learner.nats(without))


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_beside_each_other_cost_what_they_cost_alone(
    shape: RowShape, learner: Base, pack_folder: Path, cutter: Cutter
) -> None:
    rows = draw_rows(pack_folder, cutter, RowShape("tree", 500, sentinels=shape.sentinels), 3)
    length = sum(size_of(row, False) for row in rows) + 17
    alone = torch.cat([nats_of(learner, pack_rows([row], np.random.default_rng(0))) for row in rows])
    packed = pack_rows(rows, np.random.default_rng(0), None, length)
    assert len(packed.ids) == length == len(packed.asked)
    torch.testing.assert_close(nats_of(learner, packed), alone, rtol=1e-4, atol=1e-4)


def test_rows_side_by_side_cost_what_they_cost_in_one_line(learner: Base, pack_folder: Path, cutter: Cutter) -> None:
    rows = draw_rows(pack_folder, cutter, RowShape(num_tokens=300), 5)
    alone = [nats_of(learner, pack_rows([row], np.random.default_rng(0))) for row in rows]
    packed = stack_rows(rows)
    assert packed.ids.shape[1] > min(len(row.context) for row in rows), "rows of one length show nothing"
    torch.testing.assert_close(nats_of(learner, packed), torch.cat(alone), rtol=1e-4, atol=1e-4)
    assert packed.weights.tolist() == pytest.approx([weight for row in rows for weight in row.weights[1:]])


def test_tables_of_rows_side_by_side_hold_no_more_than_they_may(pack_folder: Path, cutter: Cutter) -> None:
    rows = draw_rows(pack_folder, cutter, RowShape(num_tokens=300), 30)
    packs = pack_all(rows, None, 1024, np.random.default_rng(0))
    assert len(packs) > 1 and max(len(packed.ids) for packed in packs) > 1
    assert all(packed.ids.numel() <= 1024 for packed in packs) and sum(len(packed.ids) for packed in packs) == 30


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_a_block_mask_is_the_dense_mask(
    shape: RowShape, learner: Base, pack_folder: Path, cutter: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU computes: FlexAttention, uncompiled here, over the same tables."""
    rows = draw_rows(pack_folder, cutter, replace(shape, num_tokens=200), 2)
    packed = pack(rows, cutter, shape, sum(size_of(row, shape.masked) for row in rows) + 40)
    dense = learner.states(packed)
    blocks = model.block_mask(packed)
    monkeypatch.setattr(Packed, "mask", lambda self: blocks)
    with warnings.catch_warnings(action="ignore"):  # it says that it is not compiled
        torch.testing.assert_close(learner.states(packed), dense, rtol=1e-4, atol=1e-4)


def test_a_hole_never_changes_another(learner: Base, pack_folder: Path, cutter: Cutter) -> None:
    shape = SHAPES[1]
    (row,) = draw_rows(pack_folder, cutter, shape, 1)
    packed = pack([row], cutter, shape)
    is_first = packed.branches[packed.asked + 1] == 1
    with torch.no_grad():
        before = learner.nats(packed)
        packed.ids[packed.branches == 1] = 65
        after = learner.nats(packed)
    assert torch.equal(before[~is_first], after[~is_first]) and not torch.equal(before[is_first], after[is_first])
