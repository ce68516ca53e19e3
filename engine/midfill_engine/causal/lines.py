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
from midfill_engine.causal.branches import Beam, LinePath, Path
from midfill_engine.causal.effort import WHOLE
from midfill_engine.causal.prompt import ends_in_word
from midfill_engine.causal.writing import TokenWriter
from midfill_engine.judging import add_logs
from midfill_engine.tokens.vocabulary import NAMED

INSIDE: Final = 2  # inside a line, so many times as many drafts are kept
MAX_LINE_TOKENS: Final = 64
MAX_READ_ALONG: Final = 2  # guessed tokens of a path in one pass
NEARLY_CERTAIN: Final = -0.1  # ln P of a guessed token


@dataclass(frozen=True)
class ReadLine:
    """A line whose last token was read, along with a `guess` of the next ones. `scores` are the log-probabilities [V]
    of the token after its last one, and then of the token after each guessed one.
    """

    line: LinePath
    scores: Iterable[Tensor]
    guess: tuple[int, ...] = ()


@dataclass
class Round:
    """The lines of one round, each one token longer, by the kinds of names in them (`LinePath.kinds`). `num_along`
    counts by the same the lines that went on over a guessed token: each of these leaves its room to another line.
    """

    grown: dict[int, list[LinePath]] = field(default_factory=dict)
    num_along: Counter[int] = field(default_factory=Counter)


class LineSearch:
    """Beam search for texts without a line break, by a likelihood which includes that the text ends.

    One beam is free. Others are for lines with a name that the text after needs, with an unused name, and with both
    (grid beam search, Hokamp 2017): a name of a kind that a line lacks may begin after each of its tokens. Guessed
    tokens are read along, and a path goes on over those that are nearly certain. `complete` has the finished lines by
    their kinds of names. Of each beam `num_complete` lines are kept, and it may end once `enough` of them are likelier
    than all its open ones.
    """

    def __init__(self, writer: TokenWriter, names: Sequence[str] = (), unused: Sequence[str] = ()) -> None:
        stretch = writer.stretch
        self.writer = writer
        self.names = {1: names, 2: unused}
        self.max_tokens = min(stretch.max_tokens, MAX_LINE_TOKENS)
        self.num_complete = max(writer.widest, WHOLE.width)
        self.enough = max(writer.effort.enough, writer.drawing.count)
        if stretch.is_inside:  # the rest of the line will judge them
            self.num_complete *= INSIDE
            self.enough = writer.widest
        elif stretch.is_body:  # bodies will begin with the likeliest ones
            self.enough = writer.num_firsts
        self.complete: dict[int, list[Path]] = {0: []}
        self._vocabulary = writer.runtime.vocabulary
        self._in_line = ~self._vocabulary.beginning(b"\n")
        self._spell_names = cache(self._encode_names)
        self._pending_nats: list[float] = []  # ln P of each way to spell the pending bytes

    @property
    def begun_nats(self) -> float:
        """ln P of the word that the text before begins; 0.0 if it begins none."""
        if not ends_in_word(self.writer.pending):
            return 0.0
        return add_logs(self._pending_nats)

    async def run(self, prefix: Prefix) -> list[Path]:
        """Returns the complete lines of all kinds; the last value of their `logs` is of the end."""
        beam = Beam(self.writer.runtime, prefix)
        reads = [ReadLine(LinePath(), [prefix.next_logs])]
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
            next_ids = line.name_rest or guess
            guesses.append(next_ids[:MAX_READ_ALONG])
        likeliest = max(paths, key=lambda path: path.log)
        paths, scores = await beam.read(paths, guesses, self.writer.showing(likeliest))
        reads = []
        for line, path, logs, guess in zip(lines, paths, scores, guesses, strict=True):
            read_line = replace(line, path=path)
            reads.append(ReadLine(read_line, logs, guess))
        return reads

    def _grow_all(self, reads: Sequence[ReadLine]) -> Round:
        """Returns the lines that were read, each with its likeliest next tokens and with the beginnings of names."""
        this_round = Round()
        for read_line in reversed(reads):
            to_grow: ReadLine | None = read_line
            while to_grow is not None:
                to_grow = self._grow(to_grow, this_round)
        return this_round

    def _grow(self, read: ReadLine, this_round: Round) -> ReadLine | None:
        """Adds a line to the complete ones where it may end, and each line with a next token to the round. But if the
        next token is nearly certain and was guessed, returns the line with this one, which is to grow at once.
        """
        line = read.line
        path = line.path
        logs, *later_scores = read.scores
        writer = self.writer
        num_spelled = writer.count_spelled(path)
        num_pending = len(writer.pending)
        left = writer.pending[num_spelled:]
        if left and not line.kinds:
            next_logs = logs[self._vocabulary.beginning(left)]
            log = float(next_logs.logsumexp(dim=0))
            self._pending_nats.append(path.log + log)
        elif num_spelled > num_pending and not line.name_rest and self._may_end(path):
            complete = self.complete.setdefault(line.kinds, [])
            complete.append(writer.add_end(path, logs))
        is_first = num_spelled == num_pending
        allowed = writer.edge.allowed(left, is_first)
        if not left:
            allowed = allowed & self._in_line
        grown = line.grow(logs, allowed, writer.width, self._vocabulary.worded)
        guessed_line = None
        if self._is_guessed(read, grown):
            guessed_line = ReadLine(grown.pop(0), later_scores, read.guess[1:])
            this_round.num_along[line.kinds] += 1
        grown += self._begin_names(line, logs, allowed, left)
        for longer in grown:
            same_kinds = this_round.grown.setdefault(longer.kinds, [])
            same_kinds.append(longer)
        return guessed_line

    def _is_guessed(self, read: ReadLine, grown: Sequence[LinePath]) -> bool:
        """True if the likeliest of the `grown` lines goes on with the guessed token, which is nearly certain or belongs
        to a name.
        """
        line = read.line
        if not read.guess or not grown:
            return False
        path = grown[0].path
        if self.writer.count_behind(path) > self.max_tokens:
            return False
        is_certain = bool(line.name_rest) or path.logs[-1] > NEARLY_CERTAIN
        return is_certain and path.ids[-1] == read.guess[0]

    def _begin_names(self, line: LinePath, logs: Tensor, allowed: Tensor, left: bytes) -> list[LinePath]:
        """Returns the line with the first token of each name of a kind that it lacks; nothing inside of a name."""
        if line.name_rest:
            return []
        last_byte = b""
        if line.path.ids:
            last_token = line.path.ids[-1]
            last_byte = self._vocabulary.pieces[last_token][-1:]
        begun = []
        for kind in self.names:
            if not line.kinds & kind:
                spelled = self._spell_names(kind, left, last_byte)
                kinds = line.kinds | kind
                begun += line.begin(logs, allowed, spelled, kinds)
        return begun

    def _keep_open(self, this_round: Round) -> list[LinePath]:
        """Returns the likeliest open lines of each beam, as many as it has room for, unless the complete ones are
        likelier. Drops all but the likeliest complete lines.
        """
        is_over = self.writer.timer.is_over
        enough = self.enough
        if is_over:
            enough = 1
        kept: list[LinePath] = []
        for kinds, grown in this_round.grown.items():
            complete = self._keep_complete(kinds)
            lowest_log = -math.inf
            if len(complete) == self.num_complete:
                lowest_log = complete[-1].log
            likeliest = sorted(grown, key=lambda line: -line.path.log)
            room = self.writer.width + this_round.num_along[kinds]
            lines = []
            for line in likeliest[:room]:
                path = line.path
                if path.log > lowest_log and self.writer.count_behind(path) <= self.max_tokens:
                    lines.append(line)
            if not lines:
                continue
            # Where few lines are enough, blank ones do not count, because they would end the search without a text.
            counted = complete
            if enough < WHOLE.enough:
                counted = [path for path in complete if self._has_text(path)]
            best_log = lines[0].path.log
            if len(counted) < enough or counted[enough - 1].log < best_log:
                kept += lines
        if is_over and kept:
            return self._keep_likeliest(kept)
        return kept

    def _keep_complete(self, kinds: int) -> list[Path]:
        """Drops all but the likeliest complete lines with these kinds of names. Returns them, best first."""
        complete = self.complete.get(kinds, [])
        best_first = sorted(complete, key=lambda path: -path.log)
        kept = best_first[: self.num_complete]
        self.complete[kinds] = kept
        return kept

    def _keep_likeliest(self, lines: Sequence[LinePath]) -> list[LinePath]:
        """The only line that goes on when the time is over: the likeliest, unless a complete text is as likely."""
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

    def _encode_names(self, kind: int, left: bytes, last_byte: bytes) -> list[tuple[int, ...]]:
        """Tokens of each name of a kind. They spell the pending bytes that are `left` first, which may begin the name
        already. If none are left, the name comes behind a space and, if `last_byte` ends no word, also without one.
        """
        names = self.names[kind]
        left_text = left.decode(errors="ignore")
        texts: list[str] = []
        if NAMED.match(left[-1:]):
            texts = [name for name in names if name.startswith(left_text)]
        elif left:
            texts = [left_text + name for name in names]
        elif NAMED.match(last_byte):
            texts = [" " + name for name in names]
        else:
            for name in names:
                texts += [name, " " + name]
        spelled = []
        for text in texts:
            ids = self.writer.encode(text)
            spelled.append(tuple(ids))
        return spelled
