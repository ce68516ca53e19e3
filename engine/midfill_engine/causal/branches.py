"""Scores texts after a causally read prefix, and finds the likeliest texts by beam search. Knows ids, no text.

Texts with a common beginning share its rows: one pass holds a tree, and the attention mask shows each row the prefix
and the row's ancestors. So the tree's log-probabilities equal those of the texts one by one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
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
END: Final = -1  # in place of a next token: one of those that end a text
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
        held.grow(len(part))
        if held.length < len(ids) and is_over():
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
        rows: list[int] = []
        parent = ROOT
        for token in ids:
            row = self._children.get((parent, token))
            if row is None:
                row = self._append(token, parent)
            rows.append(row)
            parent = row
        return rows

    def _append(self, token: int, parent: int) -> int:
        row = len(self.ids)
        self._children[parent, token] = row
        self.ids.append(token)
        self.parents.append(parent)
        self.depths.append(0 if parent == ROOT else self.depths[parent] + 1)
        return row

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
    scores: list[list[float]] = []
    for group in split(texts, len, MAX_TREE_ROWS):
        scores += await _score_group(runtime, prefix, group, ends)
    return scores


async def _score_group(
    runtime: Runtime, prefix: Prefix, texts: Sequence[Sequence[int]], ends: Tensor | None
) -> list[list[float]]:
    tree = Tree()
    asked: list[list[tuple[int, int]]] = []  # the row before each token of each text, and the token
    for text in texts:
        if ends is None:
            rows, next_ids = tree.add(text[:-1]), text
        else:
            rows, next_ids = tree.add(text), [*text, END]
        asked.append(list(zip([ROOT, *rows], next_ids, strict=False)))
    first = first_scores(runtime, prefix)
    log_of: dict[tuple[int, int], float] = {}
    behind: list[tuple[int, int]] = []
    end_rows: list[int] = []
    for row, token in dict.fromkeys(chain.from_iterable(asked)):
        if row != ROOT and token != END:
            behind.append((row, token))
        elif row != ROOT:
            end_rows.append(row)
        elif token != END:
            log_of[row, token] = float(first[token])
        else:
            log_of[row, token] = float(first[ends].logsumexp(dim=0))
    if behind or end_rows:
        wanted = torch.tensor([row for row, _ in behind] + end_rows)
        forced = torch.tensor([token for _, token in behind] + [0] * len(end_rows))
        laid = tree.lay(len(prefix.ids), force(runtime, forced))
        (result,) = await forward([lay_behind(runtime, prefix, laid, wanted)])
        assert result.chosen is not None
        logs = _to_logs(result.chosen.confidence[: len(behind)])
        log_of |= zip(behind, logs.tolist(), strict=True)
        if ends is not None:
            next_logs = log_probs(runtime, [result.hidden[len(behind) :]])[0]
            end_logs = next_logs[:, ends].logsumexp(dim=1)
            log_of |= zip([(row, END) for row in end_rows], end_logs.tolist(), strict=True)
    return [[log_of[pair] for pair in pairs] for pairs in asked]


def force(runtime: Runtime, ids: Tensor) -> Choice:
    """The choice of `ids` [M], which gives the probability of each among all tokens."""
    every = torch.ones(1, runtime.loaded.config.transformer.vocab_size, dtype=torch.bool)
    return Choice(every, torch.zeros_like(ids), forced=ids)


def _to_logs(confidence: Tensor) -> Tensor:
    """Log-probabilities of forced tokens."""
    return confidence.clamp(min=1e-38).log()


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
        """The path with one more token, which is not read yet."""
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
        if self.rest is not None:
            allowed = allowed & ~words
        pairs = find_likeliest(logs, allowed, count)
        return [LinePath(self.path.add(token, log), self.has) for token, log in pairs]

    def begin(self, logs: Tensor, allowed: Tensor, texts: Sequence[tuple[int, ...]], has: int) -> "list[LinePath]":
        """The paths with the first token of each text, whose other tokens must follow."""
        begun = []
        for first, *rest in texts:
            if allowed[first]:
                begun.append(LinePath(self.path.add(first, float(logs[first])), has, tuple(rest)))
        return begun


class Beam:
    """Beam search after a prefix: one KV cache holds all tokens that were read, and each path attends to its own."""

    def __init__(self, runtime: Runtime, prefix: Prefix) -> None:
        self.runtime = runtime
        self.prefix = prefix
        self._held = open_tail(runtime, prefix)
        self._spare = len(prefix.ids) // 4 + GROWN_ROWS

    async def open(self, texts: Sequence[tuple[int, ...]]) -> tuple[list[Path], Tensor]:
        """Reads whole texts. Returns the path of each, and log-probabilities [L, V] of the next token of each."""
        next_ids: list[int] = []
        for text in texts:
            next_ids += [*text[1:], 0]
        forced = force(self.runtime, torch.tensor(next_ids))
        (result,) = await forward([self._lay([Path(text[:1]) for text in texts], [text[1:] for text in texts], forced)])
        assert result.chosen is not None
        first = first_scores(self.runtime, self.prefix)
        start = self._held.grow(len(result.hidden))
        sizes = list(map(len, texts))
        logs = torch.split(_to_logs(result.chosen.confidence), sizes)
        paths = []
        for text, text_logs in zip(texts, logs, strict=True):
            places = tuple(range(start, start + len(text)))
            paths.append(Path(text, (float(first[text[0]]), *text_logs[:-1].tolist()), places))
            start += len(text)
        last_rows = torch.tensor(sizes).cumsum(0) - 1
        return paths, log_probs(self.runtime, [result.hidden[last_rows]])[0]

    async def follow(self, paths: Sequence[Path], texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """The exact log-probability of every token of each text after its path; all of the path must have been read."""
        scores: list[list[float]] = []
        for group in split(zip(paths, texts, strict=True), lambda pair: len(pair[1]), MAX_TREE_ROWS):
            scores += await self._follow_group(group)
        return scores

    async def _follow_group(self, group: Sequence[tuple[Path, Sequence[int]]]) -> list[list[float]]:
        paths = [path for path, _ in group]
        texts = [text for _, text in group]
        forced = force(self.runtime, torch.tensor(list(chain.from_iterable(texts))))
        (result,) = await forward([self._lay(paths, [text[:-1] for text in texts], forced)])
        assert result.chosen is not None
        logs = _to_logs(result.chosen.confidence)
        return [text_logs.tolist() for text_logs in torch.split(logs, list(map(len, texts)))]

    async def read(
        self, paths: Sequence[Path], guesses: Sequence[Sequence[int]] | None = None
    ) -> tuple[list[Path], list[Tensor]]:
        """Reads the last token of each path and its G guessed tokens. Returns the paths, whose `places` include the
        guessed tokens, and log-probabilities [1 + G, V] of the token after each of these.
        """
        guesses = guesses or [()] * len(paths)
        (result,) = await forward([self._lay(paths, guesses)])
        start = self._held.grow(len(result.hidden))
        sizes = [1 + len(guess) for guess in guesses]
        read_paths: list[Path] = []
        for path, size in zip(paths, sizes, strict=True):
            earlier = path.places[: len(path.ids) - 1]
            read_paths.append(replace(path, places=(*earlier, *range(start, start + size))))
            start += size
        logs = log_probs(self.runtime, [result.hidden])[0]
        return read_paths, list(torch.split(logs, sizes))

    def _lay(self, paths: Sequence[Path], behind: Sequence[Sequence[int]], choice: Choice | None = None) -> Pass:
        """A pass over the last token of each path and the tokens `behind` it, with an attention mask for each path."""
        num_shared = len(self.prefix.ids)
        num_shown = self._held.num_shown
        num_past = self._held.length - num_shown
        num_rows = len(paths) + sum(map(len, behind))
        mask = torch.zeros(num_rows, num_past + num_rows, dtype=torch.bool)
        mask[:, : num_shared - num_shown] = True
        ids: list[int] = []
        positions: list[int] = []
        for path, text in zip(paths, behind, strict=True):
            start, size = len(ids), 1 + len(text)
            rows = slice(start, start + size)
            depth = len(path.ids) - 1
            mask[rows, [place - num_shown for place in path.places[:depth]]] = True
            own = slice(num_past + start, num_past + start + size)
            mask[rows, own] = torch.ones(size, size, dtype=torch.bool).tril()
            ids += [path.ids[-1], *text]
            positions += range(num_shared + depth, num_shared + depth + size)
        return self._held.lay(Laid(torch.tensor(ids), torch.tensor(positions), mask, choice), self._spare)
