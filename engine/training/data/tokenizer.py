"""Trains the byte-level BPE tokenizer of the embedded family. Knows texts and merges; the pieces are the engine's."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import tokenizers

from midfill_engine.tokens.special import SPECIAL_TOKENS
from midfill_engine.tokens.tokenizer import Tokenizer, build, pre_tokenizer
from training.data.corpus import fraction_of, is_validation, read_corpus


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learns merges until there are `vocab_size` tokens with the specials, or no pair is left that occurs twice."""
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = pre_tokenizer()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS),
        min_frequency=2,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=32,
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    return build([(left, right) for left, right in json.loads(inner.to_str())["model"]["merges"]])


def sample_texts(folder: Path, share: float) -> Iterator[str]:
    """About `share` of the training files of the corpus in `folder`, the same ones every time."""
    for source in read_corpus(folder):
        if not is_validation(source.package) and fraction_of(f"tokenizer {source.package}/{source.path}") < share:
            yield source.text
