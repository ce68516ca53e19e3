"""Counts the windows of 13 tokens of a text that occur in evaluation programs. Knows texts only."""

import gzip
import json
import keyword
import re
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Final

WINDOW: Final = 13
MIN_NAMES: Final = 4
KEYS: Final = "prefix", "middle", "suffix"
HUMAN_EVAL_KEYS: Final = "prompt", "canonical_solution", "suffix"  # of HumanEval-Infilling
_PIECE: Final = re.compile(r"\w+|[^\w\s]")

Hits = Callable[[str], int]


def count_hits(evaluation: list[Path]) -> Hits:
    """A function that counts the windows of a text that occur in any of `evaluation`.

    Each path is a suite (JSON lines, maybe gzipped, with KEYS or HUMAN_EVAL_KEYS), or a Python module whose
    `load()` returns known data and whose `hits(text, known)` counts, for programs that are kept secret.
    """
    known = {window for path in evaluation if path.suffix != ".py" for window in _windows_of_suite(path)}
    counters = [_counter_of(path) for path in evaluation if path.suffix == ".py"]
    if known:
        counters.append(lambda text: sum(hash(window) in known for window in windows(text)))
    return lambda text: sum(count(text) for count in counters)


def windows(text: str) -> Iterator[tuple[str, ...]]:
    """Every window of 13 pieces with at least four names; others, tables and boilerplate, are in many programs."""
    pieces = _PIECE.findall(text)
    for start in range(len(pieces) - WINDOW + 1):
        window = tuple(pieces[start : start + WINDOW])
        if len({piece for piece in window if piece.isidentifier() and not keyword.iskeyword(piece)}) >= MIN_NAMES:
            yield window


def _windows_of_suite(path: Path) -> Iterator[int]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            keys = KEYS if KEYS[0] in row else HUMAN_EVAL_KEYS
            yield from (hash(window) for window in windows("".join(row[key] for key in keys)))


def _counter_of(path: Path) -> Hits:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    known = module.load()
    return lambda text: int(module.hits(text, known))
