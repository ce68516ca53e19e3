"""What needs no neural network: `pass`, the line before, a table of lines, a two-sided 5-gram. Knows packs and texts.

A model that is not clearly above these has learned nothing of use. The last two are counted on the training split of
the pack that the user names.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.quality.suite import Task
from midfill_engine.tokens.tokenizer import Tokenizer, heal
from training.data.pack import Pack
from training.evaluate import Gap, previous_line

ORDER: Final = 5
MAX_NGRAM_TOKENS: Final = 60_000_000
MAX_GAP_TOKENS: Final = 24
NUM_PATHS: Final = 4
BACK_OFF: Final = math.log(0.4)
MAX_FOLLOWERS: Final = 50_000  # of a context that occurs more often, an even sample is counted
PLENTY: Final = 1_000_000

Fill = Callable[[Task], str]


def fill_with_pass(task: Task) -> str:
    return shape(task, "pass")


def fill_with_previous_line(task: Task) -> str:
    return shape(task, previous_line(Gap(task.language, task.prefix, task.middle, task.suffix)))


def shape(task: Task, content: str) -> str:
    """`content` as the line that a gap at the start of a line wants: indented like its neighbours, and ended."""
    if task.prefix and not task.prefix.endswith("\n"):
        return content
    end = "" if task.suffix.startswith("\n") or not task.suffix else "\n"
    return _indent(task.prefix) + content + end


def _indent(prefix: str) -> str:
    lines = [line for line in prefix.split("\n") if line.strip()]
    if not lines:
        return ""
    last = lines[-1]
    indent = last[: len(last) - len(last.lstrip())]
    return indent + "    " if last.rstrip().endswith(":") else indent


class LineTable:
    """The commonest line between two lines, else after the one before, else before the one behind, else of all.

    Only lines whose brackets and quotes are closed are taken: others are parts of something larger.
    """

    def __init__(self, texts: Iterable[str], tasks: Sequence[Task]) -> None:
        """Counts only what `tasks` will ask for."""
        keys = [_neighbours(task) for task in tasks]
        wanted = {key for before, after in keys for key in ((before, after), (before, None), (None, after))}
        befores, afters = {before for before, _ in keys}, {after for _, after in keys}
        self._counts: dict[tuple[str | None, str | None], Counter[str]] = defaultdict(Counter)
        self._all: Counter[str] = Counter()
        for text in texts:
            lines = [line.strip() for line in text.split("\n") if line.strip()]
            self._count_all(lines)
            for before, line, after in zip(lines, lines[1:], lines[2:], strict=False):
                if before in befores:
                    self._counts[before, None][line] += 1
                if after in afters:
                    self._counts[None, after][line] += 1
                if (before, after) in wanted:
                    self._counts[before, after][line] += 1

    def _count_all(self, lines: list[str]) -> None:
        self._all.update(lines)
        if len(self._all) > PLENTY:
            self._all = Counter(dict(self._all.most_common(PLENTY // 10)))

    def fill(self, task: Task) -> str:
        before, after = _neighbours(task)
        known = [self._counts.get(key, Counter()) for key in ((before, after), (before, None), (None, after))]
        found = next(filter(None, map(commonest_closed, known)), self._commonest)
        return shape(task, found or "pass")

    @cached_property
    def _commonest(self) -> str | None:
        return commonest_closed(self._all)


def commonest_closed(counts: Counter[str]) -> str | None:
    """Of several as common the first that was counted; None where no line is closed."""
    return max(filter(is_closed, counts), key=counts.__getitem__, default=None)


def is_closed(line: str) -> bool:
    """Whether every bracket and every double quote of a line has its partner there."""
    depth = 0
    for character in line:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return False
    return depth == 0 and line.count('"') % 2 == 0


def _neighbours(task: Task) -> tuple[str | None, str | None]:
    before = [line.strip() for line in task.prefix.split("\n") if line.strip()]
    after = [line.strip() for line in task.suffix.split("\n") if line.strip()]
    return (before[-1] if before else None), (after[0] if after else None)


class Contexts:
    """The places of `tokens` [N] from the fifth on, sorted by the four tokens before them, the nearest first.

    Every shorter context is a range of the longer one's order, so one sorted list serves all orders of back-off.
    """

    def __init__(self, tokens: NDArray[np.uint16]) -> None:
        wide = tokens.astype(np.uint64)
        keys = np.zeros(len(tokens), np.uint64)
        for distance in range(1, ORDER):
            keys[distance:] |= wide[:-distance] << np.uint64(16 * (ORDER - 1 - distance))
        order = np.argsort(keys[ORDER - 1 :]) + ORDER - 1
        self._keys, self._followers = keys[order], tokens[order]

    def following(self, context: Sequence[int]) -> Iterator[NDArray[np.uint16]]:
        """What followed `context` (nearest token first), then what followed less and less of it, down to nothing."""
        for size in range(min(len(context), ORDER - 1), -1, -1):
            low = sum(token << 16 * (ORDER - 2 - place) for place, token in enumerate(context[:size]))
            width = 1 << 16 * (ORDER - 1 - size)
            first, last = np.array([low, low + width - 1], np.uint64)
            start = int(np.searchsorted(self._keys, first, "left"))
            end = int(np.searchsorted(self._keys, last, "right"))
            if start < end:
                yield self._followers[start : end : 1 + (end - start) // MAX_FOLLOWERS]


@dataclass(frozen=True)
class Path:
    """Tokens of a gap, nearest first, with their log score."""

    tokens: tuple[int, ...]
    score: float


class FiveGram:
    """A beam search for the tokens that best lead from the text before the gap to the text behind it.

    The score is that of the gap and of the four tokens behind it, given the four before: both sides count, and with
    them the length. Back-off costs a factor of 0.4 a step (Brants et al. 2007). A gap is never filled by white space.
    """

    def __init__(self, pack: Pack, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._contexts = Contexts(pack.tokens[:MAX_NGRAM_TOKENS])
        pieces = [tokenizer.token_bytes(index) for index in range(tokenizer.vocab_size)]
        self._begins = {
            lead: np.array([piece.startswith(lead) and bool(piece) for piece in pieces]) for lead in (b"", b" ", b"\n")
        }

    def fill(self, task: Task) -> str:
        edges = heal(task.prefix, task.suffix)
        before = tuple(self._tokenizer.encode(edges.prefix[-400:])[:-ORDER:-1])
        after = self._tokenizer.encode(edges.suffix[:400] or "\n")[: ORDER - 1]
        paths, best = [Path((), 0.0)], Path((), -math.inf)
        for length in range(MAX_GAP_TOKENS):
            allowed = self._begins[b"" if length else edges.lead[:1].encode()]
            grown = [longer for path in paths for longer in self._grow(path, before, allowed)]
            paths = sorted(grown, key=lambda path: -path.score)[:NUM_PATHS]
            arrived = [
                Path(path.tokens, self._reach(path, before, after))
                for path in paths
                if self._tokenizer.decode(list(path.tokens)).strip()
            ]
            best = max([best, *arrived], key=lambda path: path.score)
            if not paths or paths[0].score < best.score:  # scores only fall
                break
        return self._tokenizer.decode(list(best.tokens[::-1])).removeprefix(edges.lead) + edges.tail

    def _grow(self, path: Path, before: tuple[int, ...], allowed: NDArray[np.bool_]) -> list[Path]:
        """The path with each of its likeliest next tokens, from the longest context that has enough of them."""
        grown: dict[int, Path] = {}
        penalty = 0.0
        for followers in self._contexts.following((path.tokens + before)[: ORDER - 1]):
            counts = np.bincount(followers, minlength=len(allowed)) * allowed
            for token in np.argsort(counts)[: -NUM_PATHS - 1 : -1].tolist():
                if counts[token]:
                    score = path.score + penalty + math.log(counts[token] / len(followers))
                    grown.setdefault(token, Path((token, *path.tokens), score))
            if len(grown) >= NUM_PATHS:
                break
            penalty += BACK_OFF
        return list(grown.values())

    def _reach(self, path: Path, before: tuple[int, ...], after: Sequence[int]) -> float:
        score, behind = path.score, path.tokens + before
        for token in after:
            score += self._score(behind[: ORDER - 1], token)
            behind = (token, *behind)
        return score

    def _score(self, context: tuple[int, ...], token: int) -> float:
        penalty = 0.0
        for followers in self._contexts.following(context):
            count = int((followers == token).sum())
            if count:
                return penalty + math.log(count / len(followers))
            penalty += BACK_OFF
        return penalty + BACK_OFF - math.log(len(self._begins[b""]))


def texts_of(pack: Pack, tokenizer: Tokenizer) -> Iterator[str]:
    """The files of a pack."""
    for start, length in zip(pack.starts.tolist(), pack.lengths.tolist(), strict=True):
        yield tokenizer.decode(pack.tokens[start : start + length].tolist())
