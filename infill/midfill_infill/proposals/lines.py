"""Proposes lines of the file and of related files, verbatim and renamed, and inside a line the rests of similar lines.

A conditional logit (McFadden 1974) turns features of the candidates, and of the case that none is right, into
probabilities. Knows texts; no model, and no numpy: importing it would take longer than all of this.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from midfill_infill.proposals.base import Proposal, Surroundings
from midfill_infill.proposals.neighbours import NAME, OPENERS, Corpus, Runs, Site, find_renamed, join_filled, shape_of
from midfill_infill.proposals.weights import ProposalWeights, shipped_weights

OWN: Final = "the file's own line"
RENAMED: Final = "a line of the file, renamed"
OTHER: Final = "a line of another file"
WORDS: Final = "the file's own words"
NEAR: Final = 25  # filled lines on either side
NEARBY: Final = 6
MAX_ALIGNED: Final = 60
MAX_COMMON: Final = 30
MAX_REFERRED: Final = 40
MAX_RESTS: Final = 60
MAX_CHARACTERS: Final = 400
MAX_CANDIDATES: Final = 200
MAX_PROPOSALS: Final = 40
MAX_NEW_NAMES: Final = 4
WHOLE: Final = 4  # what is matched where the whole text left of the gap is
LEAST_OF_BODY: Final = 0.1  # a line below this certainty is not proposed for a body
_PIECE: Final = re.compile(r" ?[^\W\d]\w*| ?[^\s\w]| ?\d+|\s")
_BRACED: Final = ("{", "}", ";")
_PAIRS: Final = (("(", ")"), ("[", "]"), ("{", "}"))


@dataclass(frozen=True)
class LineCandidate:
    """`text` is the text for the hole. `votes` counts the lines that give it, `indent` is the number of one of the
    gap's indents, `matched` the number of pieces before the gap that also precede it elsewhere, WHOLE for all on its
    line.
    """

    text: str
    origin: str
    votes: int = 0
    indent: int = 0
    matched: int = 0

    @property
    def line(self) -> str:
        return self.text.strip()


def propose_lines(around: Surroundings, index: int) -> list[Proposal]:
    """At most 40 proposals, the most certain first."""
    weights = shipped_weights()
    candidates, shares = weigh(Scene.of(around, index), weights)
    proposals: list[Proposal] = []
    for candidate, certainty in zip(candidates, shares, strict=True):
        if around.holes[index].is_body:
            if certainty < LEAST_OF_BODY:
                continue
            certainty = weights.as_body(certainty)
        proposals.append(Proposal(candidate.text, certainty, candidate.origin))
    proposals.sort(key=lambda proposal: (-proposal.certainty, proposal.text))
    return proposals[:MAX_PROPOSALS]


def weigh(scene: "Scene", weights: ProposalWeights) -> tuple[list[LineCandidate], list[float]]:
    """The candidates for a gap and their probabilities; the rest to 1 is the probability that none is right."""
    candidates = scene.candidates()
    if not candidates:
        return [], []
    scores = [score(weights.line, columns) for columns in scene.describe(candidates)]
    scores.append(score(weights.none, scene.describe_none()))
    best = max(scores)
    likelihoods = [math.exp(log_odds - best) for log_odds in scores]
    total = math.fsum(likelihoods)
    return candidates, [likelihood / total for likelihood in likelihoods[:-1]]


def score(weights: Mapping[str, float], columns: Mapping[str, float]) -> float:
    """The weighted sum of some features."""
    terms = (weights[name] * value for name, value in columns.items() if value)
    return math.fsum(terms)


@dataclass(frozen=True)
class Scene:
    """What all candidates for a gap share: its site, the lines of its document and those of related files."""

    site: Site
    lines: Corpus
    others: Corpus

    @classmethod
    def of(cls, around: Surroundings, index: int) -> "Scene":
        others = tuple(reference.text for reference in around.references)
        return cls.between(around.texts, index, others)

    @classmethod
    def between(cls, texts: Sequence[str], index: int, others: tuple[str, ...]) -> "Scene":
        """The gap behind `texts[index]`."""
        following = index + 1
        site = Site.of(texts[index], texts[following])
        before = [*texts[:index], site.head]
        after = [site.rest, *texts[following + 1 :]]
        lines = Corpus.around(before, after)
        return cls(site, lines, _join(others))

    def candidates(self) -> list[LineCandidate]:
        """Candidates with different texts, the first of each."""
        by_text: dict[str, LineCandidate] = {}
        candidates = self._whole_lines() if self.site.is_line else self._rests()
        for candidate in candidates:
            if candidate.line and len(candidate.text) <= MAX_CHARACTERS:
                by_text.setdefault(candidate.text, candidate)
        return list(by_text.values())[:MAX_CANDIDATES]

    def _whole_lines(self) -> Iterator[LineCandidate]:
        """Lines of the document, renamed ones and lines of other files, with each possible indent."""
        site = self.site
        standing = self._standing_lines()
        votes = find_renamed(self.lines, site)
        for text in dict.fromkeys((*standing, *votes)):
            origin = OWN if text in standing else RENAMED
            for number, indent in enumerate(site.indents):
                yield LineCandidate(indent + text + site.end, origin, votes.get(text, 0), number)
        for text in self._foreign_lines():
            yield LineCandidate(site.indents[0] + text + site.end, OTHER)

    def _standing_lines(self) -> dict[str, None]:
        """The lines of the document near the gap, those with neighbors like the gap's, and the common ones."""
        lines = self.lines
        first = max(0, lines.gap - NEAR)
        standing = list(lines.texts[first : lines.gap + NEAR])
        standing += [lines.texts[number] for number in lines.aligned(MAX_ALIGNED)]
        standing += lines.common(MAX_COMMON)
        return dict.fromkeys(standing)

    def _foreign_lines(self) -> dict[str, None]:
        """The lines of other files with neighbors like the gap's, the longest runs first, and the common ones."""
        runs = self.like.both
        numbers = sorted(runs, key=lambda number: (-runs[number], number))
        foreign = [self.others.texts[number] for number in numbers[:MAX_REFERRED]]
        foreign += self.others.common(MAX_REFERRED)
        return dict.fromkeys(foreign)

    def _rests(self) -> Iterator[LineCandidate]:
        """Text that other lines have between the same beginning and end, or after the same last pieces."""
        left = self.site.left.lstrip()
        pieces = _PIECE.findall(left)
        heads = {WHOLE: left}
        for size in (3, 2, 1):
            if size < len(pieces):
                heads[size] = "".join(pieces[-size:])
        for matched, head in heads.items():
            rests = self._count_rests(head, is_whole=matched == WHOLE)
            for rest, times in rests.most_common(MAX_RESTS):
                yield LineCandidate(rest, WORDS, votes=times, matched=matched)

    def _count_rests(self, head: str, *, is_whole: bool) -> Counter[str]:
        """What other lines have between `head` and the gap's right side, and how many do."""
        right = self.site.right.rstrip()
        rests = Counter[str]()
        for line in self.lines.times:
            if is_whole and not line.startswith(head):
                continue
            start = line.find(head)
            if start < 0:
                continue
            rest = line[start + len(head) :]
            if rest.endswith(right) and len(rest) > len(right):
                rests[rest.removesuffix(right)] += 1
        return rests

    @cached_property
    def like(self) -> Runs:
        """The lines of other files with neighbors like the gap's."""
        return self.others.find_runs(self.lines.above, self.lines.below)

    @cached_property
    def _between_others(self) -> frozenset[str]:
        """The lines of other files that have neighbors like the gap's on both sides."""
        numbers = self.like.up.keys() & self.like.down.keys()
        return frozenset(self.others.texts[number] for number in numbers)

    @cached_property
    def _names(self) -> frozenset[str]:
        return _find_names(self.lines.times)

    @cached_property
    def _near(self) -> frozenset[str]:
        """The names of the lines around the gap."""
        gap = self.lines.gap
        return _find_names(self.lines.texts[max(0, gap - NEARBY) : gap + NEARBY + 1])

    @cached_property
    def _net(self) -> tuple[int, ...]:
        """For each kind of bracket, how many the document leaves open."""
        return _net_of("\n".join(self.lines.texts))

    def describe(self, candidates: Sequence[LineCandidate]) -> list[dict[str, float]]:
        exact = Stands(self.lines)
        shapes = Stands(self.lines.shapes)
        other = find_longest(self.others.texts, self.like.both)
        return [self._describe(candidate, exact, shapes, other) for candidate in candidates]

    def _describe(
        self, candidate: LineCandidate, exact: "Stands", shapes: "Stands", other: Mapping[str, int]
    ) -> dict[str, float]:
        """The features of a candidate, each a number of the order of one."""
        site = self.site
        line = candidate.line
        shape = shape_of(line)
        names = NAME.findall(line)
        num_names = max(1, len(names))
        opens = line.endswith(OPENERS)
        has_block = site.opens(candidate.indent)
        times = self.lines.times[line]
        log_votes = math.log1p(candidate.votes)
        return {
            **exact.describe(line, "line_"),
            **shapes.describe(shape, "shape_"),
            "log_known": math.log1p(times),
            "log_distance": math.log1p(exact.distance.get(line, 0)),
            "other_run": other.get(line, 0),
            "other_between": line in self._between_others,
            "renamed": log_votes * site.is_line,
            "votes": log_votes * (not site.is_line),
            **{f"matched_{size}": candidate.matched == size for size in (1, 2, 3, WHOLE)},
            "other_indent": candidate.indent > 0,
            "log_length": math.log1p(len(line)),
            "unbalanced": is_unbalanced(line),
            "net_mismatch": min(3, self._mismatch(line)),
            "new_names": min(MAX_NEW_NAMES, sum(name not in self._names for name in names)),
            "names_near": sum(name in self._near for name in names) / num_names,
            "names_above": sum(name in site.above for name in names) / num_names,
            "names_below": sum(name in site.below for name in names) / num_names,
            "is_above": line == site.above,
            "is_below": line == site.below,
            "opens_well": opens and has_block,
            "opens_wrongly": opens and not has_block,
            "fails_to_open": has_block and not opens,
            "ends_as_above": line[-1:] == site.above[-1:],
            "begins_as_above": line[:3] == site.above[:3],
            "begins_as_below": line[:3] == site.below[:3],
            "shaped_as_above": shape == shape_of(site.above),
            "shaped_as_below": shape == shape_of(site.below),
        }

    def _mismatch(self, line: str) -> int:
        """How many brackets stay open with the line, of the kinds of which the document leaves at most two open."""
        mismatch = 0
        for own, total in zip(_net_of(line), self._net, strict=True):
            if abs(total) <= 2:
                mismatch += abs(own + total)
        return mismatch

    def describe_none(self) -> dict[str, float]:
        """The features of the case that no candidate is right."""
        texts = self.lines.texts
        exact = self.lines.runs
        alike = self.lines.shapes.runs
        num_braced = sum(text.endswith(_BRACED) for text in texts)
        return {
            "one": 1.0,
            "log_above": math.log1p(len(exact.up)),
            "log_below": math.log1p(len(exact.down)),
            "log_shape_above": math.log1p(len(alike.up)),
            "log_shape_below": math.log1p(len(alike.down)),
            "best_run": max(exact.both.values(), default=0),
            "best_shape_run": max(alike.both.values(), default=0),
            "best_other_run": max(self.like.both.values(), default=0),
            "log_lines": math.log1p(len(texts)),
            "log_others": math.log1p(len(self.others.texts)),
            "is_inside": not self.site.is_line,
            "opens": self.site.opens(),
            "blank": self.site.is_beside_blank,
            "is_braced": num_braced > 0.15 * len(texts),
        }


class Stands:
    """Counts where the lines of a document have neighbors like the gap's."""

    def __init__(self, lines: Corpus) -> None:
        texts = lines.texts
        runs = lines.runs
        between = runs.up.keys() & runs.down.keys()
        self._num_up = len(runs.up)
        self._num_down = len(runs.down)
        self._up = find_longest(texts, runs.up)
        self._down = find_longest(texts, runs.down)
        self._run = find_longest(texts, runs.both)
        self._follows = Counter(map(texts.__getitem__, runs.up))
        self._leads = Counter(map(texts.__getitem__, runs.down))
        self._between = Counter(map(texts.__getitem__, between))
        self.distance: dict[str, int] = {}
        for number, text in enumerate(texts):
            distance = abs(number - lines.gap)
            nearest = self.distance.get(text, distance)
            self.distance[text] = min(distance, nearest)

    def describe(self, text: str, prefix: str) -> dict[str, float]:
        """The features of a line among neighbors; their names begin with `prefix`."""
        up = self._up[text]
        down = self._down[text]
        share_follows = (self._follows[text] + 0.2) / (self._num_up + 1)
        share_leads = (self._leads[text] + 0.2) / (self._num_down + 1)
        return {
            f"{prefix}up": up,
            f"{prefix}down": down,
            f"{prefix}run": self._run[text],
            f"{prefix}both": min(up, down),
            f"{prefix}between": math.log1p(self._between[text]),
            f"{prefix}share_follows": math.log(share_follows),
            f"{prefix}share_leads": math.log(share_leads),
        }


def find_longest(texts: Sequence[str], runs: Mapping[int, int]) -> Counter[str]:
    """The longest run of each line that has some, from the runs by a line's number."""
    longest = Counter[str]()
    for number, size in runs.items():
        text = texts[number]
        longest[text] = max(size, longest[text])
    return longest


@lru_cache(maxsize=8)
def _join(texts: tuple[str, ...]) -> Corpus:
    """The lines of related files."""
    return Corpus(list(join_filled(texts)))


def _find_names(texts: Iterable[str]) -> frozenset[str]:
    names: set[str] = set()
    for text in texts:
        names.update(NAME.findall(text))
    return frozenset(names)


def _net_of(text: str) -> tuple[int, ...]:
    """For each kind of bracket, how many more are opened than closed."""
    return tuple(text.count(opening) - text.count(closing) for opening, closing in _PAIRS)


def is_unbalanced(text: str) -> bool:
    """True if brackets are unbalanced, or one kind of quote occurs an odd number of times."""
    depth = 0
    for mark in text:
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        if depth < 0:
            return True
    return depth != 0 or text.count('"') % 2 == 1 or text.count("'") % 2 == 1
