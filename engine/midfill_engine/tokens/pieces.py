"""Text of the byte pieces of tokens, and its ranges of characters. Knows no vocabulary."""

import codecs
from itertools import accumulate, pairwise

Spans = list[tuple[int, int]]


def decode(pieces: list[bytes], errors: str) -> tuple[str, Spans]:
    """Text of byte pieces, and the character range of each. A character belongs to the piece with its last byte."""
    whole = b"".join(pieces)
    if whole.isascii():
        return whole.decode(), list(pairwise(accumulate(map(len, pieces), initial=0)))
    decoder = codecs.getincrementaldecoder("utf-8")(errors=errors)
    text = ""
    ranges: Spans = []
    for index, piece in enumerate(pieces):
        start = len(text)
        text += decoder.decode(piece, final=index == len(pieces) - 1)
        ranges.append((start, len(text)))
    return text, ranges


def merge(spans: Spans) -> Spans:
    """Ascending ranges with neighbors joined and empty ones dropped."""
    merged: Spans = []
    for start, end in spans:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        elif start < end:
            merged.append((start, end))
    return merged
