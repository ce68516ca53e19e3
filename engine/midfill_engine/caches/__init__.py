"""Context caches, one file each, found by name."""

from typing import Final

from midfill_engine.caches.base import Cache, ContextStore, OpenContext
from midfill_engine.caches.frozen import Frozen
from midfill_engine.caches.none import Uncached
from midfill_engine.registry import Registry

CACHES: Final[Registry[Cache]] = Registry("cache", {"none": Uncached, "frozen": Frozen})

__all__ = ["CACHES", "Cache", "ContextStore", "OpenContext"]
