"""What speeds the trainer up on a GPU changes nothing it computes: parts of any size, the compiled loss, the feed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from midfill_engine.families.embedded import Embedded
from midfill_engine.models.transformer import take
from midfill_engine.tokens.special import PAD
from midfill_engine.tokens.tokenizer import Tokenizer
from training.data.pack import read_pack
from training.data.rows import Batch, Noise, RowShape, collate, draw_example, draw_stream
from training.feed import cut, feed
from training.objective import TensorBatch, causal_loss, fused_nats, span_hidden, span_loss, sum_nats
from training.train import RunConfig, embedded_config

CPU = torch.device("cpu")
SHAPE = RowShape(context=64, gap=32, hole_span=32)
TOY = RunConfig(Path(), Path(), Path(), 0.0, dim=16, num_layers=1, num_heads=2, head_dim=8, mlp_dim=16)


@pytest.fixture
def model(tokenizer: Tokenizer) -> Embedded:
    made = Embedded(embedded_config(replace(TOY, context=64, gap=32, hole_span=32), tokenizer.vocab_size))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.3)
    return made


@pytest.fixture
def spans(pack_folder: Path, tokenizer: Tokenizer) -> Batch:
    pack, rng = read_pack(pack_folder, "train"), np.random.default_rng(3)
    return collate([draw_example(pack, tokenizer, SHAPE, rng) for _ in range(6)], SHAPE, Noise(), rng)


@pytest.fixture
def streams(pack_folder: Path) -> np.ndarray:  # type: ignore[type-arg]
    rows = draw_stream(read_pack(pack_folder, "train"), SHAPE, 6, np.random.default_rng(4))
    rows[0, 40:] = PAD  # a baseline's row that ends early
    return rows


def gradients(model: Embedded, batch: object, micro_rows: int) -> dict[str, Tensor]:
    model.zero_grad()
    for part in cut(batch, micro_rows, CPU):  # type: ignore[arg-type]
        is_span = isinstance(part, TensorBatch)
        losses = span_loss(model, part) if is_span else causal_loss(model, part.ids, part.num_targets)
        losses.total.backward()  # type: ignore[no-untyped-call]
    return {name: value.grad for name, value in model.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("kind", ["spans", "streams"])
def test_a_steps_gradient_is_the_same_in_parts_of_any_size(
    kind: str, model: Embedded, request: pytest.FixtureRequest
) -> None:
    batch = request.getfixturevalue(kind)
    if kind == "spans":
        assert len({(row > 0).sum() for row in batch.weights}) > 1, "rows must differ, or a mean of means would pass"
    whole = gradients(model, batch, 6)
    for micro_rows in (1, 2, 4):
        found = gradients(model, batch, micro_rows)
        assert found.keys() == whole.keys()
        for name, expected in whole.items():
            torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-6)


def test_what_the_last_layer_leaves_out_is_in_no_loss(model: Embedded, spans: Batch) -> None:
    """The states at edges and of gaps, and the gradients through them, are those of a pass over everything."""
    (part,), found = cut(spans, 6, CPU), []
    assert isinstance(part, TensorBatch)
    for only_edges in (False, True):
        model.zero_grad()
        context, gaps = span_hidden(model, part, only_edges)
        edges = context if only_edges else take(context, part.edges.flatten(1))
        filled = part.gap_ids != PAD
        (edges.cos().sum() + gaps[filled].sin().sum()).backward()  # type: ignore[no-untyped-call]
        found.append([edges, gaps[filled], *(value.grad for value in model.transformer.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_every_way_to_the_loss_has_its_value_and_gradients() -> None:
    torch.compiler.reset()
    compiled = torch.compile(sum_nats, dynamic=True, backend="aot_eager")
    head, found = torch.randn(50, 16, requires_grad=True), []
    for nats in (sum_nats, compiled, fused_nats):
        results: list[Tensor] = []
        for num_rows in (7, 2100):
            hidden = torch.arange(num_rows * 16.0).view(-1, 16).sin().requires_grad_()
            targets, weights = torch.arange(num_rows) % 50, torch.arange(num_rows) % 3 / num_rows
            loss = nats(hidden, targets, weights, head)
            results += [loss.detach(), *torch.autograd.grad(loss, (hidden, head))]
        found.append(results)
    for other in found[1:]:
        torch.testing.assert_close(found[0], other)


def test_the_feed_brings_every_batch_once_and_in_order(spans: Batch, streams: np.ndarray) -> None:  # type: ignore[type-arg]
    found = list(feed(iter([spans, streams]), 4, CPU))
    assert [(rows, len(parts)) for rows, parts in found] == [(6, 2), (6, 2)]
    joined = torch.cat([part.context_ids for part in found[0][1] if isinstance(part, TensorBatch)])
    assert torch.equal(joined, torch.from_numpy(spans.context_ids))
    assert sum(len(part.places) for part in found[0][1] if isinstance(part, TensorBatch)) == (spans.weights > 0).sum()
