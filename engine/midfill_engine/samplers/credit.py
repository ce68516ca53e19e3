"""Tokens that were on top in earlier steps get credit, and what is sure with it is settled.

CreditDecoding (arXiv 2510.06133): the credit of a token fades by 0.8 a step and grows by the root of its confidence;
0.7 log(1 + credit) is added to its score. Credits are kept for tokens that were on top, not for the whole vocabulary.
"""

from typing import Final

import torch
from torch import Tensor

from midfill_engine.samplers.base import Credit, Decision, StepState
from midfill_engine.samplers.threshold import Threshold

FADING: Final = 0.8
POWER: Final = 0.2
WEIGHT: Final = 0.7


class CreditThreshold(Threshold):
    def __init__(self) -> None:
        self._credits: dict[tuple[int, int], float] = {}  # by position and token

    def credit(self, masked: Tensor) -> Credit | None:
        known = [(place, token, amount) for (place, token), amount in self._credits.items() if masked[0, place]]
        if not known:
            return None
        places, tokens, amounts = zip(*known, strict=True)
        return Credit(
            torch.tensor(places), torch.tensor(tokens), WEIGHT * torch.log1p(torch.tensor(amounts, dtype=torch.float32))
        )

    def decide(self, state: StepState) -> Decision:
        decision = super().decide(state)
        self._credits = {key: FADING * amount for key, amount in self._credits.items()}
        for place in state.masked[0].nonzero().flatten().tolist():
            key = (place, int(state.proposals.ids[0, place]))
            self._credits[key] = self._credits.get(key, 0.0) + float(state.proposals.confidence[0, place]) ** POWER
        return decision

    def move(self, order: list[int | None]) -> None:
        now = {before: place for place, before in enumerate(order) if before is not None}
        self._credits = {
            (now[place], token): amount for (place, token), amount in self._credits.items() if place in now
        }
