"""Scores texts after a causally read prefix, and finds the likeliest texts by beam search. Knows ids, no text.

Texts with a common beginning share its rows: one pass holds a tree, and the attention mask lets each row see the
prefix, the row's ancestors and itself. So the log-probabilities in a tree equal those of the texts one by one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import torch
from torch import Tensor

from midfill_engine.caches.stores import Prefix
from midfill_engine.causal.growing_caches import LaidRows, lay_behind, open_prompt, open_tail
from midfill_engine.groups import split
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.choice import Choice
from midfill_engine.models.packed import Pass, Result, score_rows
from midfill_engine.scheduling.work import Showing, forward

MAX_TREE_ROWS: Final = 768  # tokens of the texts that one pass scores
READ_ROWS: Final = 256  # tokens of a prompt in one pass
GROWN_ROWS: Final = 64  # tokens for which a growing beam gets spare room, besides a quarter of the prefix's
ROOT: Final = -1  # in place of a row: the last token of the prefix
END: Final = -1  # in place of a next token: any of the tokens that end a text
PIECE_TOKENS: Final = 64  # tokens in each piece of the vocabulary
EXTRA_TOKENS: Final = 16  # likeliest tokens beyond those asked for, because some may not be allowed

Texts = Sequence[Sequence[int]]
"""The token ids of several texts."""

TextLogs = list[list[float]]
"""The log-probabilities of the tokens of several texts."""

Successor = tuple[int, int]
"""A row of a tree or ROOT, and the token that comes after it or END."""


async def read_prefix(
    runtime: Runtime, ids: tuple[int, ...], is_over: Callable[[], bool] = lambda: False
) -> tuple[Prefix, int]:
    """Reads `ids`. Returns their prefix, and how many of them were cached; only the others are computed. Once the time
    `is_over`, returns the prefix of the ids that were read by then. Keeps the prefix for later requests.
    """
    size = len(ids)
    num_cached, entry = runtime.prefixes.find(ids)
    if entry is not None and num_cached == size == len(entry.ids):
        return entry, num_cached
    num_cached = min(num_cached, size - 1)  # the last token is read anew for what follows it
    memory = open_prompt(runtime, entry, num_cached, size)
    for start in range(num_cached, size, READ_ROWS):  # attention is causal, so reading in parts saves work
        part = ids[start : start + READ_ROWS]
        reading = memory.read(part, size - start)
        (result,) = await forward([reading])
        memory.grow(len(part))
        if memory.length < size and is_over():
            break
    (next_logs,) = log_probs(runtime, result.hidden)
    prefix = memory.keep(ids[: memory.length], next_logs)
    runtime.prefixes.add(prefix)
    return prefix, num_cached


@dataclass
class Tree:
    """A tree of texts after a prefix: row i holds the token `ids[i]`, whose parent is the row `parents[i]` or ROOT."""

    ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    _children: dict[Successor, int] = field(default_factory=dict)

    def add(self, ids: Sequence[int]) -> list[int]:
        """Adds a text and returns its rows. Texts that begin alike share the rows of their common beginning."""
        rows: list[int] = []
        parent = ROOT
        for token in ids:
            row = self._children.get((parent, token))
            if row is None:
                row = self._append(token, parent)
            rows.append(row)
            parent = row
        return rows

    def add_scored(self, ids: Sequence[int]) -> list[Successor]:
        """Adds all tokens of a text but the last, which scores none. Returns each token with the row before it."""
        rows_before = [ROOT, *self.add(ids[:-1])]
        successors = zip(rows_before, ids, strict=False)
        return list(successors)

    def _append(self, token: int, parent: int) -> int:
        depth = 0
        if parent != ROOT:
            depth = self.depths[parent] + 1
        row = len(self.ids)
        self._children[parent, token] = row
        self.ids.append(token)
        self.parents.append(parent)
        self.depths.append(depth)
        return row

    def lay(self, num_past: int, choice: Choice) -> LaidRows:
        """The tree's T rows, behind `num_past` tokens that all rows see. Each row sees its ancestors and itself."""
        size = len(self.ids)
        seen = torch.zeros(size, size, dtype=torch.bool)
        for row, parent in enumerate(self.parents):
            if parent != ROOT:
                seen[row] = seen[parent]
            seen[row, row] = True
        ids = torch.tensor(self.ids)
        positions = torch.tensor(self.depths) + num_past
        return LaidRows(ids, positions, seen, choice)


async def score(runtime: Runtime, prefix: Prefix, texts: Texts, ends: Tensor | None = None) -> TextLogs:
    """The exact log-probability of every token of each text, given the prefix and the text's earlier tokens.

    `ends` are the tokens that end a text, as a mask [V] or as ids. With them each text gets one more value: the
    log-probability that any of them comes next.
    """
    scores: TextLogs = []
    for group in split(texts, len, MAX_TREE_ROWS):
        scores += await _score_group(runtime, prefix, group, ends)
    return scores


async def _score_group(runtime: Runtime, prefix: Prefix, texts: Texts, ends: Tensor | None) -> TextLogs:
    """Scores the texts as `score` does, as one tree in at most one pass."""
    tree = Tree()
    successors_of_texts: list[list[Successor]] = []
    end_ids: list[int] = []
    if ends is not None:
        end_ids = [END]
    for text in texts:
        successors_of_texts.append(tree.add_scored([*text, *end_ids]))
    log_of: dict[Successor, float] = {}
    inner: list[Successor] = []  # tokens behind a row of the tree
    at_ends: list[Successor] = []  # ends behind a row of the tree
    for successor in dict.fromkeys(chain.from_iterable(successors_of_texts)):
        row, token = successor
        if row == ROOT and token == END:
            log_of[successor] = float(prefix.next_logs[ends].logsumexp(dim=0))
        elif row == ROOT:
            log_of[successor] = float(prefix.next_logs[token])
        elif token == END:
            at_ends.append(successor)
        else:
            inner.append(successor)
    if inner or at_ends:
        inner_logs, end_logs = await _score_rows(runtime, prefix, tree, inner, at_ends, ends)
        log_of |= zip(inner, inner_logs, strict=True)
        log_of |= zip(at_ends, end_logs, strict=True)
    scores = []
    for successors in successors_of_texts:
        scores.append([log_of[successor] for successor in successors])
    return scores


async def _score_rows(
    runtime: Runtime,
    prefix: Prefix,
    tree: Tree,
    inner: Sequence[Successor],
    at_ends: Sequence[Successor],
    ends: Tensor | None,
) -> tuple[list[float], list[float]]:
    """Runs one pass over the tree. Returns the log-probability of the token of each `inner` successor; and, for the row
    of each successor of `at_ends`, the log-probability that any of the `ends` comes next.
    """
    rows: list[int] = []
    forced_ids: list[int] = []
    for row, token in inner:
        rows.append(row)
        forced_ids.append(token)
    for row, _ in at_ends:
        rows.append(row)
        forced_ids.append(0)  # its probability is not used
    choice = force(runtime, torch.tensor(forced_ids))
    laid_rows = tree.lay(len(prefix.ids), choice)
    wanted_rows = torch.tensor(rows)
    reading = lay_behind(runtime, prefix, laid_rows, wanted_rows)
    (result,) = await forward([reading])
    assert result.chosen is not None
    num_inner = len(inner)
    confidence = result.chosen.confidence[:num_inner]
    inner_logs = _to_logs(confidence).tolist()
    if ends is None:
        return inner_logs, []
    next_logs = log_probs(runtime, result.hidden[num_inner:])
    end_logs = next_logs[:, ends].logsumexp(dim=1)
    return inner_logs, end_logs.tolist()


def force(runtime: Runtime, ids: Tensor) -> Choice:
    """A choice that takes the tokens `ids` [M], so that the confidence of each is its probability among all tokens."""
    shape = runtime.loaded.config.transformer
    every = torch.ones(1, shape.vocab_size, dtype=torch.bool)
    return Choice(every, torch.zeros_like(ids), forced=ids)


def _to_logs(confidence: Tensor) -> Tensor:
    """Log-probabilities from the `confidence` of forced tokens; that of an impossible token is finite, too."""
    return confidence.clamp(min=1e-38).log()


def log_probs(runtime: Runtime, states: Tensor) -> Tensor:
    """Log-probabilities [M, V] from the hidden states [M, D], on the CPU."""
    transformer = runtime.loaded.model.transformer
    (scores,) = score_rows(transformer, [states], runtime.operators)
    logs = scores.float().log_softmax(dim=-1)
    return _fetch(logs)


def _fetch(logs: Tensor) -> Tensor:
    """The values on the CPU. A GPU copies them into pinned memory, because that is several times as fast."""
    if not logs.is_cuda:
        return logs.cpu()
    fetched = torch.empty(logs.shape, dtype=logs.dtype, pin_memory=True)
    fetched.copy_(logs, non_blocking=True)
    torch.cuda.current_stream(logs.device).synchronize()
    return fetched


def find_likeliest(logs: Tensor, allowed: Tensor, count: int) -> list[tuple[int, float]]:
    """The `count` likeliest of the `allowed` [V] tokens, each with its log-probability, which is in `logs` [V]. Tokens
    without any probability are left out.

    Looks first only at the likeliest of all tokens, EXTRA_TOKENS more than `count`, because these are found in a tenth
    of the time that torch's topk over a vocabulary of 49,152 takes.
    """
    likeliest_ids = _find_likeliest_ids(logs, count + EXTRA_TOKENS)
    ids = likeliest_ids[allowed[likeliest_ids]]
    if len(ids) < count:
        ids = allowed.nonzero().flatten()
    num_best = min(count, len(ids))
    best = logs[ids].topk(num_best)
    best_ids = ids[best.indices].tolist()
    best_logs = best.values.tolist()
    likeliest = []
    for token, log in zip(best_ids, best_logs, strict=True):
        if log > -math.inf:
            likeliest.append((token, log))
    return likeliest


def _find_likeliest_ids(logs: Tensor, count: int) -> Tensor:
    """Ids of the `count` likeliest of all tokens. These are in the `count` pieces of the vocabulary with the greatest
    maxima, or in the end of the vocabulary, which is shorter than a piece.
    """
    size = len(logs)
    rest_start = size - size % PIECE_TOKENS
    logs_of_pieces = logs[:rest_start].view(-1, PIECE_TOKENS)
    maxima = logs_of_pieces.amax(dim=1)
    num_pieces = min(count, len(maxima))
    pieces = maxima.topk(num_pieces).indices
    piece_starts = pieces[:, None] * PIECE_TOKENS
    ids = (piece_starts + torch.arange(PIECE_TOKENS)).flatten()
    rest = torch.arange(rest_start, size)
    ids = torch.cat((ids, rest))
    num_best = min(count, len(ids))
    best = logs[ids].topk(num_best)
    return ids[best.indices]


@dataclass(frozen=True)
class Path:
    """A text of the beam search. `logs` are the log-probabilities of its tokens `ids`; if it is complete, one more is
    that of its end. `places` are the places in the KV cache of the tokens that were read; behind these may be the
    places of guessed tokens, which `ids` may lack.
    """

    ids: tuple[int, ...] = ()
    logs: tuple[float, ...] = ()
    places: tuple[int, ...] = ()

    @property
    def log(self) -> float:
        return sum(self.logs)

    def add(self, token: int, log: float) -> "Path":
        """The path with one more token, which is not read yet."""
        ids = (*self.ids, token)
        logs = (*self.logs, log)
        return Path(ids, logs, self.places)


@dataclass(frozen=True)
class LinePath:
    """A line that is being searched. `kinds` is the sum of the kinds of names in it: 1 for names that the text after
    needs, 2 for unused ones. The tokens `name_rest` complete a begun name, so they must come next. Right behind a name
    they are an empty tuple, and the word must end. Elsewhere `name_rest` is None.
    """

    path: Path = Path()
    kinds: int = 0
    name_rest: tuple[int, ...] | None = None

    def grow(self, logs: Tensor, allowed: Tensor, count: int, worded: Tensor) -> "list[LinePath]":
        """Returns lines that are one token longer. Within a name, that token is the name's next one. Elsewhere there is
        a line for each of the `count` likeliest tokens by `logs` [V] among the `allowed` [V]. Right behind a name these
        must end the word, so the tokens of `worded` [V], which begin like a word, are left out.
        """
        if self.name_rest:
            return self.begin(logs, allowed, [self.name_rest], self.kinds)
        choosable = allowed
        if self.name_rest is not None:
            choosable = allowed & ~worded
        grown = []
        for token, log in find_likeliest(logs, choosable, count):
            path = self.path.add(token, log)
            grown.append(LinePath(path, self.kinds))
        return grown

    def begin(self, logs: Tensor, allowed: Tensor, texts: Sequence[tuple[int, ...]], kinds: int) -> "list[LinePath]":
        """Returns a line for each name of `texts` whose first token is `allowed`; the name's others must follow."""
        begun = []
        for first, *others in texts:
            if allowed[first]:
                log = float(logs[first])
                path = self.path.add(first, log)
                begun.append(LinePath(path, kinds, tuple(others)))
        return begun


class Beam:
    """Reads texts after a prefix: one KV cache has all tokens that were read, and each path attends to its own ones."""

    def __init__(self, runtime: Runtime, prefix: Prefix) -> None:
        self.runtime = runtime
        self.prefix = prefix
        self._memory = open_tail(runtime, prefix)
        self._spare = len(prefix.ids) // 4 + GROWN_ROWS

    async def open(self, texts: Sequence[tuple[int, ...]]) -> tuple[list[Path], Tensor]:
        """Reads L whole texts. Returns the path of each, and the log-probabilities [L, V] of the token after each."""
        first_paths: list[Path] = []
        later_ids: list[tuple[int, ...]] = []
        forced_ids: list[int] = []
        for first, *later in texts:
            first_paths.append(Path((first,)))
            later_ids.append(tuple(later))
            forced_ids += later
            forced_ids.append(0)  # its probability is not used
        result, confidence = await self._read_forced(first_paths, later_ids, forced_ids)
        hidden = result.hidden
        start = self._memory.grow(len(hidden))
        sizes = list(map(len, texts))
        later_logs = torch.split(_to_logs(confidence), sizes)
        paths = []
        for text, size, logs in zip(texts, sizes, later_logs, strict=True):
            first_log = float(self.prefix.next_logs[text[0]])
            path_logs = (first_log, *logs[:-1].tolist())
            end = start + size
            places = tuple(range(start, end))
            paths.append(Path(text, path_logs, places))
            start = end
        ends = torch.tensor(sizes).cumsum(0)
        last_rows = ends - 1
        next_logs = log_probs(self.runtime, hidden[last_rows])
        return paths, next_logs

    async def follow(self, paths: Sequence[Path], texts: Texts) -> TextLogs:
        """The exact log-probability of every token of each text after its path. Keeps nothing of the texts. All tokens
        of the paths must have been read before.
        """
        scores: TextLogs = []
        start = 0
        for group in split(texts, len, MAX_TREE_ROWS):
            end = start + len(group)
            group_paths = paths[start:end]
            scores += await self._follow_group(group_paths, group)
            start = end
        return scores

    async def _follow_group(self, paths: Sequence[Path], texts: Texts) -> TextLogs:
        """Scores the texts as `follow` does, in one pass."""
        all_ids: list[int] = []
        read_ids: list[Sequence[int]] = []
        sizes: list[int] = []
        for text in texts:
            all_ids += text
            read_ids.append(text[:-1])
            sizes.append(len(text))
        _, confidence = await self._read_forced(paths, read_ids, all_ids)
        all_logs = _to_logs(confidence)
        parts = torch.split(all_logs, sizes)
        return [logs.tolist() for logs in parts]

    async def _read_forced(
        self, paths: Sequence[Path], behind: Texts, next_ids: Sequence[int]
    ) -> tuple[Result, Tensor]:
        """Runs a pass over the last token of each path and the tokens `behind` it, M in all. Returns the pass's result,
        and the probability [M] that each of them is followed by its token of `next_ids` [M].
        """
        choice = force(self.runtime, torch.tensor(next_ids))
        reading = self._lay(paths, behind, choice)
        result: Result
        (result,) = await forward([reading])
        assert result.chosen is not None
        return result, result.chosen.confidence

    async def read(
        self, paths: Sequence[Path], guesses: Texts | None = None, showing: Showing | None = None
    ) -> tuple[list[Path], list[Tensor]]:
        """Reads the last token of each path and the G tokens that are guessed behind it. Returns the paths, whose
        `places` include the guessed tokens, and for each path the log-probabilities [1 + G, V] of the token after each
        of these. `showing` is the event of the pass.
        """
        guessed = guesses or [()] * len(paths)
        reading = self._lay(paths, guessed)
        (result,) = await forward([reading], showing)
        hidden = result.hidden
        start = self._memory.grow(len(hidden))
        sizes = [1 + len(guess) for guess in guessed]
        read_paths: list[Path] = []
        for path, size in zip(paths, sizes, strict=True):
            num_earlier = len(path.ids) - 1
            earlier = path.places[:num_earlier]
            end = start + size
            places = (*earlier, *range(start, end))
            read_paths.append(Path(path.ids, path.logs, places))
            start = end
        all_logs = log_probs(self.runtime, hidden)
        logs = torch.split(all_logs, sizes)
        return read_paths, list(logs)

    def _lay(self, paths: Sequence[Path], behind: Texts, choice: Choice | None = None) -> Pass:
        """A pass over the last token of each path and the tokens `behind` it, which see the prefix and their path."""
        memory = self._memory
        num_shared = len(self.prefix.ids)
        num_shown = memory.num_shown
        num_past = memory.length - num_shown
        num_behind = sum(map(len, behind))
        num_rows = len(paths) + num_behind
        attention_mask = torch.zeros(num_rows, num_past + num_rows, dtype=torch.bool)
        attention_mask[:, : num_shared - num_shown] = True
        ids: list[int] = []
        positions: list[int] = []
        row = 0
        for path, text in zip(paths, behind, strict=True):
            size = 1 + len(text)
            rows = slice(row, row + size)
            depth = len(path.ids) - 1
            earlier = [place - num_shown for place in path.places[:depth]]
            attention_mask[rows, earlier] = True
            column = num_past + row
            own_columns = slice(column, column + size)
            sees_own = torch.ones(size, size, dtype=torch.bool).tril()
            attention_mask[rows, own_columns] = sees_own
            ids.append(path.ids[-1])
            ids += text
            position = num_shared + depth
            positions += range(position, position + size)
            row += size
        all_ids = torch.tensor(ids)
        all_positions = torch.tensor(positions)
        laid_rows = LaidRows(all_ids, all_positions, attention_mask, choice)
        return memory.lay(laid_rows, self._spare)
