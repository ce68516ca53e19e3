"""Cuts texts into words: names, numbers, marks, line breaks with their indent. Knows no model's tokens, no files.

Words are cheaper than tokens, the same for every model, and longer: four of them see further than four tokens. A chunk
of lines is cut once and remembered by its text, so an edit costs the chunks that it touched.
"""

import re
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

# A word or a mark takes the one space before it; a line break and its indent are one word, so no word crosses a line.
PATTERN: Final = re.compile(r"\n[ \t]*| ?[^\W\d]\w*| ?\d+| ?[^\s\w]| +|\s")
NAME: Final = re.compile(r"\w+")
MAX_WORDS: Final = 2**18  # and as many lines; beyond, everything is forgotten
MAX_CHUNK_CHARACTERS: Final = 2**23  # of remembered chunks; a character takes about 4 bytes beside itself
MIN_CHUNK_LINES: Final = 16
MAX_CHUNK_LINES: Final = 128
EDGE: Final = 0  # the word that stands before and behind every text

Words = NDArray[np.int32]


@dataclass(frozen=True)
class Chunk:
    """Whole lines: their `words`, and the numbers of those that are not blank, stripped, and of their `shapes`."""

    words: Words
    lines: NDArray[np.int64]
    shapes: NDArray[np.int64]


class Lexicon:
    """Numbers words, lines and shapes as they come; 0 is none. What is counted does not depend on
    them: `hashes` are of the text alone.
    """

    def __init__(self) -> None:
        self.texts: list[str] = ["\x00"]
        self._number: dict[str, int] = {"\x00": EDGE}
        self._hashes: list[int] = [0]
        self._array = np.zeros(1, np.uint64)
        self.lines: list[str] = [""]
        self._line: dict[str, int] = {"": 0}
        self._shapes: dict[str, int] = {"": 0}
        self._chunks: OrderedDict[tuple[str, bool], Chunk] = OrderedDict()
        self._num_characters = 0

    @property
    def is_full(self) -> bool:
        return max(len(self.texts), len(self.lines)) > MAX_WORDS

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """By number; 64 bits, of which all are used."""
        if len(self._array) < len(self._hashes):
            new = np.array(self._hashes[len(self._array) :], np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            self._array = np.concatenate((self._array, new))
        return self._array

    def number(self, text: str) -> int:
        found = self._number.get(text)
        if found is None:
            found = self._number[text] = len(self.texts)
            self.texts.append(text)
            raw = text.encode("utf-8", errors="replace")
            self._hashes.append((zlib.crc32(raw) << 31) ^ zlib.adler32(raw) | 1)
        return found

    def cut(self, text: str) -> list[int]:
        words = PATTERN.findall(text)
        for word in dict.fromkeys(words):
            if word not in self._number:
                self.number(word)
        return list(map(self._number.__getitem__, words))

    def line_number(self, line: str) -> int | None:
        return self._line.get(line)

    def shape_number(self, shape: str) -> int | None:
        return self._shapes.get(shape)

    def _number_line(self, line: str) -> int:
        found = self._line.get(line)
        if found is None:
            found = self._line[line] = len(self.lines)
            self.lines.append(line)
        return found

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
        numbers = [self._number_line(line) for line in filled_lines(part)]
        words = self.cut(part) if is_cut else []
        shapes = (
            [self._shapes.setdefault(each, len(self._shapes)) for each in filled_lines(shape_of(part))]
            if is_cut
            else []
        )
        made = Chunk(np.array(words, np.int32), np.array(numbers, np.int64), np.array(shapes, np.int64))
        self._chunks[part, is_cut] = made
        self._num_characters += len(part)
        while self._num_characters > MAX_CHUNK_CHARACTERS and len(self._chunks) > 1:
            (dropped, _), _ = self._chunks.popitem(last=False)
            self._num_characters -= len(dropped)
        return made


def filled_lines(text: str) -> list[str]:
    """Those that are not blank, stripped."""
    return [line for line in map(str.strip, text.split("\n")) if line]


def shape_of(text: str) -> str:
    """The text with all its names and numbers alike."""
    return NAME.sub("w", text)


def split_chunks(text: str) -> Iterator[str]:
    """Cuts before line breaks, at lines that their own text chooses: an edit moves no cut but those beside it."""
    if not text:
        return
    lines = text.split("\n")
    start = 0
    for index in range(1, len(lines)):
        size = index - start
        if size >= MIN_CHUNK_LINES and (hash(lines[index]) & 31 == 0 or size >= MAX_CHUNK_LINES):
            yield ("\n" if start else "") + "\n".join(lines[start:index])
            start = index
    yield ("\n" if start else "") + "\n".join(lines[start:])
