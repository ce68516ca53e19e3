"""Chunks of other open and recent files that are relevant to a hole. Knows identifiers, no language and no editor."""

import math
import re
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest
from typing import Final

CHUNK_LINES: Final = 24
MAX_FILES: Final = 32
MAX_FILE_CHARS: Final = 200_000
MAX_CHUNKS: Final = 8

_IDENTIFIER = re.compile(r"[^\W\d]\w{2,}")


@dataclass(frozen=True, eq=False)
class FileChunk:
    """Consecutive lines of one file."""

    name: str
    text: str

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(_IDENTIFIER.findall(self.text))


class Ring:
    """Recent files cut into chunks, oldest dropped first. Thread-safe."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, tuple[object, tuple[FileChunk, ...]]] = OrderedDict()
        self._holders: defaultdict[str, dict[FileChunk, None]] = defaultdict(dict)
        self._lock = threading.Lock()

    def put(self, name: str, version: object, text: str) -> None:
        """Adds or updates a file; a known `version` is only moved to the front."""
        with self._lock:
            known = self._files.pop(name, None)
            chunks = known[1] if known and known[0] == version else tuple(_cut(name, text[:MAX_FILE_CHARS]))
            if known is None or known[1] is not chunks:
                self._remove(known[1] if known else ())
                for chunk in chunks:
                    for word in chunk.words:
                        self._holders[word][chunk] = None
            self._files[name] = version, chunks
            while len(self._files) > MAX_FILES:
                self._remove(self._files.popitem(last=False)[1][1])

    def drop(self, name: str) -> None:
        with self._lock:
            self._remove(self._files.pop(name, (None, ()))[1])

    def _remove(self, chunks: Iterable[FileChunk]) -> None:
        for chunk in chunks:
            for word in chunk.words:
                self._holders[word].pop(chunk)
                if not self._holders[word]:
                    del self._holders[word]

    def texts(self, most_chars: int) -> list[tuple[str, str]]:
        """Names and texts of the files, most recent first, up to `most_chars` characters."""
        found, left = [], most_chars
        with self._lock:
            for name, (_, chunks) in reversed(self._files.items()):
                text = "\n".join(chunk.text for chunk in chunks)
                found.append((name, text))
                left -= len(text)
                if left <= 0:
                    break
        return found

    def pick(self, name: str, near: str) -> tuple[str, ...]:
        """Chunks of other files that share the rarest identifiers with `near`, best first; at most 8."""
        scores: defaultdict[FileChunk, float] = defaultdict(float)
        with self._lock:
            num_chunks = sum(len(held) for other, (_, held) in self._files.items() if other != name)
            for word in dict.fromkeys(_IDENTIFIER.findall(near)):
                holders: Collection[FileChunk] = self._holders.get(word, ())
                if name in self._files:
                    holders = [chunk for chunk in holders if chunk.name != name]
                rarity = math.log(1 + num_chunks / len(holders)) if holders else 0.0
                for chunk in holders:
                    scores[chunk] += rarity
        ranked = nlargest(MAX_CHUNKS, scores, key=lambda chunk: scores[chunk] / math.sqrt(1 + len(chunk.words)))
        return tuple(chunk.text for chunk in ranked)


def _cut(name: str, text: str) -> Iterable[FileChunk]:
    lines = text.replace("\r\n", "\n").split("\n")
    for start in range(0, len(lines), CHUNK_LINES):
        chunk = FileChunk(name, "\n".join(lines[start : start + CHUNK_LINES]).strip("\n"))
        if chunk.words:
            yield chunk
