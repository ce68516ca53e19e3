"""Fills one stretch with a causal base: drafts from the left, judges every candidate by what follows it.

P(text | before) P(what follows | before, text) is what a text's probability given both sides is in proportion to
(Bayes' rule), so a base that only reads what stands before fills gaps without any training. A model that was trained
with fill-in-the-middle tokens says P(text | both sides) itself. Knows tokens and texts; no requests, no files.
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from midfill_engine.caches.prefixes import Prefix
from midfill_engine.denoising.branches import Beam, Path, log_probs, read_prefix, score
from midfill_engine.denoising.canvas import decode
from midfill_engine.denoising.prompt import find_following, lay_prompt
from midfill_engine.denoising.stretch import Block, Stretch
from midfill_engine.denoising.work import Work
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.packed import Result
from midfill_engine.wire import BASE

WIDTH: Final = 5
INSIDE: Final = 3  # times as many texts are drafted inside of a line
NUM_BLOCKS: Final = 3
NUM_THROUGH: Final = 3  # first tokens from which a stretch of several lines is written
MAX_THROUGH: Final = 12
MAX_THROUGH_TOKENS: Final = 96
# Nats for a proposal by ln of its certainty over DOUBT. Of 129 lines of packages of 2025 and later 25 were right with
# it, 23 by certainty alone, 19 by likelihood alone.
OWN: Final = 2.5
DOUBT: Final = 0.01
MAX_LINE_TOKENS: Final = 64
MAX_JUDGED: Final = 8  # proposals of others whose own likelihood is asked
MAX_COMPARED: Final = 5  # candidates of which what follows is asked, too
# ln odds that the best of a line's candidates is right: by nats ahead of the second, by its own, by its certainty
# as a proposal. Fitted on 216 lines of nine packages of 2025 and later.
AHEAD, LIKELY, PROPOSED, ODDS = 0.19, 0.11, 2.4, -1.8
MOST_AHEAD: Final = 12.0
# Of 59 bodies of packages of 2025 and later 6 were exact and 43 % similar; with likelihood per token alone 3 and 37;
# with the body of the most similar function wherever there is one 3 and 41.
BLOCK_POWER, BLOCK_PROPOSED = 0.6, 20.0
MAX_BLOCK_TOKENS: Final = 192


Logs = tuple[tuple[str, float], ...]  # tokens' texts with their ln probabilities


@dataclass(frozen=True)
class Candidate:
    """A text for a stretch; `nats`: ln P(text, end | before), `following`: ln P(what follows | before, text)."""

    text: str
    nats: float = -math.inf
    following: float = 0.0
    certainty: float = 0.0  # of whoever proposed it
    logs: Logs = ()
    chance: float | None = None  # that it is right; fitted for the pretrained base alone

    @property
    def score(self) -> float:
        return self.nats + self.following + OWN * math.log1p(self.certainty / DOUBT)

    def score_of_block(self, best_following: float) -> float:
        """How bodies of different lengths compare: their log-likelihood over a power of their length, and the certainty
        of whoever proposed them. `following` counts from the best one's.
        """
        likely = self.nats + self.following - best_following
        return likely / math.pow(max(1, len(self.logs)), BLOCK_POWER) + BLOCK_PROPOSED * self.certainty


@dataclass(frozen=True)
class Drawing:
    """How many different drafts are wanted: the likeliest, or with a `temperature` drawn token by token, with `top_p`
    out of the smallest set of tokens with that probability.
    """

    count: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    generator: torch.Generator | None = None

    def choose(self, logs: Tensor) -> int:
        """A token by its ln probability in `logs` [V]."""
        values, order = logs.sort(descending=True)
        share = (values / self.temperature).softmax(dim=0)
        before = share.cumsum(dim=0) - share
        return int(order[torch.multinomial(share.masked_fill(before >= self.top_p, 0), 1, generator=self.generator)])


@dataclass
class Filler:
    """Fills one stretch: reads what stands before it, drafts, takes proposals in, and ranks all by likelihood."""

    runtime: Runtime
    stretch: Stretch
    drawing: Drawing = Drawing()
    forwards: int = 0

    def __post_init__(self) -> None:
        runtime, stretch = self.runtime, self.stretch
        self.width = max(WIDTH, self.drawing.count)
        self.prompt = lay_prompt(runtime, stretch.before, stretch.after)
        self.pending = self.prompt.pending
        self.is_spaced = stretch.before[-1:] in (" ", "\t")
        self.forbid = (*stretch.forbid, "\n") if stretch.single else stretch.forbid
        vocabulary = runtime.vocabulary
        self.later = vocabulary.allowed(forbid=self.forbid)
        self.opening = self.later if not self.is_spaced else self.later & ~vocabulary.spaced
        self.ends = vocabulary.ending(stretch.after)
        self.stops = torch.zeros_like(self.later)
        self.stops[list(runtime.tokens.special_ids)] = True
        if self.prompt.has_suffix:
            self.ends = self.stops | (self.ends & vocabulary.beginning(b"\n"))

    def allowed(self, left: bytes, is_first: bool) -> Tensor:
        """What may come next where the bytes `left` are still to be spelled."""
        if left:
            vocabulary = self.runtime.vocabulary
            known = vocabulary.allowed() | vocabulary.spelling_only(left)
            return known & vocabulary.spelling(left, self.is_spaced, self.forbid)
        return self.opening if is_first else self.later

    def spelled(self, path: Path) -> int:
        """The number of bytes of a path, those that were pending included."""
        return sum(len(self.runtime.vocabulary.pieces[token]) for token in path.ids)

    def whole(self, blocks: Sequence[Block]) -> Sequence[Block]:
        """Those that ended by themselves, where that tells them apart and any did."""
        ended = [block for block in blocks if block.is_whole] if self.stretch.is_block else []
        return ended or blocks

    def fill(self, proposed: Sequence[Candidate]) -> Generator[Work, list[Result], list[Candidate]]:
        """Candidates for the stretch, the best first."""
        prefix = yield from self.read()
        if self.drawing.temperature:
            drafted = yield from self.draw(prefix)
        else:
            drafted = yield from self.draft_lines(prefix)
            if self.stretch.is_block:
                drafted = yield from self.draft_block(prefix, drafted[: max(NUM_BLOCKS, self.drawing.count)])
            elif not self.stretch.single:
                drafted += yield from self.draft_through(prefix)
        judged = yield from self.judge(prefix, drafted, self.fitting(proposed))
        return self.rank(judged)

    def compare(self, proposed: Sequence[Candidate]) -> Generator[Work, list[Result], list[Candidate]]:
        """The proposed texts alone, the best first: nothing is drafted."""
        prefix = yield from self.read()
        fitting = self.fitting(proposed)
        judged: list[Candidate] = []
        for start in range(0, len(fitting), MAX_JUDGED):
            judged += yield from self.judge(prefix, [], fitting[start : start + MAX_JUDGED], MAX_JUDGED)
        return self.rank(judged)

    def fitting(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """Those that the stretch may hold."""
        encode = self.runtime.loaded.tokenizer.encode
        allowed = [each for each in proposed if not any(part in each.text for part in self.stretch.forbid)]
        return [each for each in allowed if len(encode(each.text)) <= self.stretch.max_tokens]

    def rank(self, judged: Sequence[Candidate]) -> list[Candidate]:
        """The best first, with how likely they are right where that was fitted."""
        is_fitted, is_block = BASE in self.runtime.names, self.stretch.is_block
        best = max((each.following for each in judged), default=0.0)
        ranked = sorted(judged, key=lambda each: -(each.score_of_block(best) if is_block else each.score))
        if not is_fitted:
            return ranked
        return [replace(each, chance=chance_of_block(each) if is_block else chance_of(ranked, each)) for each in ranked]

    def read(self) -> Generator[Work, list[Result], Prefix]:
        prefix, known = yield from read_prefix(self.runtime, self.prompt.ids)
        self.forwards += known < len(self.prompt.ids)
        return prefix

    def draft_lines(self, prefix: Prefix) -> Generator[Work, list[Result], list[Candidate]]:
        """The likeliest texts without a line break, by beam search, and how likely it is that each ends there."""
        beam = Beam(self.runtime, prefix)
        paths, scores = [Path()], log_probs(self.runtime, [prefix.state])[0]
        found: list[tuple[float, Path]] = []
        num_found = self.width * (INSIDE if self.stretch.is_inside else 1)  # the rest of the line tells what fits
        line_breaks = self.runtime.vocabulary.beginning(b"\n")
        for _ in range(min(self.stretch.max_tokens, MAX_LINE_TOKENS) + len(self.pending)):
            grown: list[tuple[float, Path]] = []
            for path, logs in zip(paths, scores, strict=True):
                size = self.spelled(path)
                left = self.pending[size:]
                if not left and size > len(self.pending):
                    end = float(logs[self.ends].logsumexp(dim=0))
                    found.append((path.log + end, replace(path, logs=(*path.logs, end))))
                allowed = self.allowed(left, size == len(self.pending))
                if not left:
                    allowed = allowed & ~line_breaks
                best = logs.masked_fill(~allowed, -torch.inf).topk(self.width)
                for value, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                    if value > -math.inf:
                        grown.append((path.log + value, Path((*path.ids, token), (*path.logs, value), path.places)))
            found = sorted(found, key=lambda each: -each[0])[:num_found]
            paths = [path for _, path in sorted(grown, key=lambda each: -each[0])[: self.width]]
            if not paths or (len(found) == num_found and found[-1][0] >= paths[0].log):
                break
            paths, scores = yield from beam.read(paths)
            self.forwards += 1
        return [self._candidate(path) for _, path in found]

    def _candidate(self, path: Path) -> Candidate:
        pieces = [self.runtime.vocabulary.pieces[token] for token in path.ids]
        text, ranges = decode(pieces, "ignore")
        lead = len(self.pending.decode())
        logs = tuple((text[max(lead, a) : b], log) for (a, b), log in zip(ranges, path.logs, strict=False) if b > lead)
        return Candidate(text[lead:], path.log, logs=logs)

    def draft_block(
        self, prefix: Prefix, firsts: Sequence[Candidate]
    ) -> Generator[Work, list[Result], list[Candidate]]:
        """Goes on greedily from each first line: every text that ends with one of the lines written."""
        tokenizer, pieces = self.runtime.loaded.tokenizer, self.runtime.vocabulary.pieces
        begun = [(tuple(tokenizer.encode(self.pending.decode() + each.text)), each.text) for each in firsts]
        begun = [(ids, text) for ids, text in begun if ids]  # with nothing pending a text of no token begins nothing
        if not begun:
            return []
        blocks = [Block(self.stretch, text) for _, text in begun]
        beam = Beam(self.runtime, prefix)
        paths, scores = yield from beam.open([ids for ids, _ in begun])
        self.forwards += 1
        going = list(zip(blocks, paths, strict=True))
        allowed = self.runtime.vocabulary.beginning(b"\n") & self.later  # a first line is whole
        for _ in range(min(self.stretch.max_tokens, MAX_BLOCK_TOKENS)):
            chosen = scores.masked_fill(~allowed, -torch.inf).argmax(dim=1).tolist()
            allowed = self.later | self.stops
            next_paths = []
            for (block, path), token in zip(going, chosen, strict=True):
                if self.stops[token]:
                    block.end()
                else:
                    block.write(pieces[token])
                next_paths.append(replace(path, ids=(*path.ids, token)))
            going = [(block, path) for (block, _), path in zip(going, next_paths, strict=True) if block.is_open]
            if not going:
                break
            paths, scores = yield from beam.read([path for _, path in going])
            going = [(block, path) for (block, _), path in zip(going, paths, strict=True)]
            self.forwards += 1
        texts = dict.fromkeys(text for block in self.whole(blocks) for text in block.endings())
        return [Candidate(text) for text in texts]

    def draft_through(self, prefix: Prefix) -> Generator[Work, list[Result], list[Candidate]]:
        """Goes on greedily from different first tokens until what stands behind is met: texts up to there, and up to
        the lines written on the way where what stands behind begins a line.
        """
        places = iter(range(NUM_THROUGH))

        def choose(path: Path, logs: Tensor) -> int:
            return int(logs.argmax() if path.ids else logs.topk(next(places) + 1).indices[-1])

        blocks = yield from self._write(prefix, NUM_THROUGH, choose, MAX_THROUGH_TOKENS)
        written = [text for block in sorted(blocks, key=lambda each: not each.is_met) for text in block.endings()]
        return [Candidate(text) for text in dict.fromkeys(written) if text.strip() and "\n" in text][:MAX_THROUGH]

    def draw(self, prefix: Prefix) -> Generator[Work, list[Result], list[Candidate]]:
        """`drawing.count` texts, drawn token by token; equal ones count once."""
        blocks = yield from self._write(prefix, self.drawing.count, lambda _, logs: self.drawing.choose(logs))
        texts = dict.fromkeys((block.endings() or [block.first])[-1] for block in self.whole(blocks))
        return [Candidate(text) for text in texts if text.strip()]

    def _write(
        self, prefix: Prefix, count: int, choose: Callable[[Path, Tensor], int], most: int = MAX_BLOCK_TOKENS
    ) -> Generator[Work, list[Result], list[Block]]:
        """Texts token by token; `choose` takes the next of a path by ln probabilities [V + 1], the last the end's."""
        beam, lead = Beam(self.runtime, prefix), len(self.pending)
        end = self.runtime.loaded.config.transformer.vocab_size  # a number of no token
        rows = [(Path(), Block(self.stretch, "")) for _ in range(count)]
        scores = log_probs(self.runtime, [prefix.state])[0].expand(len(rows), -1)
        blocks = [block for _, block in rows]
        for _ in range(min(self.stretch.max_tokens, most) + lead):
            going = []
            for (path, block), logs in zip(rows, scores, strict=True):
                offer = self._offer(path, block, logs)
                token = choose(path, offer)
                if token == end or offer[token] == -torch.inf or self.stops[token]:
                    block.end()
                    continue
                block.write(self.runtime.vocabulary.pieces[token][max(0, lead - self.spelled(path)) :])
                if block.is_open:
                    going.append((replace(path, ids=(*path.ids, token)), block))
            if not going:
                break
            paths, scores = yield from beam.read([path for path, _ in going])
            rows = [(path, block) for path, (_, block) in zip(paths, going, strict=True)]
            self.forwards += 1
        return blocks

    def _offer(self, path: Path, block: Block, logs: Tensor) -> Tensor:
        """ln probabilities [V + 1] of the tokens that may come next, and last that the text is at its end."""
        size = self.spelled(path)
        left = self.pending[size:]
        allowed = self.allowed(left, size == len(self.pending))
        over = torch.full((1,), -torch.inf)
        if self.stretch.single and not left and block.data.strip():
            allowed = allowed & ~self.runtime.vocabulary.beginning(b"\n")
            over = logs[self.ends].logsumexp(dim=0, keepdim=True)
        elif not self.stretch.single and block.data.strip():
            allowed = allowed | self.stops
        return torch.cat((logs.masked_fill(~allowed, -torch.inf), over))

    def judge(
        self,
        prefix: Prefix,
        drafted: Sequence[Candidate],
        proposed: Sequence[Candidate],
        most: int = MAX_COMPARED,
    ) -> Generator[Work, list[Result], list[Candidate]]:
        """All candidates that may be right, each with how likely it is and what follows it."""
        known = {each.text: each for each in reversed(drafted) if each.text.strip()}
        others = [each for each in proposed if each.text not in known][:MAX_JUDGED]
        for each in proposed:
            if each.text in known:
                known[each.text] = replace(known[each.text], certainty=each.certainty)
        others += [known.pop(text) for text in [text for text, each in known.items() if not each.logs]]
        scores = yield from self._ask(prefix, [each.text for each in others], self.ends)
        self.forwards += 1
        judged = [replace(each, nats=nats, logs=logs) for each, (logs, nats) in zip(others, scores, strict=True)]
        ranked = sorted([*known.values(), *judged], key=lambda each: -each.score)
        following = "" if self.prompt.has_suffix else find_following(self.stretch.after)
        if not following:
            return ranked
        by_certainty = sorted(ranked, key=lambda each: -each.certainty)[:1]
        most = len(ranked) if self.stretch.is_block or self.stretch.is_inside else max(most, self.drawing.count)
        first = list(dict.fromkeys([*by_certainty, *ranked]))[:most]
        first += [each for each in ranked if "\n" in each.text and not each.certainty and each not in first]
        is_line = self.stretch.after.startswith(following + "\n")
        ends = self.runtime.vocabulary.beginning(b"\n") if is_line else None
        totals = yield from self._ask(prefix, [each.text + following for each in first], ends)
        self.forwards += 1
        return [replace(each, following=total - each.nats) for each, (_, total) in zip(first, totals, strict=True)]

    def _ask(
        self, prefix: Prefix, texts: Sequence[str], ends: Tensor | None = None
    ) -> Generator[Work, list[Result], list[tuple[Logs, float]]]:
        """The tokens of every text with their ln probabilities, and the sum of all, with that of an end by `ends`."""
        tokenizer, lead = self.runtime.loaded.tokenizer, self.pending.decode()
        ids = [tokenizer.encode(lead + text) for text in texts]
        scores = yield from score(self.runtime, prefix, ids, ends)
        found = []
        for row, logs in zip(ids, scores, strict=True):
            whole, ranges = decode([tokenizer.token_bytes(token) for token in row], "ignore")
            pairs = tuple((whole[max(len(lead), a) : b], log) for (a, b), log in zip(ranges, logs, strict=False))
            found.append((pairs, sum(logs)))
        return found


def chance_of(candidates: Sequence[Candidate], one: Candidate) -> float:
    """How likely `one` is right among all: calibrated where it is the best."""
    others = max((each.score for each in candidates if each is not one), default=-math.inf)
    ahead = min(max(one.score - others, -MOST_AHEAD), MOST_AHEAD)
    odds = AHEAD * ahead + LIKELY * one.nats + PROPOSED * one.certainty + ODDS
    return 1 / (1 + math.exp(-max(odds, -30.0)))


def chance_of_block(one: Candidate) -> float:
    """That a body is right by its own likelihood, or by the certainty of whoever proposed it; not fitted."""
    return 1 - (1 - math.exp(min(0.0, one.nats))) * (1 - one.certainty)
