"""A named set of variants; an unknown name is answered with the known ones. Knows nothing about the variants."""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

V = TypeVar("V")


class UnknownName(ValueError):
    """A name that no variant has. The message lists the known ones."""


class Registry(Generic[V]):
    def __init__(self, kind: str, variants: Mapping[str, V]) -> None:
        self.kind = kind
        self._variants = dict(variants)

    def find(self, name: str) -> V:
        """Raises UnknownName."""
        if name not in self._variants:
            raise UnknownName(f"There is no {self.kind} named {name!r}; known: {', '.join(sorted(self._variants))}.")
        return self._variants[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variants)
