"""A canvas that grows and shrinks by tokens the model was trained on: DreamOn (arXiv 2602.01326). It starts at 64
masks, where the authors' weights do best.
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
