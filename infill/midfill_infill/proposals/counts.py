"""Texts from what a document repeats: candidates for a gap, ranked by fitted weights. Knows texts; no files, no model.

Candidates are lines of the texts and of other files, and inside of a line paths of a beam over counted words. What is
known of each, and of the case that none is right, gives shares, which a fitted curve turns into probabilities.
"""

import json
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from midfill_infill.proposals import beam
from midfill_infill.proposals.base import Proposal
from midfill_infill.proposals.features import CANDIDATE, NONE, Candidate, Scene, describe, net_of
from midfill_infill.proposals.gap import Gap
from midfill_infill.proposals.levels import Floats, Gate, Reader
from midfill_infill.proposals.neighbours import Lines, Site, find_common, find_lines, find_renamed
from midfill_infill.proposals.ranking import Ranker
from midfill_infill.proposals.table import DEPTH, Ints, Keys, Numbers, Table, make_stream
from midfill_infill.proposals.words import NAME, Chunk, Lexicon

WEIGHTS: Final = Path(__file__).with_name("counts.json")
OWN: Final = "the file's own line"
RENAMED: Final = "a line of the file, renamed"
OTHER: Final = "a line of another file"
WORDS: Final = "the file's own words"
MAX_REFERRED: Final = 40
MAX_PROPOSALS: Final = 40
MAX_CANDIDATES: Final = 200


@dataclass(frozen=True)
class Weights:
    """`forward` and `backward` gates by order; what ranks candidates, and the case of none; `slope` and `offset` of
    ln(share / (1 - share)).
    """

    forward: tuple[Gate, ...]
    backward: tuple[Gate, ...]
    candidate: Ranker
    none: Ranker
    slope: float
    offset: float

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Weights":
        return cls(
            forward=tuple(tuple(gate) for gate in values["forward"]),
            backward=tuple(tuple(gate) for gate in values["backward"]),
            candidate=Ranker.of(values["candidate"], CANDIDATE),
            none=Ranker.of(values["none"], NONE),
            slope=values["slope"],
            offset=values["offset"],
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "forward": self.forward,
            "backward": self.backward,
            "candidate": self.candidate.to_json(CANDIDATE),
            "none": self.none.to_json(NONE),
            "slope": self.slope,
            "offset": self.offset,
        }

    def shares(self, table: Floats, none: Floats) -> Floats:
        """Of each candidate; what is missing to 1 is that of none."""
        scores = np.append(self.candidate.scores(table), self.none.scores(none[None]))
        likely: Floats = np.exp(scores - np.max(scores))
        shares: Floats = likely[:-1] / likely.sum()
        return shares

    def certainties(self, shares: Floats) -> Floats:
        clear = np.clip(shares, 1e-6, 1 - 1e-6)
        certain: Floats = 1 / (1 + np.exp(-self.offset - self.slope * np.log(clear / (1 - clear))))
        return certain


@cache
def shipped_weights() -> Weights:
    return Weights.of(json.loads(WEIGHTS.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Texts:
    """A document's texts around its holes, one more than there are holes, and those of other files."""

    own: tuple[str, ...]
    others: tuple[str, ...] = ()


class Counts:
    """Remembers cut chunks and the last table of either direction, so an edit costs little."""

    def __init__(self, weights: Weights | None = None) -> None:
        self.weights = weights or shipped_weights()
        self._lexicon = Lexicon()
        self._tables: tuple[Table, Table] | None = None

    def read(self, texts: Texts) -> "Counted":
        if self._lexicon.is_full:
            self._lexicon, self._tables = Lexicon(), None
        lexicon = self._lexicon
        own = [lexicon.chunks(text) for text in texts.own]
        edge = np.zeros(1, np.int64)
        elsewhere = np.concatenate([edge, *(part for text in texts.others for part in (lexicon.lines_of(text), edge))])
        stream = make_stream([[chunk.words for chunk in text] for text in own])
        self._tables = self._count(stream, lexicon.hashes)
        return Counted(self.weights, lexicon, self._tables, own, texts.own, elsewhere)

    def _count(self, stream: Numbers, hashes: Keys) -> tuple[Table, Table]:
        if self._tables is None:
            return Table.of(stream, hashes), Table.of(stream[::-1], hashes)
        forward, backward = self._tables
        return forward.changed_to(stream, hashes), backward.changed_to(stream[::-1], hashes)


class Counted:
    """A document, counted, and what may stand in its gaps."""

    def __init__(
        self,
        weights: Weights,
        lexicon: Lexicon,
        tables: tuple[Table, Table],
        own: list[list[Chunk]],
        texts: tuple[str, ...],
        elsewhere: Ints,
    ) -> None:
        self._weights, self.lexicon, self.tables = weights, lexicon, tables
        self._own, self._texts, self._elsewhere = own, texts, elsewhere

    def propose(self, hole: int, gap: Gap) -> list[Proposal]:
        candidates, table, none = self.describe(hole, gap)
        if not candidates:
            return []
        certainties = self._weights.certainties(self._weights.shares(table, none))
        order = np.argsort(-certainties, kind="stable")[:MAX_PROPOSALS]
        return [
            Proposal(candidates[index].text, float(certainties[index]), candidates[index].origin) for index in order
        ]

    def describe(self, hole: int, gap: Gap) -> tuple[list[Candidate], Floats, Floats]:
        """The candidates for a gap with their columns."""
        scene = self._scene(hole, gap)
        candidates = self._candidates(gap, scene)
        if not candidates:
            return [], np.zeros((0, len(CANDIDATE))), np.zeros(len(NONE))
        return candidates, *describe(candidates, scene)

    def _scene(self, hole: int, gap: Gap) -> Scene:
        forward, backward = self._readers
        lines = Lines.of(self.lexicon, self._own[: hole + 1], self._own[hole + 1 :])
        head, tail = self.edges(hole)
        site = Site.of(gap)
        return Scene(forward, backward, head, tail[::-1], lines, site, self._names, self._net, self._elsewhere)

    def edges(self, hole: int) -> tuple[Numbers, Numbers]:
        """The words before a hole and those behind it, the nearest last."""
        edge = np.zeros(DEPTH, np.int32)
        before = np.concatenate([edge, *(chunk.words for chunk in self._own[hole])])
        return before, np.concatenate([*(chunk.words for chunk in self._own[hole + 1]), edge])[::-1]

    @cached_property
    def _readers(self) -> tuple[Reader, Reader]:
        gates = (self._weights.forward, self._weights.backward)
        first, second = (Reader.of(table, self.lexicon, gate) for table, gate in zip(self.tables, gates, strict=True))
        return first, second

    @cached_property
    def _names(self) -> frozenset[str]:
        texts = self.lexicon.texts
        return frozenset(name for number in self._readers[0].known.tolist() for name in NAME.findall(texts[number]))

    @cached_property
    def _net(self) -> tuple[int, ...]:
        """The brackets that the document leaves open."""
        return tuple(map(sum, zip(*map(net_of, self._texts), strict=True)))

    def _candidates(self, gap: Gap, scene: Scene) -> list[Candidate]:
        made: dict[str, Candidate] = {}
        votes = find_renamed(scene.lines, scene.site)
        standing = dict.fromkeys(find_lines(scene.lines, scene.site))
        for line in dict.fromkeys((*standing, *votes)):
            for place, indent in enumerate(scene.site.indents):
                text = indent + line + scene.site.end
                words = self._cut(text, gap)
                if words:
                    origin = RENAMED if line not in standing else OWN if scene.site.is_line else WORDS
                    made.setdefault(text, Candidate(text, words, votes.get(line, 0), False, place, origin))
        if scene.site.is_line:
            for line in self._referred(scene):
                text = scene.site.indents[0] + line + scene.site.end
                if text not in made and (words := self._cut(text, gap)):
                    made[text] = Candidate(text, words, 0, False, 0, OTHER)
        # Of whole lines they find no more than lists do.
        for words in () if scene.site.is_line else self._paths(gap, scene):
            text = "".join(self.lexicon.texts[word] for word in words)[len(gap.lead) :] + gap.tail
            known = made.get(text, Candidate(text, words, votes.get(text.strip(), 0), True, 0, WORDS))
            made[text] = replace(known, from_beam=True)
        return list(made.values())[:MAX_CANDIDATES]

    def _referred(self, scene: Scene) -> list[str]:
        """Lines of other files between neighbours like ours, then those that stand there again and again."""
        numbers, runs = scene.elsewhere, scene.like.up + scene.like.down
        order = np.argsort(-runs, kind="stable")[:MAX_REFERRED]
        chosen = [*numbers[order[runs[order] > 0]].tolist(), *find_common(numbers, MAX_REFERRED)]
        return [self.lexicon.lines[number] for number in dict.fromkeys(chosen) if number]

    def _cut(self, text: str, gap: Gap) -> tuple[int, ...]:
        """The words of the fill; none where the text cannot end so, or is too long."""
        if not text.endswith(gap.tail):
            return ()
        words = self.lexicon.cut(gap.lead + text[: len(text) - len(gap.tail)])
        return tuple(words) if len(words) <= 2 * beam.MAX_WORDS else ()

    def _paths(self, gap: Gap, scene: Scene) -> list[tuple[int, ...]]:
        texts, known = self.lexicon.texts, scene.forward.known.tolist()
        breaks = np.array([word for word in known if texts[word].startswith("\n")], np.int32)
        begins = np.array([word for word in known if texts[word].startswith(gap.lead)], np.int32) if gap.lead else None
        return beam.search(scene.forward, scene.before, scene.after, breaks, begins)
