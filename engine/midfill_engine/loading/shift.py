"""Self-test at load: whether the model's logits are shifted as its family says. Knows one text, whose tokens it masks.

Nothing in a checkpoint says whether a position is scored by its own state or by the one before, and the wrong choice
gives fluent nonsense. The right one predicts most masked tokens of plain code, the wrong one almost none.
"""

import logging
from dataclasses import dataclass
from typing import Final

import torch

from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.choice import Choice
from midfill_engine.models.layout import Layout
from midfill_engine.models.packed import Pass
from midfill_engine.models.sequence import Sequence

EVERY: Final = 7  # one token in seven, near the usual training rate of 15 %
SURE: Final = 0.3  # below this the model knows too little code to tell
TEXT: Final = '''
def count_words(text):
    """Count how often each word occurs in a text."""
    counts = {}
    for word in text.split():
        word = word.lower()
        if word in counts:
            counts[word] += 1
        else:
            counts[word] = 1
    return counts


def most_common(counts, limit=10):
    """Return the most common words, the most frequent first."""
    pairs = sorted(counts.items(), key=lambda pair: pair[1], reverse=True)
    return pairs[:limit]


def main():
    with open("input.txt") as file:
        text = file.read()
    for word, count in most_common(count_words(text)):
        print(word, count)


if __name__ == "__main__":
    main()
'''

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShiftTest:
    """Shares of masked tokens predicted with the family's shift and with the other one."""

    own: float
    other: float

    @property
    def is_suspicious(self) -> bool:
        return self.other > SURE and self.other > 2 * self.own


def measure_shift(runtime: Runtime) -> ShiftTest:
    """One forward pass over a known text with one token in seven masked."""
    family, tokens, config = runtime.family, runtime.tokens, runtime.loaded.config
    room = config.max_context - len(tokens.opening(None)) - len(tokens.closing)
    text = runtime.loaded.tokenizer.encode(TEXT)[:room]
    ids = torch.tensor([*tokens.opening(None), *text, *tokens.closing])
    targets = torch.arange(EVERY, len(ids) - 1, EVERY)
    masked = ids.index_fill(0, targets, tokens.mask_id)
    places = torch.arange(len(ids))
    layout = Layout(places, torch.empty(1, 0, dtype=torch.int64), torch.empty(0, 2, dtype=torch.int64))
    sequence = Sequence.of(
        masked, ids[:0], layout, family.attention, 0, config.block_size, family.pipelined, family.aligned
    )
    everything = torch.ones(1, runtime.loaded.tokenizer.vocab_size, dtype=torch.bool)
    wanted = torch.cat((targets, targets - 1))
    choice = Choice(everything, torch.zeros(len(wanted), dtype=torch.int64))
    step = Pass(masked, sequence.positions[0], wanted, mask=sequence.mask(places, places), choice=choice)
    (result,) = runtime.run([step])
    assert result.chosen is not None
    is_right = result.chosen.ids.view(2, -1) == ids[targets]  # [2, M]
    unshifted, shifted = is_right.float().mean(dim=1).tolist()
    return ShiftTest(shifted, unshifted) if family.logit_shift else ShiftTest(unshifted, shifted)


def warn_of_shift(runtime: Runtime) -> None:
    """Logs a warning if the other shift predicts far more tokens."""
    found = measure_shift(runtime)
    if found.is_suspicious:
        logger.warning(
            "%s guesses %.0f %% of masked code as its family %r reads scores and %.0f %% one position off: its "
            "checkpoint belongs to another family, or was trained otherwise; expect nonsense",
            runtime.names[0],
            100 * found.own,
            runtime.family.name,
            100 * found.other,
        )
