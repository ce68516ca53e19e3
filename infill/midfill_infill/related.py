"""Text of other open and recent files that a fill may want to see. Knows identifiers, no language and no editor."""

import math
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

CHUNK_LINES: Final = 24
MAX_FILES: Final = 32
MAX_FILE_CHARS: Final = 200_000
MAX_CHUNKS: Final = 8

_IDENTIFIER = re.compile(r"[^\W\d]\w{2,}")


@dataclass(frozen=True)
class Chunk:
    """Neighbouring lines of one file."""

    name: str
    text: str

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(_IDENTIFIER.findall(self.text))


class Ring:
    """The files seen last, cut into chunks. The oldest leaves when a new one comes. May be used from any thread."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, tuple[object, tuple[Chunk, ...]]] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def put(self, name: str, version: object, text: str) -> None:
        """Takes the file as it is now; one whose `version` is known already is only moved to the front."""
        with self._lock:
            known = self._files.pop(name, None)
            chunks = known[1] if known and known[0] == version else tuple(_cut(name, text[:MAX_FILE_CHARS]))
            if known is None or known[1] is not chunks:
                self._count(known[1] if known else (), -1)
                self._count(chunks, 1)
            self._files[name] = version, chunks
            while len(self._files) > MAX_FILES:
                self._count(self._files.popitem(last=False)[1][1], -1)

    def drop(self, name: str) -> None:
        with self._lock:
            self._count(self._files.pop(name, (None, ()))[1], -1)

    def _count(self, chunks: Iterable[Chunk], sign: int) -> None:
        for chunk in chunks:
            for word in chunk.words:
                self._counts[word] += sign
                if not self._counts[word]:
                    del self._counts[word]

    def pick(self, name: str, near: str) -> tuple[str, ...]:
        """The chunks of other files that share the rarest identifiers with `near`, the best first; at most 8."""
        with self._lock:
            chunks = [chunk for other, (_, held) in self._files.items() if other != name for chunk in held]
            own = Counter(word for chunk in self._files.get(name, (None, ()))[1] for word in chunk.words)
            counts = {word: self._counts[word] - own[word] for word in frozenset(_IDENTIFIER.findall(near))}
        rarity = {word: math.log(1 + len(chunks) / count) for word, count in counts.items() if count}
        scored = [(_score(chunk, rarity), chunk) for chunk in chunks]
        ranked = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: -pair[0])
        return tuple(chunk.text for _, chunk in ranked[:MAX_CHUNKS])


def _score(chunk: Chunk, rarity: dict[str, float]) -> float:
    return sum(rarity[word] for word in chunk.words & rarity.keys()) / math.sqrt(1 + len(chunk.words))


def _cut(name: str, text: str) -> Iterable[Chunk]:
    lines = text.replace("\r\n", "\n").split("\n")
    for start in range(0, len(lines), CHUNK_LINES):
        chunk = Chunk(name, "\n".join(lines[start : start + CHUNK_LINES]).strip("\n"))
        if chunk.words:
            yield chunk
