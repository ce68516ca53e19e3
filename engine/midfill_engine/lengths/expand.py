"""A canvas that grows and shrinks as it is filled, by tokens the model was trained to say: DreamOn (arXiv 2602.01326).

It begins long: the authors' weights do best from 64 masks, where one deletion takes the rest of the hole along.
"""

from typing import Final

from midfill_engine.lengths.base import HoleNeed, LengthPolicy, LengthScores, LengthSearch, of_total

START_TOKENS: Final = 64


class Expand(LengthPolicy):
    may_delete = True
    may_expand = True
    removes = True

    def search(self, needs: list[HoleNeed], scores: LengthScores | None) -> LengthSearch:
        yield from ()
        return [[of_total(max(START_TOKENS, need.min_tokens), need) for need in needs]]
