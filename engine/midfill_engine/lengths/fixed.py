"""A canvas of exactly the requested length, or a default. Nothing shrinks it."""

from typing import ClassVar

from midfill_engine.lengths.base import HoleNeed, LengthPolicy, LengthScores, LengthSearch, of_total


class Fixed(LengthPolicy):
    default_tokens: ClassVar[int] = 32
    chooses = False

    def search(self, needs: list[HoleNeed], scores: LengthScores | None) -> LengthSearch:
        yield from ()
        return [[of_total(self._total(need), need) for need in needs]]

    def _total(self, need: HoleNeed) -> int:
        return need.max_tokens if need.has_limit else max(self.default_tokens, need.min_tokens)
