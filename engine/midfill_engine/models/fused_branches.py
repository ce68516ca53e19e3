"""Runs prompts, trees and beams with Midfill's GPU kernels, with one captured graph for each bucket of rows.

Kernels read keys and values where the passes keep them, so no past is copied. Two copies take a step's work to the
device: one its rows and work list, one the bits of which keys each row sees.
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

GROWTH: Final = 2  # a step that had no room for some work is created anew, with room for so many times that work


class BranchRunner:
    """Runs passes with stacks, of at most `sizes.buckets[-1]` rows together, in one step of the smallest bucket. Work
    lists tell how far the keys are from the address of `_anchor`.
    """

    def __init__(self, model: FusedModel, sizes: Sizes) -> None:
        self._model, self._sizes = model, sizes
        self._anchor = torch.zeros(UNIT_BYTES, dtype=model.embedding.dtype, device=model.embedding.device)
        self._steps: dict[int, BranchStep] = {}

    def run(self, passes: list[Pass]) -> list[Result]:
        """The states of the wanted rows; writes the keys and values of the passes into their rooms."""
        num_rows = sum(len(pass_.ids) for pass_ in passes)
        bucket = self._sizes.bucket_of(num_rows)
        heads = (self._model.heads.query, self._model.heads.key_value)
        sequences = [self._sequence_of(pass_) for pass_ in passes]
        schedule = schedule_branched(sequences, heads, torch.device("cpu"), num_rows=bucket)
        ids, positions = torch.zeros(2, bucket, dtype=torch.int64)
        ids[:num_rows] = torch.cat([pass_.ids for pass_ in passes])
        positions[:num_rows] = torch.cat([pass_.positions for pass_ in passes])
        step = self._open_step(bucket, schedule)
        states = step.run(ids, positions, schedule)
        wanted: list[Tensor] = []
        start = 0
        for pass_ in passes:
            assert pass_.stacks is not None
            end = start + len(pass_.ids)
            if pass_.stacks.room is not None:
                pass_.stacks.room.copy_(step.own[:, :, start:end].transpose(2, 3))
            wanted.append(start + pass_.wanted)
            start = end
        wanted_states = states[to_device(torch.cat(wanted), states.device)]
        return [Result(hidden, None, None) for hidden in torch.split(wanted_states, list(map(len, wanted)))]

    def graph_of(self, num_rows: int) -> torch.cuda.CUDAGraph | None:
        """The graph for `num_rows` rows, which a replay runs with its last work; None if none is captured."""
        step = self._steps.get(self._sizes.bucket_of(num_rows))
        if step is None or step.captured is None:
            return None
        graph, _ = step.captured
        return graph

    def free_memory(self) -> None:
        """Drops graphs; the next steps create them again."""
        self._steps.clear()

    def _sequence_of(self, pass_: Pass) -> BranchedSequence:
        assert pass_.stacks is not None and pass_.attention_mask is not None and not pass_.keeps
        past = StackPlace.of(pass_.stacks.past, self._anchor)
        tail = StackPlace.of(pass_.stacks.tail, self._anchor)
        return BranchedSequence(len(pass_.ids), past, tail, pass_.attention_mask)

    def _open_step(self, bucket: int, schedule: CachedSchedule) -> "BranchStep":
        """The step of a bucket; a new one if there is none, or if it has no room for the work of `schedule`."""
        step = self._steps.get(bucket)
        if step is None or not step.schedule.holds(schedule):
            self._steps.pop(bucket, None)
            step = BranchStep(self._model, self._anchor, bucket, schedule, self._sizes)
            self._steps[bucket] = step
        return step


class BranchStep:
    """A step over `bucket` rows on fixed memory, with room for the work of `schedule`: captured as a graph on a GPU,
    called directly elsewhere. `own` [L, 2, bucket, K, E] holds the keys and values of its rows after a run.
    """

    def __init__(self, model: FusedModel, anchor: Tensor, bucket: int, schedule: CachedSchedule, sizes: Sizes) -> None:
        assert schedule.bits is not None
        num_items = max(sizes.runs * bucket, GROWTH * len(schedule.items))
        lengths = [bucket, bucket, 1, 3 * bucket, BRANCHED_FIELDS * num_items]
        self._work = torch.zeros(sum(lengths), dtype=torch.int64, device=anchor.device)
        self._ids, self._positions, count, row_parts, items = torch.split(self._work, lengths)
        bits = torch.zeros(
            max(sizes.words * bucket, GROWTH * len(schedule.bits)), dtype=torch.int64, device=anchor.device
        )
        num_parts = max(sizes.runs * bucket, GROWTH * schedule.num_parts)
        self.schedule = CachedSchedule(items.view(-1, BRANCHED_FIELDS), count, row_parts.view(-1, 3), num_parts, bits)
        self.own = make_room(model.config, bucket, model.embedding)
        self._model, self._anchor = model, anchor
        self.captured: tuple[torch.cuda.CUDAGraph, Tensor] | None = None

    def run(self, ids: Tensor, positions: Tensor, schedule: CachedSchedule) -> Tensor:
        """The normed states [bucket, D], which the next run overwrites. All arguments are on the CPU."""
        assert schedule.bits is not None and self.schedule.bits is not None
        work = torch.cat((ids, positions, schedule.count, schedule.row_parts.flatten(), schedule.items.flatten()))
        copy_to_start(work, self._work)
        copy_to_start(schedule.bits, self.schedule.bits)
        if not self._work.is_cuda:
            return self._compute()
        if self.captured is None:
            self.captured = capture_graph(self._compute)
        graph, states = self.captured
        graph.replay()
        return states

    def _compute(self) -> Tensor:
        config = self._model.config
        tables = rotary_tables(self._positions, config.rotary_dim, config.rope_base)
        return self._model.hidden(self._ids, Rows(tables, self.schedule, self.own, self._anchor))


def unstack(pass_: Pass) -> Pass:
    """The pass for torch, with copies of its stacks in `past`. It keeps its own keys and values if it has a room."""
    stacks = pass_.stacks
    assert stacks is not None and pass_.attention_mask is not None
    block = stacks.past
    if stacks.tail is not None:
        block = torch.cat((stacks.past, stacks.tail), dim=3)
    past = [(layer[0][None], layer[1][None]) for layer in block]
    attention_mask = F.pad(pass_.attention_mask, (stacks.past.shape[3], 0), value=True)
    return replace(pass_, past=past, attention_mask=attention_mask, stacks=None, keeps=stacks.room is not None)


def write_to_room(pass_: Pass, result: Result) -> Result:
    """Moves the keys and values of the unstacked pass's `result` into the room of `pass_`, if there is one."""
    assert pass_.stacks is not None
    if pass_.stacks.room is not None:
        own: KeyValues = result.own or []
        pass_.stacks.room.copy_(torch.stack([torch.cat(pair) for pair in own]))
    return replace(result, own=None)


def copy_to_start(values: Tensor, memory: Tensor) -> None:
    """Copies `values` from the CPU to the start of `memory` on a device, without waiting for the device."""
    memory[: len(values)].copy_(pin(values, memory.device), non_blocking=True)


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """A copy of `values` on the device, without waiting for it."""
    return pin(values, device).to(device, non_blocking=True)


def pin(values: Tensor, device: torch.device) -> Tensor:
    """`values` in CPU memory that a GPU can read by itself, so that a copy need not be waited for."""
    return values.pin_memory() if device.type == "cuda" else values
