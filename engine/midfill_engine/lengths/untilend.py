"""A canvas as long as allowed, that ends where the model says end of text: for models that write from left to right."""

from typing import Final

from midfill_engine.lengths.base import HoleNeed, LengthScores, LengthSearch, of_total

DEFAULT_TOKENS: Final = 128


class UntilEnd:
    may_delete = True
    may_expand = False
    chooses = False
    removes = False
    tries: tuple[int, ...] = ()
    fills: tuple[int, ...] = ()

    def search(self, needs: list[HoleNeed], scores: LengthScores | None) -> LengthSearch:
        yield from ()
        return [[of_total(need.max_tokens if need.has_limit else DEFAULT_TOKENS, need) for need in needs]]
