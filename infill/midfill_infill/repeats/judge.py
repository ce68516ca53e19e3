"""Estimates the probability that an edit belongs at a place, from weighted features."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import tree_sitter

from midfill_infill.repeats.change import Change, is_word
from midfill_infill.repeats.places import EditPlace

MAX_NEIGHBOURS: Final = 4
_BINDING_FIELDS: Final = frozenset(("left", "name", "alias", "parameter", "parameters", "declarator", "pattern"))
# Weights (log odds) fitted on the edits described in docs/lab/editors.md.
_BIAS: Final = -1.25
_WEIGHTS: Final = {
    "again": 1.65, "alike between": 0.58, "alike list": 1.58, "alike parts": 1.94, "alike same marks": 1.77,
    "alike same name": 0.25, "alike same words": 0.4, "between": -1.13, "exact": 0.43, "far": -0.73, "few": -0.54,
    "labelled between": -0.1, "labelled list": 0.41, "labelled parts": -0.12, "labelled same": -0.07,
    "left between": 1.38, "left list": 1.67, "left parts": -0.04, "left same": 1.38, "list": -0.69, "long": 0.97,
    "orphan": 1.45, "parts": 0.35, "places": -0.25, "right between": 1.84, "right list": 1.04, "right parts": 0.7,
    "right same": 1.43, "same line": -0.38, "same marks": 0.47, "same name": 0.65, "same role": 0.19,
    "same words": 0.35, "seen": 1.04, "size": -0.35,
}  # fmt: skip


@dataclass(frozen=True)
class Role:
    """A token's syntactic role: its node type, its parent's type, and its field."""

    kind: str
    above: str
    field: str | None

    @property
    def binds(self) -> bool:
        return self.field in _BINDING_FIELDS or "parameter" in self.above or "import" in self.above


def find_role(tree: tree_sitter.Tree, start: int) -> Role:
    node = tree.root_node.descendant_for_byte_range(start, start + 1)
    above = node.parent if node else None
    if node is None or above is None:
        return Role(node.type if node else "", "", None)
    fields = (above.field_name_for_child(number) for number, child in enumerate(above.children) if child == node)
    return Role(node.type, above.type, next(fields, None))


def _count(change: Change, one: int, other: int, step: int) -> float:
    """The share of neighbors on one line that are the same at the change and at the place."""
    old, new = change.old, change.new
    for number in range(MAX_NEIGHBOURS):
        at, to = one + step * number, other + step * number
        if not (0 <= at < len(old) and 0 <= to < len(new)) or old.texts[at] != new.texts[to]:
            return number / MAX_NEIGHBOURS
        behind = (at, to) if step > 0 else (at + 1, to + 1)
        if old.same_line(behind[0]) != new.same_line(behind[1]):
            return number / MAX_NEIGHBOURS
    return 1.0


@dataclass(frozen=True)
class Trees:
    """Syntax trees of the old and the new text."""

    old: tree_sitter.Tree
    new: tree_sitter.Tree


def judge(change: Change, place: EditPlace, places: Sequence[EditPlace], trees: Trees, *, is_seen: bool) -> float:
    """Probability that the edit belongs at a place; `is_seen`: the same edit was made twice."""
    features = describe(change, place, places, trees) | {"seen": float(is_seen)}
    return 1 / (1 + math.exp(-_BIAS - sum(_WEIGHTS.get(name, 0.0) * value for name, value in features.items())))


def describe(change: Change, place: EditPlace, places: Sequence[EditPlace], trees: Trees) -> dict[str, float]:
    """Features of a place, each a number of the order of one."""
    old_texts = [text for part in change.parts for text in change.old_texts(part)]
    num_new = sum(part.new[1] - part.new[0] for part in change.parts)
    words = [text for text in old_texts if is_word(text)]
    is_name = len(old_texts) == len(change.parts) == len(words) and not words[0][:1].isdigit()
    way = f"same {'name' if is_name else 'words' if words else 'marks'}" if place.way == "same" else place.way
    trigger = find_role(trees.old, change.old.spans[place.anchors[0]].start)
    roles = (find_role(trees.new, change.new.spans[each.anchors[1]].start) for each in (place, *places))
    here = next(roles)
    is_orphan = is_name and trigger.binds and not any(role.binds for role in roles)
    likeness = _likeness(change, place)
    return {
        way: 1.0,
        f"alike {way}": likeness,
        f"left {place.way}": _count(change, place.old[0] - 1, place.new[0] - 1, -1),
        f"right {place.way}": _count(change, place.old[1], place.new[1], 1),
        "same line": float(likeness == 1),
        "same role": float(trigger == here),
        "orphan": float(is_orphan),
        "few": 1 / len(places),
        "places": math.log(len(places)),
        "again": float(len(change.parts) > 1 and change.is_uniform),
        "exact": float(place.is_exact),
        f"labelled {place.way}": float(
            any(text in (b"=", b":") for part in change.parts for text in change.new_texts(part)[1:2])
        ),
        "long": min(max(map(len, words), default=0), 20) / 10,
        "size": math.log1p(len(old_texts) + num_new),
        "far": math.log1p(abs(place.tokens[0] - change.new_span[0])) / 5,
    }


def _likeness(change: Change, place: EditPlace) -> float:
    """Share of equal tokens on the lines of the change and of the place; 1 only if all are equal and in order."""
    one, other = (tokens.line_texts(span) for tokens, span in place.around(change))
    if one == other:
        return 1.0
    first, second = Counter(one), Counter(other)
    return 0.9 * 2 * sum((first & second).values()) / max(1, len(one) + len(other))
