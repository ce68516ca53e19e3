"""Scores texts after a causally read prefix, and finds the likeliest texts by beam search. Knows ids, no text.

Texts with a common beginning share its rows: one pass holds a tree, and the attention mask shows each row the prefix
and the row's ancestors. So the tree's log-probabilities equal those of the texts one by one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from midfill_engine.caches.stores import Prefix
from midfill_engine.causal.held import Laid, lay_behind, open_prompt, open_tail
from midfill_engine.groups import split
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.choice import Choice
from midfill_engine.models.packed import Pass, score_rows
from midfill_engine.scheduling.work import forward

MAX_TREE_ROWS: Final = 768
READ_ROWS: Final = 256
GROWN_ROWS: Final = 64
ROOT: Final = -1  # the last token of the prefix
PIECE: Final = 64  # tokens
MORE: Final = 16  # tokens that may not be allowed


async def read_prefix(
    runtime: Runtime, ids: tuple[int, ...], is_over: Callable[[], bool] = lambda: False
) -> tuple[Prefix, int]:
    """Returns the prefix of these ids and the number of cached ones; computes only the others. When it `is_over`, the
    prefix ends early, and is kept for the next time.
    """
    known, entry = runtime.prefixes.find(ids)
    if entry is not None and known == len(ids) == len(entry.ids):
        return entry, known
    known = min(known, len(ids) - 1)
    held = open_prompt(runtime, entry, known, len(ids))
    for start in range(known, len(ids), READ_ROWS):  # attention is causal, so reading in parts saves work
        part = ids[start : start + READ_ROWS]
        (result,) = await forward([held.read(part, len(ids) - start)])
        if held.grow(len(part)) + len(part) < len(ids) and is_over():
            break
    prefix = held.keep(ids[: held.length], result.hidden)
    runtime.prefixes.add(prefix)
    return prefix, known


@dataclass
class Tree:
    """A tree of texts after a prefix: row i holds the token `ids[i]`, which follows `parents[i]`, a row or ROOT."""

    ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    _children: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, ids: Sequence[int]) -> list[int]:
        """Adds a text and returns its rows; texts with a common beginning share its rows."""
        rows, parent = [], ROOT
        for token in ids:
            row = self._children.get((parent, token))
            if row is None:
                row = self._children[parent, token] = len(self.ids)
                self.ids.append(token)
                self.parents.append(parent)
                self.depths.append(self.depths[parent] + 1 if parent >= 0 else 0)
            rows.append(row)
            parent = row
        return rows

    def lay(self, num_past: int, choice: Choice) -> Laid:
        """Its T rows behind `num_past` tokens that all see; each row sees its ancestors and itself."""
        size = len(self.ids)
        seen = torch.zeros(size, size, dtype=torch.bool)
        for row, parent in enumerate(self.parents):
            if parent >= 0:
                seen[row] = seen[parent]
            seen[row, row] = True
        return Laid(torch.tensor(self.ids), torch.tensor(self.depths) + num_past, seen, choice)


async def score(
    runtime: Runtime, prefix: Prefix, texts: Sequence[Sequence[int]], ends: Tensor | None = None
) -> list[list[float]]:
    """The exact log-probability of every token of each text, given the prefix and the text's earlier tokens.

    With `ends`, a mask [V] or ids, each text gets one more value: the log-probability that one of them comes next.
    """
    found: list[list[float]] = []
    for group in split(texts, len, MAX_TREE_ROWS):
        found += await _score_group(runtime, prefix, group, ends)
    return found


async def _score_group(
    runtime: Runtime, prefix: Prefix, texts: Sequence[Sequence[int]], ends: Tensor | None
) -> list[list[float]]:
    tree, places, last = Tree(), [], []
    asked: dict[tuple[int, int], int] = {}  # (row, next token) to its index among all
    for text in texts:
        rows = [ROOT, *tree.add(text if ends is not None else text[:-1])]
        places.append([asked.setdefault(pair, len(asked)) for pair in zip(rows, text, strict=False)])
        last.append(rows[-1])
    behind = [pair for pair in asked if pair[0] != ROOT]
    over = [row for row in dict.fromkeys(last) if row != ROOT and ends is not None]
    values, first = torch.zeros(len(asked)), first_scores(runtime, prefix)
    for (row, token), number in asked.items():
        if row == ROOT:
            values[number] = first[token]
    ending = {ROOT: first[ends].logsumexp(dim=0)} if ends is not None else {}
    if behind or over:
        wanted = torch.tensor([*(row for row, _ in behind), *over])
        next_ids = torch.tensor([*(token for _, token in behind), *(0 for _ in over)])
        laid = tree.lay(len(prefix.ids), force(runtime, next_ids))
        (result,) = await forward([lay_behind(runtime, prefix, laid, wanted)])
        assert result.chosen is not None
        numbers = torch.tensor([asked[pair] for pair in behind], dtype=torch.int64)
        values[numbers] = result.chosen.confidence[: len(behind)].clamp(min=1e-38).log()
        if ends is not None:
            logs = log_probs(runtime, [result.hidden[len(behind) :]])[0]
            ending |= dict(zip(over, logs[:, ends].logsumexp(dim=1), strict=True))
    found = [values[torch.tensor(place, dtype=torch.int64)].tolist() for place in places]
    return [[*logs, float(ending[row])] if ends is not None else logs for logs, row in zip(found, last, strict=True)]


def force(runtime: Runtime, ids: Tensor) -> Choice:
    """The choice of `ids` [M], which gives the probability of each among all tokens."""
    every = torch.ones(1, runtime.loaded.config.transformer.vocab_size, dtype=torch.bool)
    return Choice(every, torch.zeros_like(ids), forced=ids)


def first_scores(runtime: Runtime, prefix: Prefix) -> Tensor:
    """Log-probabilities [V] of the first token after the prefix."""
    return log_probs(runtime, [prefix.state])[0][0]


def log_probs(runtime: Runtime, states: list[Tensor]) -> list[Tensor]:
    """Log-probabilities [M, V] from each of the hidden states [M, D], on the CPU."""
    scores = score_rows(runtime.loaded.model.transformer, states, runtime.operators)
    return [_fetch(part.float().log_softmax(dim=-1)) for part in scores]


def _fetch(logs: Tensor) -> Tensor:
    """The values on the CPU; from a GPU in pinned memory, which it copies to several times as fast."""
    if not logs.is_cuda:
        return logs.cpu()
    fetched = torch.empty(logs.shape, dtype=logs.dtype, pin_memory=True).copy_(logs, non_blocking=True)
    torch.cuda.current_stream(logs.device).synchronize()
    return fetched


def find_likeliest(logs: Tensor, allowed: Tensor, count: int) -> list[tuple[int, float]]:
    """The `count` likeliest tokens by the log-probabilities `logs` [V] that are `allowed`, with theirs.

    First among a few more of all tokens, which lie in as many pieces with the greatest maxima: torch's topk over a
    vocabulary of 49,152 takes ten times as long.
    """
    ids = _find_candidates(logs, count + MORE)
    ids = ids[allowed[ids]]
    if len(ids) < count:
        ids = allowed.nonzero().flatten()
    best = logs[ids].topk(min(count, len(ids)))
    pairs = zip(ids[best.indices].tolist(), best.values.tolist(), strict=True)
    return [(token, log) for token, log in pairs if log > -math.inf]


def _find_candidates(logs: Tensor, count: int) -> Tensor:
    """Ids of the `count` likeliest tokens, in no order."""
    whole = len(logs) // PIECE * PIECE
    maxima = logs[:whole].view(-1, PIECE).amax(dim=1)
    pieces = maxima.topk(min(count, len(maxima))).indices
    ids = (pieces[:, None] * PIECE + torch.arange(PIECE)).flatten()
    ids = torch.cat((ids, torch.arange(whole, len(logs))))
    return ids[logs[ids].topk(min(count, len(ids))).indices]


@dataclass(frozen=True)
class Path:
    """A path of the beam: `logs` are its tokens' log-probabilities, `places` their positions in the KV cache."""

    ids: tuple[int, ...] = ()
    logs: tuple[float, ...] = ()
    places: tuple[int, ...] = ()

    @property
    def log(self) -> float:
        return sum(self.logs)

    def add(self, token: int, log: float) -> "Path":
        return Path((*self.ids, token), (*self.logs, log), self.places)


@dataclass(frozen=True)
class LinePath:
    """A line that is being searched. `has` is the sum of the kinds of names in it: 1 for names that the text after
    needs, 2 for unused ones. The tokens `rest` of a name must come next; after the last one the word must end.
    """

    path: Path = Path()
    has: int = 0
    rest: tuple[int, ...] | None = None

    def grow(self, logs: Tensor, allowed: Tensor, count: int, words: Tensor) -> "list[LinePath]":
        """The paths with each of the `count` likeliest next tokens by `logs` [V] that are `allowed`; `words` [V] go on
        with a word.
        """
        if self.rest:
            return self.begin(logs, allowed, [self.rest], self.has)
        pairs = find_likeliest(logs, allowed if self.rest is None else allowed & ~words, count)
        return [LinePath(self.path.add(token, log), self.has) for token, log in pairs]

    def begin(self, logs: Tensor, allowed: Tensor, texts: Sequence[tuple[int, ...]], has: int) -> "list[LinePath]":
        """The paths with the first token of each text, whose other tokens must follow."""
        possible = [text for text in texts if allowed[text[0]]]
        return [LinePath(self.path.add(text[0], float(logs[text[0]])), has, text[1:]) for text in possible]


class Beam:
    """Beam search after a prefix: one KV cache holds all tokens that were read, and each path attends to its own."""

    def __init__(self, runtime: Runtime, prefix: Prefix) -> None:
        self.runtime, self.prefix = runtime, prefix
        self._held, self._spare = open_tail(runtime, prefix), len(prefix.ids) // 4 + GROWN_ROWS

    async def open(self, texts: Sequence[tuple[int, ...]]) -> tuple[list[Path], Tensor]:
        """Reads whole texts. Returns the path of each, and log-probabilities [L, V] of the next token of each."""
        behind = [text[1:] for text in texts]
        forced = force(self.runtime, torch.tensor([token for text in behind for token in (*text, 0)]))
        (result,) = await forward([self._lay([Path(text[:1]) for text in texts], behind, choice=forced)])
        assert result.chosen is not None
        start, first = self._held.grow(len(result.hidden)), first_scores(self.runtime, self.prefix)
        sizes = list(map(len, texts))
        logs = torch.split(result.chosen.confidence.clamp(min=1e-38).log(), sizes)
        places = torch.split(torch.arange(start, self._held.length), sizes)
        paths = [
            Path(text, (float(first[text[0]]), *known[:-1].tolist()), tuple(own.tolist()))
            for text, known, own in zip(texts, logs, places, strict=True)
        ]
        return paths, log_probs(self.runtime, [result.hidden[torch.tensor(sizes).cumsum(0) - 1]])[0]

    async def follow(self, paths: Sequence[Path], texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """The exact log-probability of every token of each text after its path; all of the path must have been read."""
        found: list[list[float]] = []
        for group in split(zip(paths, texts, strict=True), lambda pair: len(pair[1]), MAX_TREE_ROWS):
            found += await self._follow_group(group)
        return found

    async def _follow_group(self, group: Sequence[tuple[Path, Sequence[int]]]) -> list[list[float]]:
        paths = [path for path, _ in group]
        forced = torch.tensor([token for _, text in group for token in text])
        step = self._lay(paths, [text[:-1] for _, text in group], choice=force(self.runtime, forced))
        (result,) = await forward([step])
        assert result.chosen is not None
        logs = result.chosen.confidence.clamp(min=1e-38).log()
        return [part.tolist() for part in logs.split([len(text) for _, text in group])]

    async def read(
        self, paths: Sequence[Path], guesses: Sequence[Sequence[int]] | None = None
    ) -> tuple[list[Path], list[Tensor]]:
        """Reads the last token of each path and its G guessed tokens. Returns the paths, whose `places` include the
        guessed tokens, and log-probabilities [1 + G, V] of the token after each of these.
        """
        guesses = guesses or [()] * len(paths)
        (result,) = await forward([self._lay(paths, guesses)])
        start, read = self._held.grow(len(result.hidden)), list[Path]()
        for path, guess in zip(paths, guesses, strict=True):
            own = range(start, start + 1 + len(guess))
            read.append(Path(path.ids, path.logs, (*path.places[: len(path.ids) - 1], *own)))
            start = own.stop
        logs = log_probs(self.runtime, [result.hidden])[0]
        return read, list(torch.split(logs, [1 + len(guess) for guess in guesses]))

    def _lay(self, paths: Sequence[Path], behind: Sequence[Sequence[int]], choice: Choice | None = None) -> Pass:
        """A pass over the last token of each path and the tokens `behind` it, with an attention mask for each path."""
        num_shared, num_shown = len(self.prefix.ids), self._held.num_shown
        size, num_past = len(paths) + sum(map(len, behind)), self._held.length - num_shown
        mask = torch.zeros(size, num_past + size, dtype=torch.bool)
        mask[:, : num_shared - num_shown] = True
        ids, positions = list[int](), list[int]()
        for path, text in zip(paths, behind, strict=True):
            start, end, depth = len(ids), len(ids) + 1 + len(text), len(path.ids) - 1
            mask[start:end, [place - num_shown for place in path.places[:depth]]] = True
            own = slice(num_past + start, num_past + end)
            mask[start:end, own] = torch.ones(end - start, end - start, dtype=torch.bool).tril()
            ids += [path.ids[-1], *text]
            positions += range(num_shared + depth, num_shared + depth + end - start)
        return self._held.lay(Laid(torch.tensor(ids), torch.tensor(positions), mask, choice), self._spare)
