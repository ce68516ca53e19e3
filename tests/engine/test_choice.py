"""Choosing from scores: against plain formulas, for vocabularies that end anywhere."""

import pytest
import torch
from torch import Tensor

from midfill_engine.models.choice import CHUNK_POSITIONS, BadScores, Choice, choose


def choice_of(num_rows: int, allowed: Tensor, **changes: object) -> Choice:
    rule_of = torch.arange(num_rows) % len(allowed)
    return Choice(allowed, rule_of, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("vocab_size", [1, 127, 128, 256, 300, 1000])
@pytest.mark.parametrize("num_rules", [1, 3])
def test_the_first_largest_of_what_is_allowed_is_chosen(vocab_size: int, num_rules: int) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    num_rows = CHUNK_POSITIONS + 5
    scores = torch.randint(0, 9, (num_rows, vocab_size + 7), generator=generator).float()
    allowed = torch.rand(num_rules, vocab_size, generator=generator) > 0.3
    allowed[:, -1] = True
    chosen = choose(scores, choice_of(num_rows, allowed))
    wanted = scores[:, :vocab_size].masked_fill(~allowed[torch.arange(num_rows) % num_rules], -torch.inf)
    best = wanted.amax(dim=1, keepdim=True)
    assert chosen.ids.tolist() == [row.nonzero()[0].item() for row in wanted == best]
    torch.testing.assert_close(chosen.confidence, wanted.softmax(dim=1).amax(dim=1))


def test_forced_tokens_and_entropy_reach_their_rows_in_every_chunk() -> None:
    num_rows, vocab_size = 2 * CHUNK_POSITIONS + 3, 150
    scores = torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(0))
    allowed = torch.ones(1, vocab_size, dtype=torch.bool)
    allowed[0, 7] = False
    known = scores.masked_fill(~allowed, -torch.inf)

    forced = torch.arange(num_rows) % vocab_size
    chosen = choose(scores, choice_of(num_rows, allowed, forced=forced))
    assert torch.equal(chosen.ids, forced)
    torch.testing.assert_close(chosen.confidence, scores.softmax(dim=1).gather(1, forced[:, None])[:, 0])

    own = known.softmax(dim=1)
    chosen = choose(scores, choice_of(num_rows, allowed, needs_entropy=True))
    assert torch.equal(chosen.ids, own.argmax(dim=1))
    torch.testing.assert_close(chosen.confidence, own.amax(dim=1))
    torch.testing.assert_close(chosen.entropy, torch.special.entr(own).sum(dim=1))


def test_a_barred_token_is_chosen_only_where_it_is_not() -> None:
    scores = torch.tensor([[5.0, 1.0, 0.0]] * 4)
    barred = {0: torch.tensor([True, False, True, False])}
    chosen = choose(scores, choice_of(4, torch.ones(1, 3, dtype=torch.bool), barred=barred))
    assert chosen.ids.tolist() == [1, 0, 1, 0]


def test_scores_that_are_no_numbers_are_refused() -> None:
    scores = torch.tensor([[0.0, 1.0], [float("nan"), 0.0]])
    with pytest.raises(BadScores):
        choose(scores, choice_of(2, torch.ones(1, 2, dtype=torch.bool)))
