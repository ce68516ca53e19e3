"""A canvas of exactly the length asked for: the limit, or a default. Nothing shrinks it."""

from typing import Final

from midfill_engine.lengths.base import HoleNeed, LengthScores, fit, spread

DEFAULT_TOKENS: Final = 32


class Fixed:
    may_delete = False

    def choose(self, needs: list[HoleNeed], scores: LengthScores | None) -> list[list[int]]:
        return [fit(spread(self._total(need), need.hints), need) for need in needs]

    @staticmethod
    def _total(need: HoleNeed) -> int:
        return need.max_tokens if need.has_limit else max(DEFAULT_TOKENS, need.min_tokens)
