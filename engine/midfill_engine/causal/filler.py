"""Fills one stretch with a causal base: drafts from left to right, and judges each candidate by the text after it.

By Bayes' rule P(text | both sides) is proportional to P(text | before) P(after | before, text), so a base that reads
from left to right fills gaps without any training. A model that was trained with fill-in-the-middle tokens computes
P(text | both sides) directly. Knows tokens and texts; no requests, no files.
"""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate, chain
from typing import Final

from torch import Tensor

from midfill_engine.caches.stores import Prefix
from midfill_engine.causal.branches import Beam, LinePath, Path, first_scores, read_prefix, score
from midfill_engine.causal.effort import LAST, WHOLE, Effort
from midfill_engine.causal.prompt import WORD, find_following
from midfill_engine.causal.stretch import Block
from midfill_engine.causal.writing import Drawing, TokenWriter, others_of
from midfill_engine.judging import SHIPPED, Candidate, Judge, Kind, Logs, add_logs
from midfill_engine.scheduling.work import gather
from midfill_engine.tokens.pieces import decode
from midfill_engine.tokens.vocabulary import NAMED
from midfill_engine.wire import BASE

INSIDE: Final = 2  # times as many drafts inside a line
MAX_THROUGH: Final = 12
MAX_THROUGH_TOKENS: Final = 96
MAX_LINE_TOKENS: Final = 64
MAX_READ_ALONG: Final = 2  # guessed tokens a path
NEARLY_CERTAIN: Final = -0.1  # ln P
MAX_BEHIND: Final = 5.0  # nats behind the first: of 300 lines a fifth of the five, and no right choice
MAX_BLOCK_TOKENS: Final = 192
NEAR_LINES: Final = 3  # the last one is the beginning of the stretch's own line
NEAR_CHARACTERS: Final = 240
WORDS: Final = re.compile(r"[\w$]+")


@dataclass
class Filler(TokenWriter):
    """Fills one stretch: reads the prompt, writes drafts, adds proposals, and ranks all by likelihood."""

    names: Sequence[str] = ()  # words that the text after needs
    unused: Sequence[str] = ()  # words that the text before binds and nothing uses
    effort: Effort = field(default=WHOLE, kw_only=True)
    judge: Judge = field(default=SHIPPED, kw_only=True)
    most_s: float = field(default=math.inf, kw_only=True)  # that the search should take, once the prompt is read

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pending_nats = 0.0  # of a word that is pending, once lines are drafted
        self.kind: Kind = "body" if self.stretch.is_block else "inside" if self.stretch.is_inside else "line"

    @property
    def widest(self) -> int:
        return max(self.effort.width, self.drawing.count)

    @property
    def width(self) -> int:
        """The number of paths at once; one when the time is over."""
        return 1 if self.timer.is_over else self.widest

    def whole(self, blocks: Sequence[Block]) -> Sequence[Block]:
        """For a body the blocks that ended by themselves, if there are any; otherwise all blocks."""
        ended = [block for block in blocks if block.is_whole] if self.stretch.is_block else []
        return ended or blocks

    async def fill(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """Drafts and proposals for the stretch, best first. Of a time that is over only proposals, if there are any."""
        fitting = self.fitting(proposed)
        if fitting and self.timer.is_over:
            return self.rank(fitting)
        prefix, _ = await read_prefix(self.runtime, self.prompt.ids, lambda: bool(fitting) and self.timer.is_over)
        if fitting and self.timer.is_over:
            return self.rank(fitting)
        self.timer = timer = self.timer.begin(LAST * self.most_s)
        weighing = self.weigh(prefix, fitting[: self.effort.judged])
        if self.drawing.temperature and not (self.stretch.single and self.stretch.is_bounded):
            given, drafted = await gather(weighing, self.draw(prefix, self.drawing))
        elif self.stretch.is_block:
            given, lines = await gather(weighing, self.draft_lines(prefix))
            lines = [each for each in lines if each.text.strip()] if timer.is_over else lines
            firsts = [each.text for each in lines[: max(self.effort.blocks, self.drawing.count)]]
            firsts += [each.text.split("\n")[0] for each in (() if timer.is_over else fitting[: self.effort.begun])]
            drafted = await self.draft_block(prefix, list(dict.fromkeys(firsts)))
        else:
            others = [] if self.stretch.single else [self.draft_through(prefix)]
            given, *found = await gather(weighing, self.draft_lines(prefix), *others)
            drafted = list(chain(*found))
        if self.stretch.is_bounded and not self.stretch.single and not self.within([*drafted, *given]):
            drafted = await self.draw(prefix, others_of(self.drawing))
        return self.rank(await self.judge_all(prefix, self.within(drafted), given))

    async def compare(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """Ranks the proposed texts, best first, without drafts."""
        if self.timer.is_over:
            return self.rank(self.fitting(proposed))
        prefix, _ = await read_prefix(self.runtime, self.prompt.ids)
        given = await self.weigh(prefix, self.fitting(proposed))
        return self.rank(await self.judge_all(prefix, [], given, compares_all=True))

    def fitting(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """The proposals without a forbidden string and with at most `max_tokens` tokens."""
        encode, bounds = self.runtime.loaded.tokenizer.encode, self.stretch
        allowed = (each for each in proposed if not any(part in each.text for part in bounds.forbid))
        return self.within([each for each in allowed if len(encode(each.text)) <= bounds.max_tokens])

    def within(self, texts: Sequence[Candidate]) -> list[Candidate]:
        """The texts within the bounds of lines and not below those of tokens."""
        if not (bounds := self.stretch).is_bounded:
            return list(texts)
        encode = self.runtime.loaded.tokenizer.encode
        sizes = (sum(bool(text) for text, _ in each.logs) or len(encode(each.text)) for each in texts)
        return [
            each
            for each, size in zip(texts, sizes, strict=True)
            if size <= bounds.max_tokens
            and bounds.is_long_enough(each.text, size)
            and not bounds.has_too_many_lines(each.text)
        ]

    def count_names(self, texts: Sequence[Candidate]) -> list[Candidate]:
        """The texts, each with the number of the stretch's names that it has."""
        line, found = self.stretch.before.rpartition("\n")[2], list[Candidate]()
        for each in texts:
            words = set(WORDS.findall(line + each.text))
            names, used = (len(words.intersection(given)) for given in (self.names, self.unused))
            found.append(replace(each, names=names, used=used))
        return found

    def rank(self, judged: Sequence[Candidate]) -> list[Candidate]:
        """Ranks candidates, best first, each with its chance to be right, which is None except for BASE. If the time
        was over before all were compared, none is surer than its proposer or, by itself, the model.
        """
        is_over = self.timer.is_over
        known = [each for each in judged if math.isfinite(each.nats)] if is_over else judged
        ranked = self.judge.rank(known, self.kind)
        if is_over:
            ranked += [each for each in judged if each not in known]
            odds = (max(each.certainty, math.exp(min(0.0, each.nats))) for each in ranked)
            ranked = [
                replace(each, chance=most if each.chance is None else min(each.chance, most))
                for each, most in zip(ranked, odds, strict=True)
            ]
        return ranked if BASE in self.runtime.names else [replace(each, chance=None) for each in ranked]

    async def draft_lines(self, prefix: Prefix) -> list[Candidate]:
        """The likeliest texts without a line break, by beam search; the likelihood includes that a text ends there.
        Also the likeliest with a name that the text after needs, with an unused one, and with both (grid beam search,
        Hokamp 2017): their beams begin a name behind each path without it. Guessed tokens are read along, and a path
        goes on over those that are nearly certain.
        """
        beam, vocabulary, spell = Beam(self.runtime, prefix), self.runtime.vocabulary, cache(self._spell)
        found: dict[int, list[Path]] = {0: []}
        spelled: list[float] = []  # ln P of each way to spell what is pending
        num_found = max(self.widest, WHOLE.width)
        num_found *= INSIDE if self.stretch.is_inside else 1  # the rest of the line judges them
        most_enough = self.widest if self.stretch.is_inside else max(self.effort.enough, self.drawing.count)
        limit = min(self.stretch.max_tokens, MAX_LINE_TOKENS) + len(self.pending)
        in_line = ~vocabulary.beginning(b"\n")
        todo: list[tuple[LinePath, Iterable[Tensor], tuple[int, ...]]]
        todo = [(LinePath(), [first_scores(self.runtime, prefix)], ())]
        while todo:
            grown: dict[int, list[LinePath]] = {}
            ahead = Counter[int]()  # paths that went on: each leaves its place to another one
            while todo:
                row, (logs, *known), guess = todo.pop()
                size = self.spelled(row.path)
                left = self.pending[size:]
                if left and not row.has:
                    spelled.append(row.path.log + float(logs[vocabulary.beginning(left)].logsumexp(dim=0)))
                elif size > len(self.pending) and not row.rest and self._may_end(row.path):
                    found.setdefault(row.has, []).append(self.ended(row.path, logs))
                allowed = self.edge.allowed(left, size == len(self.pending))
                if not left:
                    allowed = allowed & in_line
                next_rows = row.grow(logs, allowed, self.width, vocabulary.worded)
                if guess and next_rows and next_rows[0].path.ids[-1] == guess[0] and len(row.path.ids) + 1 < limit:
                    if row.rest or next_rows[0].path.logs[-1] > NEARLY_CERTAIN:
                        todo.append((next_rows.pop(0), known, guess[1:]))
                        ahead[row.has] += 1
                last = vocabulary.pieces[row.path.ids[-1]][-1:] if row.path.ids else b""
                for kind in (1, 2):
                    if not row.rest and not row.has & kind:
                        next_rows += row.begin(logs, allowed, spell(kind, left, last), row.has | kind)
                for each in next_rows:
                    grown.setdefault(each.has, []).append(each)
            rows: list[LinePath] = []
            enough = 1 if (is_over := self.timer.is_over) else most_enough
            for has, listed in grown.items():
                best = found[has] = sorted(found.get(has, []), key=lambda path: -path.log)[:num_found]
                least = best[-1].log if len(best) == num_found else -math.inf
                listed = sorted(listed, key=lambda each: -each.path.log)[: self.width + ahead[has]]
                listed = [each for each in listed if each.path.log > least and len(each.path.ids) < limit]
                # Of a few, blank ones do not count, as they would end the search without a text.
                told = best if enough >= WHOLE.enough else list(filter(self._has_text, best))
                if listed and (len(told) < enough or told[enough - 1].log < listed[0].path.log):
                    rows += listed
            if is_over and rows:
                rows = self._keep_likeliest(rows, found)
            if rows:
                pairs = zip(rows, self._guess([each.path for each in rows]), strict=True)
                guesses = [(each.rest or guess)[:MAX_READ_ALONG] for each, guess in pairs]
                paths, scores = await beam.read([each.path for each in rows], guesses)
                rows = [replace(row, path=path) for row, path in zip(rows, paths, strict=True)]
                todo = list(zip(rows, scores, guesses, strict=True))
        if WORD.match(self.pending[-1:]):
            self.pending_nats = add_logs(spelled)
        return [self._candidate(path) for listed in found.values() for path in listed]

    def _may_end(self, path: Path) -> bool:
        least = self.stretch.min_tokens
        return not least or not self.stretch.single or self.count_own(path) >= least

    def _keep_likeliest(self, rows: Sequence[LinePath], found: Mapping[int, Sequence[Path]]) -> list[LinePath]:
        """The likeliest path of a search whose time is over, unless a likelier line is found."""
        best = max(rows, key=lambda row: row.path.log)
        likelier = (path for listed in found.values() for path in listed if path.log >= best.path.log)
        return [] if any(map(self._has_text, likelier)) else [best]

    def _has_text(self, path: Path) -> bool:
        return bool(self._candidate(path).text.strip())

    def _spell(self, kind: int, left: bytes, last: bytes) -> list[tuple[int, ...]]:
        """Tokens of each name of a kind, alone and behind a space after the byte `last`; or behind what is `left` to be
        spelled, which may be a part of a name.
        """
        encode, begun, texts = self.runtime.loaded.tokenizer.encode, left.decode(errors="ignore"), list[str]()
        for name in () if self.stretch.is_block else self.names if kind == 1 else self.unused:
            if NAMED.match(left[-1:]):
                texts += [name] * name.startswith(begun)
            else:
                texts += [begun + name] if left else [" " + name] if NAMED.match(last) else [name, " " + name]
        return [tuple(encode(text)) for text in texts]

    def _candidate(self, path: Path) -> Candidate:
        pieces = [self.runtime.vocabulary.pieces[token] for token in path.ids]
        text, ranges = decode(pieces, "ignore")
        lead = len(self.pending.decode())
        logs = tuple((text[max(lead, a) : b], log) for (a, b), log in zip(ranges, path.logs, strict=False) if b > lead)
        return Candidate(text[lead:], path.log, logs=logs)

    async def draft_block(self, prefix: Prefix, firsts: Sequence[str]) -> list[Candidate]:
        """Continues each first line greedily, and scores the following text after each result."""
        encode, beam = self.runtime.loaded.tokenizer.encode, Beam(self.runtime, prefix)
        begun = {text: ids for text in firsts if (ids := tuple(encode(self.pending.decode() + text)))}
        if not begun:
            return []
        paths, scores = await beam.open(list(begun.values()))
        rows = [(path, Block(self.stretch, text)) for path, text in zip(paths, begun, strict=True)]
        written = await self.write(
            beam, rows, list(scores[:, None]), lambda _, logs: int(logs.argmax()), self.room(MAX_BLOCK_TOKENS)
        )
        whole = self.whole([block for _, block in written])
        texts = {text: path for path, block in written if block in whole for text in block.endings()}
        following = "" if self.timer.is_over else self.following
        if not following and not self.timer.is_over:
            return [Candidate(text) for text in texts]
        # A text that ends within its first token is blank: that token ends with what is pending.
        cuts = {text: cut for text, path in texts.items() if (cut := self._cut(path, text))[0].ids}
        if not following:
            return [replace(self._candidate(path), text=text) for text, (path, _) in cuts.items()]
        logs = await beam.follow(
            [path for path, _ in cuts.values()], [encode(rest + following) for _, rest in cuts.values()]
        )
        return [
            replace(self._candidate(path), text=text, following=sum(followed))
            for (text, (path, _)), followed in zip(cuts.items(), logs, strict=True)
        ]

    def _cut(self, path: Path, text: str) -> tuple[Path, str]:
        """The part of a path that was read and lies within `text`, and the rest of `text`."""
        data, pieces = self.pending + text.encode(), self.runtime.vocabulary.pieces
        ends = [0, *accumulate(len(pieces[token]) for token in path.ids[: len(path.places)])]
        count = bisect_right(ends, len(data)) - 1
        cut = Path(path.ids[:count], path.logs[:count], path.places[:count])
        return cut, data[ends[count] :].decode(errors="ignore")

    async def draft_through(self, prefix: Prefix) -> list[Candidate]:
        """Drafts of several lines (`Block.endings`): continues different first tokens greedily up to the text after."""
        places = iter(range(self.effort.through))

        def choose(path: Path, logs: Tensor) -> int:
            return int(logs.argmax() if path.ids else logs.topk(next(places, 0) + 1).indices[-1])

        rows = await self.write_anew(prefix, self.effort.through, choose, MAX_THROUGH_TOKENS)
        blocks = [block for _, block in rows]
        written = [text for block in sorted(blocks, key=lambda each: not each.is_met) for text in block.endings()]
        texts = dict.fromkeys(text for text in written if "\n" in text)
        return [Candidate(text) for text in texts if text.strip()][:MAX_THROUGH]

    async def draw(self, prefix: Prefix, drawing: Drawing) -> list[Candidate]:
        """Samples `drawing.count` texts token by token; drops duplicates."""
        count, choose = drawing.count, drawing.choose
        rows = await self.write_anew(prefix, count, lambda _, logs: choose(logs), MAX_BLOCK_TOKENS, must=True)
        if self.timer.is_over:
            rows = [row for row in rows if row[1].has_line] or rows
        whole = self.whole([block for _, block in rows])
        texts = dict[str, Path]()
        for path, block in rows:
            endings = block.endings() or [block.first]
            if block in whole:
                texts |= dict.fromkeys(endings if self.stretch.max_lines else endings[-1:], path)
        if self.timer.is_over:
            return [replace(self._candidate(path), text=text) for text, path in texts.items() if text.strip()]
        return [Candidate(text) for text in texts if text.strip()]

    @property
    def following(self) -> str:
        """The text that judges candidates, unless the prompt shows the text after."""
        return "" if self.prompt.has_suffix else find_following(self.stretch.after)

    async def weigh(self, prefix: Prefix, texts: Sequence[Candidate]) -> list[Candidate]:
        """The texts, each with its log-likelihood, and for a body with that of the following text."""
        through = self.following if self.stretch.is_block else ""  # no end comes between
        scores = await self._score(prefix, [each.text + through for each in texts], None if through else self.ends)
        found = []
        for each, (pairs, total) in zip(texts, scores, strict=True):
            ends = accumulate(len(piece) for piece, _ in pairs)
            logs = tuple(pair for pair, end in zip(pairs, ends, strict=True) if end <= len(each.text))
            nats = sum(log for _, log in logs) if through else total
            found.append(replace(each, nats=nats, logs=logs, following=total - nats))
        return found

    async def judge_all(
        self, prefix: Prefix, drafted: Sequence[Candidate], given: Sequence[Candidate], compares_all: bool = False
    ) -> list[Candidate]:
        """Drafts and weighed proposals, each with its log-likelihood and that of the following text. Unless
        `compares_all`, only the best few; those far behind count as if the following text were least likely after them.
        """
        known = {each.text: each for each in given}
        drafts = {each.text: each for each in reversed(drafted) if each.text.strip()}
        if self.timer.is_over:
            sure = {text: each.certainty for text, each in known.items()}
            found = [replace(each, certainty=sure.get(text, 0.0)) for text, each in drafts.items()]
            return self.count_names([*found, *(each for text, each in known.items() if text not in drafts)])
        unknown = [each for each in drafts.values() if not each.logs and each.text not in known]
        known |= {each.text: each for each in await self.weigh(prefix, unknown)}
        for text, each in drafts.items():
            if each.logs:
                known[text] = replace(each, certainty=known[text].certainty if text in known else 0.0)
        begun, following = self.pending_nats, self.following  # drafts tell ln P of what is begun, once all are written
        judged = self.count_names([replace(each, nats=each.nats - begun) for each in known.values()])
        if following and self.stretch.is_block:
            return judged
        ranked = self.judge.rank(judged, self.kind)
        if not following:
            return await self._weigh_near(ranked)
        compares_all = compares_all or self.stretch.is_inside
        first, behind = (ranked, []) if compares_all else self._leading(ranked)
        ends = self.runtime.vocabulary.beginning(b"\n") if self.stretch.after.startswith(following + "\n") else None
        totals = await self._score(prefix, [each.text + following for each in first], ends)
        pairs = zip(first, totals, strict=True)
        found = [replace(each, following=total - begun - each.nats) for each, (_, total) in pairs]
        found += [replace(each, following=min(other.following for other in found)) for each in behind]
        return await self._weigh_near(found)

    def _leading(self, ranked: Sequence[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
        """The candidates to compare: the first ones, the most certain one, and drafts of several lines. Also those of
        the first ones that are too far behind.
        """
        by_certainty = sorted(ranked, key=lambda each: -each.certainty)[:1]
        first = list(dict.fromkeys([*by_certainty, *ranked]))[: max(self.effort.compared, self.drawing.count)]
        scores = self.judge.choose_weights(ranked, self.kind).score(ranked)
        near = ranked[: sum(value >= scores[0] - MAX_BEHIND for value in scores)]
        compared = [each for each in first if each in near or each in by_certainty]
        compared += [each for each in ranked if not each.certainty and "\n" in each.text and each not in compared]
        return compared, [each for each in first if each not in compared]

    async def _weigh_near(self, texts: Sequence[Candidate]) -> list[Candidate]:
        """The texts, inside a line with their log-likelihood after the last lines alone (whole lines did not gain)."""
        if self.prompt.has_suffix or self.kind != "inside" or not texts:
            return list(texts)
        start, _ = await read_prefix(self.runtime, (self.runtime.tokens.special_ids[0],))
        lines = "".join(self.stretch.before.splitlines(keepends=True)[-NEAR_LINES:])[-NEAR_CHARACTERS:]
        ids = [self.runtime.loaded.tokenizer.encode(lines + each.text) for each in texts]
        scores = await score(self.runtime, start, ids, self.ends)
        return [replace(each, near=sum(logs)) for each, logs in zip(texts, scores, strict=True)]

    async def _score(
        self, prefix: Prefix, texts: Sequence[str], ends: Tensor | None = None
    ) -> list[tuple[Logs, float]]:
        """The tokens of every text with their log-probabilities, and their sum, with the end's if `ends` is given."""
        tokenizer, lead = self.runtime.loaded.tokenizer, self.pending.decode()
        ids = [tokenizer.encode(lead + text) for text in texts]
        scores = await score(self.runtime, prefix, ids, ends)
        found = []
        for row, logs in zip(ids, scores, strict=True):
            whole, ranges = decode([tokenizer.token_bytes(token) for token in row], "ignore")
            pairs = tuple((whole[max(len(lead), a) : b], log) for (a, b), log in zip(ranges, logs, strict=False))
            found.append((pairs, sum(logs)))
        return found
