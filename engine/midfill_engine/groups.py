"""Groups of neighbors. Knows no tensors."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def split(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Neighbors in groups of a total size of at most `most`, or of one item."""
    group, total = list[T](), 0
    for item in items:
        if group and total + size(item) > most:
            yield group
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield group
