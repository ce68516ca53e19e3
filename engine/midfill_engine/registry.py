"""Finds variants by name; an unknown name is answered with the known ones. Knows nothing about the variants."""

from collections.abc import Mapping
from typing import TypeVar

V = TypeVar("V")


class UnknownName(ValueError):
    """A name that no variant has. The message lists the known ones."""


class Registry(dict[str, V]):
    def __init__(self, kind: str, variants: Mapping[str, V]) -> None:
        super().__init__(variants)
        self.kind = kind

    def find(self, name: str) -> V:
        """The variant `name`. Raises UnknownName if there is none."""
        if name not in self:
            raise UnknownName(f"There is no {self.kind} named {name!r}; known: {', '.join(sorted(self))}.")
        return self[name]
