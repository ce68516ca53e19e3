"""Caches, one file each, found by name."""

from typing import Final

from midfill_engine.caches.base import Cache, ContextStore, EncodedContext, KeptKeys, View
from midfill_engine.caches.block import Block
from midfill_engine.caches.dual import Dual
from midfill_engine.caches.frozen import Frozen
from midfill_engine.caches.none import Uncached
from midfill_engine.caches.prefix import Prefix
from midfill_engine.registry import Registry

CACHES: Final[Registry[Cache]] = Registry(
    "cache",
    {
        "none": Uncached(),
        "prefix": Prefix(),
        "dual": Dual(),
        "frozen": Frozen(),
        "block": Block(),
    },
)

__all__ = ["CACHES", "Cache", "ContextStore", "EncodedContext", "KeptKeys", "View"]
