"""Fills one stretch with a causal base: drafts from the left, judges every candidate by what follows it.

P(text | before) P(what follows | before, text) is what a text's probability given both sides is in proportion to
(Bayes' rule), so a base that only reads what stands before fills gaps without any training. Knows tokens and texts; no
requests, no files.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from midfill_engine.caches.prefixes import Prefix
from midfill_engine.denoising.branches import Beam, Path, log_probs, read_prefix, score
from midfill_engine.denoising.canvas import decode
from midfill_engine.denoising.work import Work
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.packed import Result

WIDTH: Final = 5
NUM_BLOCKS: Final = 3
OWN: Final = 3.0  # nats for what the file itself says, where it is FAIR
FAIR: Final = 0.1
MAX_LINE_TOKENS: Final = 64
MAX_BEFORE: Final = 1280  # tokens that are read
READ_CHARACTERS: Final = 3072  # of what stands before, and
READ_STEP: Final = 1024  # by how many its beginning moves, so that it stands still while somebody types
MAX_JUDGED: Final = 16  # proposals of others whose own likelihood is asked
MAX_COMPARED: Final = 5  # candidates of which what follows is asked, too
# ln odds that the best of a line's candidates is right: by nats ahead of the second, by its own, by its certainty
# as a proposal. Fitted on 120 lines of packages of 2025 and later.
AHEAD, LIKELY, PROPOSED, ODDS = 0.146, 0.127, 3.27, -0.98
MOST_AHEAD: Final = 12.0
FOLLOWING_LINES: Final = 4
FOLLOWING_CHARACTERS: Final = 160
MAX_LINES: Final = 32
MAX_BLOCK_TOKENS: Final = 192
REPEATED: Final = 3  # equal lines in a row, or equal
LOOP_CHARACTERS: Final = 24  # within a line, end a text


@dataclass(frozen=True)
class Candidate:
    """A text for a stretch; `nats`: ln P(text, end | before), `following`: ln P(what follows | before, text)."""

    text: str
    nats: float = -math.inf
    following: float = 0.0
    certainty: float = 0.0  # of whoever proposed it
    logs: tuple[tuple[str, float], ...] = ()
    chance: float = 0.0  # that it is right, calibrated for lines

    @property
    def score(self) -> float:
        return self.nats + self.following + (OWN if self.certainty >= FAIR else 0.0)

    @property
    def mean(self) -> float:
        """`score` a token, by which bodies of different lengths compare."""
        return self.score / max(1, len(self.logs))


def open_edge(runtime: Runtime, text: str) -> tuple[tuple[int, ...], bytes]:
    """The ids of `text` up to its last token, and that token's bytes, which what goes on must spell first.

    A tokenizer joins what stands on both sides of an edge; so the model chooses the joint token itself. Of a long text
    the end is read.
    """
    opening = runtime.tokens.opening(None)
    tokenizer = runtime.loaded.tokenizer
    ids = tokenizer.encode(cut_before(text))[-MAX_BEFORE:]
    if not ids:
        return (*opening, runtime.tokens.special_ids[0]), b""
    pending = tokenizer.token_bytes(ids.pop())
    if len(pending) > 1 and pending.isspace() and pending.endswith(b" "):  # of a run the last space is the word's own
        ids += tokenizer.encode(pending[:-1].decode())
        pending = b" "
    while ids and not _is_text(pending):
        pending = tokenizer.token_bytes(ids.pop()) + pending
    return (*(opening or ([] if ids else [runtime.tokens.special_ids[0]])), *ids), pending


def cut_before(text: str) -> str:
    """The end of `text` from the beginning of a line on."""
    surplus = len(text) - READ_CHARACTERS
    start = math.ceil(surplus / READ_STEP) * READ_STEP
    return text if surplus <= 0 else text[text.find("\n", start - 1, len(text) - READ_STEP) + 1 or start :]


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True)
class Stretch:
    """What is to be filled between `before` and `after`, which ends where the next unknown text begins.

    What is drafted for a stretch that is `single` has no line break; of any other every line but the first begins with
    `indent`.
    """

    before: str
    after: str
    single: bool
    forbid: tuple[str, ...] = ()
    max_tokens: int = 256
    indent: str = ""

    @property
    def next_line(self) -> str | None:
        """The first filled line behind the stretch's own."""
        return next((line for line in self.after.split("\n")[1:] if line.strip()), None)

    @property
    def is_block(self) -> bool:
        """Whether what stands behind is further out, so that a text ends where its lines leave `indent`."""
        return not self.single and bool(self.indent) and not (self.next_line or "").startswith(self.indent)


@dataclass
class Block:
    """A text of several lines that is being written."""

    stretch: Stretch
    text: str
    data: bytes = b""
    is_open: bool = True
    is_whole: bool = False  # it ended by itself: its last line left it, or met what stands behind

    def write(self, piece: bytes) -> None:
        """Adds a token, and ends the text where its last line is no part of it, or where it goes round in circles."""
        self.data += piece
        *lines, last = (self.text + self.data.decode(errors="ignore")).split("\n")
        leaves = bool(lines) and bool(last.strip()) and not last.startswith(self.stretch.indent)
        meets = len(lines) > 1 and lines[-1] == self.stretch.next_line
        filled = [line.strip() for line in lines if len(line.strip()) > 1]
        circles = bool(filled) and filled.count(filled[-1]) >= REPEATED
        circles |= len(last) > LOOP_CHARACTERS and last.count(last[-LOOP_CHARACTERS:]) >= REPEATED
        if leaves or meets:
            self.end()
        elif circles or len(lines) > MAX_LINES:
            self.is_open = False

    def end(self) -> None:
        self.is_open, self.is_whole = False, True

    def endings(self) -> list[str]:
        """The text up to the end of each line that belongs to it, of a block only the longest."""
        first, *lines = (self.text + self.data.decode(errors="ignore")).split("\n")
        found, taken, seen = [first], first, {first.strip()}
        for line in lines if self.is_whole else lines[:-1]:
            is_over = bool(line.strip()) and not line.startswith(self.stretch.indent)
            if is_over or line == self.stretch.next_line or (not self.is_whole and line.strip() in seen):
                break
            taken += "\n" + line
            if line.strip():
                seen.add(line.strip())
                found.append(taken)
        return found[-1:] if self.stretch.is_block else found


@dataclass
class Filler:
    """Fills one stretch: reads what stands before it, drafts, takes proposals in, and ranks all by likelihood."""

    runtime: Runtime
    stretch: Stretch
    width: int = WIDTH
    forwards: int = 0

    def __post_init__(self) -> None:
        runtime, stretch = self.runtime, self.stretch
        self.ids, self.pending = open_edge(runtime, stretch.before)
        spaced = stretch.before[-1:] in (" ", "\t")
        forbid = (*stretch.forbid, "\n") if stretch.single else stretch.forbid
        vocabulary = runtime.vocabulary
        self.later = vocabulary.allowed(forbid=forbid)
        self.opening = vocabulary.allowed(forbid=forbid) if not spaced else self.later & ~vocabulary.spaced
        self.ends = vocabulary.ending(stretch.after)
        self.stops = torch.zeros_like(self.later)
        self.stops[list(runtime.tokens.special_ids)] = True

    def allowed(self, left: bytes, is_first: bool) -> Tensor:
        """What may come next where the bytes `left` are still to be spelled."""
        if left:
            return self.runtime.vocabulary.spelling(left, self.stretch.before[-1:] in (" ", "\t")) & (
                self.later | self.runtime.vocabulary.spelling_only(left)
            )
        return self.opening if is_first else self.later

    def fill(self, proposed: Sequence[Candidate]) -> Generator[Work, list[Result], list[Candidate]]:
        """Candidates for the stretch, the best first."""
        prefix = yield from self.read()
        drafted = yield from self.draft_lines(prefix)
        if not self.stretch.single:
            drafted = yield from self.draft_block(prefix, drafted[:NUM_BLOCKS])
        fitting = [each for each in proposed if not any(part in each.text for part in self.stretch.forbid)]
        judged = yield from self.judge(prefix, drafted, fitting)
        if self.stretch.is_block:
            ranked = sorted(judged, key=lambda each: -each.mean)
            return [replace(each, chance=math.exp(each.nats)) for each in ranked]
        ranked = sorted(judged, key=lambda each: -each.score)
        return [replace(each, chance=chance_of(ranked, each)) for each in ranked]

    def read(self) -> Generator[Work, list[Result], Prefix]:
        prefix, known = yield from read_prefix(self.runtime, self.ids)
        self.forwards += known < len(self.ids)
        return prefix

    def draft_lines(self, prefix: Prefix) -> Generator[Work, list[Result], list[Candidate]]:
        """The likeliest texts without a line break, by beam search, and how likely it is that each ends there."""
        beam = Beam(self.runtime, prefix)
        paths, scores = [Path()], log_probs(self.runtime, [prefix.state])[0]
        found: list[tuple[float, Path]] = []
        pieces = self.runtime.vocabulary.pieces
        line_breaks = self.runtime.vocabulary.beginning(b"\n")
        for _ in range(min(self.stretch.max_tokens, MAX_LINE_TOKENS) + len(self.pending)):
            grown: list[tuple[float, Path]] = []
            for path, logs in zip(paths, scores, strict=True):
                text = b"".join(pieces[token] for token in path.ids)
                left = self.pending[len(text) :]
                if not left and len(text) > len(self.pending):
                    end = float(logs[self.ends].logsumexp(dim=0))
                    found.append((path.log + end, replace(path, logs=(*path.logs, end))))
                allowed = self.allowed(left, len(text) == len(self.pending))
                if not left:
                    allowed = allowed & ~line_breaks
                best = logs.masked_fill(~allowed, -torch.inf).topk(self.width)
                for value, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                    if value > -math.inf:
                        grown.append((path.log + value, Path((*path.ids, token), (*path.logs, value), path.places)))
            found = sorted(found, key=lambda each: -each[0])[: self.width]
            paths = [path for _, path in sorted(grown, key=lambda each: -each[0])[: self.width]]
            if not paths or (len(found) == self.width and found[-1][0] >= paths[0].log):
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
        begun = [tuple(tokenizer.encode(self.pending.decode() + first.text)) for first in firsts]
        blocks = [Block(self.stretch, first.text) for first in firsts]
        beam = Beam(self.runtime, prefix)
        paths, scores = yield from beam.open(begun)
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
        ended = [block for block in blocks if block.is_whole] if self.stretch.is_block else []
        texts = dict.fromkeys(text for block in ended or blocks for text in block.endings())
        return [Candidate(text) for text in texts]

    def judge(
        self, prefix: Prefix, drafted: Sequence[Candidate], proposed: Sequence[Candidate]
    ) -> Generator[Work, list[Result], list[Candidate]]:
        """All candidates that may be right, each with how likely it is and what follows it."""
        known = {each.text: each for each in reversed(drafted) if each.text.strip()}
        others = [each for each in proposed if each.text not in known][:MAX_JUDGED]
        for each in proposed:
            if each.text in known:
                known[each.text] = replace(known[each.text], certainty=each.certainty)
        others += [known.pop(text) for text in [text for text, each in known.items() if not each.logs]]
        end = "\n" if self.stretch.after[:1] in ("\n", "") else self.stretch.after[:1]
        scores = yield from self._ask(prefix, [each.text + end for each in others])
        self.forwards += 1
        judged = [
            replace(each, nats=sum(log for _, log in logs), logs=logs)
            for each, logs in zip(others, scores, strict=True)
        ]
        ranked = sorted([*known.values(), *judged], key=lambda each: -each.nats)
        following = self.following
        if not following:
            return ranked
        by_certainty = sorted(ranked, key=lambda each: -each.certainty)[:1]
        first = ranked if self.stretch.is_block else list(dict.fromkeys([*by_certainty, *ranked]))[:MAX_COMPARED]
        totals = yield from self._ask(prefix, [each.text + following for each in first])
        self.forwards += 1
        return [
            replace(each, following=sum(log for _, log in logs) - each.nats)
            for each, logs in zip(first, totals, strict=True)
        ]

    @property
    def following(self) -> str:
        """The next filled lines behind the stretch."""
        text, lines, taken = self.stretch.after, 0, 0
        for line in text[: 4 * FOLLOWING_CHARACTERS].splitlines(keepends=True):
            if taken and taken + len(line) > FOLLOWING_CHARACTERS:
                break
            taken += len(line)
            lines += bool(line.strip())
            if lines == FOLLOWING_LINES:
                break
        taken = min(taken, 2 * FOLLOWING_CHARACTERS)
        return text[:taken].rstrip()

    def _ask(
        self, prefix: Prefix, texts: Sequence[str]
    ) -> Generator[Work, list[Result], list[tuple[tuple[str, float], ...]]]:
        """Of every text its tokens' texts with their ln probabilities."""
        tokenizer, lead = self.runtime.loaded.tokenizer, self.pending.decode()
        ids = [tokenizer.encode(lead + text) for text in texts]
        scores = yield from score(self.runtime, prefix, ids) if ids else _nothing()
        found = []
        for row, logs in zip(ids, scores, strict=True):
            whole, ranges = decode([tokenizer.token_bytes(token) for token in row], "ignore")
            found.append(tuple((whole[max(len(lead), a) : b], log) for (a, b), log in zip(ranges, logs, strict=True)))
        return found


def chance_of(candidates: Sequence[Candidate], one: Candidate) -> float:
    """How likely `one` is right among all: calibrated where it is the best."""
    others = max((each.score for each in candidates if each is not one), default=-math.inf)
    ahead = min(max(one.score - others, -MOST_AHEAD), MOST_AHEAD)
    odds = AHEAD * ahead + LIKELY * one.nats + PROPOSED * one.certainty + ODDS
    return 1 / (1 + math.exp(-max(odds, -30.0)))


def _nothing() -> Generator[Work, list[Result], list[list[float]]]:
    yield from ()
    return []
