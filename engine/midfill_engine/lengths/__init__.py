"""Length policies, one file each, found by name."""

from typing import Final

from midfill_engine.lengths.base import HoleNeed, LengthPolicy, Lengths, LengthScores
from midfill_engine.lengths.calibrated import Calibrated
from midfill_engine.lengths.candidates import Candidates
from midfill_engine.lengths.expand import Expand
from midfill_engine.lengths.fixed import Fixed
from midfill_engine.lengths.learned import Learned
from midfill_engine.lengths.untilend import UntilEnd
from midfill_engine.registry import Registry

LENGTHS: Final[Registry[LengthPolicy]] = Registry(
    "length policy",
    {
        "fixed": Fixed(),
        "learned": Learned(),
        "expand": Expand(),
        "calibrated": Calibrated(),
        "candidates": Candidates(),
        "until-end": UntilEnd(),
    },
)

__all__ = ["LENGTHS", "HoleNeed", "LengthPolicy", "LengthScores", "Lengths"]
