"""Finds texts that are nearly the same: MinHash over shingles of five words, in bands. Knows texts only.

Broder 1997; bands as in Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4.
"""

import re
import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

SHINGLE_WORDS: Final = 5
BANDS: Final = 16
# Of a band: texts that share 0.7 of their shingles meet in some band with a chance of 0.61, 0.8 with 0.95.
ROWS: Final = 8
ALIKE: Final = 0.7
_PRIME: Final = np.uint64(2**31 - 1)
_WORD: Final = re.compile(r"\w+")


class Likeness:
    """The texts so far; `add` refuses one that shares about 0.7 of its shingles with another."""

    def __init__(self, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.factors = rng.integers(1, _PRIME, BANDS * ROWS, dtype=np.uint64)
        self.offsets = rng.integers(0, _PRIME, BANDS * ROWS, dtype=np.uint64)
        self.bands: dict[tuple[int, bytes], list[int]] = {}
        self.signatures: list[NDArray[np.uint32]] = []

    def add(self, text: str) -> bool:
        """Adds `text`; true if it is unlike all earlier ones. Texts too short for a shingle are never alike."""
        signature = self.signature(text)
        if signature is None:
            return True
        keys = [(band, part.tobytes()) for band, part in enumerate(signature.reshape(BANDS, ROWS))]
        candidates = {index for key in keys for index in self.bands.get(key, ())}
        if any((self.signatures[index] == signature).mean() >= ALIKE for index in candidates):
            return False
        for key in keys:
            self.bands.setdefault(key, []).append(len(self.signatures))
        self.signatures.append(signature)
        return True

    def signature(self, text: str) -> NDArray[np.uint32] | None:
        """The MinHash signature [128] of the text's shingles: the share of equal entries estimates the shared share."""
        words = _WORD.findall(text)
        shingles = {" ".join(words[start : start + SHINGLE_WORDS]) for start in range(len(words) - SHINGLE_WORDS + 1)}
        if not shingles:
            return None
        hashes = np.array([zlib.crc32(shingle.encode()) for shingle in shingles], np.uint64) % _PRIME
        least = np.full(BANDS * ROWS, _PRIME)
        for part in np.array_split(hashes, len(hashes) // 4096 + 1):
            np.minimum(least, ((part[:, None] * self.factors + self.offsets) % _PRIME).min(axis=0), out=least)
        return least.astype(np.uint32)
