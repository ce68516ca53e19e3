"""Fills the masked parts between anchors by one beam search through all of them. Knows tokens; no requests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Final

from torch import Tensor

from midfill_engine.caches.stores import Prefix
from midfill_engine.causal.branches import Beam, Path, find_likeliest, first_scores, read_prefix
from midfill_engine.causal.effort import LAST
from midfill_engine.causal.filler import Filler
from midfill_engine.causal.lines import MAX_LINE_TOKENS
from midfill_engine.causal.split import find_unmatched
from midfill_engine.causal.writing import Edge
from midfill_engine.judging import Candidate
from midfill_engine.loading.runtime import Runtime
from midfill_engine.tokens.vocabulary import NAMED

MORE_TOKENS: Final = 6  # beyond twice those of a masked text
MAX_ANCHOR_TOKENS: Final = 8  # read at once
HOPELESS: Final = 5.0  # nats behind the likeliest path through the same anchor


@dataclass(frozen=True)
class Part:
    """A `masked` text and the `anchor` behind it, "" behind the last one. A fill begins with the white space `lead`,
    the end of the anchor before it, and has at most `limit` tokens. If it `balances`, its brackets without a partner
    are those of the masked text.
    """

    masked: str
    anchor: str
    lead: bytes
    edge: Edge
    limit: int
    balances: bool = False

    @property
    def stem(self) -> str:
        """The anchor without the white space at its end, which the next part's first token may contain."""
        return self.anchor.rstrip() or self.anchor

    def joints(self, fill: bytes) -> list[str]:
        """What may come between a fill and the stem: nothing or a space."""
        lead = self.stem[: len(self.stem) - len(self.stem.lstrip())]
        if "\n" in lead:
            return [] if fill[-1:].isspace() else [""]
        joints = []
        if fill and not self._grows(fill):
            joints.append("")
        if not lead:
            joints.append(" ")
        return joints

    def _grows(self, fill: bytes) -> bool:
        """True if the anchor would go on with the last word of a fill, and did not go on with a word before."""
        is_joined = NAMED.match(fill[-1:]) and NAMED.match(self.stem[0].encode())
        return bool(is_joined) and not NAMED.match(self.masked[-1:].encode())

    @cached_property
    def unmatched(self) -> str:
        return find_unmatched(self.masked)

    @property
    def may_begin_word(self) -> bool:
        """False if the masked text begins with no word, so that the text before it does not go on."""
        return not self.masked.strip() or NAMED.match(self.masked[0].encode()) is not None

    def may_end(self, fill: bytes) -> bool:
        return not self.balances or find_unmatched(fill.decode(errors="ignore")) == self.unmatched


@dataclass(frozen=True)
class Crossing:
    """A path through the parts. Its masked part begins at the byte `opened` and ends before the token `limit`; or the
    tokens `rest` of an anchor must come next. Anchors begin at the bytes `starts`; ln P of their tokens is `nats`, and
    was `nats_before` when the part began.
    """

    path: Path = Path()
    opened: int = 0
    limit: int = 0
    rest: tuple[int, ...] | None = None
    starts: tuple[int, ...] = ()
    nats: float = 0.0
    nats_before: float = 0.0

    def go_on(self, logs: Tensor) -> "Crossing":
        """The path with the next token of its anchor."""
        assert self.rest
        token, *rest = self.rest
        log = float(logs[token])
        return replace(self, path=self.path.add(token, log), rest=tuple(rest), nats=self.nats + log)


def bound_tokens(runtime: Runtime, masked: str) -> int:
    """The most tokens in place of a masked text."""
    if not masked.strip():
        return MAX_LINE_TOKENS
    return MORE_TOKENS + 2 * len(runtime.loaded.tokenizer.encode(masked))


@dataclass
class AnchoredFiller(Filler):
    """Fills a stretch of `parts`, masked texts and anchors in turns. The first and the last one are masked."""

    parts: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.encode = cache(self.encode)  # every path begins the same anchors

    async def fill(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """Texts that contain the anchors, best first."""
        prefix, _ = await read_prefix(self.runtime, self.prompt.ids)
        self.timer = self.timer.begin(LAST * self.most_s)
        ways = await self.cross(prefix)
        anchor_nats = ways[0].nats if ways else 0.0  # anchors are no news
        drafted = self.within(list(map(self._text, ways)))
        return self.rank(await self.judge_all(prefix, drafted, [], anchor_nats))

    async def cross(self, prefix: Prefix) -> list[Crossing]:
        """The likeliest paths through all parts, best first."""
        beam = Beam(self.runtime, prefix)
        ways = [(Crossing(), first_scores(self.runtime, prefix))]
        for part in self._list_parts():
            begun = [(self._open(way, part.limit), logs) for way, logs in ways]
            ways = await self._cross(beam, begun, part)
        return [way for way, _ in ways]

    def _list_parts(self) -> list[Part]:
        """The masked texts, each with the anchor behind it."""
        balances = not find_unmatched("".join(self.parts))
        lead, is_spaced = self.pending, self.is_spaced
        parts = []
        for masked, anchor in zip(self.parts[::2], [*self.parts[1::2], ""], strict=True):
            forbid = self.forbid
            if "\n" not in masked and "\n" not in forbid:
                forbid = (*forbid, "\n")
            edge = Edge(self.runtime.vocabulary, is_spaced, forbid)
            limit = min(bound_tokens(self.runtime, masked), self.stretch.max_tokens) + len(lead)
            part = Part(masked, anchor, lead, edge, limit, balances)
            parts.append(part)
            lead = anchor[len(part.stem) :].encode()
            is_spaced = lead[-1:].isspace()
        return parts

    async def _cross(
        self, beam: Beam, begun: Sequence[tuple[Crossing, Tensor]], part: Part
    ) -> list[tuple[Crossing, Tensor]]:
        """The likeliest paths through a part and its anchor, each with the log-probabilities [V] of the next token."""
        crossed: list[tuple[Crossing, Tensor]] = []
        reads = [(way, logs[None]) for way, logs in begun]
        while reads:
            grown: list[Crossing] = []
            for way, scores in reads:
                if way.rest is None:
                    ends, longer = self._grow(way, scores[0], part)
                    crossed += [(end, scores[0]) for end in ends]
                    grown += longer
                    continue
                way, next_logs = self._go_on(way, scores)
                if next_logs is None:
                    grown.append(way)
                else:
                    crossed.append((way, next_logs))
            crossed = sorted(crossed, key=lambda pair: -pair[0].path.log)[: self.width]
            ways = self._keep(grown, [way for way, _ in crossed])
            if not ways:
                break
            guesses = [(way.rest or ())[:MAX_ANCHOR_TOKENS] for way in ways]
            paths, next_scores = await beam.read([way.path for way in ways], guesses)
            ways = [replace(way, path=path) for way, path in zip(ways, paths, strict=True)]
            reads = list(zip(ways, next_scores, strict=True))
        return crossed

    def _go_on(self, way: Crossing, scores: Tensor) -> tuple[Crossing, Tensor | None]:
        """The path with the tokens of its anchor that `scores` [1 + G, V] tell; and the log-probabilities of the token
        behind the anchor, if they tell these too.
        """
        for logs in scores:
            if not way.rest:
                return way, logs
            way = way.go_on(logs)
        return way, None

    def _keep(self, grown: Sequence[Crossing], crossed: Sequence[Crossing]) -> list[Crossing]:
        """The likeliest paths that may still become likelier than those that have crossed. Those before the anchor
        count as if it were as likely after them as after the best of these.
        """
        anchor_nats = max((way.nats - way.nats_before for way in crossed), default=0.0)
        least = -math.inf
        if crossed:
            least = crossed[0].path.log - HOPELESS
        if len(crossed) >= self.width:
            least = max(least, crossed[self.width - 1].path.log)
        rated: list[tuple[float, Crossing]] = []
        for way in grown:
            nats = way.path.log + (anchor_nats if way.rest is None else 0.0)
            if nats > least:
                rated.append((nats, way))
        rated.sort(key=lambda pair: -pair[0])
        enough = self.effort.enough
        if rated and len(crossed) >= enough and rated[0][0] <= crossed[enough - 1].path.log:
            return []
        open_ways = [way for _, way in rated if way.rest is None]
        ways_in_anchor = [way for _, way in rated if way.rest is not None]
        return open_ways[: self.width] + ways_in_anchor[: self.width]

    def _open(self, way: Crossing, limit: int) -> Crossing:
        """The path with a new masked part of at most `limit` tokens."""
        opened = self.spelled(way.path)
        return replace(way, opened=opened, limit=len(way.path.ids) + limit, rest=None, nats_before=way.nats)

    def _grow(self, way: Crossing, logs: Tensor, part: Part) -> tuple[list[Crossing], list[Crossing]]:
        """The path that ends where the last part may end; and paths with an anchor's first or a likely next token."""
        written = self._bytes(way.path)
        spelled = written[way.opened :]
        own = spelled[len(part.lead) :]
        left = part.lead[len(spelled) :]
        ends: list[Crossing] = []
        grown: list[Crossing] = []
        if part.anchor and not left and part.may_end(own):
            grown += [self._begin_anchor(way, part, joint, logs) for joint in part.joints(own)]
        elif not part.anchor and own and part.may_end(own) and self._may_end_all(way.path):
            ends.append(replace(way, path=self.ended(way.path, logs)))
        if len(way.path.ids) >= way.limit + self.stretch.min_tokens or self._is_too_long(way.path):
            return ends, grown
        allowed = part.edge.allowed(left, not own)
        if not spelled and not left and not part.may_begin_word:
            allowed = allowed & ~self.runtime.vocabulary.worded
        if self.stretch.min_lines and own and not part.anchor:
            obliged = self.oblige(self._show(way.path), way.path, way.limit - len(way.path.ids))
            if obliged is not None:
                allowed = allowed & obliged
        for token, log in find_likeliest(logs, allowed, self.width):
            path = way.path.add(token, log)
            if self._is_indented(path):
                grown.append(replace(way, path=path))
        return ends, grown

    def _begin_anchor(self, way: Crossing, part: Part, joint: str, logs: Tensor) -> Crossing:
        """The path with the first token of the part's anchor, behind the `joint`."""
        ids = tuple(self.encode(joint + part.stem))
        start = self.spelled(way.path) + len(joint)
        return replace(way, rest=ids, starts=(*way.starts, start)).go_on(logs)

    def _may_end_all(self, path: Path) -> bool:
        bounds = self.stretch
        return not bounds.is_bounded or bounds.is_long_enough(self._show(path), self.count_own(path))

    def _is_too_long(self, path: Path) -> bool:
        return self.stretch.has_too_many_lines(self._show(path))

    def _show(self, path: Path) -> str:
        """The text of a path behind what is pending."""
        return self._bytes(path)[len(self.pending) :].decode(errors="ignore")

    def _bytes(self, path: Path) -> bytes:
        return b"".join(self.pieces[token] for token in path.ids)

    def _is_indented(self, path: Path) -> bool:
        """True if the last line is the first one, blank, or indented like the stretch."""
        _, is_later, last = self._show(path).rpartition("\n")
        return not is_later or not last.strip() or last.startswith(self.stretch.indent)

    def _text(self, way: Crossing) -> Candidate:
        data = self._bytes(way.path)
        lead = len(self.pending)
        kept = []
        for start_byte, anchor in zip(way.starts, self.parts[1::2], strict=True):
            start = len(data[lead:start_byte].decode(errors="ignore"))
            kept.append((start, start + len(anchor)))
        return Candidate(self._show(way.path), kept=tuple(kept))
