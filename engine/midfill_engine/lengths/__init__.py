"""Length policies, one file each, found by name."""

from typing import Final

from midfill_engine.lengths.base import HoleNeed, LengthPolicy, LengthScores
from midfill_engine.lengths.fixed import Fixed
from midfill_engine.lengths.learned import Learned
from midfill_engine.registry import Registry

LENGTHS: Final[Registry[LengthPolicy]] = Registry("length policy", {"fixed": Fixed(), "learned": Learned()})

__all__ = ["LENGTHS", "HoleNeed", "LengthPolicy", "LengthScores"]
