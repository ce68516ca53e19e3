"""Fills one stretch with a causal model: drafts from left to right, and judges each candidate by the text after it.

By Bayes' rule P(text | both sides) is proportional to P(text | before) P(after | before, text), so a model that reads
from left to right fills gaps without any training. A model that was trained with fill-in-the-middle tokens computes
P(text | both sides) directly. Knows tokens and texts; no requests, no files.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final

from torch import Tensor

from midfill_engine.caches.stores import Prefix
from midfill_engine.causal.branches import Beam, Path, read_prefix, score
from midfill_engine.causal.effort import CLOCK_FACTOR, HEAD_TOKENS
from midfill_engine.causal.lines import LineSearch
from midfill_engine.causal.prompt import find_following
from midfill_engine.causal.stretch import GrowingText
from midfill_engine.causal.writing import Continuation, Drawing, TokenWriter, widen
from midfill_engine.judging import SHIPPED, Candidate, Judge, Kind, Logs
from midfill_engine.scheduling.work import gather
from midfill_engine.wire import BASE

MAX_THROUGH: Final = 12  # drafts of several lines
MAX_THROUGH_TOKENS: Final = 96  # of a draft of several lines
MAX_BEHIND: Final = 5.0  # nats behind the first: for 300 lines a fifth of the five candidates were, and no right one
MAX_BODY_TOKENS: Final = 192
LEAST_LIKELY: Final = -1.0  # mean ln P of the first tokens: of 302 given bodies below it 1 was right, of 165 above 22
LIKELY_RIGHT: Final = 0.5  # certainty of a proposer whose body is read whole even if its first tokens are unlikely
NEAR_LINES: Final = 3  # including the beginning of the stretch's own line
NEAR_CHARACTERS: Final = 240
WORDS: Final = re.compile(r"[\w$]+")


@dataclass
class Filler(TokenWriter):
    """Fills one stretch: reads the prompt, writes drafts, adds given texts, and ranks all by likelihood."""

    names: Sequence[str] = ()  # words that the text after needs
    unused: Sequence[str] = ()  # words that the text before binds and nothing uses
    judge: Judge = field(default=SHIPPED, kw_only=True)
    allowed_s: float = field(default=math.inf, kw_only=True)  # for the search, from when the prompt is read

    @property
    def kind(self) -> Kind:
        if self.stretch.is_body:
            return "body"
        if self.stretch.is_inside:
            return "inside"
        return "line"

    async def fill(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """Returns drafts and given texts, best first. If some given texts fit, and the time ends before all is read, it
        returns these alone.
        """
        fitting = self.keep_fitting(proposed)

        def is_over() -> bool:
            return bool(fitting) and self.timer.is_over

        if is_over():
            return self.rank(fitting)
        prefix, _ = await read_prefix(self.runtime, self.prompt.ids, is_over)
        if is_over():
            return self.rank(fitting)
        self.timer = self.timer.begin(CLOCK_FACTOR * self.allowed_s)
        stretch = self.stretch
        texts = fitting[: self.effort.given_judged]
        weighing = self.weigh_likely(prefix, texts) if stretch.is_body else self.weigh(prefix, texts)
        begun_nats = 0.0
        if self.drawing.temperature and not (stretch.single and stretch.is_bounded):
            given, drafted = await gather(weighing, self.draw(prefix, self.drawing))
        elif stretch.is_body:
            drafting = self.draft_lines(prefix)
            given, (lines, begun_nats) = await gather(weighing, drafting)
            firsts = self._choose_firsts(lines, given)
            drafted = await self.draft_bodies(prefix, firsts)
        elif stretch.single:
            drafting = self.draft_lines(prefix)
            given, (drafted, begun_nats) = await gather(weighing, drafting)
        else:
            drafting = self.draft_lines(prefix)
            drafting_through = self.draft_through(prefix)
            given, (lines, begun_nats), several_lines = await gather(weighing, drafting, drafting_through)
            drafted = [*lines, *several_lines]
        if stretch.is_bounded and not stretch.single:
            if not self.keep_within_bounds([*drafted, *given]):
                drafted = await self.draw(prefix, widen(self.drawing))
        fitting_drafts = self.keep_within_bounds(drafted)
        judged = await self.judge_all(prefix, fitting_drafts, given, begun_nats)
        return self.rank(judged)

    async def compare(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """Ranks the given texts, best first, without drafts."""
        fitting = self.keep_fitting(proposed)
        if self.timer.is_over:
            return self.rank(fitting)
        prefix, _ = await read_prefix(self.runtime, self.prompt.ids, lambda: self.timer.is_over)
        if self.timer.is_over:
            return self.rank(fitting)
        given = await self.weigh(prefix, fitting)
        judged = await self.judge_all(prefix, [], given, compares_all=True)
        return self.rank(judged)

    def keep_fitting(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """The given texts without a forbidden string, with at most `max_tokens` tokens, and within the bounds."""
        fitting = []
        for candidate in proposed:
            text = candidate.text
            if any(part in text for part in self.stretch.forbid):
                continue
            num_tokens = len(self.encode(text))
            if num_tokens <= self.stretch.max_tokens:
                fitting.append(candidate)
        return self.keep_within_bounds(fitting)

    def keep_within_bounds(self, texts: Sequence[Candidate]) -> list[Candidate]:
        """The texts that are neither too short nor too long in lines or tokens; all if the stretch has no bounds."""
        if not self.stretch.is_bounded:
            return list(texts)
        return [candidate for candidate in texts if self._is_within_bounds(candidate)]

    def _is_within_bounds(self, candidate: Candidate) -> bool:
        bounds = self.stretch
        text = candidate.text
        num_tokens = sum(bool(piece) for piece, _ in candidate.logs)
        if not num_tokens:
            num_tokens = len(self.encode(text))
        if num_tokens > bounds.max_tokens or bounds.has_too_many_lines(text):
            return False
        return bounds.is_long_enough(text, num_tokens)

    def count_names(self, texts: Sequence[Candidate]) -> list[Candidate]:
        """Returns the texts, each with its numbers of needed and of unused names, those in the begun line included."""
        begun_line = self.stretch.before.rpartition("\n")[2]
        counted = []
        for candidate in texts:
            words = set(WORDS.findall(begun_line + candidate.text))
            names = len(words.intersection(self.names))
            used = len(words.intersection(self.unused))
            counted.append(replace(candidate, names=names, used=used))
        return counted

    def rank(self, judged: Sequence[Candidate]) -> list[Candidate]:
        """Ranks candidates, best first, each with the chance that it is right. It is None for all models but BASE, for
        which the judge was fitted. Once the time is over, unweighed texts come last, and `bound_chance` bounds chances.
        """
        if self.timer.is_over:
            weighed = [candidate for candidate in judged if math.isfinite(candidate.nats)]
            unweighed = [candidate for candidate in judged if not math.isfinite(candidate.nats)]
            ranked = []
            for candidate in [*self.judge.rank(weighed, self.kind), *unweighed]:
                chance = bound_chance(candidate)
                ranked.append(replace(candidate, chance=chance))
        else:
            ranked = self.judge.rank(judged, self.kind)
        if BASE in self.runtime.names:
            return ranked
        return [replace(candidate, chance=None) for candidate in ranked]

    async def draft_lines(self, prefix: Prefix) -> tuple[list[Candidate], float]:
        """Returns the likeliest texts without a line break, and the likeliest with names (`LineSearch`); also ln P of
        the begun word that each text must first complete, 0.0 if the text before ends with no word.
        """
        names, unused = self.names, self.unused
        if self.stretch.is_body:  # its later lines may have them
            names = unused = ()
        search = LineSearch(self, names, unused)
        paths = await search.run(prefix)
        drafts = [self.to_candidate(path) for path in paths]
        return drafts, search.begun_nats

    def _choose_firsts(self, lines: Sequence[Candidate], given: Sequence[Candidate]) -> list[str]:
        """The first lines that bodies are drafted from: likely ones, and those of the first given texts. Once the time
        is over, only likely ones that are not blank.
        """
        texts = [candidate.text for candidate in lines]
        if self.timer.is_over:
            nonblank = [text for text in texts if text.strip()]
            return list(dict.fromkeys(nonblank[: self.num_firsts]))
        firsts = texts[: self.num_firsts]
        for candidate in given[: self.effort.given_first_lines]:
            first, _, _ = candidate.text.partition("\n")
            firsts.append(first)
        return list(dict.fromkeys(firsts))

    async def draft_bodies(self, prefix: Prefix, firsts: Sequence[str]) -> list[Candidate]:
        """Drafts bodies: continues each first line greedily, and scores the following text after each result. Without
        a following text the drafts have no likelihoods yet; once the time is over, that text is not scored.
        """
        beam = Beam(self.runtime, prefix)
        continuations = await self._write_bodies(beam, firsts)
        path_of_text: dict[str, Path] = {}
        for path, growing_text in self.keep_whole(continuations):
            path_of_text |= dict.fromkeys(growing_text.endings(), path)
        is_over = self.timer.is_over
        following = self.following
        if not following and not is_over:
            return [Candidate(text) for text in path_of_text]
        drafts: list[Candidate] = []
        read_paths: list[Path] = []
        following_ids: list[list[int]] = []
        for text, path in path_of_text.items():
            read_path, unread = self._split_path(path, text)
            # A text that ends within its first token is blank, as where that token is the pending line break and more.
            if read_path.ids:
                draft = self.to_candidate(read_path)
                drafts.append(replace(draft, text=text))
                read_paths.append(read_path)
                following_ids.append(self.encode(unread + following))
        if is_over:
            return drafts
        scores = await beam.follow(read_paths, following_ids)
        scored = []
        for draft, logs in zip(drafts, scores, strict=True):
            nats = sum(logs)
            scored.append(replace(draft, following=nats))
        return scored

    async def _write_bodies(self, beam: Beam, firsts: Sequence[str]) -> list[Continuation]:
        """Writes a body behind each first line, always with the likeliest next token."""
        pending_text = self.pending.decode()
        growing_texts: list[GrowingText] = []
        ids_of_firsts: list[tuple[int, ...]] = []
        for first in firsts:
            ids = tuple(self.encode(pending_text + first))
            if ids:
                growing_texts.append(GrowingText(self.stretch, first))
                ids_of_firsts.append(ids)
        if not growing_texts:
            return []
        paths, scores = await beam.open(ids_of_firsts)
        continuations = list(zip(paths, growing_texts, strict=True))
        next_scores = list(scores[:, None])
        limit = self.limit_tokens(MAX_BODY_TOKENS)
        return await self.write(beam, continuations, next_scores, choose_likeliest, limit)

    def keep_whole(self, continuations: Sequence[Continuation]) -> Sequence[Continuation]:
        """The continuations whose text ended by itself; all of them if there is none, or if the stretch is no body."""
        if not self.stretch.is_body:
            return continuations
        return [pair for pair in continuations if pair[1].is_whole] or continuations

    def _split_path(self, path: Path, text: str) -> tuple[Path, str]:
        """Returns the part of a path whose tokens were read and lie within `text`, and the text behind that part."""
        data = self.pending + text.encode()
        num_bytes = 0
        count = 0
        for token in path.ids[: len(path.places)]:
            size = len(self.pieces[token])
            if num_bytes + size > len(data):
                break
            num_bytes += size
            count += 1
        ids = path.ids[:count]
        logs = path.logs[:count]
        places = path.places[:count]
        unread = data[num_bytes:].decode(errors="ignore")
        return Path(ids, logs, places), unread

    async def draft_through(self, prefix: Prefix) -> list[Candidate]:
        """Drafts texts of several lines: continues the likeliest first tokens greedily up to the text after. A text may
        end at each of its lines (`GrowingText.endings`); texts that reached the text after come first.
        """
        count = self.effort.first_tokens
        num_begun = 0

        def choose(path: Path, logs: Tensor) -> int:
            nonlocal num_begun
            if path.ids:
                return choose_likeliest(path, logs)
            num_begun += 1
            rank = 1
            if num_begun <= count:
                rank = num_begun
            return int(logs.topk(rank).indices[-1])

        continuations = await self.write_anew(prefix, count, choose, MAX_THROUGH_TOKENS)
        growing_texts = [growing_text for _, growing_text in continuations]
        texts: dict[str, None] = {}
        for growing_text in sorted(growing_texts, key=lambda growing_text: not growing_text.is_met):
            texts |= dict.fromkeys(growing_text.endings())
        drafts = []
        for text in texts:
            if "\n" in text and text.strip():
                drafts.append(Candidate(text))
        return drafts[:MAX_THROUGH]

    async def draw(self, prefix: Prefix, drawing: Drawing) -> list[Candidate]:
        """Samples `drawing.count` texts token by token; drops duplicates. Only once the time is over, when nothing
        weighs them any more, the texts have the likelihoods with which they were drawn.
        """

        def choose(_: Path, logs: Tensor) -> int:
            return drawing.choose(logs)

        continuations = await self.write_anew(prefix, drawing.count, choose, MAX_BODY_TOKENS, must_have_line=True)
        is_over = self.timer.is_over
        if is_over:
            continuations = [pair for pair in continuations if pair[1].has_line] or continuations
        path_of_text: dict[str, Path] = {}
        for path, growing_text in self.keep_whole(continuations):
            endings = growing_text.endings() or [growing_text.first]
            if not self.stretch.max_lines:
                endings = endings[-1:]
            texts = [text for text in endings if text.strip()]
            path_of_text |= dict.fromkeys(texts, path)
        if not is_over:
            return [Candidate(text) for text in path_of_text]
        drawn = []
        for text, path in path_of_text.items():
            candidate = self.to_candidate(path)
            drawn.append(replace(candidate, text=text))
        return drawn

    @property
    def following(self) -> str:
        """The next lines, whose likelihood judges candidates; empty if the prompt already contains them."""
        if self.prompt.has_suffix:
            return ""
        return find_following(self.stretch.after)

    async def weigh_likely(self, prefix: Prefix, texts: Sequence[Candidate]) -> list[Candidate]:
        """Weighs the texts that are likely by their first tokens, or whose proposer is certain enough. Drops the others
        without reading them any further.
        """
        pending_text = self.pending.decode()
        heads = [self.encode(pending_text + candidate.text)[:HEAD_TOKENS] for candidate in texts]
        likely = []
        for candidate, logs in zip(texts, await score(self.runtime, prefix, heads), strict=True):
            if not logs or fmean(logs) > LEAST_LIKELY or candidate.certainty >= LIKELY_RIGHT:
                likely.append(candidate)
        return await self.weigh(prefix, likely)

    async def weigh(self, prefix: Prefix, texts: Sequence[Candidate]) -> list[Candidate]:
        """Returns the texts, each with its log-likelihood, and bodies also with that of the following text."""
        following = ""
        if self.stretch.is_body:
            following = self.following
        ends: Tensor | None = self.ends
        if following:  # which comes right behind the body
            ends = None
        whole_texts = [candidate.text + following for candidate in texts]
        scores = await self._score(prefix, whole_texts, ends)
        weighed = []
        for candidate, (all_logs, total) in zip(texts, scores, strict=True):
            logs = cut_logs(all_logs, len(candidate.text))
            nats = total
            if following:
                nats = sum(log for _, log in logs)
            following_nats = total - nats
            weighed.append(replace(candidate, nats=nats, logs=logs, following=following_nats))
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
        """Returns drafts and weighed given texts, each with its log-likelihood less `begun_nats` and, unless the time
        is over, that of the following text. Of whole lines it keeps only the best few, unless `compares_all`.
        """
        candidate_of_text = {candidate.text: candidate for candidate in given}
        drafts: dict[str, Candidate] = {}
        for draft in reversed(drafted):
            text = draft.text
            if text in candidate_of_text:
                draft = replace(draft, certainty=candidate_of_text[text].certainty)
            if text.strip():
                drafts[text] = draft
        if self.timer.is_over:
            candidates = list(drafts.values())
            for text, candidate in candidate_of_text.items():
                if text not in drafts:
                    candidates.append(candidate)
            return self.count_names(candidates)
        unweighed = []
        for text, draft in drafts.items():
            if not draft.logs and text not in candidate_of_text:
                unweighed.append(draft)
        for draft in await self.weigh(prefix, unweighed):
            candidate_of_text[draft.text] = draft
        for text, draft in drafts.items():
            if draft.logs:
                candidate_of_text[text] = draft
        judged = []
        for candidate in self.count_names(list(candidate_of_text.values())):
            nats = candidate.nats - begun_nats
            judged.append(replace(candidate, nats=nats))
        if self.following and self.stretch.is_body:
            return judged
        ranked = self.judge.rank(judged, self.kind)
        if self.following and (compares_all or self.stretch.is_inside):
            ranked = await self._weigh_following(prefix, ranked, begun_nats)
        elif self.following:
            ranked = await self._weigh_leading(prefix, ranked, begun_nats)
        return await self._weigh_near(ranked)

    async def _weigh_leading(self, prefix: Prefix, ranked: Sequence[Candidate], begun_nats: float) -> list[Candidate]:
        """Returns the best few of the texts, each with the log-likelihood of the following text. That text is not read
        after the ones far behind: it counts there as least likely as after any of the others.
        """
        compared, far_behind = self._choose_compared(ranked)
        weighed = await self._weigh_following(prefix, compared, begun_nats)
        lowest = min((candidate.following for candidate in weighed), default=0.0)
        for candidate in far_behind:
            weighed.append(replace(candidate, following=lowest))
        return weighed

    def _choose_compared(self, ranked: Sequence[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
        """Returns the candidates to compare by the following text: the first few, the most certain one, and drafts of
        several lines. Also returns those of the first few that are left out because they are too far behind.
        """
        if not ranked:
            return [], []
        most_certain = max(ranked, key=lambda candidate: candidate.certainty)
        num_first = max(self.effort.compared, self.drawing.count)
        distinct = dict.fromkeys([most_certain, *ranked])
        first_few = list(distinct)[:num_first]
        weights = self.judge.choose_weights(ranked, self.kind)
        scores = weights.score(ranked)
        lowest_score = scores[0] - MAX_BEHIND
        num_near = sum(score >= lowest_score for score in scores)
        near = [*ranked[:num_near], most_certain]
        compared = []
        for candidate in first_few:
            if candidate in near:
                compared.append(candidate)
        for candidate in ranked:
            if not candidate.certainty and "\n" in candidate.text and candidate not in compared:
                compared.append(candidate)
        far_behind = [candidate for candidate in first_few if candidate not in compared]
        return compared, far_behind

    async def _weigh_following(self, prefix: Prefix, texts: Sequence[Candidate], begun_nats: float) -> list[Candidate]:
        """Returns the texts, each with the log-likelihood of the following text, and of a line break behind that text
        if the text after has one there.
        """
        following = self.following
        ends = None
        if self.stretch.after.startswith(following + "\n"):
            ends = self.runtime.vocabulary.beginning(b"\n")
        whole_texts = [candidate.text + following for candidate in texts]
        scores = await self._score(prefix, whole_texts, ends)
        weighed = []
        for candidate, (_, total) in zip(texts, scores, strict=True):
            nats = total - begun_nats - candidate.nats
            weighed.append(replace(candidate, following=nats))
        return weighed

    async def _weigh_near(self, texts: Sequence[Candidate]) -> list[Candidate]:
        """Returns the texts; inside a line, each with its log-likelihood after the last few lines alone. Texts of whole
        lines stay as they are, because that likelihood did not help to choose among them.
        """
        if self.prompt.has_suffix or self.kind != "inside" or not texts:
            return list(texts)
        runtime = self.runtime
        opening = runtime.tokens.special_ids[0]
        prefix, _ = await read_prefix(runtime, (opening,))
        lines = self.stretch.before.splitlines(keepends=True)
        last_lines = "".join(lines[-NEAR_LINES:])
        near_text = last_lines[-NEAR_CHARACTERS:]
        ids = [self.encode(near_text + candidate.text) for candidate in texts]
        scores = await score(runtime, prefix, ids, self.ends)
        weighed = []
        for candidate, logs in zip(texts, scores, strict=True):
            nats = sum(logs)
            weighed.append(replace(candidate, near=nats))
        return weighed

    async def _score(
        self, prefix: Prefix, texts: Sequence[str], ends: Tensor | None = None
    ) -> list[tuple[Logs, float]]:
        """Returns for each text its tokens with their log-probabilities, and the sum of these. With `ends`, the sum
        includes the log-probability that one of these ids comes next.
        """
        pending_text = self.pending.decode()
        ids_of_texts = [self.encode(pending_text + text) for text in texts]
        scores = await score(self.runtime, prefix, ids_of_texts, ends)
        scored = []
        for ids, logs in zip(ids_of_texts, scores, strict=True):
            text, ranges = self.decode_own(ids)
            tokens = [text[start:end] for start, end in ranges]
            pairs = tuple(zip(tokens, logs, strict=False))  # with `ends`, one more value than tokens
            total = sum(logs)
            scored.append((pairs, total))
        return scored


def choose_likeliest(_: Path, logs: Tensor) -> int:
    return int(logs.argmax())


def cut_logs(logs: Logs, num_characters: int) -> Logs:
    """The tokens that end within the first `num_characters` of their text, with their log-probabilities."""
    kept = []
    end = 0
    for piece, log in logs:
        end += len(piece)
        if end <= num_characters:
            kept.append((piece, log))
    return tuple(kept)


def bound_chance(candidate: Candidate) -> float:
    """The candidate's chance, but at most its proposer's certainty or its likelihood, whichever is greater."""
    likelihood = math.exp(min(0.0, candidate.nats))
    highest = max(candidate.certainty, likelihood)
    if candidate.chance is None:
        return highest
    return min(candidate.chance, highest)
