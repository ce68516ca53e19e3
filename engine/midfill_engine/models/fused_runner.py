"""Runs the steps of holes through the fused transformer, as one captured graph, and longer passes through torch.

A pass's length alone selects the way, and kernels compute every row alone, so results never depend on other passes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from operator import is_
from typing import Final

import numpy as np
import torch
from torch import Tensor

from midfill_engine.groups import split
from midfill_engine.models.choice import Choice, Chosen, check
from midfill_engine.models.fused import FusedModel, Rows, Sizes, make_room, pack_transformer
from midfill_engine.models.fused_branches import BranchRunner, put_away, unstacked
from midfill_engine.models.operators import OperatorsError, TorchOperators
from midfill_engine.models.packed import Pass, Result, Stacks, choose_packed, run_packed
from midfill_engine.models.sequence import Array
from midfill_engine.models.transformer import KeyValues, StackedKeys, Transformer, TransformerConfig
from midfill_kernels.cached_attention import CachedSchedule, CachedSequence, schedule_cached
from midfill_kernels.head import Rules, propose
from midfill_kernels.launch import capture_graph
from midfill_kernels.rotary import rotary_tables

CHECKED_ROWS: Final = 100  # of a prompt that is compared at the start
SCHEDULE_ROOM: Final = 4
INPUTS: Final = {"ids": torch.int64, "positions": torch.int64, "of_row": torch.int32}  # of each row
ALIGNMENT: Final = 16  # bytes
MAX_ERROR: Final = 0.05  # share of the states' norm, because bf16 rounds in another order


def why_not_fused(config: TransformerConfig) -> str | None:
    """The reason why the kernels cannot compute a transformer, or None."""
    if config.moe is not None:
        return "it is a mixture of experts"
    if config.mlp != "swiglu":
        return "its MLPs are not gated"
    if config.rotary_dim != config.head_dim or config.yarn is not None:
        return "it rotates a part of each head, or stretches positions"
    if config.head_dim & (config.head_dim - 1):
        return f"its heads are {config.head_dim} wide"
    return None


@dataclass(frozen=True)
class RuleNeeds:
    """The sets of tokens that a pass's rows choose from: distinct `codes` [N], and each row's index `of_row` [M].

    A code is the number of a rule, and a bit for each token that is barred. `choice` is None if the fused head does not
    choose for this pass.
    """

    choice: Choice | None
    codes: tuple[int, ...]
    of_row: Array

    @classmethod
    def of(cls, step: Pass) -> "RuleNeeds":
        choice = step.choice
        if choice is None or not choice.is_greedy or not len(step.wanted):
            return cls(None, (), np.zeros(0, dtype=np.int64))
        codes = choice.rule_of.numpy() << len(choice.barred)
        for bit, token in enumerate(sorted(choice.barred)):
            codes |= choice.barred[token].numpy().astype(np.int64) << bit
        if (codes == codes[0]).all():
            return cls(choice, (int(codes[0]),), np.zeros_like(codes))
        distinct, of_row = np.unique(codes, return_inverse=True)
        return cls(choice, tuple(distinct.tolist()), of_row)


class FusedRunner:
    """Answers passes as `run_packed` does. Long passes, passes with a mask but no stacks and passes with many rules go
    to `run_packed`; choices that need all logits use its head.
    """

    def __init__(self, transformer: Transformer, operators: TorchOperators, sizes: Sizes | None = None) -> None:
        self._transformer, self._operators, self._sizes = transformer, operators, sizes or Sizes()
        self._pool = Pool(pack_transformer(transformer, 0), self._sizes.slots)
        self.branches = BranchRunner(self._pool.model, self._sizes)
        self._steps: dict[int, Step] = {}
        self._device = transformer.embedding.weight.device
        # The next step mostly asks for the same.
        self._find_sets = lru_cache(self._sizes.rules)(self._make_sets)
        self._find_schedule = lru_cache(len(self._sizes.buckets))(self._make_schedule)

    def run(self, passes: list[Pass]) -> list[Result]:
        """Runs all passes; returns their results in order."""
        return self.launch(passes)()

    @torch.inference_mode()
    def launch(self, passes: list[Pass]) -> Callable[[], list[Result]]:
        """Begins to run all passes; what is returned waits for their results. Nothing else may be launched before."""
        sizes = self._sizes
        results: dict[int, Result] = {}
        needs = [RuleNeeds.of(step) for step in passes]
        theirs: list[int] = []
        ours: list[int] = []
        branches: list[int] = []
        for index, (step, need) in enumerate(zip(passes, needs, strict=True)):
            if len(step.ids) >= sizes.long_rows:
                theirs.append(index)
            elif step.stacks is not None:
                branches.append(index)
            elif step.mask is not None or len(need.codes) >= sizes.rules:
                theirs.append(index)
            else:
                ours.append(index)
        groups: list[list[int]] = []
        for part in split(ours, lambda index: len(passes[index].ids), sizes.buckets[-1]):
            groups += split(part, lambda index: len(needs[index].codes), sizes.rules - 1)
        last: list[int] = []
        read_last: Callable[[], list[Result]] = list
        for group in groups:
            results |= zip(last, read_last(), strict=True)
            last = group
            read_last = self._begin_step([passes[index] for index in group], [needs[index] for index in group])

        @torch.inference_mode()
        def wait() -> list[Result]:
            results.update(zip(last, read_last(), strict=True))
            if theirs:
                results.update(zip(theirs, self._run_torch([passes[index] for index in theirs]), strict=True))
            for part in split(branches, lambda index: len(passes[index].ids), sizes.buckets[-1]):
                steps = [passes[index] for index in part]
                branched = choose_packed(self._transformer, steps, self.branches.run(steps), self._operators)
                results.update(zip(part, branched, strict=True))
            return [results[index] for index in range(len(passes))]

        return wait

    def check(self, *, is_causal: bool = False) -> None:
        """Compares steps with torch's operators on this device: of rows that see each other; or, as a causal model's
        bf16 is twice as far from fp32 there, a prompt and a tree of two branches behind it. Raises OperatorsError.
        """
        config, weight = self._transformer.config, self._transformer.embedding.weight
        rows = torch.arange(self._sizes.long_rows - 1)
        ids = torch.randint(0, config.vocab_size, (len(rows),), generator=torch.Generator().manual_seed(0))
        if not is_causal:
            self._compare(Pass(ids, rows, rows))
            return
        few = rows[:CHECKED_ROWS]
        room = make_room(config, len(few), weight).transpose(2, 3).contiguous()
        earlier = torch.ones(len(few), len(few), dtype=torch.bool).tril()
        self._compare(Pass(ids[few], few, few, mask=earlier, stacks=Stacks(room[:, :, :, :0], room=room)))
        half = len(few) // 2
        tree = few[:half]
        branch = earlier[:half, :half] & (tree % 2 == tree[:, None] % 2)
        seen = torch.cat((torch.ones(half, len(few) - half, dtype=torch.bool), branch), dim=1)
        stacks = Stacks(room[:, :, :, :half], room[:, :, :, half:])
        self._compare(Pass(ids[-half:], len(few) + tree // 2, tree, mask=seen, stacks=stacks))

    def _compare(self, step: Pass) -> None:
        """Raises OperatorsError if the states of a pass differ from torch's."""
        reference = TorchOperators(self._device, self._transformer.embedding.weight.dtype)
        plain = step if step.stacks is None else unstacked(step)
        (ours,) = self.run([step])
        (theirs,) = run_packed(self._transformer, [plain], reference)
        expected = theirs.hidden.float()
        error = float((ours.hidden.float() - expected).norm() / expected.norm())
        if not error <= MAX_ERROR:
            raise OperatorsError(f"the kernels' results differ from torch's by {error:.0%} on this device")

    def free_memory(self) -> None:
        """Drops graphs and copies of keys; the next steps create them again."""
        self._steps.clear()
        self.branches.free_memory()
        self._pool.resize(0)

    def _run_torch(self, passes: list[Pass]) -> list[Result]:
        steps = [step if step.stacks is None else unstacked(step) for step in passes]
        results = run_packed(self._transformer, steps, self._operators)
        for index, step in enumerate(passes):
            if step.stacks is not None:
                results[index] = put_away(step, results[index])
        return results

    def _begin_step(self, passes: list[Pass], needs: list[RuleNeeds]) -> Callable[[], list[Result]]:
        """Launches all rows in one step of the smallest bucket; what is returned waits for their results."""
        lengths = [len(step.ids) for step in passes]
        ends = list(accumulate(lengths))
        bucket = self._sizes.bucket_of(ends[-1])
        pasts = [asked.past for asked in passes]
        places = zip(lengths, self._pool.place(pasts), map(length_of, pasts), strict=True)
        sequences = tuple(CachedSequence(*place) for place in places)
        wanted: list[Array] = []
        for asked, length, end in zip(passes, lengths, ends, strict=True):
            wanted.append(end - length + asked.wanted.numpy())
        schedule = self._find_schedule(sequences, bucket)
        step = self._open_step(bucket, schedule, sequences)
        sets, of_row = self._stack_rules(needs, wanted, ends[-1])
        ids = np.concatenate([asked.ids.numpy() for asked in passes])
        positions = np.concatenate([asked.positions.numpy() for asked in passes])
        step.launch(ids, positions, of_row, schedule, sets)
        return lambda: self._read_step(step, passes, needs, wanted, ends)

    def _read_step(
        self, step: "Step", passes: list[Pass], needs: list[RuleNeeds], wanted: list[Array], ends: list[int]
    ) -> list[Result]:
        """The results of a step that was launched, whose passes end at the rows `ends`."""
        numbers = step.read()
        kept: StackedKeys | None = None
        if any(asked.keeps for asked in passes):
            kept = keep_rows(step.rows.own, slice(0, ends[-1]))
        results: list[Result] = []
        for asked, need, rows, end in zip(passes, needs, wanted, ends, strict=True):
            own = None
            if kept is not None and asked.keeps:
                own = kept.take(slice(end - len(asked.ids), end))
            chosen = None
            if need.choice is not None:
                ids = torch.from_numpy(numbers[0, rows].astype(np.int64))
                confidence, entropy = torch.from_numpy(numbers[1:, rows])
                chosen = check(Chosen(ids, confidence, entropy))
            is_undecided = need.choice is None and asked.choice is not None
            shown = rows if asked.shows_states or is_undecided else rows[:0]
            results.append(Result(self._take_states(step.states, shown), own, chosen))
        return choose_packed(self._transformer, passes, results, self._operators)

    def _take_states(self, states: Tensor, rows: Array) -> Tensor:
        """A copy of the `rows` [M] of `states`, which the next step overwrites."""
        if not len(rows):
            return states[:0]
        if rows[-1] - rows[0] + 1 == len(rows) and (np.diff(rows) == 1).all():
            return states[rows[0] : rows[-1] + 1].clone()
        return states[torch.from_numpy(rows).to(self._device)]

    def _make_schedule(self, sequences: tuple[CachedSequence, ...], bucket: int) -> CachedSchedule:
        heads = (self._pool.model.heads.query, self._pool.model.heads.key_value)
        return schedule_cached(sequences, heads, torch.device("cpu"), num_rows=bucket)

    def _stack_rules(self, needs: list[RuleNeeds], wanted: list[Array], num_rows: int) -> tuple[list[Tensor], Array]:
        """The passes' sets of tokens [N, V], and for each of `num_rows` rows the number of its set; 0 allows all."""
        sets: list[Tensor] = []
        of_row = np.zeros(num_rows, dtype=np.int32)
        count = 1
        for need, rows in zip(needs, wanted, strict=True):
            if need.choice is not None:
                barred = tuple(sorted(need.choice.barred))
                sets.append(self._find_sets(need.choice.allowed, barred, need.codes))
                of_row[rows] = count + need.of_row
                count += len(need.codes)
        return sets, of_row

    def _make_sets(self, allowed: Tensor, barred: tuple[int, ...], codes: tuple[int, ...]) -> Tensor:
        """[codes, V]. `allowed` is compared as an object: a choice's rules never change."""
        numbers = torch.tensor(codes)
        sets = torch.zeros(len(codes), self._transformer.config.vocab_size, dtype=torch.bool)
        sets[:, : allowed.shape[1]] = allowed[numbers >> len(barred)]
        for bit, token in enumerate(barred):
            sets[(numbers >> bit) & 1 == 1, token] = False
        return sets.to(self._device)

    def _open_step(self, bucket: int, schedule: CachedSchedule, sequences: tuple[CachedSequence, ...]) -> "Step":
        """The step of a bucket; a new one if the known one has no room for the work."""
        if any(step.model is not self._pool.model for step in self._steps.values()):
            self._steps.clear()  # they would keep the old pool in memory
        step = self._steps.get(bucket)
        if step is None or not step.rows.schedule.holds(schedule):
            rules = self._sizes.rules, self._transformer.config.vocab_size
            step = Step(self._pool.model, bucket, sequences, rules)
            self._steps[bucket] = step
        return step


class Pool:
    """Keys and values at addresses that captured graphs read. A moved cache replaces `model`, which ends its graphs."""

    def __init__(self, model: FusedModel, least_slots: int) -> None:
        self.model, self._least_slots = model, least_slots
        self._places: dict[int, tuple[int, KeyValues]] = {}  # by id, which is unique while the entry holds the tensors
        self._end = 0

    def resize(self, num_slots: int) -> None:
        """Replaces the cache by an empty one."""
        self._places.clear()
        self._end = 0
        self.model = replace(self.model, cache=make_room(self.model.config, num_slots, self.model.embedding))

    def place(self, pasts: Sequence[KeyValues | None]) -> list[int]:
        """The first slot of each past, 0 for None."""
        wanted = {id(past): past for past in pasts if past is not None}
        if any(key not in self._places for key in wanted):
            self._make_room(wanted)
        for past in pasts:
            if past is not None and id(past) not in self._places:
                self._copy(past)
        return [0 if past is None else self._places[id(past)][0] for past in pasts]

    def _make_room(self, wanted: dict[int, KeyValues]) -> None:
        """Drops all copies if the free slots at the end are too few, and grows the cache if needed."""
        num_slots = self.model.cache.shape[2]
        missing = sum(length_of(past) for key, past in wanted.items() if key not in self._places)
        if self._end + missing <= num_slots:
            return
        self._places.clear()
        self._end = 0
        needed = sum(length_of(past) for past in wanted.values())
        if needed > num_slots:
            self.resize(max(self._least_slots, 2 * needed))

    def _copy(self, past: KeyValues) -> None:
        slots = slice(self._end, self._end + length_of(past))
        stacked = StackedKeys.of(past)
        self.model.cache[:, 0, slots] = stacked.keys[:, 0].transpose(1, 2)
        self.model.cache[:, 1, slots] = stacked.values[:, 0].transpose(1, 2)
        self._places[id(past)] = (self._end, past)
        self._end = slots.stop


class Step:
    """A step over `bucket` rows on fixed memory: captured as a graph on a GPU, called directly elsewhere. One copy
    takes its input to the device, a second one the schedule if it changed, and one its numbers to the host. `rules` are
    the numbers of sets of tokens and of tokens.
    """

    def __init__(
        self, model: FusedModel, bucket: int, sequences: tuple[CachedSequence, ...], rules: tuple[int, int]
    ) -> None:
        device, heads = model.embedding.device, model.heads
        self.model = model
        self._input = Mirror({name: torch.zeros(bucket, dtype=dtype) for name, dtype in INPUTS.items()}, device)
        self._rules = torch.ones(rules, dtype=torch.bool, device=device)
        self._sets: list[Tensor] = []  # in `_rules` now
        room = schedule_cached(
            sequences, (heads.query, heads.key_value), torch.device("cpu"), num_rows=bucket, room=SCHEDULE_ROOM
        )
        self._work = Mirror({name: value for name, value in vars(room).items() if isinstance(value, Tensor)}, device)
        self._on_host = replace(room, **self._work.host)  # type: ignore[arg-type]  # its fields
        self._schedule: CachedSchedule | None = None  # in `rows` now
        tables = torch.zeros(2, bucket, heads.width // 2, device=device)
        own = make_room(model.config, bucket, model.embedding)
        self.rows = Rows((tables[0], tables[1]), replace(room, **self._work.device), own)  # type: ignore[arg-type]
        self._numbers = torch.zeros(3, bucket, pin_memory=device.type == "cuda")
        self._captured: tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor]] | None = None

    def launch(self, ids: Array, positions: Array, of_row: Array, schedule: CachedSchedule, sets: list[Tensor]) -> None:
        """Begins to compute `states` [bucket, D] and the numbers of `read`; the next launch overwrites both. `ids`,
        `positions` and the numbers `of_row` of the rules are those of the first rows.
        """
        for name, values in zip(INPUTS, (ids, positions, of_row), strict=True):
            held = self._input.host[name].numpy()
            held[: len(values)] = values
            held[len(values) :] = 0
        self._input.send()
        if self._schedule is not schedule:
            self._on_host.refill(schedule)
            self._work.send()
            self._schedule = schedule
        is_same = len(sets) == len(self._sets) and all(map(is_, sets, self._sets))
        if sets and not is_same:
            self._rules[1 : 1 + sum(map(len, sets))] = torch.cat(sets)  # the first one allows all
            self._sets = sets
        if not self._rules.is_cuda:
            self.states, self._found = self._compute()
            return
        if self._captured is None:
            self._captured = capture_graph(self._compute)
        graph, (self.states, self._found) = self._captured
        graph.replay()

    def read(self) -> Array:
        """[3, bucket]: each row's token, its probability, the entropy. Waits for them, and is the only wait of a step.
        Ids are integers below 2^24, which fp32 holds.
        """
        self._numbers.copy_(self._found, non_blocking=True)
        if self._found.is_cuda:
            torch.cuda.current_stream().synchronize()
        return self._numbers.numpy()

    def _compute(self) -> tuple[Tensor, Tensor]:
        ids, positions, of_row = (self._input.device[name] for name in INPUTS)
        config = self.model.config
        tables = rotary_tables(positions, config.head_dim, config.rope_base)
        for own_table, table in zip(self.rows.tables, tables, strict=True):
            own_table.copy_(table)
        normed = self.model.hidden(ids, self.rows)
        proposals = propose(normed, self.model.head, rules=Rules(self._rules, of_row))
        return normed, torch.stack((proposals.ids.float(), proposals.probability, proposals.entropy))


class Mirror:
    """Tensors on the `host`, and the same on a `device`; `send` copies them all at once."""

    def __init__(self, values: dict[str, Tensor], device: torch.device) -> None:
        sizes = [value.nbytes + -value.nbytes % ALIGNMENT for value in values.values()]
        self._host = torch.zeros(sum(sizes), dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._device = torch.zeros(sum(sizes), dtype=torch.uint8, device=device)
        self.host = view_parts(self._host, values, sizes)
        self.device = view_parts(self._device, values, sizes)

    def send(self) -> None:
        """The next one must not come before the device has read these."""
        self._device.copy_(self._host, non_blocking=True)


def view_parts(whole: Tensor, values: dict[str, Tensor], sizes: list[int]) -> dict[str, Tensor]:
    """Bytes of these `sizes` as tensors like `values`."""
    parts = zip(values.items(), torch.split(whole, sizes), strict=True)
    return {name: part[: value.nbytes].view(value.dtype).view(value.shape) for (name, value), part in parts}


def length_of(past: KeyValues | None) -> int:
    if past is None:
        return 0
    if isinstance(past, StackedKeys):
        return past.keys.shape[3]
    return past[0][0].shape[2]


def keep_rows(own: Tensor, span: slice) -> StackedKeys:
    """Keys and values of the rows `span` of `own` [L, 2, R, K, E]: a copy."""
    block = own[:, :, span].transpose(2, 3).clone(memory_format=torch.contiguous_format)
    return StackedKeys(block[:, 0, None], block[:, 1, None])
