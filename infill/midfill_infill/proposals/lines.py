"""Proposes lines of the file and of related files, verbatim and renamed, and inside a line the rests of similar lines.

A conditional logit (McFadden 1974) turns features of the candidates, and of the case that none is right, into
probabilities. Knows texts; no model, and no numpy: importing it would take longer than all of this.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final

from midfill_infill.proposals.base import Proposal, Surroundings
from midfill_infill.proposals.neighbours import NAME, OPENERS, Corpus, Runs, Site, filled_lines, find_renamed, shape_of
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
LEAST_OF_BODY: Final = 0.1  # a line below this certainty is not proposed for a body
_PIECE: Final = re.compile(r" ?[^\W\d]\w*| ?[^\s\w]| ?\d+|\s")
_BRACED: Final = ("{", "}", ";")
_PAIRS: Final = (("(", ")"), ("[", "]"), ("{", "}"))


@dataclass(frozen=True)
class LineCandidate:
    """`text` is the text for the hole. `votes` counts the lines that give it, `indent` is the number of one of the
    gap's indents, `matched` the number of pieces before the gap that also precede it elsewhere, 4 for the whole line.
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
    candidates, shares = weigh(Scene.of(around, index), shipped_weights())
    found = [Proposal(one.text, share, one.origin) for one, share in zip(candidates, shares, strict=True)]
    if around.holes[index].is_body:
        likely = [each for each in found if each.certainty >= LEAST_OF_BODY]
        found = [replace(each, certainty=shipped_weights().as_body(each.certainty)) for each in likely]
    return sorted(found, key=lambda each: (-each.certainty, each.text))[:MAX_PROPOSALS]


def weigh(scene: "Scene", weights: ProposalWeights) -> tuple[list[LineCandidate], list[float]]:
    """The candidates for a gap and their probabilities; the rest to 1 is the probability that none is right."""
    candidates = scene.candidates()
    if not candidates:
        return [], []
    scores = [score(weights.line, columns) for columns in scene.describe(candidates)]
    scores.append(score(weights.none, scene.describe_none()))
    most = max(scores)
    likely = [math.exp(each - most) for each in scores]
    total = math.fsum(likely)
    return candidates, [each / total for each in likely[:-1]]


def score(weights: Mapping[str, float], columns: Mapping[str, float]) -> float:
    return math.fsum(weights[name] * value for name, value in columns.items() if value)


@dataclass(frozen=True)
class Scene:
    """What all candidates for a gap share: its site, the lines of its document and those of related files."""

    site: Site
    lines: Corpus
    others: Corpus

    @classmethod
    def of(cls, around: Surroundings, index: int) -> "Scene":
        return cls.between(around.texts, index, tuple(each.text for each in around.references))

    @classmethod
    def between(cls, texts: Sequence[str], index: int, others: tuple[str, ...]) -> "Scene":
        """The gap behind `texts[index]`."""
        site = Site.of(texts[index], texts[index + 1])
        lines = Corpus.around([*texts[:index], site.head], [site.rest, *texts[index + 2 :]])
        return cls(site, lines, _join(others))

    def candidates(self) -> list[LineCandidate]:
        found: dict[str, LineCandidate] = {}
        for each in self._whole_lines() if self.site.is_line else self._rests():
            if each.line and len(each.text) <= MAX_CHARACTERS:
                found.setdefault(each.text, each)
        return list(found.values())[:MAX_CANDIDATES]

    def _whole_lines(self) -> Iterator[LineCandidate]:
        lines, site = self.lines, self.site
        near = lines.texts[max(0, lines.place - NEAR) : lines.place + NEAR]
        standing = [*near, *(lines.texts[place] for place in lines.aligned(MAX_ALIGNED))]
        standing += [text for text, times in lines.times.most_common(MAX_COMMON) if times > 1]
        votes = find_renamed(lines, site)
        known = set(standing)
        for text in dict.fromkeys((*standing, *votes)):
            for place, indent in enumerate(site.indents):
                origin = OWN if text in known else RENAMED
                yield LineCandidate(indent + text + site.end, origin, votes.get(text, 0), place)
        runs = self.like.both
        referred = [self.others.texts[place] for place in sorted(runs, key=lambda place: (-runs[place], place))]
        common = [text for text, times in self.others.times.most_common(MAX_REFERRED) if times > 1]
        for text in dict.fromkeys((*referred[:MAX_REFERRED], *common)):
            yield LineCandidate(site.indents[0] + text + site.end, OTHER)

    def _rests(self) -> Iterator[LineCandidate]:
        """Text that other lines have between the same beginning and end, or after the same last pieces."""
        left, right = self.site.left.lstrip(), self.site.right.rstrip()
        pieces = _PIECE.findall(left)
        heads = [(4, left)] + [(size, "".join(pieces[-size:])) for size in (3, 2, 1) if len(pieces) > size]
        for matched, head in heads:
            rests = Counter[str]()
            for line in self.lines.times:
                start = 0 if matched == 4 and line.startswith(head) else line.find(head) if matched < 4 else -1
                rest = line[start + len(head) :]
                if start >= 0 and rest.endswith(right) and len(rest) > len(right):
                    rests[rest[: len(rest) - len(right)]] += 1
            for rest, times in rests.most_common(MAX_RESTS):
                yield LineCandidate(rest, WORDS, times, 0, matched)

    @cached_property
    def like(self) -> Runs:
        return self.others.find_runs(self.lines.above, self.lines.below)

    @cached_property
    def _between_others(self) -> frozenset[str]:
        return frozenset(self.others.texts[place] for place in self.like.up.keys() & self.like.down.keys())

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(name for text in self.lines.times for name in NAME.findall(text))

    @cached_property
    def _near(self) -> frozenset[str]:
        place = self.lines.place
        texts = self.lines.texts[max(0, place - NEARBY) : place + NEARBY + 1]
        return frozenset(name for text in texts for name in NAME.findall(text))

    @cached_property
    def _net(self) -> tuple[int, ...]:
        """For each kind of bracket, how many the document leaves open."""
        return _net_of("\n".join(self.lines.texts))

    def describe(self, candidates: Sequence[LineCandidate]) -> list[dict[str, float]]:
        exact, shapes = Stands(self.lines), Stands(self.lines.shapes)
        other = Counter[str]()
        for place, size in self.like.both.items():
            other[self.others.texts[place]] = max(size, other[self.others.texts[place]])
        return [self._describe(each, exact, shapes, other) for each in candidates]

    def _describe(
        self, each: LineCandidate, exact: "Stands", shapes: "Stands", other: Mapping[str, int]
    ) -> dict[str, float]:
        site, line, names = self.site, each.line, NAME.findall(each.line)
        num, opens, times = max(1, len(names)), line.endswith(OPENERS), self.lines.times[line]
        has_block = site.opens(each.indent)
        columns: dict[str, float] = {**exact.describe(line, "line_"), **shapes.describe(shape_of(line), "shape_")}
        nearest = exact.distance.get(line)
        return columns | {
            "log_known": math.log1p(times),
            "log_distance": math.log1p(nearest) if nearest is not None else 0.0,
            "other_run": other.get(line, 0),
            "other_between": line in self._between_others,
            "renamed": math.log1p(each.votes) if site.is_line else 0.0,
            "votes": 0.0 if site.is_line else math.log1p(each.votes),
            **{f"matched_{size}": each.matched == size for size in (1, 2, 3, 4)},
            "other_indent": each.indent > 0,
            "log_length": math.log1p(len(line)),
            "unbalanced": is_unbalanced(line),
            "net_mismatch": min(
                3, sum(abs(a + b) for a, b in zip(_net_of(line), self._net, strict=True) if abs(b) <= 2)
            ),
            "new_names": min(MAX_NEW_NAMES, sum(name not in self._names for name in names)),
            "names_near": sum(name in self._near for name in names) / num,
            "names_above": sum(name in site.above for name in names) / num,
            "names_below": sum(name in site.below for name in names) / num,
            "is_above": line == site.above,
            "is_below": line == site.below,
            "opens_well": opens and has_block,
            "opens_wrongly": opens and not has_block,
            "fails_to_open": has_block and not opens,
            "ends_as_above": line[-1:] == site.above[-1:],
            "begins_as_above": line[:3] == site.above[:3],
            "begins_as_below": line[:3] == site.below[:3],
            "shaped_as_above": shape_of(line) == shape_of(site.above),
            "shaped_as_below": shape_of(line) == shape_of(site.below),
        }

    def describe_none(self) -> dict[str, float]:
        lines, site = self.lines, self.site
        exact, alike = lines.runs, lines.shapes.runs
        return {
            "one": 1.0,
            "log_above": math.log1p(len(exact.up)),
            "log_below": math.log1p(len(exact.down)),
            "log_shape_above": math.log1p(len(alike.up)),
            "log_shape_below": math.log1p(len(alike.down)),
            "best_run": max(exact.both.values(), default=0),
            "best_shape_run": max(alike.both.values(), default=0),
            "best_other_run": max(self.like.both.values(), default=0),
            "log_lines": math.log1p(len(lines.texts)),
            "log_others": math.log1p(len(self.others.texts)),
            "is_inside": not site.is_line,
            "opens": site.opens(),
            "blank": site.is_beside_blank,
            "is_braced": sum(text.endswith(_BRACED) for text in lines.texts) > 0.15 * len(lines.texts),
        }


class Stands:
    """Counts where the lines of a document have neighbors like the gap's."""

    def __init__(self, lines: Corpus) -> None:
        self._up, self._down, self._run = Counter[str](), Counter[str](), Counter[str]()
        self._follows, self._leads, self._between = Counter[str](), Counter[str](), Counter[str]()
        runs, texts = lines.runs, lines.texts
        for found, best, times in ((runs.up, self._up, self._follows), (runs.down, self._down, self._leads)):
            for place, size in found.items():
                best[texts[place]] = max(size, best[texts[place]])
                times[texts[place]] += 1
        for place, size in runs.both.items():
            self._run[texts[place]] = max(size, self._run[texts[place]])
            self._between[texts[place]] += place in runs.up and place in runs.down
        self._num_up, self._num_down = len(runs.up), len(runs.down)
        self.distance: dict[str, int] = {}
        for place, text in enumerate(texts):
            away = abs(place - lines.place)
            self.distance[text] = min(away, self.distance.get(text, away))

    def describe(self, text: str, prefix: str) -> dict[str, float]:
        up, down = self._up[text], self._down[text]
        return {
            f"{prefix}up": up,
            f"{prefix}down": down,
            f"{prefix}run": self._run[text],
            f"{prefix}both": min(up, down),
            f"{prefix}between": math.log1p(self._between[text]),
            f"{prefix}share_follows": math.log((self._follows[text] + 0.2) / (self._num_up + 1)),
            f"{prefix}share_leads": math.log((self._leads[text] + 0.2) / (self._num_down + 1)),
        }


@lru_cache(maxsize=8)
def _join(texts: tuple[str, ...]) -> Corpus:
    return Corpus([line for text in texts for line in ("", *filled_lines(text))])


def _net_of(text: str) -> tuple[int, ...]:
    return tuple(text.count(opening) - text.count(closing) for opening, closing in _PAIRS)


def is_unbalanced(text: str) -> bool:
    """True if brackets are unbalanced, or one kind of quote occurs an odd number of times."""
    depth = 0
    for mark in text:
        depth += (mark in "([{") - (mark in ")]}")
        if depth < 0:
            return True
    return depth != 0 or text.count('"') % 2 == 1 or text.count("'") % 2 == 1
