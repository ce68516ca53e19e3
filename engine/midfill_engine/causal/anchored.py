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
from midfill_engine.causal.filler import MAX_LINE_TOKENS, Filler
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
        first, last = self.stem[0], self.masked[-1:]
        if "\n" in self.stem[: len(self.stem) - len(self.stem.lstrip())]:
            return [] if fill[-1:].isspace() else [""]
        grows = NAMED.match(fill[-1:]) and NAMED.match(first.encode()) and not NAMED.match(last.encode())
        return [""] * bool(fill and not grows) + [" "] * (not first.isspace())

    @cached_property
    def unmatched(self) -> str:
        return find_unmatched(self.masked)

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
        log = float(logs[self.rest[0]])
        return replace(self, path=self.path.add(self.rest[0], log), rest=self.rest[1:], nats=self.nats + log)


def bound_tokens(runtime: Runtime, masked: str) -> int:
    """The most tokens in place of a masked text."""
    return MORE_TOKENS + 2 * len(runtime.loaded.tokenizer.encode(masked)) if masked.strip() else MAX_LINE_TOKENS


@dataclass
class AnchoredFiller(Filler):
    """Fills a stretch of `parts`, masked texts and anchors in turns. The first and the last one are masked."""

    parts: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.encode = cache(self.runtime.loaded.tokenizer.encode)  # every path begins the same anchors

    async def fill(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """Texts that contain the anchors, best first."""
        prefix, _ = await read_prefix(self.runtime, self.prompt.ids)
        self.timer = self.timer.begin(LAST * self.most_s)
        ways = await self.cross(prefix)
        self.pending_nats = ways[0].nats if ways else 0.0  # anchors are no news
        return self.rank(await self.judge_all(prefix, self.within(list(map(self._text, ways))), []))

    async def cross(self, prefix: Prefix) -> list[Crossing]:
        """The likeliest paths through all parts, best first."""
        beam, lead, is_spaced = Beam(self.runtime, prefix), self.pending, self.is_spaced
        balances = not find_unmatched("".join(self.parts))
        ways = [(Crossing(), first_scores(self.runtime, prefix))]
        for masked, anchor in zip(self.parts[::2], [*self.parts[1::2], ""], strict=True):
            forbid = self.forbid if "\n" in (*masked, *self.forbid) else (*self.forbid, "\n")
            limit = min(bound_tokens(self.runtime, masked), self.stretch.max_tokens) + len(lead)
            part = Part(masked, anchor, lead, Edge(self.runtime.vocabulary, is_spaced, forbid), limit, balances)
            begun = [(self._open(way, limit), logs) for way, logs in ways]
            ways = await self._cross(beam, begun, part)
            lead = anchor[len(part.stem) :].encode()
            is_spaced = lead[-1:].isspace()
        return [way for way, _ in ways]

    async def _cross(
        self, beam: Beam, begun: Sequence[tuple[Crossing, Tensor]], part: Part
    ) -> list[tuple[Crossing, Tensor]]:
        """The likeliest paths through a part and its anchor, each with the log-probabilities [V] of the next token."""
        found: list[tuple[Crossing, Tensor]] = []
        todo = [(way, logs[None]) for way, logs in begun]
        while todo:
            grown: list[Crossing] = []
            for way, scores in todo:
                if way.rest is None:
                    ends, more = self._grow(way, scores[0], part)
                    found += [(end, scores[0]) for end in ends]
                    grown += more
                    continue
                for logs in scores:
                    if not way.rest:
                        found.append((way, logs))
                        break
                    way = way.go_on(logs)
                else:
                    grown.append(way)
            found = sorted(found, key=lambda pair: -pair[0].path.log)[: self.width]
            rows = self._keep(grown, [way for way, _ in found])
            if not rows:
                break
            guesses = [(way.rest or ())[:MAX_ANCHOR_TOKENS] for way in rows]
            paths, scored = await beam.read([way.path for way in rows], guesses)
            ways = [replace(way, path=path) for way, path in zip(rows, paths, strict=True)]
            todo = list(zip(ways, scored, strict=True))
        return found

    def _keep(self, grown: Sequence[Crossing], found: Sequence[Crossing]) -> list[Crossing]:
        """The likeliest paths that may still become likelier than the found ones. Those before the anchor count as if
        it were as likely after them as after the best of the found ones.
        """
        cost = max((way.nats - way.nats_before for way in found), default=0.0)
        least = [way.path.log - HOPELESS for way in found[:1]] + [way.path.log for way in found[self.width - 1 :]]
        rated = [(way.path.log + (cost if way.rest is None else 0.0), way) for way in grown]
        rated = sorted((pair for pair in rated if pair[0] > max(least, default=-math.inf)), key=lambda pair: -pair[0])
        enough = self.effort.enough
        if len(found) >= enough and rated and rated[0][0] <= found[enough - 1].path.log:
            return []
        kinds = ([way for _, way in rated if (way.rest is None) == is_open] for is_open in (True, False))
        return [way for kind in kinds for way in kind[: self.width]]

    def _open(self, way: Crossing, limit: int) -> Crossing:
        opened, most = self.spelled(way.path), len(way.path.ids) + limit
        return replace(way, opened=opened, limit=most, rest=None, nats_before=way.nats)

    def _grow(self, way: Crossing, logs: Tensor, part: Part) -> tuple[list[Crossing], list[Crossing]]:
        """The path that ends where the last part may end; and paths with an anchor's first or a likely next token."""
        written = self._bytes(way.path)
        spelled, own = written[way.opened :], written[way.opened + len(part.lead) :]
        left, ends, grown = part.lead[len(spelled) :], list[Crossing](), list[Crossing]()
        if not part.anchor and own and part.may_end(own) and self._may_end_all(way.path):
            ends.append(replace(way, path=self.ended(way.path, logs)))
        for joint in part.joints(own) if part.anchor and not left and part.may_end(own) else ():
            starts = (*way.starts, len(written) + len(joint))
            grown.append(replace(way, rest=tuple(self.encode(joint + part.stem)), starts=starts).go_on(logs))
        if len(way.path.ids) >= way.limit + self.stretch.min_tokens or self._is_too_long(way.path):
            return ends, grown
        allowed = part.edge.allowed(left, not own)
        if not spelled and not left and part.masked.strip() and not NAMED.match(part.masked[0].encode()):
            allowed = allowed & ~self.runtime.vocabulary.worded
        if self.stretch.min_lines and own and not part.anchor:
            obliged = self.oblige(self._show(way.path), way.path, way.limit - len(way.path.ids))
            allowed = allowed if obliged is None else allowed & obliged
        for token, log in find_likeliest(logs, allowed, self.width):
            if self._is_indented(path := way.path.add(token, log)):
                grown.append(replace(way, path=path))
        return ends, grown

    def _may_end_all(self, path: Path) -> bool:
        bounds = self.stretch
        return not bounds.is_bounded or bounds.is_long_enough(self._show(path), self.count_own(path))

    def _is_too_long(self, path: Path) -> bool:
        return self.stretch.max_lines is not None and self.stretch.has_too_many_lines(self._show(path))

    def _show(self, path: Path) -> str:
        return self._bytes(path)[len(self.pending) :].decode(errors="ignore")

    def _bytes(self, path: Path) -> bytes:
        return b"".join(map(self.runtime.vocabulary.pieces.__getitem__, path.ids))

    def _is_indented(self, path: Path) -> bool:
        """True if the last line is the first one, blank, or indented like the stretch."""
        _, is_later, last = self._show(path).rpartition("\n")
        return not is_later or not last.strip() or last.startswith(self.stretch.indent)

    def _text(self, way: Crossing) -> Candidate:
        data, lead = self._bytes(way.path), len(self.pending)
        starts = [len(data[lead:start].decode(errors="ignore")) for start in way.starts]
        kept = tuple((start, start + len(anchor)) for start, anchor in zip(starts, self.parts[1::2], strict=True))
        return Candidate(data[lead:].decode(errors="ignore"), kept=kept)
