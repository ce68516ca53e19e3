"""Splits items into groups of a bounded size. Knows no tensors."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def split(items: Iterable[T], size: Callable[[T], int], max_total: int) -> Iterator[list[T]]:
    """Groups of neighbors whose sizes have a sum of at most `max_total`. A larger item is a group of its own."""
    group, total = list[T](), 0
    for item in items:
        if group and total + size(item) > max_total:
            yield group
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield group
