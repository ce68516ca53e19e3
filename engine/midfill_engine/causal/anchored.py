"""Fills the masked parts between anchors by one beam search through all of them. Knows tokens; no requests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Final

from torch import Tensor

from midfill_engine.caches.stores import Prefix
from midfill_engine.causal.branches import Beam, Path, find_likeliest, read_prefix
from midfill_engine.causal.effort import CLOCK_FACTOR
from midfill_engine.causal.filler import Filler
from midfill_engine.causal.lines import MAX_LINE_TOKENS
from midfill_engine.causal.split import find_unmatched
from midfill_engine.causal.writing import Edge
from midfill_engine.judging import Candidate
from midfill_engine.loading.runtime import Runtime
from midfill_engine.tokens.vocabulary import NAMED

MORE_TOKENS: Final = 6  # a fill may have so many tokens more than twice those of the masked text
MAX_ANCHOR_TOKENS: Final = 8  # of a path that are read in one pass
HOPELESS: Final = 5.0  # nats behind the likeliest path through the same anchor


@dataclass(frozen=True)
class Part:
    """A `masked` text and the `anchor` behind it, which is "" for the last part. A fill for it begins with the bytes
    `lead`, the white space at the end of the anchor before it or what is pending, and has at most `limit` tokens. If it
    `balances`, its brackets without a partner must be those of the masked text.
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
        """The texts that may come between a fill and the stem: "" and " ". None may if the stem begins with a line
        break and the fill ends with white space.
        """
        stem = self.stem
        num_spaces = len(stem) - len(stem.lstrip())
        stem_spaces = stem[:num_spaces]
        if "\n" in stem_spaces:
            return [] if fill[-1:].isspace() else [""]
        joints = []
        if fill and not self._joins_words(fill):
            joints.append("")
        if not stem_spaces:
            joints.append(" ")
        return joints

    def _joins_words(self, fill: bytes) -> bool:
        """True if the fill's last word and the anchor's first one would become one word, which the draft lacks."""
        first = self.stem[0].encode()
        if not NAMED.match(fill[-1:]) or not NAMED.match(first):
            return False
        return not NAMED.match(self.masked[-1:].encode())

    @cached_property
    def unmatched(self) -> str:
        return find_unmatched(self.masked)

    @property
    def may_begin_word(self) -> bool:
        """False if the masked text has text but begins with no word: so the word before it ends there."""
        if not self.masked.strip():
            return True
        first = self.masked[0].encode()
        return NAMED.match(first) is not None

    def may_end(self, fill: bytes) -> bool:
        """True if the brackets of a fill are as they must be."""
        if not self.balances:
            return True
        text = fill.decode(errors="ignore")
        return find_unmatched(text) == self.unmatched


@dataclass(frozen=True)
class Crossing:
    """A path through the parts. The fill of its last part begins at byte `opened` and ends before token `limit` of the
    path. Within an anchor `anchor_rest` has the anchor's tokens that must come next; before it, it is None. Anchors
    begin at the bytes `starts`; ln P of all their tokens is `nats`, and was `nats_before` when the last part began.
    """

    path: Path = Path()
    opened: int = 0
    limit: int = 0
    anchor_rest: tuple[int, ...] | None = None
    starts: tuple[int, ...] = ()
    nats: float = 0.0
    nats_before: float = 0.0

    def go_on(self, logs: Tensor) -> "Crossing":
        """The path with the next token of its anchor, by the log-probabilities `logs` [V]."""
        assert self.anchor_rest
        token, *anchor_rest = self.anchor_rest
        log = float(logs[token])
        path = self.path.add(token, log)
        nats = self.nats + log
        return replace(self, path=path, anchor_rest=tuple(anchor_rest), nats=nats)


def bound_tokens(runtime: Runtime, masked: str) -> int:
    """The maximum number of tokens of a fill in place of a masked text."""
    if not masked.strip():
        return MAX_LINE_TOKENS
    ids = runtime.loaded.tokenizer.encode(masked)
    return MORE_TOKENS + 2 * len(ids)


@dataclass
class AnchoredFiller(Filler):
    """Fills a stretch of `parts`: masked texts and anchors alternate, and the first and the last one are masked."""

    parts: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.encode = cache(self.encode)  # because every path encodes the same anchors

    async def fill(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """Drafts that contain the anchors, best first. A hole that keeps anchors is given no texts."""
        prefix, _ = await read_prefix(self.runtime, self.prompt.ids)
        self.timer = self.timer.begin(CLOCK_FACTOR * self.allowed_s)
        ways = await self.cross(prefix)
        anchor_nats = 0.0
        if ways:
            anchor_nats = ways[0].nats  # the anchors are given, so their likelihood says nothing about a fill
        texts = [self._to_text(way) for way in ways]
        fitting_texts = self.keep_within_bounds(texts)
        judged = await self.judge_all(prefix, fitting_texts, [], anchor_nats)
        return self.rank(judged)

    async def cross(self, prefix: Prefix) -> list[Crossing]:
        """The likeliest paths through all parts, best first."""
        beam = Beam(self.runtime, prefix)
        ways = [(Crossing(), prefix.next_logs)]
        for part in self._list_parts():
            begun = []
            for way, logs in ways:
                opened = self._open_part(way, part.limit)
                begun.append((opened, logs))
            ways = await self._cross_part(beam, begun, part)
        return [way for way, _ in ways]

    def _list_parts(self) -> list[Part]:
        """The masked texts, each with the anchor behind it. A masked text of one line gets a fill of one line. Brackets
        are balanced if those of the whole draft are.
        """
        whole = "".join(self.parts)
        balances = not find_unmatched(whole)
        lead = self.pending
        is_spaced = self.is_spaced
        parts = []
        anchors = [*self.parts[1::2], ""]
        for masked, anchor in zip(self.parts[::2], anchors, strict=True):
            forbid = self.forbid
            if "\n" not in masked and "\n" not in forbid:
                forbid = (*forbid, "\n")
            edge = Edge(self.runtime.vocabulary, is_spaced, forbid)
            max_tokens = min(bound_tokens(self.runtime, masked), self.stretch.max_tokens)
            limit = max_tokens + len(lead)
            part = Part(masked, anchor, lead, edge, limit, balances)
            parts.append(part)
            lead = anchor[len(part.stem) :].encode()
            is_spaced = lead[-1:].isspace()
        return parts

    async def _cross_part(
        self, beam: Beam, begun: Sequence[tuple[Crossing, Tensor]], part: Part
    ) -> list[tuple[Crossing, Tensor]]:
        """The likeliest paths through a part and its anchor, each with the log-probabilities [V] of the next token."""
        crossed: list[tuple[Crossing, Tensor]] = []
        reads = [(way, logs[None]) for way, logs in begun]
        while reads:
            grown: list[Crossing] = []
            for way, scores in reads:
                if way.anchor_rest is None:
                    logs = scores[0]
                    ends, longer = self._grow(way, logs, part)
                    crossed += [(end, logs) for end in ends]
                    grown += longer
                    continue
                in_anchor, next_logs = self._follow_anchor(way, scores)
                if next_logs is None:
                    grown.append(in_anchor)
                else:
                    crossed.append((in_anchor, next_logs))
            crossed.sort(key=lambda pair: -pair[0].path.log)
            crossed = crossed[: self.width]
            ways = self._keep_open(grown, [way for way, _ in crossed])
            if not ways:
                break
            paths = [way.path for way in ways]
            guesses = []
            for way in ways:
                anchor_rest = way.anchor_rest or ()
                guesses.append(anchor_rest[:MAX_ANCHOR_TOKENS])
            paths, next_scores = await beam.read(paths, guesses)
            reads = []
            for way, path, scores in zip(ways, paths, next_scores, strict=True):
                read_way = replace(way, path=path)
                reads.append((read_way, scores))
        return crossed

    def _follow_anchor(self, way: Crossing, scores: Tensor) -> tuple[Crossing, Tensor | None]:
        """Returns the path with as many tokens of its anchor as `scores` [1 + G, V] have log-probabilities for. Also
        returns those of the token behind the anchor, None if the scores do not reach so far.
        """
        longer = way
        for logs in scores:
            if not longer.anchor_rest:
                return longer, logs
            longer = longer.go_on(logs)
        return longer, None

    def _keep_open(self, grown: Sequence[Crossing], crossed: Sequence[Crossing]) -> list[Crossing]:
        """The likeliest paths before the anchor and in it that may still become likelier than the `crossed` ones. To
        paths before it, the anchor counts as likely as it was to the crossed path that makes it likeliest.
        """
        nats_of_anchor = [way.nats - way.nats_before for way in crossed]
        anchor_nats = max(nats_of_anchor, default=0.0)
        crossed_logs = [way.path.log for way in crossed]
        width = self.width
        lowest_nats = -math.inf
        if crossed:
            lowest_nats = crossed_logs[0] - HOPELESS
        if len(crossed) >= width:
            lowest_nats = max(lowest_nats, crossed_logs[width - 1])
        rated: list[tuple[float, Crossing]] = []
        for way in grown:
            nats = way.path.log
            if way.anchor_rest is None:
                nats += anchor_nats
            if nats > lowest_nats:
                rated.append((nats, way))
        rated.sort(key=lambda pair: -pair[0])
        enough = self.effort.enough
        if rated and len(crossed) >= enough:
            best_nats, _ = rated[0]
            if best_nats <= crossed_logs[enough - 1]:
                return []
        open_ways = [way for _, way in rated if way.anchor_rest is None]
        ways_in_anchor = [way for _, way in rated if way.anchor_rest is not None]
        return open_ways[:width] + ways_in_anchor[:width]

    def _open_part(self, way: Crossing, limit: int) -> Crossing:
        """The path, at the beginning of a part whose fill has at most `limit` tokens."""
        opened = self.count_spelled(way.path)
        end = len(way.path.ids) + limit
        return replace(way, opened=opened, limit=end, anchor_rest=None, nats_before=way.nats)

    def _grow(self, way: Crossing, logs: Tensor, part: Part) -> tuple[list[Crossing], list[Crossing]]:
        """Returns the path with its end, in a list, if the stretch may end here; and the longer paths, with the first
        token of the anchor or with a likely next one.
        """
        path = way.path
        spelled = self._bytes(path)[way.opened :]
        own = spelled[len(part.lead) :]
        left = part.lead[len(spelled) :]
        ends: list[Crossing] = []
        grown: list[Crossing] = []
        if part.anchor and not left and part.may_end(own):
            for joint in part.joints(own):
                in_anchor = self._begin_anchor(way, part, joint, logs)
                grown.append(in_anchor)
        elif not part.anchor and own and part.may_end(own) and self._may_end_all(path):
            ended = self.add_end(path, logs)
            ends.append(replace(way, path=ended))
        limit = way.limit + self.stretch.min_tokens  # room to become long enough
        has_too_many_lines = self.stretch.has_too_many_lines(self._own_text(path))
        if len(path.ids) >= limit or has_too_many_lines:
            return ends, grown
        allowed = self._allow(way, part, spelled)
        for token, log in find_likeliest(logs, allowed, self.width):
            longer = path.add(token, log)
            if self._is_indented(longer):
                grown.append(replace(way, path=longer))
        return ends, grown

    def _allow(self, way: Crossing, part: Part, spelled: bytes) -> Tensor:
        """The set [V] of tokens that may come next in the fill of a part that is `spelled` so far."""
        path = way.path
        left = part.lead[len(spelled) :]
        own = spelled[len(part.lead) :]
        allowed = part.edge.allowed(left, not own)
        if not spelled and not left and not part.may_begin_word:
            allowed = allowed & ~self.runtime.vocabulary.worded
        if self.stretch.min_lines and own and not part.anchor:
            room = way.limit - len(path.ids)
            obliged = self.oblige(self._own_text(path), path, room)
            if obliged is not None:
                allowed = allowed & obliged
        return allowed

    def _begin_anchor(self, way: Crossing, part: Part, joint: str, logs: Tensor) -> Crossing:
        """The path with the first token of the part's anchor, behind the `joint`."""
        ids = tuple(self.encode(joint + part.stem))
        start = self.count_spelled(way.path) + len(joint)
        in_anchor = replace(way, anchor_rest=ids, starts=(*way.starts, start))
        return in_anchor.go_on(logs)

    def _may_end_all(self, path: Path) -> bool:
        """True if the whole text is not too short."""
        if not self.stretch.is_bounded:
            return True
        text = self._own_text(path)
        num_tokens = self.count_own(path)
        return self.stretch.is_long_enough(text, num_tokens)

    def _own_text(self, path: Path) -> str:
        """The text of a path behind the pending bytes."""
        own = self._bytes(path)[len(self.pending) :]
        return own.decode(errors="ignore")

    def _bytes(self, path: Path) -> bytes:
        return b"".join(self.pieces[token] for token in path.ids)

    def _is_indented(self, path: Path) -> bool:
        """True if the last line is the first one, blank, or indented like the stretch."""
        _, is_later, last = self._own_text(path).rpartition("\n")
        if not is_later or not last.strip():
            return True
        return last.startswith(self.stretch.indent)

    def _to_text(self, way: Crossing) -> Candidate:
        """The text of a path with the ranges of its anchors; without likelihoods, which `judge_all` adds."""
        data = self._bytes(way.path)
        num_pending = len(self.pending)
        kept = []
        anchors = self.parts[1::2]
        for start_byte, anchor in zip(way.starts, anchors, strict=True):
            before = data[num_pending:start_byte].decode(errors="ignore")
            start = len(before)
            end = start + len(anchor)
            kept.append((start, end))
        text = self._own_text(way.path)
        return Candidate(text, kept=tuple(kept))
