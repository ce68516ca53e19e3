"""A base's tokenizer in training: text to ids, and the byte offsets of their ends. Knows bytes; no weights."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from midfill_engine.families.causal import CAUSAL
from midfill_engine.loading.adapter import open_files
from midfill_engine.loading.packaged import PACKAGED, find_packaged
from midfill_engine.loading.runtime import find_model
from midfill_engine.tokens.tokenizer import Tokenizer, read_hub_tokenizer

Ids = list[int]


def find_base(model: str) -> Path:
    """The weights of a base, without the adapter that ships for it. Raises StartError."""
    return find_packaged(PACKAGED[model]) if model in PACKAGED else find_model(model)


@dataclass(frozen=True)
class Cutter:
    """A tokenizer: text to ids, and the bytes of every id."""

    encode: Callable[[str], Ids]
    pieces: tuple[bytes, ...]

    @classmethod
    def open(cls, model: str) -> "Cutter":
        """Loads the tokenizer of a causal model. Raises StartError, CheckpointError."""
        files = open_files(find_base(model))
        return cls.of(read_hub_tokenizer(files, CAUSAL.shape(files.config).vocab_size))

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Cutter":
        return cls(tokenizer.encode, tuple(map(tokenizer.token_bytes, range(tokenizer.vocab_size))))

    @cached_property
    def sentinels(self) -> tuple[int, int, int, int]:
        """Four ids without text; they mark the text after a hole, the hole's text, the hole's end, and a masked token.

        Raises ValueError if the vocabulary has too few.
        """
        blank = [index for index, piece in enumerate(self.pieces) if not piece]
        if len(blank) < 4:
            raise ValueError("The vocabulary has no four ids without text to serve as sentinels: train without them.")
        return blank[-4], blank[-3], blank[-2], blank[-1]

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(b"\n".join(piece.hex().encode() for piece in self.pieces)).hexdigest()

    def ends(self, ids: Ids) -> NDArray[np.int64]:
        """The byte at which each token ends."""
        return np.cumsum([len(self.pieces[token]) for token in ids], dtype=np.int64)

    def split(self, given: str, rest: str) -> tuple[Ids, Ids]:
        """The ids of the joined text: those that end within `given`, and the others."""
        ids = self.encode(given + rest)
        count = int(np.searchsorted(self.ends(ids), len(given.encode()), side="right"))
        return ids[:count], ids[count:]
