"""Caches, one file each, found by name."""

from typing import Final

from midfill_engine.caches.base import Cache, KeptKeys, StepView
from midfill_engine.caches.block import BlockCache
from midfill_engine.caches.dual import DualCache
from midfill_engine.caches.frozen import FrozenCache
from midfill_engine.caches.none import Uncached
from midfill_engine.caches.prefix import PrefixCache
from midfill_engine.caches.stores import ContextStore, EncodedContext
from midfill_engine.registry import Registry

CACHES: Final[Registry[Cache]] = Registry(
    "cache",
    {"none": Uncached(), "prefix": PrefixCache(), "dual": DualCache(), "frozen": FrozenCache(), "block": BlockCache()},
)

__all__ = ["CACHES", "Cache", "ContextStore", "EncodedContext", "KeptKeys", "StepView"]
