"""Experts, one file each, found by name."""

from collections.abc import Callable, Sequence
from typing import Final

from midfill_engine.experts.base import Expert, Gap, Panel, Proposal, Remote, Sources
from midfill_engine.experts.copying import Copying
from midfill_engine.experts.counts import Counts
from midfill_engine.registry import Registry

EXPERTS: Final[Registry[Callable[[], Expert]]] = Registry("expert", {"copying": Copying, "counts": Counts})


class Experts:
    """The experts of an engine, each made when somebody first listens to it."""

    def __init__(self) -> None:
        self._made: dict[str, Expert] = {}

    def find(self, name: str) -> Expert:
        """Raises UnknownName."""
        if name not in self._made:
            self._made[name] = EXPERTS.find(name)()
        return self._made[name]

    def put(self, name: str, expert: Expert) -> None:
        """Takes `expert` for the one of that name."""
        self._made[name] = expert

    def read(self, names: Sequence[str], sources: Sources) -> Panel:
        """What the experts of these names, each once, say of a request. Raises UnknownName."""
        return Panel([self.find(name).read(sources) for name in dict.fromkeys(names)])


__all__ = ["EXPERTS", "Expert", "Experts", "Gap", "Panel", "Proposal", "Remote", "Sources"]
