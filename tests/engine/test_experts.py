"""The interface of experts: how opinions come together, whoever they are from."""

import pytest
import torch

from midfill_engine.experts import Panel, Proposal
from midfill_engine.experts.base import Opinion, Sides
from midfill_engine.models.choice import Echo


class Said(Opinion):
    def __init__(self, echo: Echo | None = None, proposals: tuple[Proposal, ...] = ()) -> None:
        self._echo, self._proposals = echo, list(proposals)

    def echo(self, sides: Sides) -> Echo | None:
        return self._echo

    def propose(self, hole: int) -> list[Proposal]:
        return self._proposals


def whole(echo: Echo, own: torch.Tensor) -> torch.Tensor:
    return (own * echo.kept[:, None]).index_put((echo.rows, echo.tokens), echo.amounts, accumulate=True)


def test_two_distributions_are_mixed_one_over_the_other() -> None:
    own = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    first = Echo(torch.tensor([0, 0]), torch.tensor([1, 2]), torch.tensor([0.2, 0.3]), torch.tensor([0.5, 1.0]))
    second = Echo(torch.tensor([0, 1]), torch.tensor([2, 1]), torch.tensor([0.4, 0.1]), torch.tensor([0.6, 0.9]))
    both = Panel([Said(first), Said(), Said(second)]).echo([((), ())] * 2)
    assert both is not None
    places = list(zip(both.rows.tolist(), both.tokens.tolist(), strict=True))
    assert len(places) == len(set(places))
    assert whole(both, own).sum(1).tolist() == pytest.approx([1.0, 1.0])
    assert torch.allclose(whole(both, own), whole(second, whole(first, own)))
    assert Panel([Said()]).echo([((), ())]) is None


def test_a_text_that_two_propose_stands_once_and_the_surest_first() -> None:
    panel = Panel([Said(None, (Proposal("a", 0.4), Proposal("b", 0.3))), Said(None, (Proposal("b", 0.6),))])
    assert panel.propose(0) == [Proposal("b", 0.6), Proposal("a", 0.4)]
