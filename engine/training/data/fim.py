"""Rows for the autoregressive baseline: prefix, suffix, middle in one sequence. Knows no model; arrays are numpy.

The order is PSM of fill-in-the-middle training (Bavarian et al. 2022): opening, PREFIX, text before, SUFFIX, text
after, MIDDLE, the gap, EOS. Gaps and their edges are those of the diffusion rows, so both objectives see the same data.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from midfill_engine.tokens.special import EOS, PAD, SPECIAL_TOKENS
from midfill_engine.tokens.tokenizer import Tokenizer, opening_ids
from training.data import spans
from training.data.pack import Pack
from training.data.rows import Ids, draw_window, drop_suffix, split_at_gaps

PREFIX, SUFFIX, MIDDLE = (SPECIAL_TOKENS.index(f"<|spare{number}|>") for number in range(3))
MAX_MIDDLE_SHARE: Final = 0.5


def prompt_ids(language: str | None, prefix: Ids, suffix: Ids) -> Ids:
    """What stands before the middle."""
    return [*opening_ids(language), PREFIX, *prefix, SUFFIX, *suffix, MIDDLE]


def draw_fim(pack: Pack, tokenizer: Tokenizer, length: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """One row [length] of a document with one gap, PAD at the end."""
    row = np.full(length, PAD, np.int64)
    while True:
        language, text = draw_window(pack, tokenizer, length, rng)
        span = spans.choose(text, rng)
        if span is None or not text[slice(*span)].strip():
            continue
        texts, (middle,) = split_at_gaps(drop_suffix(text, span, rng), [span])
        prefix, suffix, middle_ids = tokenizer.encode_batch([*texts, middle])
        if not middle_ids or len(middle_ids) > MAX_MIDDLE_SHARE * length:
            continue
        prompt = prompt_ids(language, *trim(prefix, suffix, length - len(middle_ids) - 6))
        ids = [*prompt, *middle_ids, EOS]
        row[: len(ids)] = ids
        return row


def trim(prefix: Ids, suffix: Ids, room: int) -> tuple[Ids, Ids]:
    """Cuts the far ends of both in proportion, so that `room` tokens hold them."""
    excess = len(prefix) + len(suffix) - room
    if excess <= 0:
        return prefix, suffix
    from_prefix = min(len(prefix), excess * len(prefix) // (len(prefix) + len(suffix)))
    return prefix[from_prefix:], suffix[: len(suffix) - (excess - from_prefix)]
