"""The text that tokens spell, from the bytes of each, and the range of its characters. Knows no vocabulary."""

import codecs
from itertools import accumulate, pairwise

Spans = list[tuple[int, int]]


def decode(pieces: list[bytes], errors: str) -> tuple[str, Spans]:
    """The text of byte pieces, and the character range of each. A character belongs to the piece with its last byte."""
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
    """The ascending ranges, with adjacent ones joined and empty ones dropped."""
    merged: Spans = []
    first, last = 0, 0
    for start, end in spans:
        if start != last:
            if first < last:
                merged.append((first, last))
            first = start
        last = end
    return [*merged, (first, last)] if first < last else merged
