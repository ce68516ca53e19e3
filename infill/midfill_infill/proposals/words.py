"""Cuts texts into words: names, numbers, marks, line breaks with their indent. Knows no model's tokens, no files.

Words are cheaper than tokens, the same for every model, and longer: four of them see further than four tokens. A chunk
of lines is cut once and remembered by its text, so an edit costs the chunks that it touched.
"""

import re
import string
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

# A word or a mark takes the one space before it; a line break and its indent are one word, so no word crosses a line.
# What is frequent stands first, which is faster, as are patterns for ASCII; no text fits two kinds.
PATTERN: Final = r" ?[^\W\d]\w*| ?[^\s\w]|\n[ \t]*| ?\d+| +|\s"
WORD: Final = re.compile(PATTERN)
ASCII_WORD: Final = re.compile(PATTERN, re.ASCII)
NAME: Final = re.compile(r"\w+")
ALIKE: Final = str.maketrans(dict.fromkeys(string.ascii_letters + string.digits + "_", "w"))
LONG: Final = re.compile("ww+")
MAX_WORDS: Final = 2**18  # and as many lines; beyond, everything is forgotten
MAX_CHUNK_CHARACTERS: Final = 2**23  # of remembered chunks; a character takes about 4 bytes beside itself
MIN_CHUNK_LINES: Final = 32
MAX_CHUNK_LINES: Final = 256
EDGE: Final = 0  # the word that stands before and behind every text

Words = NDArray[np.int32]


@dataclass(frozen=True)
class Chunk:
    """Whole lines: their `words`, and the numbers of those that are not blank, stripped, and of their `shapes`."""

    words: Words
    lines: NDArray[np.int64]
    shapes: NDArray[np.int64]


class Numbering(dict[str, int]):
    """Numbers texts as they are asked for; `texts` has them by number, the first being that of none."""

    def __init__(self, none: str) -> None:
        super().__init__({none: 0})
        self.texts = [none]

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self.texts)
        self.texts.append(text)
        return number

    def array(self, texts: list[str]) -> NDArray[np.int64]:
        return np.fromiter(map(self.__getitem__, texts), np.int64, len(texts))


class Lexicon:
    """Numbers words, lines and shapes as they come; 0 is none. What is counted does not depend on
    them: `hashes` are of the text alone.
    """

    def __init__(self) -> None:
        self._words, self._lines, self._shapes = Numbering("\x00"), Numbering(""), Numbering("")
        self.texts, self.lines = self._words.texts, self._lines.texts
        self._hashes = np.zeros(1, np.uint64)
        self._chunks: OrderedDict[tuple[str, bool], Chunk] = OrderedDict()
        self._num_characters = 0

    @property
    def is_full(self) -> bool:
        return max(len(self.texts), len(self.lines)) > MAX_WORDS

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """By number; 64 bits, of which all are used."""
        if len(self._hashes) < len(self.texts):
            raw = (text.encode("utf-8", errors="replace") for text in self.texts[len(self._hashes) :])
            new = np.array([(zlib.crc32(each) << 31) ^ zlib.adler32(each) | 1 for each in raw], np.uint64)
            self._hashes = np.concatenate((self._hashes, new * np.uint64(0x9E3779B97F4A7C15)))
        return self._hashes

    def cut(self, text: str) -> list[int]:
        return list(map(self._words.__getitem__, find_words(text)))

    def line_number(self, line: str) -> int | None:
        return self._lines.get(line)

    def shape_number(self, shape: str) -> int | None:
        return self._shapes.get(shape)

    def chunks(self, text: str) -> list[Chunk]:
        """Of a whole text, in order."""
        return [self._chunk(part) for part in split_chunks(text)]

    def lines_of(self, text: str) -> NDArray[np.int64]:
        """The filled lines of a whole text by number."""
        return np.concatenate([self._chunk(part, is_cut=False).lines for part in split_chunks(text)])

    def _chunk(self, part: str, *, is_cut: bool = True) -> Chunk:
        known = self._chunks.get((part, is_cut))
        if known is not None:
            self._chunks.move_to_end((part, is_cut))
            return known
        words = self._words.array(find_words(part) if is_cut else []).astype(np.int32)
        shapes = self._shapes.array(filled_lines(shape_of(part)) if is_cut else [])
        made = Chunk(words, self._lines.array(filled_lines(part)), shapes)
        self._chunks[part, is_cut] = made
        self._num_characters += len(part)
        while self._num_characters > MAX_CHUNK_CHARACTERS and len(self._chunks) > 1:
            (dropped, _), _ = self._chunks.popitem(last=False)
            self._num_characters -= len(dropped)
        return made


def find_words(text: str) -> list[str]:
    return (ASCII_WORD if text.isascii() else WORD).findall(text)


def filled_lines(text: str) -> list[str]:
    """Those that are not blank, stripped."""
    return [line for line in map(str.strip, text.split("\n")) if line]


def shape_of(text: str) -> str:
    """The text with all its names and numbers alike."""
    # A pattern that begins with a letter is searched for faster, and joining is faster than replacing.
    return "w".join(LONG.split(text.translate(ALIKE)) if text.isascii() else NAME.split(text))


def is_cut(line: str) -> bool:
    """One line in 64, the same ones in every process; multiplied, since lines that are alike have sums that are."""
    return (zlib.crc32(line.encode("utf-8", errors="replace")) * 0x9E3779B1 >> 20) & 63 == 0


def split_chunks(text: str) -> Iterator[str]:
    """Cuts before line breaks, at lines that their own text chooses: an edit moves no cut but those beside it."""
    if not text:
        return
    lines = text.split("\n")
    start = 0
    for index in range(1, len(lines)):
        size = index - start
        if size >= MIN_CHUNK_LINES and (size >= MAX_CHUNK_LINES or is_cut(lines[index])):
            yield ("\n" if start else "") + "\n".join(lines[start:index])
            start = index
    yield ("\n" if start else "") + "\n".join(lines[start:])
