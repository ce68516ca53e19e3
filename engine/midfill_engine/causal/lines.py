"""Searches for the likeliest texts of one line. Knows tokens and texts; ranks nothing by the text after."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Final

from torch import Tensor

from midfill_engine.caches.stores import Prefix
from midfill_engine.causal.branches import Beam, LinePath, Path, first_scores
from midfill_engine.causal.effort import WHOLE
from midfill_engine.causal.prompt import WORD
from midfill_engine.causal.writing import TokenWriter
from midfill_engine.judging import add_logs
from midfill_engine.tokens.vocabulary import NAMED

INSIDE: Final = 2  # times as many drafts inside a line
MAX_LINE_TOKENS: Final = 64
MAX_READ_ALONG: Final = 2  # guessed tokens a path
NEARLY_CERTAIN: Final = -0.1  # ln P


@dataclass(frozen=True)
class ReadLine:
    """A line whose last token was read along with a `guess` of the next ones. `scores` are the log-probabilities [V] of
    the token behind its last one and behind each guessed one.
    """

    line: LinePath
    scores: Iterable[Tensor]
    guess: tuple[int, ...] = ()


@dataclass
class Round:
    """The lines that are one token longer, by the kinds of names in them, and how many lines of each kind were read
    along: each of these leaves its room to another one.
    """

    grown: dict[int, list[LinePath]] = field(default_factory=dict)
    num_along: Counter[int] = field(default_factory=Counter)


class LineSearch:
    """Beam search for texts without a line break; the likelihood includes that a text ends there.

    Also for the likeliest ones with a name that the text after needs, with an unused one, and with both (grid beam
    search, Hokamp 2017): their beams begin a name behind each path without it. Guessed tokens are read along, and a
    path goes on over those that are nearly certain. Lines are `complete` by the kinds of names in them; of each kind
    `num_complete` are kept, and a search may end once `enough` of them are likelier than all open ones.
    """

    def __init__(self, writer: TokenWriter, names: Sequence[str] = (), unused: Sequence[str] = ()) -> None:
        stretch = writer.stretch
        self.writer = writer
        self.names = {1: names, 2: unused}
        max_tokens = min(stretch.max_tokens, MAX_LINE_TOKENS)
        self.limit = max_tokens + len(writer.pending)
        self.num_complete = max(writer.widest, WHOLE.width)
        self.enough = max(writer.effort.enough, writer.drawing.count)
        if stretch.is_inside:  # the rest of the line judges them
            self.num_complete *= INSIDE
            self.enough = writer.widest
        elif stretch.is_block:  # bodies begin with the first ones
            self.enough = writer.num_firsts
        self.complete: dict[int, list[Path]] = {0: []}
        self._vocabulary = writer.runtime.vocabulary
        self._in_line = ~self._vocabulary.beginning(b"\n")
        self._spell_names = cache(self._encode_names)
        self._spelled: list[float] = []  # ln P of each way to spell what is pending

    @property
    def begun_nats(self) -> float:
        """ln P of the word that is begun, 0.0 if none is."""
        if not WORD.match(self.writer.pending[-1:]):
            return 0.0
        return add_logs(self._spelled)

    async def run(self, prefix: Prefix) -> list[Path]:
        runtime = self.writer.runtime
        beam = Beam(runtime, prefix)
        first = first_scores(runtime, prefix)
        reads = [ReadLine(LinePath(), [first])]
        while True:
            this_round = self._grow_all(reads)
            lines = self._keep_open(this_round)
            if not lines:
                break
            reads = await self._read(beam, lines)
        return list(chain.from_iterable(self.complete.values()))

    async def _read(self, beam: Beam, lines: Sequence[LinePath]) -> list[ReadLine]:
        paths = [line.path for line in lines]
        guesses = []
        for line, guess in zip(lines, self.writer.guess(paths, is_sure=True), strict=True):
            next_ids = line.rest or guess
            guesses.append(next_ids[:MAX_READ_ALONG])
        likeliest = max(paths, key=lambda path: path.log)
        paths, scores = await beam.read(paths, guesses, self.writer.showing(likeliest))
        reads = []
        for line, path, logs, guess in zip(lines, paths, scores, guesses, strict=True):
            read_line = replace(line, path=path)
            reads.append(ReadLine(read_line, logs, guess))
        return reads

    def _grow_all(self, reads: Sequence[ReadLine]) -> Round:
        """The lines that were read, each with its likeliest next tokens and with the beginnings of names."""
        this_round = Round()
        for read in reversed(reads):
            following: ReadLine | None = read
            while following is not None:
                following = self._grow(following, this_round)
        return this_round

    def _grow(self, read: ReadLine, this_round: Round) -> ReadLine | None:
        """Ends a line where it may end, and adds its next tokens. Returns the line with its guessed token if that is
        the next one for certain.
        """
        line = read.line
        path = line.path
        logs, *later_scores = read.scores
        writer = self.writer
        num_spelled = writer.spelled(path)
        num_pending = len(writer.pending)
        left = writer.pending[num_spelled:]
        if left and not line.has:
            next_logs = logs[self._vocabulary.beginning(left)]
            log = float(next_logs.logsumexp(dim=0))
            self._spelled.append(path.log + log)
        elif num_spelled > num_pending and not line.rest and self._may_end(path):
            complete = self.complete.setdefault(line.has, [])
            complete.append(writer.ended(path, logs))
        is_first = num_spelled == num_pending
        allowed = writer.edge.allowed(left, is_first)
        if not left:
            allowed = allowed & self._in_line
        grown = line.grow(logs, allowed, writer.width, self._vocabulary.worded)
        following = None
        if self._is_guessed(read, grown):
            following = ReadLine(grown.pop(0), later_scores, read.guess[1:])
            this_round.num_along[line.has] += 1
        grown += self._begin_names(line, logs, allowed, left)
        for longer in grown:
            same_kind = this_round.grown.setdefault(longer.has, [])
            same_kind.append(longer)
        return following

    def _is_guessed(self, read: ReadLine, grown: Sequence[LinePath]) -> bool:
        """True if the likeliest of the `grown` lines goes on with the guessed token, and is nearly certain."""
        line = read.line
        if not read.guess or not grown or len(line.path.ids) + 1 >= self.limit:
            return False
        path = grown[0].path
        is_certain = bool(line.rest) or path.logs[-1] > NEARLY_CERTAIN
        return is_certain and path.ids[-1] == read.guess[0]

    def _begin_names(self, line: LinePath, logs: Tensor, allowed: Tensor, left: bytes) -> list[LinePath]:
        """The line with the first tokens of names of each kind that it lacks."""
        if line.rest:
            return []
        last = b""
        if line.path.ids:
            last_token = line.path.ids[-1]
            last = self._vocabulary.pieces[last_token][-1:]
        begun = []
        for kind in self.names:
            if not line.has & kind:
                spelled = self._spell_names(kind, left, last)
                has = line.has | kind
                begun += line.begin(logs, allowed, spelled, has)
        return begun

    def _keep_open(self, this_round: Round) -> list[LinePath]:
        """The open lines that may become likelier than the complete ones, of which the likeliest are kept."""
        is_over = self.writer.timer.is_over
        enough = self.enough
        if is_over:
            enough = 1
        kept: list[LinePath] = []
        for has, grown in this_round.grown.items():
            complete = self._keep_complete(has)
            least = -math.inf
            if len(complete) == self.num_complete:
                least = complete[-1].log
            likeliest = sorted(grown, key=lambda line: -line.path.log)
            room = self.writer.width + this_round.num_along[has]
            lines = []
            for line in likeliest[:room]:
                path = line.path
                if path.log > least and len(path.ids) < self.limit:
                    lines.append(line)
            if not lines:
                continue
            # Of a few, blank ones do not count, as they would end the search without a text.
            counted = complete
            if enough < WHOLE.enough:
                counted = list(filter(self._has_text, complete))
            best_log = lines[0].path.log
            if len(counted) < enough or counted[enough - 1].log < best_log:
                kept += lines
        if is_over and kept:
            return self._keep_likeliest(kept)
        return kept

    def _keep_complete(self, has: int) -> list[Path]:
        """The likeliest of the complete lines with these kinds of names, which alone are kept."""
        complete = self.complete.get(has, [])
        best_first = sorted(complete, key=lambda path: -path.log)
        kept = best_first[: self.num_complete]
        self.complete[has] = kept
        return kept

    def _keep_likeliest(self, lines: Sequence[LinePath]) -> list[LinePath]:
        """The likeliest line of a search whose time is over, unless a likelier one is complete."""
        best = max(lines, key=lambda line: line.path.log)
        best_log = best.path.log
        for path in chain.from_iterable(self.complete.values()):
            if path.log >= best_log and self._has_text(path):
                return []
        return [best]

    def _has_text(self, path: Path) -> bool:
        text, _ = self.writer.decode_own(path.ids)
        return bool(text.strip())

    def _may_end(self, path: Path) -> bool:
        stretch = self.writer.stretch
        if not stretch.single or not stretch.min_tokens:
            return True
        return self.writer.count_own(path) >= stretch.min_tokens

    def _encode_names(self, kind: int, left: bytes, last: bytes) -> list[tuple[int, ...]]:
        """Tokens of each name of a kind, alone and behind a space after the byte `last`; or behind what is `left` to be
        spelled, which may be a part of a name.
        """
        names = self.names[kind]
        begun = left.decode(errors="ignore")
        texts: list[str] = []
        if NAMED.match(left[-1:]):
            texts = [name for name in names if name.startswith(begun)]
        elif left:
            texts = [begun + name for name in names]
        elif NAMED.match(last):
            texts = [" " + name for name in names]
        else:
            for name in names:
                texts += [name, " " + name]
        spelled = []
        for text in texts:
            ids = self.writer.encode(text)
            spelled.append(tuple(ids))
        return spelled
