"""Lines that many programs have, by the indents around them: what a short text does not hold. Knows counts only.

`common.json` is counted by `training common`: by a request's tag, of 100,000 lines at a place how many are this one.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

COUNTED: Final = Path(__file__).with_name("common.json")
NUM_PLACES: Final = 18
SCALE: Final = 100_000

Commonness = dict[str, list[int]]  # of a line by place


def place_of(above: str, indent: str, below: str, is_beside_blank: bool) -> int:
    """Where a line with `indent` stands, between whole lines; empty for none."""
    first = _compare(indent, above) if above else 0
    second = -_compare(indent, below) if below else 0
    return 6 * (first + 1) + 2 * (second + 1) + is_beside_blank


def _compare(indent: str, other: str) -> int:
    """1 if `indent` is deeper than that of the line `other`, -1 if it is shallower."""
    depth = len(other) - len(other.lstrip())
    return (len(indent) > depth) - (len(indent) < depth)


@cache
def _counted() -> dict[str, Commonness]:
    found: dict[str, Commonness] = json.loads(COUNTED.read_text(encoding="utf-8"))
    return found


def common_lines(tag: str | None, is_seen: Callable[[str], bool]) -> Commonness:
    """Those of the kind of text that `tag` names, without a tag of the kind that has most lines seen."""
    counted = _counted()
    if tag is None:
        tag = max(counted, key=lambda name: sum(map(is_seen, counted[name])))
    return counted.get(tag, {})
