"""Writes texts for one stretch token by token, several at once. Knows tokens and texts; ranks nothing."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import torch
from torch import Tensor

from midfill_engine.caches.stores import Prefix
from midfill_engine.causal.branches import Beam, Path
from midfill_engine.causal.effort import WHOLE, Effort
from midfill_engine.causal.lookup import BREAK, guess_next, spell
from midfill_engine.causal.prompt import lay_prompt
from midfill_engine.causal.stretch import GrowingText, Stretch
from midfill_engine.judging import Candidate
from midfill_engine.loading.runtime import Runtime
from midfill_engine.loops import is_endless
from midfill_engine.requests.timer import ENDLESS, Timer
from midfill_engine.scheduling.work import Showing
from midfill_engine.tokens.pieces import Spans, decode
from midfill_engine.tokens.vocabulary import Vocabulary
from midfill_engine.wire import ALTERNATIVE_TEMPERATURE, StepEvent

LONGER: Final = 1.5  # an open body may have so many times the tokens of the longest finished one
MIN_COMPARED: Final = 3  # fewer bodies are not compared by their number of tokens
LINE_TOKENS: Final = 24  # room for each line that a text must have
LAST_TOKENS: Final = 64  # length up to which one text goes on alone once the time is over
NUM_WIDENED: Final = 8
MAX_REFUSED: Final = 64  # tokens in a row that would end a text too early

Continuation = tuple[Path, GrowingText]
"""A path of tokens behind the prompt, and the text that they write."""

Choose = Callable[[Path, Tensor], int]
"""Picks the next token of a path by log-probabilities [V + 1] (the last is the end)."""


@dataclass(frozen=True)
class Drawing:
    """How to draft: the `count` likeliest texts, or with a `temperature` as many sampled from the `top_p` nucleus."""

    count: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    generator: torch.Generator | None = None

    def choose(self, logs: Tensor) -> int:
        """Samples a token from the log-probabilities `logs` [V]; any one if none is possible."""
        values, order = logs.sort(descending=True)
        if torch.isneginf(values[0]):
            return int(order[0])
        shares = (values / self.temperature).softmax(dim=0)
        shares_before = shares.cumsum(dim=0) - shares
        nucleus = shares.masked_fill(shares_before >= self.top_p, 0)
        drawn = torch.multinomial(nucleus, 1, generator=self.generator)
        return int(order[drawn])


def widen(drawing: Drawing) -> Drawing:
    """A drawing of more texts, for a hole where no text by `drawing` keeps the bounds of lines and tokens."""
    count = max(drawing.count, NUM_WIDENED)
    if drawing.temperature:
        return replace(drawing, count=count)
    generator = torch.Generator().manual_seed(0)
    return replace(drawing, count=count, temperature=ALTERNATIVE_TEMPERATURE, generator=generator)


class Edge:
    """Which tokens may come where in a text: `opening` [V] at its beginning, `later` [V] behind that. None has a string
    of `forbid`. If white space is before the text (`is_spaced`), the text does not begin with more of it.
    """

    def __init__(self, vocabulary: Vocabulary, is_spaced: bool, forbid: tuple[str, ...]) -> None:
        self.vocabulary = vocabulary
        self.is_spaced = is_spaced
        self.forbid = forbid
        self.later = vocabulary.allowed(forbid=forbid)
        self.opening = self.later
        if is_spaced:
            self.opening = self.later & ~vocabulary.spaced

    def allowed(self, left: bytes, is_first: bool) -> Tensor:
        """The set [V] of tokens that may come next where the bytes `left` must be spelled first."""
        if left:
            # What spells no more than `left` may be any token, because this text is given.
            choosable = self.vocabulary.allowed() | self.vocabulary.spelling_only(left)
            spelling = self.vocabulary.spelling(left, self.is_spaced, self.forbid)
            return choosable & spelling
        if is_first:
            return self.opening
        return self.later


@dataclass
class TokenWriter:
    """The prompt of a stretch, the tokens that may come after it, and texts that are written there.

    A text first spells the bytes `pending` (see `Prompt`). `stops` [V] marks the special tokens, which end a text.
    `ends` are ids: a text ends as likely as one of them comes next. They are the tokens with which the text after may
    begin; but if the prompt shows that text, only the stops, and line breaks if one is next.
    """

    runtime: Runtime
    stretch: Stretch
    drawing: Drawing = Drawing()
    excerpts: Sequence[str] = ()
    effort: Effort = field(default=WHOLE, kw_only=True)
    timer: Timer = field(default=ENDLESS, kw_only=True)
    show: Callable[[Candidate], StepEvent] | None = field(default=None, kw_only=True)  # builds the event of a draft

    def __post_init__(self) -> None:
        runtime = self.runtime
        stretch = self.stretch
        prompt = lay_prompt(
            runtime, stretch.before, stretch.after, self.excerpts, is_body=stretch.is_body, behind=stretch.behind
        )
        self.prompt = prompt
        self.pending = prompt.pending
        self.prompt_letters = spell(prompt.ids)
        self.encode = runtime.loaded.tokenizer.encode
        vocabulary = runtime.vocabulary
        self.pieces = vocabulary.pieces
        self.is_spaced = stretch.before.endswith((" ", "\t"))
        self.forbid = stretch.forbid
        if stretch.single:
            self.forbid = (*stretch.forbid, "\n")
        self.edge = Edge(vocabulary, self.is_spaced, self.forbid)
        special_ids = list(runtime.tokens.special_ids)
        self.stops = torch.zeros_like(self.edge.later)
        self.stops[special_ids] = True
        ends = vocabulary.ending(stretch.after)
        if prompt.has_suffix:
            line_ends = ends & vocabulary.beginning(b"\n")
            ends = self.stops | line_ends
        self.ends = ends.nonzero().flatten()  # as ids, because a set [V] would be searched anew for every path

    @property
    def widest(self) -> int:
        """The number of paths at once while there is time."""
        return max(self.effort.width, self.drawing.count)

    @property
    def num_firsts(self) -> int:
        """The number of likely first lines that bodies are drafted from. One fewer than the requested alternatives is
        enough, because mostly a given text is one of the alternatives.
        """
        return max(self.effort.first_lines, self.drawing.count - 1)

    @property
    def width(self) -> int:
        """The number of paths at once; one when the time is over."""
        if self.timer.is_over:
            return 1
        return self.widest

    def count_spelled(self, path: Path) -> int:
        """The number of bytes of a path, pending ones included."""
        return sum(len(self.pieces[token]) for token in path.ids)

    def decode_own(self, ids: Sequence[int]) -> tuple[str, Spans]:
        """The text of tokens without the pending text, and each token's character range in it."""
        pieces = [self.pieces[token] for token in ids]
        text, ranges = decode(pieces, "ignore")
        num_pending = len(self.pending.decode())
        own_ranges = []
        for start, end in ranges:
            own_start = max(start - num_pending, 0)
            own_end = max(end - num_pending, 0)
            own_ranges.append((own_start, own_end))
        return text[num_pending:], own_ranges

    def to_candidate(self, path: Path) -> Candidate:
        text, ranges = self.decode_own(path.ids)
        logs = []
        for (start, end), log in zip(ranges, path.logs, strict=False):
            if end > 0:
                logs.append((text[start:end], log))
        return Candidate(text, path.log, logs=tuple(logs))

    def showing(self, path: Path) -> Showing | None:
        """A function that builds the event of a body that is written as far as `path`; None if nothing is shown."""
        show = self.show
        if show is None or not self.stretch.is_body:
            return None
        return lambda: show(self.to_candidate(path))

    def count_own(self, path: Path) -> int:
        """The number of a path's tokens that have text behind the pending bytes."""
        _, ranges = self.decode_own(path.ids)
        return sum(start < end for start, end in ranges)

    def count_behind(self, path: Path) -> int:
        """The number of a path's tokens from the first one on that spells more than the pending bytes."""
        num_bytes = 0
        for index, token in enumerate(path.ids):
            num_bytes += len(self.pieces[token])
            if num_bytes > len(self.pending):
                return len(path.ids) - index
        return 0

    def limit_tokens(self, usual_limit: int) -> int:
        """The maximum number of tokens of a text of several lines: more than the usual limit if it must be longer."""
        line_tokens = LINE_TOKENS * self.stretch.min_lines
        needed_tokens = 2 * self.stretch.min_tokens
        return max(usual_limit, line_tokens, needed_tokens)

    def add_end(self, path: Path, logs: Tensor) -> Path:
        """The path with one more log-probability, that it ends here, by the `logs` [V] of its next token."""
        end_log = float(logs[self.ends].logsumexp(dim=0))
        return replace(path, logs=(*path.logs, end_log))

    async def write_anew(
        self, prefix: Prefix, count: int, choose: Choose, usual_limit: int, *, must_have_line: bool = False
    ) -> list[Continuation]:
        """Writes `count` texts from their beginning (see `write`)."""
        continuations = []
        for _ in range(count):
            growing_text = GrowingText(self.stretch, "")
            continuations.append((Path(), growing_text))
        scores = [prefix.next_logs[None]] * count
        beam = Beam(self.runtime, prefix)
        limit = self.limit_tokens(usual_limit) + len(self.pending)
        return await self.write(beam, continuations, scores, choose, limit, must_have_line=must_have_line)

    async def write(
        self,
        beam: Beam,
        begun: Sequence[Continuation],
        scores: Sequence[Tensor],
        choose: Choose,
        limit: int,
        *,
        must_have_line: bool = False,
    ) -> list[Continuation]:
        """Continues the texts `begun` token by token, each by at most `limit` tokens and to no more than a stretch may
        have; returns all of them. Their next tokens have the log-probabilities `scores` [1, V]. Prompt lookup decoding
        (Saxena 2023) saves passes: guessed tokens are read along, and kept if they are chosen. When the time is over
        all texts end; but if there `must_have_line` at least one text with a whole line, the likeliest text goes on up
        to it.
        """
        continuations = list(begun)
        num_continuations = len(continuations)
        going = list(range(num_continuations))
        max_tokens = self.stretch.max_tokens
        begun_sizes = [len(path.ids) for path, _ in begun]
        sizes = [0] * num_continuations
        guesses: list[Sequence[int]] = [()] * num_continuations
        while True:
            for index, logs, guess in zip(going, scores, guesses, strict=True):
                path, growing_text = continuations[index]
                path = self._extend(path, growing_text, logs, guess, choose)
                continuations[index] = path, growing_text
                sizes[index] = len(path.ids) - begun_sizes[index]
            going = self._list_going(continuations, sizes, going, limit)
            if going and self.timer.is_over:
                going = self._keep_likeliest(continuations, going, must_have_line)
            if not going:
                break
            paths = [continuations[index][0] for index in going]
            ended = [path for index, (path, _) in enumerate(continuations) if index not in going]
            guesses = []
            for index, path, guess in zip(going, paths, self.guess(paths, ended), strict=True):
                room = min(limit - sizes[index], max_tokens - self.count_behind(path))
                guesses.append(guess[: room - 1])
            first_path, _ = continuations[0]
            paths, scores = await beam.read(paths, guesses, self.showing(first_path))
            for index, path in zip(going, paths, strict=True):
                _, growing_text = continuations[index]
                continuations[index] = path, growing_text
        return continuations

    def _list_going(
        self, continuations: Sequence[Continuation], sizes: Sequence[int], going: Sequence[int], limit: int
    ) -> list[int]:
        """The indices among `going` whose texts are still open and not too long. `sizes` are the numbers of their new
        tokens, at most `limit`.
        """
        max_body_size = self._limit_bodies(continuations, sizes)
        still_going = []
        for index in going:
            path, growing_text = continuations[index]
            size = sizes[index]
            is_short = size < limit and self.count_behind(path) < self.stretch.max_tokens
            if growing_text.is_open and is_short and size <= max_body_size:
                still_going.append(index)
        return still_going

    def _keep_likeliest(
        self, continuations: Sequence[Continuation], going: Sequence[int], must_have_line: bool
    ) -> list[int]:
        """The index of the text that goes on once the time is over: the likeliest one if some text must have a line."""
        has_line = any(growing_text.has_line for _, growing_text in continuations)
        if has_line or not must_have_line:
            return []
        best = max(going, key=lambda index: continuations[index][0].log)
        path, _ = continuations[best]
        if len(path.ids) >= LAST_TOKENS:
            return []
        return [best]

    def _limit_bodies(self, continuations: Sequence[Continuation], sizes: Sequence[int]) -> float:
        """The maximum number of tokens of a body once half of the bodies have ended: a longer one was never chosen."""
        is_drawn = self.drawing.temperature > 0
        if not self.stretch.is_body or is_drawn or len(continuations) < MIN_COMPARED:
            return math.inf
        ended_sizes = []
        for size, (_, growing_text) in zip(sizes, continuations, strict=True):
            if growing_text.is_whole:
                ended_sizes.append(size)
        min_ended = max(len(continuations) / 2, self.drawing.count)
        if len(ended_sizes) < min_ended:
            return math.inf
        return LONGER * max(ended_sizes)

    def _extend(
        self, path: Path, growing_text: GrowingText, scores: Tensor, guess: Sequence[int], choose: Choose
    ) -> Path:
        """Returns the path with the token chosen by the first of `scores` [1 + G, V], and with further ones as long as
        the token before was guessed right. Writes their bytes into `growing_text`.
        """
        read_places = path.places
        for logs, guessed in zip(scores, [*guess, None], strict=True):
            offer = self._offer(path, growing_text, logs)
            token = self._pick(path, growing_text, offer, choose)
            log = float(offer[token])
            if token == len(logs) or math.isinf(log) or self.stops[token]:
                growing_text.end()
                break
            own_bytes = self._own_bytes(path, token)
            growing_text.write(own_bytes)
            places = read_places[: len(path.ids)]
            path = Path((*path.ids, token), (*path.logs, log), places)
            if not growing_text.is_open or token != guessed:
                break
        return path

    def _own_bytes(self, path: Path, token: int) -> bytes:
        """The bytes of a path's next token behind the pending ones."""
        num_left = len(self.pending) - self.count_spelled(path)
        num_pending = max(0, num_left)
        return self.pieces[token][num_pending:]

    def oblige(self, text: str, path: Path, room: int) -> Tensor | None:
        """The set [V] of tokens that may come next in a text that still lacks lines; None if any may, because none is
        lacking. At a line's beginning these spell the indentation. After a line that repeats itself, or is so long that
        not all lines have `room` (in tokens), they break the line. Elsewhere they are all that do not end the text.
        """
        vocabulary = self.runtime.vocabulary
        num_lacking = self.stretch.min_lines - self.stretch.count_lines(text)
        _, is_later, last = text.rpartition("\n")
        if num_lacking < 0 or (num_lacking == 0 and last.strip()):
            return None
        indent = self.stretch.indent
        if is_later and last != indent and indent.startswith(last):
            left = indent[len(last) :].encode()
            return vocabulary.spelling(left, False, ("\n",))
        num_bytes = len(last.encode())
        num_tokens = self._count_last(path, num_bytes)
        is_long = num_tokens * (num_lacking + 1) > room
        if last.strip() and (is_long or is_endless(last)):
            return vocabulary.beginning(b"\n")
        return ~self.stops

    def _count_last(self, path: Path, max_bytes: int) -> int:
        """The number of tokens at the end of a path that together have at most `max_bytes` bytes."""
        num_tokens = 0
        num_bytes = 0
        for token in reversed(path.ids):
            num_bytes += len(self.pieces[token])
            if num_bytes > max_bytes:
                break
            num_tokens += 1
        return num_tokens

    def _pick(self, path: Path, growing_text: GrowingText, offer: Tensor, choose: Choose) -> int:
        """Chooses the next token by `offer` [V + 1]; bars a choice there that would end the text early, and repeats."""
        bounds = self.stretch
        if bounds.min_lines and not bounds.single and path.ids:
            limit = min(bounds.max_tokens, self.limit_tokens(0))
            room = limit - self.count_own(path)
            allowed = self.oblige(growing_text.written, path, room)
            if allowed is not None:
                next_logs = offer[:-1]
                is_offered = next_logs > -torch.inf
                if (allowed & is_offered).any():
                    next_logs.masked_fill_(~allowed, -torch.inf)
        token = choose(path, offer)
        if not bounds.min_lines and not bounds.min_tokens:
            return token
        for _ in range(MAX_REFUSED):
            if offer[token] == -torch.inf or not self._ends_early(path, growing_text, token):
                break
            offer[token] = -torch.inf
            token = choose(path, offer)
        return token

    def _ends_early(self, path: Path, growing_text: GrowingText, token: int) -> bool:
        """True if the text would end with this token and be too short."""
        longer_text = replace(growing_text)
        if token >= len(self.stops) or self.stops[token]:
            longer_text.end()
        else:
            own_bytes = self._own_bytes(path, token)
            longer_text.write(own_bytes)
        if longer_text.is_open:
            return False
        num_tokens = self.count_own(path)
        for text in longer_text.endings():
            if self.stretch.is_long_enough(text, num_tokens):
                return False
        return True

    def guess(
        self, paths: Sequence[Path], ended: Sequence[Path] = (), *, is_sure: bool = False
    ) -> list[tuple[int, ...]]:
        """Guesses each path's next tokens: what followed its last ones in the prompt, an `ended` path or any other."""
        ended_texts = [spell(path.ids) for path in ended]
        texts = [spell(path.ids) for path in paths]
        guesses = []
        for index, text in enumerate(texts):
            others = texts[:index] + texts[index + 1 :]
            sources = BREAK.join([self.prompt_letters, *ended_texts, *others, text])
            guesses.append(guess_next(text, sources, is_sure=is_sure))
        return guesses

    def _offer(self, path: Path, growing_text: GrowingText, logs: Tensor) -> Tensor:
        """Log-probabilities [V + 1] of the allowed next tokens; the last one is that of the end of the text."""
        num_spelled = self.count_spelled(path)
        left = self.pending[num_spelled:]
        is_single = self.stretch.single
        has_text = bool(growing_text.data.strip())
        breaks_line = self.runtime.vocabulary.beginning(b"\n")
        is_first = num_spelled == len(self.pending)
        allowed = self.edge.allowed(left, is_first)
        if growing_text.text and not growing_text.data:  # a body behind a complete first line
            allowed = allowed & breaks_line
        end_log = torch.full((1,), -torch.inf)
        if is_single and not left and has_text:
            allowed = allowed & ~breaks_line
            logs_of_ends = logs[self.ends]
            end_log = logs_of_ends.logsumexp(dim=0, keepdim=True)
        elif not is_single and has_text:
            allowed = allowed | self.stops
        next_logs = torch.where(allowed, logs, -torch.inf)
        return torch.cat((next_logs, end_log))
