"""Fills one stretch with a causal base: drafts from left to right, and judges each candidate by the text after it.

By Bayes' rule P(text | both sides) is proportional to P(text | before) P(after | before, text), so a base that reads
from left to right fills gaps without any training. A model that was trained with fill-in-the-middle tokens computes
P(text | both sides) directly. Knows tokens and texts; no requests, no files.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from torch import Tensor

from midfill_engine.caches.stores import Prefix
from midfill_engine.causal.branches import Beam, Path, read_prefix, score
from midfill_engine.causal.effort import LAST
from midfill_engine.causal.lines import LineSearch
from midfill_engine.causal.prompt import find_following
from midfill_engine.causal.stretch import Block
from midfill_engine.causal.writing import Drawing, TokenWriter, others_of
from midfill_engine.judging import SHIPPED, Candidate, Judge, Kind, Logs
from midfill_engine.scheduling.work import gather
from midfill_engine.wire import BASE

MAX_THROUGH: Final = 12
MAX_THROUGH_TOKENS: Final = 96
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
    judge: Judge = field(default=SHIPPED, kw_only=True)
    most_s: float = field(default=math.inf, kw_only=True)  # that the search should take, once the prompt is read

    @property
    def kind(self) -> Kind:
        if self.stretch.is_block:
            return "body"
        return "inside" if self.stretch.is_inside else "line"

    async def fill(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """Drafts and proposals for the stretch, best first. Of a time that is over only proposals, if there are any."""
        fitting = self.fitting(proposed)
        if fitting and self.timer.is_over:
            return self.rank(fitting)
        prefix, _ = await read_prefix(self.runtime, self.prompt.ids, lambda: bool(fitting) and self.timer.is_over)
        if fitting and self.timer.is_over:
            return self.rank(fitting)
        self.timer = self.timer.begin(LAST * self.most_s)
        weighing = self.weigh(prefix, fitting[: self.effort.judged])
        begun_nats = 0.0
        if self.drawing.temperature and not (self.stretch.single and self.stretch.is_bounded):
            given, drafted = await gather(weighing, self.draw(prefix, self.drawing))
        elif self.stretch.is_block:
            given, (lines, begun_nats) = await gather(weighing, self.draft_lines(prefix))
            drafted = await self.draft_block(prefix, self._choose_firsts(lines, fitting))
        elif self.stretch.single:
            given, (drafted, begun_nats) = await gather(weighing, self.draft_lines(prefix))
        else:
            given, (lines, begun_nats), through = await gather(
                weighing, self.draft_lines(prefix), self.draft_through(prefix)
            )
            drafted = [*lines, *through]
        if self.stretch.is_bounded and not self.stretch.single and not self.within([*drafted, *given]):
            drafted = await self.draw(prefix, others_of(self.drawing))
        return self.rank(await self.judge_all(prefix, self.within(drafted), given, begun_nats))

    async def compare(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """Ranks the proposed texts, best first, without drafts."""
        fitting = self.fitting(proposed)
        if self.timer.is_over:
            return self.rank(fitting)
        prefix, _ = await read_prefix(self.runtime, self.prompt.ids)
        given = await self.weigh(prefix, fitting)
        return self.rank(await self.judge_all(prefix, [], given, compares_all=True))

    def fitting(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """The proposals without a forbidden string and with at most `max_tokens` tokens."""
        fitting = []
        for candidate in proposed:
            is_forbidden = any(part in candidate.text for part in self.stretch.forbid)
            if not is_forbidden and len(self.encode(candidate.text)) <= self.stretch.max_tokens:
                fitting.append(candidate)
        return self.within(fitting)

    def within(self, texts: Sequence[Candidate]) -> list[Candidate]:
        """The texts within the bounds of lines and not below those of tokens."""
        if not self.stretch.is_bounded:
            return list(texts)
        return list(filter(self._is_within, texts))

    def _is_within(self, candidate: Candidate) -> bool:
        bounds = self.stretch
        num_tokens = sum(bool(piece) for piece, _ in candidate.logs) or len(self.encode(candidate.text))
        if num_tokens > bounds.max_tokens or bounds.has_too_many_lines(candidate.text):
            return False
        return bounds.is_long_enough(candidate.text, num_tokens)

    def count_names(self, texts: Sequence[Candidate]) -> list[Candidate]:
        """The texts, each with the number of the stretch's names that it has."""
        line = self.stretch.before.rpartition("\n")[2]
        counted = []
        for candidate in texts:
            words = set(WORDS.findall(line + candidate.text))
            names = len(words.intersection(self.names))
            used = len(words.intersection(self.unused))
            counted.append(replace(candidate, names=names, used=used))
        return counted

    def rank(self, judged: Sequence[Candidate]) -> list[Candidate]:
        """Ranks candidates, best first, each with its chance to be right, which is None except for BASE. If the time
        was over before all were compared, none is surer than its proposer or, by itself, the model.
        """
        if self.timer.is_over:
            known = [candidate for candidate in judged if math.isfinite(candidate.nats)]
            unknown = [candidate for candidate in judged if candidate not in known]
            ranked = [*self.judge.rank(known, self.kind), *unknown]
            ranked = [replace(candidate, chance=bound_chance(candidate)) for candidate in ranked]
        else:
            ranked = self.judge.rank(judged, self.kind)
        if BASE in self.runtime.names:
            return ranked
        return [replace(candidate, chance=None) for candidate in ranked]

    async def draft_lines(self, prefix: Prefix) -> tuple[list[Candidate], float]:
        """The likeliest texts without a line break, also ones with names (`LineSearch`), and ln P of the word that all
        of them go on with, 0.0 if none is begun.
        """
        names, unused = self.names, self.unused
        if self.stretch.is_block:  # its later lines may have them
            names = unused = ()
        search = LineSearch(self, names, unused)
        paths = await search.run(prefix)
        return [self._candidate(path) for path in paths], search.begun_nats

    def _candidate(self, path: Path) -> Candidate:
        text, ranges = self.decode_own(path.ids)
        logs = [(text[start:end], log) for (start, end), log in zip(ranges, path.logs, strict=False) if end > 0]
        return Candidate(text, path.log, logs=tuple(logs))

    def _choose_firsts(self, lines: Sequence[Candidate], proposed: Sequence[Candidate]) -> list[str]:
        """The first lines that a body is drafted from: likely ones, and those of the first proposals."""
        num_firsts = max(self.effort.blocks, self.drawing.count)
        if self.timer.is_over:
            firsts = [candidate.text for candidate in lines if candidate.text.strip()]
            return list(dict.fromkeys(firsts[:num_firsts]))
        firsts = [candidate.text for candidate in lines[:num_firsts]]
        firsts += [candidate.text.split("\n")[0] for candidate in proposed[: self.effort.begun]]
        return list(dict.fromkeys(firsts))

    async def draft_block(self, prefix: Prefix, firsts: Sequence[str]) -> list[Candidate]:
        """Continues each first line greedily, and scores the following text after each result."""
        beam = Beam(self.runtime, prefix)
        path_of_text: dict[str, Path] = {}
        for path, block in self.whole(await self._write_bodies(beam, firsts)):
            path_of_text |= dict.fromkeys(block.endings(), path)
        is_over = self.timer.is_over
        if not self.following and not is_over:
            return [Candidate(text) for text in path_of_text]
        # A text that ends within its first token is blank: that token ends with what is pending.
        cuts = {text: self._cut(path, text) for text, path in path_of_text.items()}
        cuts = {text: (path, rest) for text, (path, rest) in cuts.items() if path.ids}
        drafts = [replace(self._candidate(path), text=text) for text, (path, _) in cuts.items()]
        if is_over:
            return drafts
        read_paths = [path for path, _ in cuts.values()]
        behind = [self.encode(rest + self.following) for _, rest in cuts.values()]
        logs = await beam.follow(read_paths, behind)
        return [replace(draft, following=sum(followed)) for draft, followed in zip(drafts, logs, strict=True)]

    async def _write_bodies(self, beam: Beam, firsts: Sequence[str]) -> list[tuple[Path, Block]]:
        """Bodies with these first lines, of which each token is the likeliest one."""
        lead = self.pending.decode()
        ids_of_firsts = {first: tuple(self.encode(lead + first)) for first in firsts}
        ids_of_firsts = {first: ids for first, ids in ids_of_firsts.items() if ids}
        if not ids_of_firsts:
            return []
        paths, scores = await beam.open(list(ids_of_firsts.values()))
        rows = [(path, Block(self.stretch, first)) for path, first in zip(paths, ids_of_firsts, strict=True)]
        most = self.room(MAX_BLOCK_TOKENS)
        return await self.write(beam, rows, list(scores[:, None]), lambda _, logs: int(logs.argmax()), most)

    def whole(self, rows: Sequence[tuple[Path, Block]]) -> Sequence[tuple[Path, Block]]:
        """For a body the rows whose blocks ended by themselves, if there are any; otherwise all rows."""
        if not self.stretch.is_block:
            return rows
        return [row for row in rows if row[1].is_whole] or rows

    def _cut(self, path: Path, text: str) -> tuple[Path, str]:
        """The part of a path that was read and lies within `text`, and the rest of `text`."""
        data = self.pending + text.encode()
        read_ids = path.ids[: len(path.places)]
        ends = [0, *accumulate(len(self.pieces[token]) for token in read_ids)]
        count = bisect_right(ends, len(data)) - 1
        cut = Path(path.ids[:count], path.logs[:count], path.places[:count])
        return cut, data[ends[count] :].decode(errors="ignore")

    async def draft_through(self, prefix: Prefix) -> list[Candidate]:
        """Drafts of several lines (`Block.endings`): continues different first tokens greedily up to the text after."""
        num_begun = 0

        def choose(path: Path, logs: Tensor) -> int:
            nonlocal num_begun
            if path.ids:
                return int(logs.argmax())
            num_begun += 1
            rank = num_begun if num_begun <= self.effort.through else 1
            return int(logs.topk(rank).indices[-1])

        rows = await self.write_anew(prefix, self.effort.through, choose, MAX_THROUGH_TOKENS)
        texts: dict[str, None] = {}
        for _, block in sorted(rows, key=lambda row: not row[1].is_met):
            texts |= dict.fromkeys(block.endings())
        long_texts = [text for text in texts if "\n" in text and text.strip()]
        return [Candidate(text) for text in long_texts[:MAX_THROUGH]]

    async def draw(self, prefix: Prefix, drawing: Drawing) -> list[Candidate]:
        """Samples `drawing.count` texts token by token; drops duplicates."""

        def choose(_: Path, logs: Tensor) -> int:
            return drawing.choose(logs)

        rows = await self.write_anew(prefix, drawing.count, choose, MAX_BLOCK_TOKENS, must=True)
        is_over = self.timer.is_over
        if is_over:
            rows = [row for row in rows if row[1].has_line] or rows
        path_of_text: dict[str, Path] = {}
        for path, block in self.whole(rows):
            endings = block.endings() or [block.first]
            if not self.stretch.max_lines:
                endings = endings[-1:]
            path_of_text |= dict.fromkeys(endings, path)
        path_of_text = {text: path for text, path in path_of_text.items() if text.strip()}
        if is_over:
            return [replace(self._candidate(path), text=text) for text, path in path_of_text.items()]
        return [Candidate(text) for text in path_of_text]

    @property
    def following(self) -> str:
        """The text that judges candidates, unless the prompt shows the text after."""
        return "" if self.prompt.has_suffix else find_following(self.stretch.after)

    async def weigh(self, prefix: Prefix, texts: Sequence[Candidate]) -> list[Candidate]:
        """The texts, each with its log-likelihood, and for a body with that of the following text."""
        through = self.following if self.stretch.is_block else ""  # no end comes between
        ends = None if through else self.ends
        scores = await self._score(prefix, [candidate.text + through for candidate in texts], ends)
        weighed = []
        for candidate, (all_logs, total) in zip(texts, scores, strict=True):
            sizes = accumulate(len(piece) for piece, _ in all_logs)
            logs = [pair for pair, size in zip(all_logs, sizes, strict=True) if size <= len(candidate.text)]
            nats = total
            if through:
                nats = sum(log for _, log in logs)
            weighed.append(replace(candidate, nats=nats, logs=tuple(logs), following=total - nats))
        return weighed

    async def judge_all(
        self,
        prefix: Prefix,
        drafted: Sequence[Candidate],
        given: Sequence[Candidate],
        begun_nats: float = 0.0,
        *,
        compares_all: bool = False,
    ) -> list[Candidate]:
        """Drafts and weighed proposals, each with its log-likelihood, less `begun_nats`, and that of the following
        text. Unless `compares_all`, only the best few; those far behind count as if the following text were least
        likely after them.
        """
        known = {candidate.text: candidate for candidate in given}
        drafts = {draft.text: draft for draft in reversed(drafted) if draft.text.strip()}
        for text in known.keys() & drafts.keys():
            drafts[text] = replace(drafts[text], certainty=known[text].certainty)
        if self.timer.is_over:
            others = [candidate for text, candidate in known.items() if text not in drafts]
            return self.count_names([*drafts.values(), *others])
        new_drafts = [draft for text, draft in drafts.items() if not draft.logs and text not in known]
        known |= {candidate.text: candidate for candidate in await self.weigh(prefix, new_drafts)}
        known |= {text: draft for text, draft in drafts.items() if draft.logs}
        judged = [replace(candidate, nats=candidate.nats - begun_nats) for candidate in known.values()]
        judged = self.count_names(judged)
        if self.following and self.stretch.is_block:
            return judged
        ranked = self.judge.rank(judged, self.kind)
        if self.following and (compares_all or self.stretch.is_inside):
            ranked = await self._weigh_following(prefix, ranked, begun_nats)
        elif self.following:
            leading, behind = self._leading(ranked)
            ranked = await self._weigh_following(prefix, leading, begun_nats)
            least = min((candidate.following for candidate in ranked), default=0.0)
            ranked += [replace(candidate, following=least) for candidate in behind]
        return await self._weigh_near(ranked)

    def _leading(self, ranked: Sequence[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
        """The candidates to compare: the first ones, the most certain one, and drafts of several lines. Also those of
        the first ones that are too far behind.
        """
        by_certainty = sorted(ranked, key=lambda candidate: -candidate.certainty)[:1]
        num_first = max(self.effort.compared, self.drawing.count)
        first = list(dict.fromkeys([*by_certainty, *ranked]))[:num_first]
        scores = self.judge.choose_weights(ranked, self.kind).score(ranked)
        num_near = sum(score >= scores[0] - MAX_BEHIND for score in scores)
        near = [*ranked[:num_near], *by_certainty]
        compared = [candidate for candidate in first if candidate in near]
        for candidate in ranked:
            if not candidate.certainty and "\n" in candidate.text and candidate not in compared:
                compared.append(candidate)
        return compared, [candidate for candidate in first if candidate not in compared]

    async def _weigh_following(self, prefix: Prefix, texts: Sequence[Candidate], begun_nats: float) -> list[Candidate]:
        """The texts, each with the log-likelihood of the following text, and of its line's end if that is known."""
        following, ends = self.following, None
        if self.stretch.after.startswith(following + "\n"):
            ends = self.runtime.vocabulary.beginning(b"\n")
        scores = await self._score(prefix, [candidate.text + following for candidate in texts], ends)
        return [
            replace(candidate, following=total - begun_nats - candidate.nats)
            for candidate, (_, total) in zip(texts, scores, strict=True)
        ]

    async def _weigh_near(self, texts: Sequence[Candidate]) -> list[Candidate]:
        """The texts, inside a line with their log-likelihood after the last lines alone (whole lines did not gain)."""
        if self.prompt.has_suffix or self.kind != "inside" or not texts:
            return list(texts)
        start, _ = await read_prefix(self.runtime, (self.runtime.tokens.special_ids[0],))
        lines = "".join(self.stretch.before.splitlines(keepends=True)[-NEAR_LINES:])[-NEAR_CHARACTERS:]
        ids = [self.encode(lines + candidate.text) for candidate in texts]
        scores = await score(self.runtime, start, ids, self.ends)
        return [replace(candidate, near=sum(logs)) for candidate, logs in zip(texts, scores, strict=True)]

    async def _score(
        self, prefix: Prefix, texts: Sequence[str], ends: Tensor | None = None
    ) -> list[tuple[Logs, float]]:
        """The tokens of every text with their log-probabilities, and their sum, with the end's if `ends` is given."""
        lead = self.pending.decode()
        ids_of_texts = [self.encode(lead + text) for text in texts]
        scores = await score(self.runtime, prefix, ids_of_texts, ends)
        scored = []
        for ids, logs in zip(ids_of_texts, scores, strict=True):
            text, ranges = self.decode_own(ids)
            pairs = [(text[start:end], log) for (start, end), log in zip(ranges, logs, strict=False)]
            scored.append((tuple(pairs), sum(logs)))
        return scored


def bound_chance(candidate: Candidate) -> float:
    """Its chance, but at most its proposer's certainty or, if that is more, its own likelihood."""
    most = max(candidate.certainty, math.exp(min(0.0, candidate.nats)))
    if candidate.chance is None:
        return most
    return min(candidate.chance, most)
