"""Proposes texts for a gap: lines of the file and of related files, some with names replaced, or middles of such lines.

A conditional logit (McFadden 1974) turns the features of all candidates, and the features of the case that no candidate
is right, into probabilities. Knows texts; no model, and no numpy, because its import takes longer than all proposals.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from midfill_infill.proposals.base import Proposal, Surroundings
from midfill_infill.proposals.neighbors import NAME, OPENERS, Corpus, Runs, Site, find_renamed, join_filled, shape_of
from midfill_infill.proposals.weights import ProposalWeights, shipped_weights
from midfill_infill.text.document import DEFAULT_INDENT

OWN: Final = "the file's own line"
RENAMED: Final = "a line of the file, renamed"
OTHER: Final = "a line of another file"
WORDS: Final = "the file's own words"
CANDIDATE_REACH: Final = 25  # filled lines on either side of the gap that are candidates
NAME_REACH: Final = 6  # filled lines on either side of the gap whose names count as near
MAX_ALIGNED: Final = 60  # candidates with neighbors like the gap's
MAX_COMMON: Final = 30  # candidates that are the commonest lines of the document
MAX_OTHER: Final = 40  # lines of other files with neighbors like the gap's, and as many of their commonest lines
MAX_MIDDLES: Final = 60  # candidates for each text left of the gap
MAX_CHARACTERS: Final = 400  # of a candidate
MIN_REPEATED: Final = 4  # characters of a line that is not proposed beside itself; `}` and `)` are
MAX_CANDIDATES: Final = 200
MAX_PROPOSALS: Final = 40
MAX_NEW_NAMES: Final = 4  # names of a candidate that the document lacks; more count as so many
WHOLE: Final = 4  # the value of `num_matched` if another line begins with all text left of the gap
MIN_BODY_CERTAINTY: Final = 0.1  # a less certain line is not proposed as a whole body
_TOKEN: Final = re.compile(r" ?[^\W\d]\w*| ?[^\s\w]| ?\d+|\s")
_BRACED: Final = ("{", "}", ";")
_PAIRS: Final = (("(", ")"), ("[", "]"), ("{", "}"))


@dataclass(frozen=True)
class LineCandidate:
    """A text for the gap, and where it comes from. `num_votes` counts the lines that give it by renaming or as their
    middle. `indent_index` says which of the site's indents it has. `num_matched` tokens left of a gap inside a line
    also stand before the text in another line; it is WHOLE if that line begins with all text left of the gap.
    """

    text: str
    origin: str
    num_votes: int = 0
    indent_index: int = 0
    num_matched: int = 0

    @property
    def line(self) -> str:
        return self.text.strip()


def propose_lines(around: Surroundings, index: int) -> list[Proposal]:
    """At most 40 proposals, the most certain first."""
    weights = shipped_weights()
    is_body = around.holes[index].is_body
    candidates, probabilities = weigh(Scene.of(around, index), weights)
    proposals: list[Proposal] = []
    for candidate, probability in zip(candidates, probabilities, strict=True):
        if not is_body:
            proposals.append(Proposal(candidate.text, probability, candidate.origin))
        elif probability >= MIN_BODY_CERTAINTY:
            proposals.append(Proposal(candidate.text, weights.as_body(probability), candidate.origin))
    proposals.sort(key=lambda proposal: (-proposal.certainty, proposal.text))
    return proposals[:MAX_PROPOSALS]


def weigh(scene: "Scene", weights: ProposalWeights) -> tuple[list[LineCandidate], list[float]]:
    """The candidates for a gap, and the probability that each is right. Together with the probability that none is
    right, they add up to 1.
    """
    candidates = scene.candidates()
    if not candidates:
        return [], []
    scores = [score(weights.line, features) for features in scene.describe(candidates)]
    scores.append(score(weights.none, scene.describe_none()))
    best = max(scores)
    likelihoods = [math.exp(log_odds - best) for log_odds in scores]
    total = math.fsum(likelihoods)
    return candidates, [likelihood / total for likelihood in likelihoods[:-1]]


def score(weights: Mapping[str, float], features: Mapping[str, float]) -> float:
    """The weighted sum of some features: unnormalized log odds."""
    terms = (weights[name] * value for name, value in features.items() if value)
    return math.fsum(terms)


@dataclass(frozen=True)
class Scene:
    """What all candidates for a gap share: its site, `lines` of its document, and `others`, lines of related files."""

    site: Site
    lines: Corpus
    others: Corpus

    @classmethod
    def of(cls, around: Surroundings, index: int) -> "Scene":
        others = tuple(reference.text for reference in around.references)
        return cls.between(around.texts, index, others, around.document.indent_unit)

    @classmethod
    def between(cls, texts: Sequence[str], index: int, others: tuple[str, ...], unit: str = DEFAULT_INDENT) -> "Scene":
        """The gap behind `texts[index]`, in a document whose blocks are indented by `unit`."""
        following = index + 1
        site = Site.of(texts[index], texts[following], unit)
        before = [*texts[:index], site.before_line]
        after = [site.behind_line, *texts[following + 1 :]]
        lines = Corpus.around(before, after)
        return cls(site, lines, _join(others))

    def candidates(self) -> list[LineCandidate]:
        """At most MAX_CANDIDATES texts for the gap, each once: of candidates with equal texts the first one stays."""
        by_text: dict[str, LineCandidate] = {}
        candidates = self._whole_lines() if self.site.is_line else self._middles()
        for candidate in candidates:
            if self.site.is_line and self._repeats_neighbor(candidate.line):
                continue
            if candidate.line and len(candidate.text) <= MAX_CHARACTERS:
                by_text.setdefault(candidate.text, candidate)
        return list(by_text.values())[:MAX_CANDIDATES]

    def _repeats_neighbor(self, line: str) -> bool:
        """True for a line with words that stands right above or below the gap: nobody writes it twice in a row."""
        return line in (self.site.above, self.site.below) and len(line) >= MIN_REPEATED and bool(NAME.search(line))

    def _whole_lines(self) -> Iterator[LineCandidate]:
        """Lines of the document, verbatim or renamed, with each possible indent, and lines of other files with the
        likeliest indent.
        """
        site = self.site
        own_lines = self._own_lines()
        votes = find_renamed(self.lines, site)
        for text in dict.fromkeys((*own_lines, *votes)):
            origin = OWN if text in own_lines else RENAMED
            for indent_index, indent in enumerate(site.indents):
                line = indent + text + site.line_break
                yield LineCandidate(line, origin, votes.get(text, 0), indent_index)
        for text in self._other_lines():
            yield LineCandidate(site.indents[0] + text + site.line_break, OTHER)

    def _own_lines(self) -> dict[str, None]:
        """Lines of the document near the gap, then lines with neighbors like the gap's, then the commonest lines."""
        lines = self.lines
        first = max(0, lines.gap - CANDIDATE_REACH)
        own_lines = list(lines.texts[first : lines.gap + CANDIDATE_REACH + 1])
        own_lines += [lines.texts[number] for number in lines.find_aligned(MAX_ALIGNED)]
        own_lines += lines.find_common(MAX_COMMON)
        return dict.fromkeys(own_lines)

    def _other_lines(self) -> dict[str, None]:
        """Lines of other files with neighbors like the gap's, the longest runs first, then their commonest lines."""
        runs = self.other_runs.both
        numbers = sorted(runs, key=lambda number: (-runs[number], number))
        other_lines = [self.others.texts[number] for number in numbers[:MAX_OTHER]]
        other_lines += self.others.find_common(MAX_OTHER)
        return dict.fromkeys(other_lines)

    def _middles(self) -> Iterator[LineCandidate]:
        """What lines have between the text right of the gap and all text left of it, or its last 3, 2 or 1 tokens."""
        left = self.site.left.lstrip()
        tokens = _TOKEN.findall(left)
        heads = {WHOLE: left}
        for size in (3, 2, 1):
            if size < len(tokens):
                heads[size] = "".join(tokens[-size:])
        for num_matched, head in heads.items():
            middles = self._count_middles(head, is_whole=num_matched == WHOLE)
            for middle, num_lines in middles.most_common(MAX_MIDDLES):
                yield LineCandidate(middle, WORDS, num_votes=num_lines, num_matched=num_matched)

    def _count_middles(self, head: str, *, is_whole: bool) -> Counter[str]:
        """In how many different lines each text stands between `head` and the text right of the gap. Lines begin with
        `head` if it `is_whole`; otherwise its first place in a line counts.
        """
        right = self.site.right.rstrip()
        middles = Counter[str]()
        for line in self.lines.counts:
            if is_whole and not line.startswith(head):
                continue
            start = line.find(head)
            if start < 0:
                continue
            middle = line[start + len(head) :]
            if middle.endswith(right) and len(middle) > len(right):
                middles[middle.removesuffix(right)] += 1
        return middles

    @cached_property
    def other_runs(self) -> Runs:
        """The runs of lines of other files with neighbors like the gap's."""
        return self.others.find_runs(self.lines.above, self.lines.below)

    @cached_property
    def _between_others(self) -> frozenset[str]:
        """The lines of other files that have neighbors like the gap's on both sides."""
        numbers = self.other_runs.up.keys() & self.other_runs.down.keys()
        return frozenset(self.others.texts[number] for number in numbers)

    @cached_property
    def _all_names(self) -> frozenset[str]:
        """The names of the document."""
        return _find_names(self.lines.counts)

    @cached_property
    def _near_names(self) -> frozenset[str]:
        """The names of the lines around the gap."""
        gap = self.lines.gap
        return _find_names(self.lines.texts[max(0, gap - NAME_REACH) : gap + NAME_REACH + 1])

    @cached_property
    def _net_brackets(self) -> tuple[int, ...]:
        """For each kind of bracket, how many more the document opens than it closes."""
        return _count_net_brackets("\n".join(self.lines.texts))

    def describe(self, candidates: Sequence[LineCandidate]) -> list[dict[str, float]]:
        """The features of each candidate, by the names that their weights have in `weights.json`."""
        exact = Neighborhood(self.lines)
        shapes = Neighborhood(self.lines.shapes)
        other_run_of_line = find_longest(self.others.texts, self.other_runs.both)
        return [self._describe(candidate, exact, shapes, other_run_of_line) for candidate in candidates]

    def _describe(
        self,
        candidate: LineCandidate,
        exact: "Neighborhood",
        shapes: "Neighborhood",
        other_run_of_line: Mapping[str, int],
    ) -> dict[str, float]:
        """The features of a candidate, each of the order of one. `other_run_of_line` has the longest run of each line
        of other files.
        """
        site = self.site
        line = candidate.line
        shape = shape_of(line)
        names = NAME.findall(line)
        num_names = max(1, len(names))
        opens = line.endswith(OPENERS)
        has_block = site.has_block_below(candidate.indent_index)
        log_votes = math.log1p(candidate.num_votes)
        return {
            **exact.describe(line, "line_"),
            **shapes.describe(shape, "shape_"),
            "log_known": math.log1p(self.lines.counts[line]),
            "log_distance": math.log1p(exact.distances.get(line, 0)),
            "other_run": other_run_of_line.get(line, 0),
            "other_between": line in self._between_others,
            "renamed": log_votes if site.is_line else 0.0,
            "votes": 0.0 if site.is_line else log_votes,
            **{f"matched_{size}": candidate.num_matched == size for size in (1, 2, 3, WHOLE)},
            "other_indent": candidate.indent_index > 0,
            "log_length": math.log1p(len(line)),
            "unbalanced": is_unbalanced(line),
            "net_mismatch": min(3, self._count_unpaired(line)),
            "new_names": min(MAX_NEW_NAMES, sum(name not in self._all_names for name in names)),
            "names_near": sum(name in self._near_names for name in names) / num_names,
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

    def _count_unpaired(self, line: str) -> int:
        """How many brackets of the document lack a partner once the line fills the gap. Kinds of brackets of which more
        than two lack one already are not counted.
        """
        num_unpaired = 0
        for in_line, in_document in zip(_count_net_brackets(line), self._net_brackets, strict=True):
            if abs(in_document) <= 2:
                num_unpaired += abs(in_line + in_document)
        return num_unpaired

    def describe_none(self) -> dict[str, float]:
        """The features of the case that no candidate is right."""
        texts = self.lines.texts
        exact = self.lines.runs
        shapes = self.lines.shapes.runs
        num_braced = sum(text.endswith(_BRACED) for text in texts)
        return {
            "one": 1.0,
            "log_above": math.log1p(len(exact.up)),
            "log_below": math.log1p(len(exact.down)),
            "log_shape_above": math.log1p(len(shapes.up)),
            "log_shape_below": math.log1p(len(shapes.down)),
            "best_run": max(exact.both.values(), default=0),
            "best_shape_run": max(shapes.both.values(), default=0),
            "best_other_run": max(self.other_runs.both.values(), default=0),
            "log_lines": math.log1p(len(texts)),
            "log_others": math.log1p(len(self.others.texts)),
            "is_inside": not self.site.is_line,
            "opens": self.site.has_block_below(),
            "blank": self.site.is_beside_blank,
            "is_braced": num_braced > 0.15 * len(texts),
        }


class Neighborhood:
    """Computes features of a line or shape from its places in a document that have neighbors like the gap's."""

    def __init__(self, lines: Corpus) -> None:
        texts = lines.texts
        runs = lines.runs
        between = runs.up.keys() & runs.down.keys()
        self._num_up = len(runs.up)
        self._num_down = len(runs.down)
        self._longest_up = find_longest(texts, runs.up)
        self._longest_down = find_longest(texts, runs.down)
        self._longest_both = find_longest(texts, runs.both)
        self._times_up = Counter(texts[number] for number in runs.up)
        self._times_down = Counter(texts[number] for number in runs.down)
        self._times_between = Counter(texts[number] for number in between)
        self.distances: dict[str, int] = {}  # from the gap to the nearest place of each line, in filled lines
        for number, text in enumerate(texts):
            distance = abs(number - lines.gap)
            nearest = self.distances.get(text, distance)
            self.distances[text] = min(distance, nearest)

    def describe(self, text: str, prefix: str) -> dict[str, float]:
        """The features of a line or shape, named with `prefix`. Shares are smoothed, so that their logs are finite."""
        up = self._longest_up[text]
        down = self._longest_down[text]
        share_follows = (self._times_up[text] + 0.2) / (self._num_up + 1)
        share_leads = (self._times_down[text] + 0.2) / (self._num_down + 1)
        return {
            f"{prefix}up": up,
            f"{prefix}down": down,
            f"{prefix}run": self._longest_both[text],
            f"{prefix}both": min(up, down),
            f"{prefix}between": math.log1p(self._times_between[text]),
            f"{prefix}share_follows": math.log(share_follows),
            f"{prefix}share_leads": math.log(share_leads),
        }


def find_longest(texts: Sequence[str], runs: Mapping[int, int]) -> Counter[str]:
    """The longest run of each text, from the runs by the numbers of `texts`; 0 for a text without a run."""
    longest = Counter[str]()
    for number, size in runs.items():
        text = texts[number]
        longest[text] = max(size, longest[text])
    return longest


@lru_cache(maxsize=8)
def _join(texts: tuple[str, ...]) -> Corpus:
    """The lines of related files. Cached, because the holes of a document and later requests have the same files."""
    return Corpus(list(join_filled(texts)))


def _find_names(texts: Iterable[str]) -> frozenset[str]:
    names: set[str] = set()
    for text in texts:
        names.update(NAME.findall(text))
    return frozenset(names)


def _count_net_brackets(text: str) -> tuple[int, ...]:
    """For each kind of bracket, how many more the text opens than it closes."""
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
