"""Estimates the probability that an edit belongs at a place, from weighted features. Knows tokens and trees."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import tree_sitter

from midfill_infill.repeats.change import Change, is_word
from midfill_infill.repeats.places import EditPlace

MAX_NEIGHBORS: Final = 4
_BINDING_FIELDS: Final = frozenset(("left", "name", "alias", "parameter", "parameters", "declarator", "pattern"))
# Weights (log odds) fitted on the edits described in docs/lab/editors.md.
_BIAS: Final = -1.25
_WEIGHTS: Final = {
    "again": 1.65,
    "alike between": 0.58,
    "alike list": 1.58,
    "alike parts": 1.94,
    "alike same marks": 1.77,
    "alike same name": 0.25,
    "alike same words": 0.4,
    "between": -1.13,
    "exact": 0.43,
    "far": -0.73,
    "few": -0.54,
    "labelled between": -0.1,
    "labelled list": 0.41,
    "labelled parts": -0.12,
    "labelled same": -0.07,
    "left between": 1.38,
    "left list": 1.67,
    "left parts": -0.04,
    "left same": 1.38,
    "list": -0.69,
    "long": 0.97,
    "orphan": 1.45,
    "parts": 0.35,
    "places": -0.25,
    "right between": 1.84,
    "right list": 1.04,
    "right parts": 0.7,
    "right same": 1.43,
    "same line": -0.38,
    "same marks": 0.47,
    "same name": 0.65,
    "same role": 0.19,
    "same words": 0.35,
    "seen": 1.04,
    "size": -0.35,
}


@dataclass(frozen=True)
class Role:
    """A token's syntactic role."""

    kind: str  # the type of its node
    above: str  # the type of the node's parent
    field: str | None  # the parent's field that holds the node

    @property
    def binds(self) -> bool:
        """True if the token gives a name its meaning, as in a definition, a parameter or an import."""
        return self.field in _BINDING_FIELDS or "parameter" in self.above or "import" in self.above


def find_role(tree: tree_sitter.Tree, start: int) -> Role:
    """The role of the token that begins at a byte."""
    node = tree.root_node.descendant_for_byte_range(start, start + 1)
    if node is None:
        return Role("", "", None)
    above = node.parent
    if above is None:
        return Role(node.type, "", None)
    fields = (above.field_name_for_child(number) for number, child in enumerate(above.children) if child == node)
    return Role(node.type, above.type, next(fields, None))


def _share_of_neighbors(change: Change, old_start: int, new_start: int, step: int) -> float:
    """The share of `MAX_NEIGHBORS` tokens that are equal before the first difference: from `old_start` in the old text
    and from `new_start` in the new one, forward or backward by `step`.
    """
    old, new = change.old, change.new
    behind = int(step < 0)  # the white space between two tokens is that before the later one
    for index in range(MAX_NEIGHBORS):
        share = index / MAX_NEIGHBORS
        old_number = old_start + index * step
        new_number = new_start + index * step
        if not (0 <= old_number < len(old) and 0 <= new_number < len(new)):
            return share
        if old.texts[old_number] != new.texts[new_number]:
            return share
        if old.same_line(old_number + behind) != new.same_line(new_number + behind):
            return share
    return 1.0


@dataclass(frozen=True)
class Trees:
    """Syntax trees of the old and the new text."""

    old: tree_sitter.Tree
    new: tree_sitter.Tree


def judge(change: Change, place: EditPlace, places: Sequence[EditPlace], trees: Trees, *, is_made_twice: bool) -> float:
    """The certainty of the edit at `place`, one of the `places`. `is_made_twice`: the same edit was made before."""
    features = describe(change, place, places, trees)
    features["seen"] = float(is_made_twice)
    terms = [_WEIGHTS.get(name, 0.0) * value for name, value in features.items()]
    log_odds = _BIAS + sum(terms)
    return 1 / (1 + math.exp(-log_odds))


def describe(change: Change, place: EditPlace, places: Sequence[EditPlace], trees: Trees) -> dict[str, float]:
    """The features of a place, all but "seen", by their names in `_WEIGHTS`. Each is a number of the order of one."""
    old_texts: list[bytes] = []
    for part in change.parts:
        old_texts += change.old_texts(part)
    words = [text for text in old_texts if is_word(text)]
    replaces_single_words = len(old_texts) == len(change.parts) == len(words)
    is_name = replaces_single_words and not words[0][:1].isdigit()
    old_anchor, new_anchor = place.anchors
    changed_role = find_role(trees.old, change.old.spans[old_anchor].start)
    place_role = find_role(trees.new, change.new.spans[new_anchor].start)
    is_orphan = is_name and changed_role.binds and not _is_bound(change, places, trees)
    likeness = _likeness(change, place)
    num_tokens = len(old_texts) + sum(part.new.size for part in change.parts)
    longest = max(map(len, words), default=0)
    distance = abs(place.tokens.start - change.new_span.start)
    adds_label = any(change.new_texts(part)[1:2] in ([b"="], [b":"]) for part in change.parts)  # `name=value`
    way = _name_way(place, words, is_name=is_name)
    return {
        way: 1.0,
        f"alike {way}": likeness,
        f"left {place.way}": _share_of_neighbors(change, place.old.start - 1, place.new.start - 1, -1),
        f"right {place.way}": _share_of_neighbors(change, place.old.end, place.new.end, 1),
        "same line": float(likeness == 1),
        "same role": float(changed_role == place_role),
        "orphan": float(is_orphan),
        "few": 1 / len(places),
        "places": math.log(len(places)),
        "again": float(len(change.parts) > 1 and change.is_uniform),
        "exact": float(place.is_exact),
        f"labelled {place.way}": float(adds_label),
        "long": min(longest, 20) / 10,
        "size": math.log1p(num_tokens),
        "far": math.log1p(distance) / 5,
    }


def _is_bound(change: Change, places: Sequence[EditPlace], trees: Trees) -> bool:
    """True if a token at one of the places binds a name."""
    starts = (change.new.spans[place.anchors[1]].start for place in places)
    return any(find_role(trees.new, start).binds for start in starts)


def _name_way(place: EditPlace, words: Sequence[bytes], *, is_name: bool) -> str:
    """The feature that says how a place was found. For a place with the same tokens, it says what tokens these are."""
    if place.way != "same":
        return place.way
    if is_name:
        return "same name"
    return "same words" if words else "same marks"


def _likeness(change: Change, place: EditPlace) -> float:
    """The share of equal tokens on the lines of the change and of the place; 1 only if all are equal and in order."""
    changed_line, place_line = place.line_texts(change)
    if changed_line == place_line:
        return 1.0
    num_shared = (Counter(changed_line) & Counter(place_line)).total()
    return 0.9 * 2 * num_shared / max(1, len(changed_line) + len(place_line))
