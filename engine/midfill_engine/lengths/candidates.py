"""Fills canvases of several lengths in parallel and keeps the most confident fill."""

from typing import Final

from midfill_engine.lengths.base import HoleNeed, LengthPolicy, Lengths, LengthScores, LengthSearch, of_total

TOTALS: Final = (4, 8, 16, 32)


class Candidates(LengthPolicy):
    fills = TOTALS

    def search(self, needs: list[HoleNeed], scores: LengthScores | None) -> LengthSearch:
        yield from ()
        canvases: list[Lengths] = []
        for total in TOTALS:
            canvas = [of_total(total, need) for need in needs]
            if canvas not in canvases:
                canvases.append(canvas)
        return canvases
