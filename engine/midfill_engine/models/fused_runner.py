"""Runs forward passes with Midfill's GPU kernels: small ones as captured graphs, long or unusual ones through torch.

A pass's own length, attention mask, stacks and rules decide how it runs, and kernels give a row the same bits whatever
rows are beside it. So a result never depends on the other passes.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import torch
from torch import Tensor

from midfill_engine.groups import split
from midfill_engine.models.choice import Choice, Chosen, check
from midfill_engine.models.fused import ExpertOperators, FusedModel, Rows, Sizes, make_room, pack_transformer
from midfill_engine.models.fused_branches import BranchRunner, unstack, write_to_room
from midfill_engine.models.operators import OperatorsError, TorchOperators
from midfill_engine.models.packed import Pass, Result, Stacks, choose_packed, run_packed
from midfill_engine.models.sequence import Array
from midfill_engine.models.transformer import KeyValues, StackedKeys, Transformer, TransformerConfig
from midfill_kernels.cached_attention import CachedSchedule, CachedSequence, schedule_cached
from midfill_kernels.head import Rules, predict_tokens
from midfill_kernels.launch import capture_graph
from midfill_kernels.rotary import rotary_tables

CHECKED_ROWS: Final = 100  # length of the prompt that `FusedRunner.check` compares for a causal model
SCHEDULE_ROOM: Final = 4  # a step has room for so many times the attention work that it is created for
INPUTS: Final = {"ids": torch.int64, "positions": torch.int64, "of_row": torch.int32}  # what a step reads for each row
ALIGNMENT: Final = 16  # bytes, of each tensor in the memory of a `Mirror`
MAX_ERROR: Final = 0.05  # as a share of the states' norm; not 0, because the kernels round bf16 in another order
MAX_MIXED_ERROR: Final = 0.7  # likewise, where rounding sends rows to other experts; that of unrelated states is 1.4


def why_not_fused(config: TransformerConfig) -> str | None:
    """The reason why the kernels cannot compute a transformer, or None."""
    if config.mlp != "swiglu":
        return "its MLPs are not gated"
    if config.yarn is not None:
        return "it stretches positions"
    if config.head_dim & (config.head_dim - 1):  # no power of two
        return f"its heads are {config.head_dim} wide"
    return None


@dataclass(frozen=True)
class RuleNeeds:
    """The sets of tokens that a pass's wanted rows choose from: distinct `codes` [N], and each row's index `of_row` [M]
    among these codes.

    A code stands for one set of tokens. Its low bits tell which of the `choice.barred` tokens, in ascending order, are
    missing from the set; the bits above are the index of the rule in `choice.allowed`. `choice` is None if the fused
    head does not choose for this pass, because it has no choice, wants no row, or has a choice that is not greedy.
    """

    choice: Choice | None
    codes: tuple[int, ...]
    of_row: Array

    @classmethod
    def of(cls, pass_: Pass) -> "RuleNeeds":
        choice = pass_.choice
        if choice is None or not choice.is_greedy or not len(pass_.wanted):
            return cls(None, (), np.zeros(0, dtype=np.int64))
        codes = choice.rule_of.numpy() << len(choice.barred)
        for bit, token in enumerate(sorted(choice.barred)):
            codes |= choice.barred[token].numpy().astype(np.int64) << bit
        if (codes == codes[0]).all():
            return cls(choice, (int(codes[0]),), np.zeros_like(codes))
        distinct, of_row = np.unique(codes, return_inverse=True)
        return cls(choice, tuple(distinct.tolist()), of_row)


@dataclass(frozen=True)
class RowGroup:
    """`num_rows` neighboring rows of a pass, which see its past, each other, and the `num_before` rows before them."""

    num_rows: int
    num_before: int


def group_rows(pass_: Pass) -> list[RowGroup] | None:
    """The rows of a pass without stacks, in groups: its blocks if attention is causal by blocks, one group if every row
    sees every key. None if its attention mask is of another kind.
    """
    num_rows = len(pass_.ids)
    if pass_.attention_mask is None:
        return [RowGroup(num_rows, 0)]
    mask = pass_.attention_mask.numpy()
    num_seen = mask.sum(axis=1)
    sees_first_keys = np.arange(mask.shape[1]) < num_seen[:, None]
    num_own_seen = num_seen - (mask.shape[1] - num_rows)  # of the pass's rows: up to the end of the row's group
    ends = np.flatnonzero(np.diff(num_own_seen, append=num_rows + 1)) + 1
    if not np.array_equal(mask, sees_first_keys) or not np.array_equal(num_own_seen[ends - 1], ends):
        return None
    return [RowGroup(end - start, start) for start, end in pairwise([0, *ends.tolist()])]


def find_error(computed: Tensor, expected: Tensor) -> float:
    """The norm of the difference, as a share of the expected norm."""
    wide = expected.float()
    return float((computed.float() - wide).norm() / wide.norm())


def refuse_error(error: float, limit: float) -> None:
    """Raises OperatorsError if the error is above the limit, or not a number."""
    if not error <= limit:
        raise OperatorsError(f"the kernels' results differ from torch's by {error:.0%} on this device")


class FusedRunner:
    """Runs passes with kernels and returns the results that `run_packed` would, but for rounding. Long passes go to
    `run_packed` itself. So do passes without stacks that have many rules, many groups of rows, or an attention mask
    that is not by blocks. Choices that are not greedy, and all choices of passes with stacks, use torch's head.
    """

    def __init__(self, transformer: Transformer, operators: TorchOperators, sizes: Sizes | None = None) -> None:
        if transformer.config.moe is not None:
            operators = ExpertOperators(transformer.embedding.weight.device, transformer.embedding.weight.dtype)
        self._transformer, self._operators, self._sizes = transformer, operators, sizes or Sizes()
        self._pool = Pool(pack_transformer(transformer, 0), self._sizes.slots)
        self.branches = BranchRunner(self._pool.model, self._sizes)
        self._steps: dict[int, Step] = {}
        self._device = transformer.embedding.weight.device
        # Cached, because the next step mostly asks for the same sets and the same schedule.
        self._find_sets = lru_cache(self._sizes.rules)(self._make_sets)
        self._find_schedule = lru_cache(len(self._sizes.buckets))(self._make_schedule)

    def run(self, passes: list[Pass]) -> list[Result]:
        """Runs all passes; returns their results in order."""
        return self.launch(passes)()

    @torch.inference_mode()
    def launch(self, passes: list[Pass]) -> Callable[[], list[Result]]:
        """Begins to run all passes. The returned function waits for their results; call it before the next launch."""
        sizes = self._sizes
        results: dict[int, Result] = {}
        needs = [RuleNeeds.of(pass_) for pass_ in passes]
        row_groups_of: dict[int, list[RowGroup]] = {}
        for_torch: list[int] = []  # indices of passes
        for_branches: list[int] = []  # indices of passes
        for index, (pass_, need) in enumerate(zip(passes, needs, strict=True)):
            if len(pass_.ids) >= sizes.long_rows:
                for_torch.append(index)
            elif pass_.stacks is not None:
                for_branches.append(index)
            else:
                row_groups = group_rows(pass_)
                if row_groups is None or len(row_groups) > sizes.blocks or len(need.codes) >= sizes.rules:
                    for_torch.append(index)
                else:
                    row_groups_of[index] = row_groups
        steps: list[list[int]] = []  # the indices of the passes of each step
        for part in split(list(row_groups_of), lambda index: len(passes[index].ids), sizes.buckets[-1]):
            steps += split(part, lambda index: len(needs[index].codes), sizes.rules - 1)
        running: list[int] = []
        read_running: Callable[[], list[Result]] = list  # no step runs yet, so there are no results
        for indices in steps:
            results |= zip(running, read_running(), strict=True)  # before the next step overwrites them
            running = indices
            read_running = self._begin_step(
                [passes[index] for index in indices],
                [needs[index] for index in indices],
                [row_groups_of[index] for index in indices],
            )

        @torch.inference_mode()
        def wait() -> list[Result]:
            results.update(zip(running, read_running(), strict=True))
            if for_torch:
                results.update(zip(for_torch, self._run_torch([passes[index] for index in for_torch]), strict=True))
            for part in split(for_branches, lambda index: len(passes[index].ids), sizes.buckets[-1]):
                branched = [passes[index] for index in part]
                chosen = choose_packed(self._transformer, branched, self.branches.run(branched), self._operators)
                results.update(zip(part, chosen, strict=True))
            return [results[index] for index in range(len(passes))]

        return wait

    def check(self, *, is_causal: bool = False) -> None:
        """Raises OperatorsError if the kernels' states differ from those of torch's operators on this device. Compares
        rows that all see each other; or, with `is_causal`, a prompt and a tree of two branches behind it, because bf16
        of a causal model is twice as far from fp32 where all rows see each other.
        """
        config, weight = self._transformer.config, self._transformer.embedding.weight
        rows = torch.arange(self._sizes.long_rows - 1)
        ids = torch.randint(0, config.vocab_size, (len(rows),), generator=torch.Generator().manual_seed(0))
        if not is_causal:
            self._compare(Pass(ids, rows, rows, keeps=config.moe is not None))
            return
        prompt = rows[:CHECKED_ROWS]
        room = make_room(config, len(prompt), weight).transpose(2, 3).contiguous()
        causal = torch.ones(len(prompt), len(prompt), dtype=torch.bool).tril()
        self._compare(
            Pass(ids[prompt], prompt, prompt, attention_mask=causal, stacks=Stacks(room[:, :, :, :0], room=room))
        )
        half = len(prompt) // 2
        tree = prompt[:half]
        same_branch = causal[:half, :half] & (tree % 2 == tree[:, None] % 2)  # of even rows, or of odd ones
        seen = torch.cat((torch.ones(half, len(prompt) - half, dtype=torch.bool), same_branch), dim=1)
        stacks = Stacks(room[:, :, :, :half], room[:, :, :, half:])
        self._compare(Pass(ids[-half:], len(prompt) + tree // 2, tree, attention_mask=seen, stacks=stacks))

    def _compare(self, pass_: Pass) -> None:
        """Raises OperatorsError if the states of a pass differ from torch's. In a mixture of experts, rounding may send
        a row on the border of two through the other one. So there the states may differ more, but the keys of the layer
        behind the first experts are compared, too: by the median of their rows' errors.
        """
        config = self._transformer.config
        reference = TorchOperators(self._device, self._transformer.embedding.weight.dtype)
        plain = pass_ if pass_.stacks is None else unstack(pass_)
        (by_kernels,) = self.run([pass_])
        (by_torch,) = run_packed(self._transformer, [plain], reference)
        limit = MAX_ERROR if config.moe is None else MAX_MIXED_ERROR
        refuse_error(find_error(by_kernels.hidden, by_torch.hidden), limit)
        layer = config.num_dense_layers + 1
        if by_kernels.own and by_torch.own and layer < config.num_layers:
            computed, expected = by_kernels.own[layer][0][0], by_torch.own[layer][0][0]  # keys [K, T, E]
            errors = [find_error(computed[:, row], expected[:, row]) for row in range(computed.shape[1])]
            refuse_error(statistics.median(errors), MAX_ERROR)

    def free_memory(self) -> None:
        """Drops graphs and copies of keys; the next steps create them again."""
        self._steps.clear()
        self.branches.free_memory()
        self._pool.resize(0)

    def _run_torch(self, passes: list[Pass]) -> list[Result]:
        """The results of `run_packed`. Writes the keys and values of passes with stacks into their rooms."""
        plain = [pass_ if pass_.stacks is None else unstack(pass_) for pass_ in passes]
        results = run_packed(self._transformer, plain, self._operators)
        for index, pass_ in enumerate(passes):
            if pass_.stacks is not None:
                results[index] = write_to_room(pass_, results[index])
        return results

    def _begin_step(
        self, passes: list[Pass], needs: list[RuleNeeds], row_groups: list[list[RowGroup]]
    ) -> Callable[[], list[Result]]:
        """Launches all rows in one step of the smallest bucket that holds them; returns what waits for results."""
        lengths = [len(pass_.ids) for pass_ in passes]
        ends = list(accumulate(lengths))
        bucket = self._sizes.bucket_of(ends[-1])
        pasts = [pass_.past for pass_ in passes]
        first_slots = self._pool.place(pasts)
        sequences: list[CachedSequence] = []
        for groups, first_slot, past in zip(row_groups, first_slots, pasts, strict=True):
            num_past = length_of(past)
            for group in groups:
                sequences.append(CachedSequence(group.num_rows, first_slot, num_past, group.num_before))
        wanted: list[Array] = []
        for pass_, length, end in zip(passes, lengths, ends, strict=True):
            wanted.append(end - length + pass_.wanted.numpy())
        schedule = self._find_schedule(tuple(sequences), bucket)
        step = self._open_step(bucket, schedule, tuple(sequences))
        sets, of_row = self._stack_rules(needs, wanted, ends[-1])
        ids = np.concatenate([pass_.ids.numpy() for pass_ in passes])
        positions = np.concatenate([pass_.positions.numpy() for pass_ in passes])
        step.launch(ids, positions, of_row, schedule, sets)
        return lambda: self._read_step(step, passes, needs, wanted, ends)

    def _read_step(
        self, step: "Step", passes: list[Pass], needs: list[RuleNeeds], wanted: list[Array], ends: list[int]
    ) -> list[Result]:
        """The results of a launched step. `wanted` are its rows that each pass wants; a pass ends before row `ends`."""
        predictions = step.read()
        results: list[Result] = []
        for pass_, need, rows, end in zip(passes, needs, wanted, ends, strict=True):
            own = None
            if pass_.keeps:  # copied, so that it does not keep the keys of the other passes alive
                rows_of_pass = step.rows.own[:, :, end - len(pass_.ids) : end].transpose(2, 3)
                block = rows_of_pass.clone(memory_format=torch.contiguous_format)
                own = StackedKeys(block[:, 0, None], block[:, 1, None])
            chosen = None
            if need.choice is not None:
                ids = torch.from_numpy(predictions[0, rows].astype(np.int64))
                confidence, entropy = torch.from_numpy(predictions[1:, rows])
                chosen = check(Chosen(ids, confidence, entropy))
            is_undecided = need.choice is None and pass_.choice is not None
            shown = rows if pass_.shows_states or is_undecided else rows[:0]
            results.append(Result(self._take_states(step.states, shown), own, chosen))
        return choose_packed(self._transformer, passes, results, self._operators)

    def _take_states(self, states: Tensor, rows: Array) -> Tensor:
        """A copy of the `rows` [M] of `states`, which the next step overwrites."""
        if not len(rows):
            return states[:0]
        if rows[-1] - rows[0] + 1 == len(rows) and (np.diff(rows) == 1).all():
            return states[rows[0] : rows[-1] + 1].clone()  # neighbors: no indices need to go to the device
        return states[torch.from_numpy(rows).to(self._device)]

    def _make_schedule(self, sequences: tuple[CachedSequence, ...], bucket: int) -> CachedSchedule:
        heads = (self._pool.model.heads.query, self._pool.model.heads.key_value)
        return schedule_cached(sequences, heads, torch.device("cpu"), num_rows=bucket)

    def _stack_rules(self, needs: list[RuleNeeds], wanted: list[Array], num_rows: int) -> tuple[list[Tensor], Array]:
        """Sets of tokens, [N, V] for each greedy pass; and the index [num_rows] of each row's set, 0 for all tokens."""
        sets: list[Tensor] = []
        of_row = np.zeros(num_rows, dtype=np.int32)
        count = 1  # sets so far, with the one that allows all
        for need, rows in zip(needs, wanted, strict=True):
            if need.choice is not None:
                barred = tuple(sorted(need.choice.barred))
                sets.append(self._find_sets(need.choice.allowed, barred, need.codes))
                of_row[rows] = count + need.of_row
                count += len(need.codes)
        return sets, of_row

    def _make_sets(self, allowed: Tensor, barred: tuple[int, ...], codes: tuple[int, ...]) -> Tensor:
        """The sets of tokens [N, V] of `codes` (see RuleNeeds). `lru_cache` compares `allowed` as an object, which is
        right because the rules of a choice never change.
        """
        code_tensor = torch.tensor(codes)
        sets = torch.zeros(len(codes), self._transformer.config.vocab_size, dtype=torch.bool)
        sets[:, : allowed.shape[1]] = allowed[code_tensor >> len(barred)]
        for bit, token in enumerate(barred):
            sets[(code_tensor >> bit) & 1 == 1, token] = False
        return sets.to(self._device)

    def _open_step(self, bucket: int, schedule: CachedSchedule, sequences: tuple[CachedSequence, ...]) -> "Step":
        """The step of a bucket; a new one if there is none, or if it has no room for the work of `schedule`."""
        if any(step.model is not self._pool.model for step in self._steps.values()):
            self._steps.clear()  # their graphs read the old cache, and would keep it in memory
        step = self._steps.get(bucket)
        if step is None or not step.rows.schedule.holds(schedule):
            rules_shape = self._sizes.rules, self._transformer.config.vocab_size
            step = Step(self._pool.model, bucket, sequences, rules_shape)
            self._steps[bucket] = step
        return step


class Pool:
    """Copies of pasts (keys and values of earlier tokens) in `model.cache`, where captured graphs read them. A larger
    cache has another address, so it comes with another `model`, and the graphs of the old model are useless.
    """

    def __init__(self, model: FusedModel, min_slots: int) -> None:
        self.model, self._min_slots = model, min_slots
        self._copies: dict[int, tuple[int, KeyValues]] = {}  # by id(past): its first slot, and itself, to keep the id
        self._end = 0  # first free slot

    def resize(self, num_slots: int) -> None:
        """Replaces the cache by an empty one with `num_slots` slots, one for each token."""
        self._copies.clear()
        self._end = 0
        self.model = replace(self.model, cache=make_room(self.model.config, num_slots, self.model.embedding))

    def place(self, pasts: Sequence[KeyValues | None]) -> list[int]:
        """Copies the pasts that are not in the cache; returns the first slot of each past, 0 for None."""
        by_id = {id(past): past for past in pasts if past is not None}
        if any(key not in self._copies for key in by_id):
            self._make_room(by_id)
        for past in pasts:
            if past is not None and id(past) not in self._copies:
                self._copy(past)
        return [0 if past is None else self._copies[id(past)][0] for past in pasts]

    def _make_room(self, by_id: dict[int, KeyValues]) -> None:
        """Drops all copies if the free slots at the end are too few; enlarges the cache if all slots are too few."""
        num_slots = self.model.cache.shape[2]
        missing = sum(length_of(past) for key, past in by_id.items() if key not in self._copies)
        if self._end + missing <= num_slots:
            return
        self._copies.clear()
        self._end = 0
        needed = sum(length_of(past) for past in by_id.values())
        if needed > num_slots:
            self.resize(max(self._min_slots, 2 * needed))

    def _copy(self, past: KeyValues) -> None:
        slots = slice(self._end, self._end + length_of(past))
        stacked = StackedKeys.of(past)
        self.model.cache[:, 0, slots] = stacked.keys[:, 0].transpose(1, 2)
        self.model.cache[:, 1, slots] = stacked.values[:, 0].transpose(1, 2)
        self._copies[id(past)] = (self._end, past)
        self._end = slots.stop


class Step:
    """A step over `bucket` rows on fixed memory: captured as a graph on a GPU, called directly elsewhere. One copy
    takes its input to the device, a second one the schedule if that changed, a third one its predictions to the host.
    `rules_shape` is the number of token sets that it has room for, and the size of the vocabulary.
    """

    def __init__(
        self, model: FusedModel, bucket: int, sequences: tuple[CachedSequence, ...], rules_shape: tuple[int, int]
    ) -> None:
        device, heads = model.embedding.device, model.heads
        self.model = model
        self._input = Mirror({name: torch.zeros(bucket, dtype=dtype) for name, dtype in INPUTS.items()}, device)
        self._rules = torch.ones(rules_shape, dtype=torch.bool, device=device)
        self._last_sets: list[Tensor] = []  # the sets that `_rules` holds
        roomy = schedule_cached(
            sequences, (heads.query, heads.key_value), torch.device("cpu"), num_rows=bucket, room=SCHEDULE_ROOM
        )
        fields = {name: value for name, value in vars(roomy).items() if isinstance(value, Tensor)}
        self._schedules = Mirror(fields, device)
        self._host_schedule = replace(roomy, **self._schedules.host)  # type: ignore[arg-type]
        self._last_schedule: CachedSchedule | None = None  # the one that `rows` holds
        tables = torch.zeros(2, bucket, model.config.rotary_dim // 2, device=device)
        own = make_room(model.config, bucket, model.embedding)
        self.rows = Rows((tables[0], tables[1]), replace(roomy, **self._schedules.device), own)  # type: ignore[arg-type]
        self._host_predictions = torch.zeros(3, bucket, pin_memory=device.type == "cuda")
        self._captured: tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor]] | None = None

    def launch(self, ids: Array, positions: Array, of_row: Array, schedule: CachedSchedule, sets: list[Tensor]) -> None:
        """Begins to compute `states` [bucket, D] and the predictions of `read`; the next launch overwrites both. `ids`,
        `positions` and each row's index of a token set `of_row` may be shorter than the bucket: zeros follow.
        """
        for name, values in zip(INPUTS, (ids, positions, of_row), strict=True):
            memory = self._input.host[name].numpy()
            memory[: len(values)] = values
            memory[len(values) :] = 0
        self._input.send()
        if self._last_schedule is not schedule:
            self._host_schedule.refill(schedule)
            self._schedules.send()
            self._last_schedule = schedule
        if sets and list(map(id, sets)) != list(map(id, self._last_sets)):
            self._rules[1 : 1 + sum(map(len, sets))] = torch.cat(sets)  # set 0 allows all
            self._last_sets = sets
        if not self._rules.is_cuda:
            self.states, self._predictions = self._compute()
            return
        if self._captured is None:
            self._captured = capture_graph(self._compute)
        graph, (self.states, self._predictions) = self._captured
        graph.replay()

    def read(self) -> Array:
        """The predictions [3, bucket]: each row's token, its probability and the entropy. Waits for the device, which
        nothing else in a step does. Ids are below 2^24, so fp32 holds them exactly.
        """
        self._host_predictions.copy_(self._predictions, non_blocking=True)
        if self._predictions.is_cuda:
            torch.cuda.current_stream().synchronize()
        return self._host_predictions.numpy()

    def _compute(self) -> tuple[Tensor, Tensor]:
        """The normed states [bucket, D], and the predictions [3, bucket] that `read` returns."""
        ids, positions, of_row = (self._input.device[name] for name in INPUTS)
        config = self.model.config
        tables = rotary_tables(positions, config.rotary_dim, config.rope_base)
        for own_table, table in zip(self.rows.tables, tables, strict=True):
            own_table.copy_(table)
        normed = self.model.hidden(ids, self.rows)
        predictions = predict_tokens(normed, self.model.head, rules=Rules(self._rules, of_row))
        return normed, torch.stack((predictions.ids.float(), predictions.probability, predictions.entropy))


class Mirror:
    """Tensors in one memory on the `host` and the same in one memory on a `device`; `send` copies all in one copy."""

    def __init__(self, values: dict[str, Tensor], device: torch.device) -> None:
        sizes = [value.nbytes + -value.nbytes % ALIGNMENT for value in values.values()]
        self._host = torch.zeros(sum(sizes), dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._device = torch.zeros(sum(sizes), dtype=torch.uint8, device=device)
        self.host = view_parts(self._host, values, sizes)
        self.device = view_parts(self._device, values, sizes)

    def send(self) -> None:
        """Begins to copy the host's tensors to the device; do not change them before the device has read them."""
        self._device.copy_(self._host, non_blocking=True)


def view_parts(whole: Tensor, values: dict[str, Tensor], sizes: list[int]) -> dict[str, Tensor]:
    """Cuts `whole` into parts of `sizes` bytes; views each as a tensor with the shape and dtype of its value."""
    parts = zip(values.items(), torch.split(whole, sizes), strict=True)
    return {name: part[: value.nbytes].view(value.dtype).view(value.shape) for (name, value), part in parts}


def length_of(past: KeyValues | None) -> int:
    """The number of tokens of a past."""
    if past is None:
        return 0
    if isinstance(past, StackedKeys):
        return past.keys.shape[3]
    return past[0][0].shape[2]
