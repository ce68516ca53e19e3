"""A canvas of exactly the length asked for: the limit, or a default. Nothing shrinks it."""

from typing import ClassVar

from midfill_engine.lengths.base import HoleNeed, LengthScores, LengthSearch, of_total


class Fixed:
    default_tokens: ClassVar[int] = 32
    may_delete = False
    may_expand = False
    chooses = False
    shares_context = True
    removes = False
    tries: tuple[int, ...] = ()
    fills: tuple[int, ...] = ()
    beam = 0
    remasks = 0.0

    def search(self, needs: list[HoleNeed], scores: LengthScores | None) -> LengthSearch:
        yield from ()
        return [[of_total(self._total(need), need) for need in needs]]

    def _total(self, need: HoleNeed) -> int:
        return need.max_tokens if need.has_limit else max(self.default_tokens, need.min_tokens)
