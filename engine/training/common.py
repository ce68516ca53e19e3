"""Counts the lines that many packages of a corpus share, by where they stand: what `experts.common` reads. Knows files.

A line stands at one of a few places, told by the indents around it; a file counts once for a line at a place.
"""

import json
import lzma
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from midfill_engine.experts.common import NUM_PLACES, place_of

MAX_CHARACTERS: Final = 60
MIN_PACKAGES: Final = 12
MIN_CHARACTERS: Final = 3
SCALE: Final = 100_000

Counted = Counter[tuple[str, int]]


def count(parts: Sequence[Path], out: Path, num_lines: int = 300) -> None:
    """Writes the commonest lines of each language, those of most packages, with their counts in so many lines."""
    packages: dict[str, dict[str, Counted]] = defaultdict(dict)
    totals: dict[str, Counter[int]] = defaultdict(Counter)
    for part in parts:
        language = part.name.split("-")[0]
        for package, text in _read(part):
            found = set(places_in(text))
            packages[language].setdefault(package, Counter()).update(found)
            totals[language].update(place for _, place in found)
    made = {name: _commonest(packages[name].values(), totals[name], num_lines) for name in sorted(packages)}
    out.write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":")).replace("],", "],\n") + "\n")


def _read(part: Path) -> Iterator[tuple[str, str]]:
    with lzma.open(part, "rt", encoding="utf-8") as rows:
        for row in map(json.loads, rows):
            yield row["package"], row["text"]


def places_in(text: str) -> Iterator[tuple[str, int]]:
    """Every filled line that is not too long, and where it stands."""
    lines = [line.rstrip() for line in text.split("\n")]
    filled = [index for index, line in enumerate(lines) if line]
    for last, index, following in zip([-1, *filled], filled, [*filled[1:], len(lines)], strict=False):
        line = lines[index].lstrip()
        if MIN_CHARACTERS <= len(line) <= MAX_CHARACTERS:
            above, below = lines[last] if last >= 0 else "", lines[following] if following < len(lines) else ""
            is_beside_blank = index - last > 1 or following - index > 1
            yield line, place_of(above, lines[index][: -len(line)], below, is_beside_blank)


def _commonest(packages: Iterable[Counted], totals: Counter[int], num_lines: int) -> dict[str, list[int]]:
    counts: Counted = Counter()
    spread: Counter[str] = Counter()
    for package in packages:
        counts.update(package)
        spread.update({line for line, _ in package})
    chosen = [line for line, number in spread.most_common(num_lines) if number >= MIN_PACKAGES]
    return {line: [_share(counts[line, place], totals[place]) for place in range(NUM_PLACES)] for line in chosen}


def _share(number: int, total: int) -> int:
    return round(SCALE * number / max(1, total))
