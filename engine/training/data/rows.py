"""Cuts training rows for a causal base out of source texts, in the layouts that the engine reads. Knows no model.

A row is a causally read context with branches after parts of it. A branch attends to the context up to its start and to
itself, and its positions continue from its start, so its loss equals that of the same tokens in a row without branches.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from midfill_engine.causal.prompt import find_following, lay_ahead, lay_before
from midfill_infill.context.excerpts import find_excerpts
from training.data import spans
from training.data.cutter import Cutter, Ids
from training.data.pack import Pack

MAX_BEHIND: Final = 1700  # characters after a hole, a part of which is shown above it
BRANCH_BEHIND: Final = 400  # the same for a branch
EXCERPTS: Final = 0.75  # share of rows with excerpts
MAX_OTHERS: Final = 6  # files of the same package that excerpts come from
REPEATED_LINES: Final = 3  # lines before a hole that a branch without sentinels repeats
MAX_HOLE: Final = 160  # tokens
MAX_DRAWS: Final = 1000  # texts for a row
KINDS: Final[tuple[tuple[spans.Chooser, float], ...]] = (
    (spans.one_line, 0.55),
    (spans.consecutive_lines, 0.2),
    (spans.rest_of_line, 0.2),
    (spans.body, 0.05),
)


@dataclass(frozen=True)
class RowShape:
    """`prompt`: a part of the text after, the text before, one hole. `tree`: one context with many holes as branches,
    with `sentinels` or else repeating the lines before the hole; `masked` adds a masked copy of every hole.

    The loss weight is 1 for tokens of a hole and of the lines that judge it, and `context_weight` for all others.
    """

    layout: Literal["prompt", "tree"] = "prompt"
    num_tokens: int = 768
    num_branches: int = 12
    sentinels: bool = False
    masked: bool = False
    context_weight: float = 0.3

    @property
    def room(self) -> int:
        """The most positions of a row: a tree has as many for branches as for its context, and for masked copies."""
        return self.num_tokens * (1 if self.layout == "prompt" else 3 if self.masked else 2)


@dataclass(frozen=True)
class Drawn:
    """Whole lines of a file, the file's text above and below them, and other files of its package."""

    text: str
    above: str = ""
    below: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Branch:
    """`ids` after `lead` after the first `start` tokens of the context; only `ids` are targets of the loss."""

    start: int
    lead: Ids
    ids: Ids


@dataclass(frozen=True)
class Row:
    """A context and its branches; `weights` are the loss weights of the context's tokens."""

    context: Ids
    weights: list[float]
    branches: tuple[Branch, ...] = ()


def draw_row(pack: Pack, cutter: Cutter, shape: RowShape, rng: np.random.Generator) -> Row:
    """Draws texts until one has holes that fit, and lays its row. Raises ValueError if none of many has."""
    lay = lay_prompt_row if shape.layout == "prompt" else lay_tree
    for _ in range(MAX_DRAWS):
        row = lay(draw_text(pack, cutter, shape.num_tokens, rng), cutter, shape, rng)
        if row is not None:
            return row
    raise ValueError(f"No text has a hole that fits into a row of {shape.num_tokens} tokens: raise row_tokens.")


def draw_text(pack: Pack, cutter: Cutter, num_tokens: int, rng: np.random.Generator) -> Drawn:
    """At most `num_tokens` tokens of a file that is sampled in proportion to its length."""

    def show(start: int, end: int) -> str:
        pieces = (cutter.pieces[token] for token in pack.tokens[start:end].tolist())
        return b"".join(pieces).decode("utf-8", errors="ignore")

    token = int(rng.integers(len(pack.tokens)))
    file = int(np.searchsorted(pack.starts, token, side="right")) - 1
    first, end = int(pack.starts[file]), int(pack.starts[file] + pack.lengths[file])
    start = min(max(token - num_tokens // 2, first), max(first, end - num_tokens))
    stop = min(start + num_tokens, end)
    text = show(start, stop)
    head = text.find("\n") + 1 if start > first else 0
    tail = text.rfind("\n") + 1 if stop < end else len(text)
    package = np.flatnonzero(pack.packages == pack.packages[file])
    others = rng.permutation(package[package != file])[:MAX_OTHERS]
    related = tuple(show(int(pack.starts[other]), int(pack.starts[other] + pack.lengths[other])) for other in others)
    return Drawn(text[head:tail], show(first, start) + text[:head], text[tail:] + show(stop, end), related)


def cut_lines(text: str, most: int) -> str:
    """The first `most` characters of `text`, cut at a line end; `text` may start inside a line."""
    return text if len(text) <= most else text[: text.rfind("\n", 0, most) + 1]


def choose_hole(text: str, rng: np.random.Generator) -> spans.Span | None:
    choosers, shares = zip(*KINDS, strict=True)
    chooser: spans.Chooser = choosers[int(rng.choice(len(choosers), p=shares))]
    span = chooser(text, rng)
    return span if span is not None and text[slice(*span)].strip() else None


def lay_prompt_row(drawn: Drawn, cutter: Cutter, shape: RowShape, rng: np.random.Generator) -> Row | None:
    """The engine's prompt for a hole, the hole's text, and the lines that judge it. None if no hole fits."""
    text = drawn.text
    hole = choose_hole(text, rng)
    if hole is None or hole[0] < len(text) // 3:
        return None
    start, end = hole
    behind, before = cut_lines(text[end:], int(rng.integers(0, MAX_BEHIND))), text[:start]
    has_excerpts = rng.random() < EXCERPTS
    sides = [drawn.above + before, text[end:] + drawn.below]
    excerpts = [excerpt.text for excerpt in find_excerpts(sides, drawn.others)] if has_excerpts else []
    above, most_ahead = lay_before(before, excerpts)
    given, ids = cutter.split(lay_ahead(behind, most_ahead) + above, text[start:end] + find_following(text[end:]))
    if len(ids) > MAX_HOLE or not given or len(given) + len(ids) > shape.num_tokens:
        return None
    return Row(given + ids, [shape.context_weight] * len(given) + [1.0] * len(ids))


def lay_tree(drawn: Drawn, cutter: Cutter, shape: RowShape, rng: np.random.Generator) -> Row | None:
    """The text as the context of as many of its holes as fit. None if no hole fits."""
    text = drawn.text
    context = cutter.encode(text)
    ends = cutter.ends(context)
    branches: list[Branch] = []
    left = shape.room - len(context)
    for _ in range(4 * shape.num_branches):
        hole = choose_hole(text, rng)
        if hole is None or len(branches) == shape.num_branches:
            continue
        branch = lay_branch(text, hole, ends, cutter, shape.sentinels)
        size = len(branch.lead) + (1 + shape.masked) * len(branch.ids)
        if branch.start and branch.lead and size <= left and len(branch.ids) <= MAX_HOLE:
            branches.append(branch)
            left -= size
    return Row(context, [shape.context_weight] * len(context), tuple(branches)) if branches else None


def lay_branch(text: str, hole: spans.Span, ends: NDArray[np.int64], cutter: Cutter, sentinels: bool) -> Branch:
    """A branch with the near text after the hole and the hole's text; the context's tokens end at the bytes `ends`."""
    start, end = hole
    behind = cut_lines(text[end:], BRANCH_BEHIND)
    if sentinels:
        stem = text[:start].rstrip() if text[:start].endswith((" ", "\n", "\t")) else text[:start]
        seen = int(np.searchsorted(ends, len(stem.encode()), side="right"))
        edge = len(text.encode()[: ends[seen - 1]].decode(errors="ignore")) if seen else 0
        gap, ids = cutter.split(text[edge:start], text[start:end])
        suffix_id, hole_id, end_id, _ = cutter.sentinels
        return Branch(seen, [suffix_id, *cutter.encode(behind), hole_id, *gap], [*ids, end_id])
    line = text.rfind("\n", 0, start) + 1
    again = "".join(text[:line].splitlines(keepends=True)[-REPEATED_LINES:]) + text[line:start]
    lead, ids = cutter.split("\n\n" + lay_ahead(behind) + again, text[start:end] + find_following(text[end:]))
    return Branch(int(np.searchsorted(ends, len(text[:line].encode()), side="right")), lead, ids)
