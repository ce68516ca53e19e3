"""Runs the steps of holes through the fused transformer, as one captured graph, and longer passes through torch.

A pass's length alone selects the way, and kernels compute every row alone, so results never depend on other passes.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

from midfill_engine.groups import split
from midfill_engine.models.choice import Choice, Chosen, check
from midfill_engine.models.fused import FusedModel, Rows, make_room, pack_transformer
from midfill_engine.models.fused_branches import BranchRunner, put_away, unstacked
from midfill_engine.models.operators import OperatorsError, TorchOperators
from midfill_engine.models.packed import Pass, Result, Stacks, choose_packed, run_packed
from midfill_engine.models.transformer import KeyValues, Transformer, TransformerConfig
from midfill_kernels.cached_attention import CachedSchedule, CachedSequence, schedule_cached
from midfill_kernels.head import Rules, TokenPredictions, propose
from midfill_kernels.launch import ROW_BUCKETS, capture_graph
from midfill_kernels.rotary import rotary_tables

LONG_ROWS: Final = 512  # from here on products are compute-bound, and torch is as fast
CHECKED_ROWS: Final = 100  # of a prompt that is compared at the start
MAX_RULES: Final = 32  # sets of allowed tokens in one step; the first allows all
SLOTS: Final = 4096  # initial size of the pool
SCHEDULE_ROOM: Final = 4
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
    codes: Tensor
    of_row: Tensor

    @classmethod
    def of(cls, step: Pass) -> "RuleNeeds":
        choice = step.choice
        if choice is None or not choice.is_greedy or not len(step.wanted):
            return cls(None, torch.empty(0), torch.empty(0))
        codes = choice.rule_of << len(choice.barred)
        for bit, token in enumerate(sorted(choice.barred)):
            codes = codes | (choice.barred[token].long() << bit)
        return cls(choice, *torch.unique(codes, return_inverse=True))


class FusedRunner:
    """Answers passes as `run_packed` does. Long passes, passes with a mask but no stacks and passes with many rules go
    to `run_packed`; choices that need all logits use its head.
    """

    def __init__(self, transformer: Transformer, operators: TorchOperators) -> None:
        self._transformer, self._operators = transformer, operators
        self._pool = Pool(pack_transformer(transformer, 0))
        self.branches = BranchRunner(self._pool.model)
        self._steps: dict[int, Step] = {}
        self._device = transformer.embedding.weight.device
        self._find_sets = lru_cache(MAX_RULES)(self._make_sets)  # the next step mostly asks for the same

    @torch.inference_mode()
    def run(self, passes: list[Pass]) -> list[Result]:
        """Runs all passes; returns their results in order."""
        found: dict[int, Result] = {}
        needs = [RuleNeeds.of(step) for step in passes]
        theirs, ours, branches = list[int](), list[int](), list[int]()
        for index, (step, need) in enumerate(zip(passes, needs, strict=True)):
            is_long, is_branched = len(step.ids) >= LONG_ROWS, step.stacks is not None
            is_special = not is_branched and (step.mask is not None or len(need.codes) >= MAX_RULES)
            (theirs if is_long or is_special else branches if is_branched else ours).append(index)
        if theirs:
            found |= dict(zip(theirs, self._run_torch([passes[index] for index in theirs]), strict=True))
        for part in split(branches, lambda index: len(passes[index].ids), ROW_BUCKETS[-1]):
            steps = [passes[index] for index in part]
            results = choose_packed(self._transformer, steps, self.branches.run(steps), self._operators)
            found |= dict(zip(part, results, strict=True))
        for part in split(ours, lambda index: len(passes[index].ids), ROW_BUCKETS[-1]):
            for group in split(part, lambda index: len(needs[index].codes), MAX_RULES - 1):
                results = self._run_step([passes[index] for index in group], [needs[index] for index in group])
                found |= dict(zip(group, results, strict=True))
        return [found[index] for index in range(len(passes))]

    def check(self, *, is_causal: bool = False) -> None:
        """Compares steps with torch's operators on this device: of rows that see each other; or, as a causal model's
        bf16 is twice as far from fp32 there, a prompt and a tree of two branches behind it. Raises OperatorsError.
        """
        config, weight = self._transformer.config, self._transformer.embedding.weight
        rows = torch.arange(LONG_ROWS - 1)
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
        (ours,), (theirs,) = self.run([step]), run_packed(self._transformer, [plain], reference)
        error = float((ours.hidden.float() - theirs.hidden.float()).norm() / theirs.hidden.float().norm())
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
        pairs = zip(passes, results, strict=True)
        return [result if step.stacks is None else put_away(step, result) for step, result in pairs]

    def _run_step(self, passes: list[Pass], needs: list[RuleNeeds]) -> list[Result]:
        """Runs all rows in one step of the smallest bucket."""
        num_rows = sum(len(step.ids) for step in passes)
        bucket = ROW_BUCKETS[bisect_left(ROW_BUCKETS, num_rows)]
        starts = self._pool.place([step.past for step in passes])
        started = zip(passes, starts, strict=True)
        sequences = [CachedSequence(len(step.ids), start, length_of(step.past)) for step, start in started]
        ends = torch.tensor([len(step.ids) for step in passes]).cumsum(0).tolist()
        spans = [slice(end - len(step.ids), end) for end, step in zip(ends, passes, strict=True)]
        wanted = [span.start + step.wanted for span, step in zip(spans, passes, strict=True)]
        sets, of_row = self._stack_rules(needs, wanted, bucket)
        ids, positions = torch.zeros(2, bucket, dtype=torch.int64)
        ids[:num_rows] = torch.cat([step.ids for step in passes]).cpu()
        positions[:num_rows] = torch.cat([step.positions for step in passes]).cpu()
        heads = (self._pool.model.heads.query, self._pool.model.heads.key_value)
        schedule = schedule_cached(sequences, heads, torch.device("cpu"), num_rows=bucket)
        step = self._open_step(bucket, schedule, sequences)
        states, proposals = step.run(ids, positions, schedule, sets, of_row)
        # Copied to the CPU at once; ids are integers below 2^24, which fp32 holds.
        numbers = torch.stack((proposals.ids.float(), proposals.probability, proposals.entropy)).cpu()
        results = []
        for asked, need, rows, span in zip(passes, needs, wanted, spans, strict=True):
            kept = keep_rows(step.rows.own, span) if asked.keeps else None
            of_ids, confidence, entropy = numbers[:, rows]
            chosen = None if need.choice is None else check(Chosen(of_ids.long(), confidence, entropy))
            results.append(Result(states[rows.to(self._device)], kept, chosen))
        return choose_packed(self._transformer, passes, results, self._operators)

    def _stack_rules(self, needs: list[RuleNeeds], wanted: list[Tensor], num_rows: int) -> tuple[list[Tensor], Tensor]:
        """The passes' sets of tokens [N, V], and for each of `num_rows` rows the number of its set; 0 allows all."""
        sets, of_row, count = list[Tensor](), torch.zeros(num_rows, dtype=torch.int32), 1
        for need, rows in zip(needs, wanted, strict=True):
            if need.choice is not None:
                barred = tuple(sorted(need.choice.barred))
                sets.append(self._find_sets(need.choice.allowed, barred, tuple(need.codes.tolist())))
                of_row[rows] = (count + need.of_row).to(torch.int32)
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

    def _open_step(self, bucket: int, schedule: CachedSchedule, sequences: list[CachedSequence]) -> "Step":
        """The step of a bucket; a new one if the known one has no room for the work."""
        if any(step.model is not self._pool.model for step in self._steps.values()):
            self._steps.clear()  # they would keep the old pool in memory
        known = self._steps.get(bucket)
        if known is None or not known.rows.schedule.holds(schedule):
            known = self._steps[bucket] = Step(self._pool.model, bucket, sequences, self._transformer.config.vocab_size)
        return known


class Pool:
    """Keys and values at addresses that captured graphs read. A moved cache replaces `model`, which ends its graphs."""

    def __init__(self, model: FusedModel) -> None:
        self.model = model
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
            self.resize(max(SLOTS, 2 * needed))

    def _copy(self, past: KeyValues) -> None:
        slots = slice(self._end, self._end + length_of(past))
        for (keys, values), (key, value) in zip(self.model.cache, past, strict=True):
            keys[slots] = key[0].transpose(0, 1)
            values[slots] = value[0].transpose(0, 1)
        self._places[id(past)] = (self._end, past)
        self._end = slots.stop


class Step:
    """A step over `bucket` rows on fixed memory: captured as a graph on a GPU, called directly elsewhere."""

    def __init__(self, model: FusedModel, bucket: int, sequences: list[CachedSequence], num_tokens: int) -> None:
        device, heads = model.embedding.device, model.heads
        self.model = model
        self._ids = torch.zeros(bucket, dtype=torch.int64, device=device)
        self._rules = torch.ones(MAX_RULES, num_tokens, dtype=torch.bool, device=device)
        self._of_row = torch.zeros(bucket, dtype=torch.int32, device=device)
        tables = torch.zeros(2, bucket, heads.width // 2, device=device)
        self.rows = Rows(
            (tables[0], tables[1]),
            schedule_cached(sequences, (heads.query, heads.key_value), device, num_rows=bucket, room=SCHEDULE_ROOM),
            make_room(model.config, bucket, model.embedding),
        )
        self._captured: tuple[torch.cuda.CUDAGraph, tuple[Tensor, TokenPredictions]] | None = None

    def run(
        self, ids: Tensor, positions: Tensor, schedule: CachedSchedule, sets: list[Tensor], of_row: Tensor
    ) -> tuple[Tensor, TokenPredictions]:
        """States [bucket, D] and proposals; both are overwritten by the next run."""
        self._ids.copy_(ids)
        device, config = self._ids.device, self.model.config
        tables = rotary_tables(positions.to(device), config.head_dim, config.rope_base)
        for ours, theirs in zip(self.rows.tables, tables, strict=True):
            ours.copy_(theirs)
        self.rows.schedule.refill(schedule)
        if sets:
            self._rules[1 : 1 + sum(map(len, sets))] = torch.cat(sets)  # the first one allows all
        self._of_row.copy_(of_row)
        if not self._ids.is_cuda:
            return self._compute()
        if self._captured is None:
            self._captured = capture_graph(self._compute)
        graph, result = self._captured
        graph.replay()
        return result

    def _compute(self) -> tuple[Tensor, TokenPredictions]:
        normed = self.model.hidden(self._ids, self.rows)
        return normed, propose(normed, self.model.head, rules=Rules(self._rules, self._of_row))


def length_of(past: KeyValues | None) -> int:
    return 0 if past is None else past[0][0].shape[2]


def keep_rows(own: Tensor, span: slice) -> KeyValues:
    """Keys and values [1, K, T, E] a layer of the rows `span` of `own` [L, 2, R, K, E]: a copy."""
    block = own[:, :, span].transpose(2, 3).clone(memory_format=torch.contiguous_format)
    return [(layer[0][None], layer[1][None]) for layer in block]
