"""Steps of prompts, trees and beams through the fused transformer, each bucket of rows as one captured graph.

Keys and values are read where the passes keep them, so no past is copied. Work reaches a graph by two copies: its rows
and work list, and the bits of what rows see.
"""

from dataclasses import replace
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.models.fused import FusedModel, Rows, Sizes, make_room
from midfill_engine.models.packed import Pass, Result
from midfill_engine.models.transformer import KeyValues
from midfill_kernels.cached_attention import (
    BRANCHED_FIELDS,
    UNIT_BYTES,
    BranchedSequence,
    CachedSchedule,
    StackPlace,
    schedule_branched,
)
from midfill_kernels.launch import capture_graph
from midfill_kernels.rotary import rotary_tables

MORE: Final = 2  # a graph that had no room is captured again, for so many times the work


class BranchRunner:
    """Runs passes with stacks, of at most `sizes.buckets[-1]` rows together, in one step of the smallest bucket."""

    def __init__(self, model: FusedModel, sizes: Sizes) -> None:
        self._model, self._sizes = model, sizes
        self._anchor = torch.zeros(UNIT_BYTES, dtype=model.embedding.dtype, device=model.embedding.device)
        self._steps: dict[int, BranchStep] = {}

    def run(self, passes: list[Pass]) -> list[Result]:
        """The states of the wanted rows; writes the keys and values of the passes into their rooms."""
        num_rows = sum(len(step.ids) for step in passes)
        bucket = self._sizes.bucket_of(num_rows)
        heads = (self._model.heads.query, self._model.heads.key_value)
        sequences = [self._sequence(step) for step in passes]
        schedule = schedule_branched(sequences, heads, torch.device("cpu"), num_rows=bucket)
        ids, positions = torch.zeros(2, bucket, dtype=torch.int64)
        ids[:num_rows] = torch.cat([step.ids for step in passes])
        positions[:num_rows] = torch.cat([step.positions for step in passes])
        step = self._open_step(bucket, schedule)
        states = step.run(ids, positions, schedule)
        rows: list[Tensor] = []
        start = 0
        for asked in passes:
            assert asked.stacks is not None
            end = start + len(asked.ids)
            if asked.stacks.room is not None:
                asked.stacks.room.copy_(step.own[:, :, start:end].transpose(2, 3))
            rows.append(start + asked.wanted)
            start = end
        picked = states[send(torch.cat(rows), states.device)]
        return [Result(hidden, None, None) for hidden in torch.split(picked, list(map(len, rows)))]

    def graph_of(self, num_rows: int) -> torch.cuda.CUDAGraph | None:
        """The graph of the bucket of so many rows, with its last work; None if none is captured."""
        step = self._steps.get(self._sizes.bucket_of(num_rows))
        if step is None or step.captured is None:
            return None
        graph, _ = step.captured
        return graph

    def free_memory(self) -> None:
        """Drops graphs; the next steps create them again."""
        self._steps.clear()

    def _sequence(self, step: Pass) -> BranchedSequence:
        assert step.stacks is not None and step.mask is not None and not step.keeps
        past = StackPlace.of(step.stacks.past, self._anchor)
        tail = StackPlace.of(step.stacks.tail, self._anchor)
        return BranchedSequence(len(step.ids), past, tail, step.mask)

    def _open_step(self, bucket: int, schedule: CachedSchedule) -> "BranchStep":
        """The step of a bucket; a new one if the known one has no room for the work."""
        known = self._steps.get(bucket)
        if known is None or not known.schedule.holds(schedule):
            self._steps.pop(bucket, None)
            self._steps[bucket] = known = BranchStep(self._model, self._anchor, bucket, schedule, self._sizes)
        return known


class BranchStep:
    """A step over `bucket` rows on fixed memory, with room for `schedule`: captured as a graph on a GPU, called
    directly elsewhere. `own` [L, 2, bucket, K, E] has the keys and values of its rows.
    """

    def __init__(self, model: FusedModel, anchor: Tensor, bucket: int, schedule: CachedSchedule, sizes: Sizes) -> None:
        assert schedule.bits is not None
        num_items = max(sizes.runs * bucket, MORE * len(schedule.items))
        lengths = [bucket, bucket, 1, 3 * bucket, BRANCHED_FIELDS * num_items]
        self._table = torch.zeros(sum(lengths), dtype=torch.int64, device=anchor.device)
        self._ids, self._positions, count, row_parts, items = torch.split(self._table, lengths)
        bits = torch.zeros(
            max(sizes.words * bucket, MORE * len(schedule.bits)), dtype=torch.int64, device=anchor.device
        )
        num_parts = max(sizes.runs * bucket, MORE * schedule.num_parts)
        self.schedule = CachedSchedule(items.view(-1, BRANCHED_FIELDS), count, row_parts.view(-1, 3), num_parts, bits)
        self.own = make_room(model.config, bucket, model.embedding)
        self._model, self._anchor = model, anchor
        self.captured: tuple[torch.cuda.CUDAGraph, Tensor] | None = None

    def run(self, ids: Tensor, positions: Tensor, schedule: CachedSchedule) -> Tensor:
        """Normed states [bucket, D], which the next run overwrites; all arguments are on the CPU."""
        assert schedule.bits is not None and self.schedule.bits is not None
        work = torch.cat((ids, positions, schedule.count, schedule.row_parts.flatten(), schedule.items.flatten()))
        fill(self._table, work)
        fill(self.schedule.bits, schedule.bits)
        if not self._table.is_cuda:
            return self._compute()
        if self.captured is None:
            self.captured = capture_graph(self._compute)
        graph, states = self.captured
        graph.replay()
        return states

    def _compute(self) -> Tensor:
        config = self._model.config
        tables = rotary_tables(self._positions, config.head_dim, config.rope_base)
        return self._model.hidden(self._ids, Rows(tables, self.schedule, self.own, self._anchor))


def unstacked(step: Pass) -> Pass:
    """The pass with copies of its keys and values in torch's layout. It returns its own if they are to be kept."""
    stacks = step.stacks
    assert stacks is not None and step.mask is not None
    block = stacks.past
    if stacks.tail is not None:
        block = torch.cat((stacks.past, stacks.tail), dim=3)
    past = [(layer[0][None], layer[1][None]) for layer in block]
    mask = F.pad(step.mask, (stacks.past.shape[3], 0), value=True)
    return replace(step, past=past, mask=mask, stacks=None, keeps=stacks.room is not None)


def put_away(step: Pass, result: Result) -> Result:
    """The result of the unstacked pass as that of `step`: its keys and values are in the room."""
    assert step.stacks is not None
    if step.stacks.room is not None:
        own: KeyValues = result.own or []
        step.stacks.room.copy_(torch.stack([torch.cat(pair) for pair in own]))
    return replace(result, own=None)


def fill(memory: Tensor, numbers: Tensor) -> None:
    """Copies CPU numbers to the beginning of memory on a device, without waiting for it."""
    memory[: len(numbers)].copy_(pinned(numbers, memory.device), non_blocking=True)


def send(numbers: Tensor, device: torch.device) -> Tensor:
    """CPU numbers on the device, without waiting for it."""
    return pinned(numbers, device).to(device, non_blocking=True)


def pinned(numbers: Tensor, device: torch.device) -> Tensor:
    """CPU numbers in memory that a GPU copies from by itself."""
    return numbers.pin_memory() if device.type == "cuda" else numbers
