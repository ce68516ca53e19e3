"""What is known of each candidate for a gap, as numbers: the columns that the ranking weighs. Knows no weights.

Columns are of the texts alone, so they mean the same for every model. ln p is in nats.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from midfill_infill.proposals.beam import REACH
from midfill_infill.proposals.levels import Floats, Reader
from midfill_infill.proposals.neighbours import OPENERS, Lines, Runs, Site
from midfill_infill.proposals.table import DEPTH, Ints, Numbers
from midfill_infill.proposals.words import NAME, shape_of

SCORES: Final = (
    "forward_lead",  # ln p of gap and what follows, less the best candidate's
    "backward_lead",
    "forward_gap",
    "forward_after",  # of the first words behind the gap
    "backward_gap",
    "backward_before",
    "num_words",
    "log_num_words",
    "mean",
)
PLACES: Final = ("run_up", "run_down", "run", "follows", "leads", "between", "share_follows", "share_leads")
SHOWN: Final = (
    "breaks",
    "many_breaks",
    "unbalanced",  # brackets or quotes do not pair up in it
    "net_mismatch",  # brackets that the texts want closed or opened, and it does not
    "new_names",
    "names_near",
    "names_above",
    "names_below",
    "is_above",
    "is_below",
    "renamed",
    "from_beam",
    "is_short",
    "opens_well",
    "opens_wrongly",
    "fails_to_open",
    "ends_as_above",
    "ends_as_below",
    "begins_as_above",
    "begins_as_below",
    "shaped_as_above",
    "shaped_as_below",
    "other_indent",
)
STANDS: Final = ("is_known", "log_known", "log_distance", "times_near")
ELSEWHERE: Final = ("other_run", "other_follows", "other_leads", "log_other")  # in other files
CANDIDATE: Final = (
    *SCORES,
    *(f"line_{name}" for name in PLACES),
    *(f"shape_{name}" for name in PLACES),
    *STANDS,
    *ELSEWHERE,
    *SHOWN,
)
NONE: Final = (
    "one",
    "best_forward",
    "best_backward",
    "log_above",
    "log_below",
    "log_shape_above",
    "log_shape_below",
    "best_run",
    "best_shape_run",
    "log_lines",
    "is_inside",  # the gap is a part of a line
    "opens",
    "blank",  # there is a blank line beside it
    "is_deeper",  # than the line above
    "is_shallower",
    "is_before_deeper",  # than itself
    "is_last",  # of its block
    "best_other_run",
    "log_others",
    "is_braced",  # blocks are in braces
)
PAIRS: Final = (("(", ")"), ("[", "]"), ("{", "}"))
MAX_NEW_NAMES: Final = 4
NEARBY: Final = 6  # lines


@dataclass(frozen=True)
class Candidate:
    """`text` is the user's, `words` those of the fill, which begins with the gap's lead and lacks its tail.

    `renamed` counts the lines that say so after renaming, `indent` is which of the gap's indents it has, `origin` says
    in words where it comes from.
    """

    text: str
    words: tuple[int, ...]
    renamed: int
    from_beam: bool
    indent: int
    origin: str = ""


@dataclass
class Scene:
    """What all candidates of a gap share. `backward` reads from the end; `before` and `after` are nearest last, first.

    `names` are those of the texts; `net` are the brackets that the texts leave open, by kind; `elsewhere` are the lines
    of other files by number, 0 between them.
    """

    forward: Reader
    backward: Reader
    before: Numbers
    after: Numbers
    lines: Lines
    site: Site
    names: frozenset[str]
    net: tuple[int, ...]
    elsewhere: Ints

    @cached_property
    def like(self) -> Runs:
        return self.lines.find_like(self.elsewhere)

    @cached_property
    def near(self) -> frozenset[str]:
        """The names of the lines nearby."""
        place, texts = self.lines.place - 1, self.lines.lexicon.lines
        numbers = self.lines.numbers[max(0, place - NEARBY) : place + NEARBY + 1].tolist()
        return frozenset(name for number in numbers for name in NAME.findall(texts[number]))


def net_of(text: str) -> tuple[int, ...]:
    return tuple(text.count(opening) - text.count(closing) for opening, closing in PAIRS)


def describe(candidates: Sequence[Candidate], scene: Scene) -> tuple[Floats, Floats]:
    """The columns CANDIDATE of each [C, F], and NONE of the case that none of them is right [N]."""
    texts = [each.text.strip() for each in candidates]
    scores = _scores(candidates, scene)
    lexicon, lines = scene.lines.lexicon, scene.lines
    line_of = np.array([lexicon.line_number(text) or 0 for text in texts])
    shape_of_each = np.array([lexicon.shape_number(shape_of(text)) or 0 for text in texts])
    table = np.column_stack(
        (
            scores,
            _places(lines.numbers, lines.exact, line_of),
            _places(lines.shapes, lines.alike, shape_of_each),
            _stands(lines, line_of),
            _elsewhere(scene, line_of),
            np.array([_shown(each, text, scene) for each, text in zip(candidates, texts, strict=True)], float),
        )
    )
    return table, _none(scores, scene)


def _none(scores: Floats, scene: Scene) -> Floats:
    exact, alike = scene.lines.exact, scene.lines.alike
    return np.array(
        [
            1.0,
            np.max(scores[:, 2] + scores[:, 3]),
            np.max(scores[:, 4] + scores[:, 5]),
            *(np.log1p((runs > 0).sum()) for runs in (exact.up, exact.down, alike.up, alike.down)),
            *(np.max(each.up + each.down) for each in (exact, alike)),
            np.log1p(len(scene.lines.numbers)),
            not scene.site.is_line,
            scene.site.opens,
            scene.site.is_beside_blank,
            *(scene.site.place // 6 == each for each in (2, 0)),
            *(scene.site.place // 2 % 3 == each for each in (2, 0)),
            np.max(scene.like.up + scene.like.down),
            np.log1p(len(scene.elsewhere)),
            scene.lines.is_braced,
        ],
        float,
    )


def _scores(candidates: Sequence[Candidate], scene: Scene) -> Floats:
    """The columns SCORES."""
    ahead, after = _sums(scene.forward, scene.before, [each.words for each in candidates], scene.after)
    reverse = [each.words[::-1] for each in candidates]
    back, before = _sums(scene.backward, scene.after[::-1], reverse, scene.before[::-1])
    sizes = np.array([len(each.words) for each in candidates], float)
    mean = (ahead + after + back + before) / (2 * sizes + 2 * REACH)
    first, second = ahead + after, back + before
    leads = first - np.max(first), second - np.max(second)
    return np.column_stack((*leads, ahead, after, back, before, sizes, np.log(sizes), mean))


def _places(numbers: Ints, runs: Runs, wanted: Ints) -> Floats:
    """The columns PLACES: where lines of the `wanted` numbers [C] stand between neighbours like ours."""
    num = int(max(np.max(numbers), np.max(wanted))) + 1
    filled = numbers > 0
    by, up, down = numbers[filled], runs.up[filled], runs.down[filled]
    best = [np.zeros(num, np.int64) for _ in range(3)]
    for found, values in zip(best, (up, down, up + down), strict=True):
        np.maximum.at(found, by, values)
    sums = [np.bincount(by, each, num) for each in (up > 0, down > 0, (up > 0) & (down > 0))]
    shares = [np.log((part + 0.2) / (part.sum() + 1)) for part in sums[:2]]
    return np.column_stack([each[wanted] for each in (*best, *map(np.log1p, sums), *shares)])


def _stands(lines: Lines, wanted: Ints) -> Floats:
    """The columns STANDS: where and how often lines of the `wanted` numbers [C] stand at all."""
    num = int(max(np.max(lines.numbers), np.max(wanted))) + 1
    times = np.bincount(lines.numbers, minlength=num)
    times[0] = 0
    nearest = np.full(num, len(lines.numbers))
    np.minimum.at(nearest, lines.numbers, lines.distance)
    near = np.bincount(lines.numbers[lines.distance <= NEARBY], minlength=num)
    near[0] = 0
    is_known = times[wanted] > 0
    distance = np.where(is_known, np.log1p(nearest[wanted]), 0.0)
    return np.column_stack((is_known, np.log1p(times[wanted]), distance, near[wanted]))


def _elsewhere(scene: Scene, wanted: Ints) -> Floats:
    """The columns ELSEWHERE of lines of the `wanted` numbers [C]."""
    numbers, runs = scene.elsewhere, scene.like
    num = int(max(np.max(numbers), np.max(wanted))) + 1
    best = np.zeros(num, np.int64)
    np.maximum.at(best, numbers, runs.up + runs.down)
    sums = [np.bincount(numbers, each, num) for each in (runs.up > 0, runs.down > 0)]
    counts = np.bincount(numbers, minlength=num)
    best[0] = counts[0] = 0
    return np.column_stack([each[wanted] for each in (best, *map(np.log1p, sums), np.log1p(counts))])


def _sums(reader: Reader, before: Numbers, texts: Sequence[tuple[int, ...]], after: Numbers) -> tuple[Floats, Floats]:
    """ln p of each text behind `before`, and of the first words of `after` behind that."""
    head, tail = before[-(DEPTH - 1) :], after[:REACH]
    rows = [np.concatenate((head, np.array(text, np.int32), tail)) for text in texts]
    line = np.concatenate(rows)
    starts = np.cumsum([0, *(len(row) for row in rows[:-1])])
    size, reach = len(head), len(tail)
    ends = starts + [len(row) for row in rows]
    places = np.concatenate([np.arange(start + size, end) for start, end in zip(starts, ends, strict=True)])
    contexts = line[places[:, None] - np.arange(1, DEPTH)]
    logs = reader.log_probs(contexts, line[places])
    owner = np.repeat(np.arange(len(rows)), ends - starts - size)
    in_tail = places >= (ends - reach)[owner]
    parts: list[Floats] = [
        np.bincount(owner[each], logs[each], len(rows)).astype(float) for each in (~in_tail, in_tail)
    ]
    return parts[0], parts[1]


def _shown(each: Candidate, text: str, scene: Scene) -> tuple[float, ...]:
    """The columns SHOWN, read from the candidate's text."""
    site = scene.site
    breaks = each.text.removesuffix(site.end).count("\n")
    opens = text.endswith(OPENERS)
    names = NAME.findall(text)
    num, shape = max(1, len(names)), shape_of(text)
    above, below = site.above, site.below
    return (
        breaks > 0,
        breaks > 1,
        is_unbalanced(text),
        min(3, sum(abs(a + b) for a, b in zip(net_of(text), scene.net, strict=True) if abs(b) <= 2)),
        min(MAX_NEW_NAMES, sum(name not in scene.names for name in names)),
        sum(name in scene.near for name in names) / num,
        sum(name in above for name in names) / num,
        sum(name in below for name in names) / num,
        text == above,
        text == below,
        float(np.log1p(each.renamed)),
        each.from_beam,
        len(text) < 3,
        opens and site.opens,
        opens and not site.opens,
        site.opens and not opens,
        text[-1:] == above[-1:],
        text[-1:] == below[-1:],
        text[:3] == above[:3],
        text[:3] == below[:3],
        shape == shape_of(above),
        shape == shape_of(below),
        each.indent > 0,
    )


def is_unbalanced(text: str) -> bool:
    """Whether brackets close too early or stay open, or quotes do not come in pairs."""
    depth = 0
    for mark in text:
        depth += (mark in "([{") - (mark in ")]}")
        if depth < 0:
            return True
    return depth != 0 or text.count('"') % 2 == 1 or text.count("'") % 2 == 1
