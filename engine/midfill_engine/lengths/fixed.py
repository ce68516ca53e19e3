"""A canvas of exactly the length asked for: the limit, or a default. Nothing shrinks it."""

from typing import Final

from midfill_engine.lengths.base import HoleNeed, LengthScores, LengthSearch, of_total

DEFAULT_TOKENS: Final = 32


class Fixed:
    may_delete = False
    may_expand = False
    chooses = False
    removes = False
    tries: tuple[int, ...] = ()
    fills: tuple[int, ...] = ()

    def search(self, needs: list[HoleNeed], scores: LengthScores | None) -> LengthSearch:
        yield from ()
        return [[of_total(self._total(need), need) for need in needs]]

    @staticmethod
    def _total(need: HoleNeed) -> int:
        return need.max_tokens if need.has_limit else max(DEFAULT_TOKENS, need.min_tokens)
