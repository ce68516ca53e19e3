"""Reads a folder of `LANGUAGE-NN.jsonl.xz` and selects the files for training. Knows no tokens."""

import hashlib
import json
import lzma
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LANGUAGES: Final = ("python", "javascript", "typescript")
VALIDATION_SHARE: Final = 0.02

# Projects whose gaps the evaluation fills.
HELD_FOR_EVALUATION: Final = frozenset(
    ("boltons", "h11", "sqlparse", "cachetools", "funcy", "parsy", "humanize", "itsdangerous")
)


@dataclass(frozen=True)
class SourceFile:
    package: str
    path: str
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.package}/{self.path}"


def read_corpus(folder: Path) -> Iterator[SourceFile]:
    """Every file of `folder` in a fixed order, but none of the projects held for evaluation.

    Raises FileNotFoundError if the folder has no part of any language.
    """
    parts = [(language, part) for language in LANGUAGES for part in sorted(folder.glob(f"{language}-*.jsonl.xz"))]
    if not parts:
        raise FileNotFoundError(f"There is no LANGUAGE-NN.jsonl.xz in {folder}, of {', '.join(LANGUAGES)}.")
    for language, part in parts:
        with lzma.open(part, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if row["package"].lower() not in HELD_FOR_EVALUATION:
                    yield SourceFile(row["package"], row["path"], language, row["text"])


def fraction_of(text: str) -> float:
    """A number in [0, 1) that depends on `text` alone: the same files are drawn on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def hold_out(files: Collection[SourceFile]) -> set[str]:
    """The names of what is held out from training: packages, since files of a package resemble each other.

    If no package is drawn, or every one, files are; in a small corpus the one that would be drawn first.
    """
    packages = {file.package for file in files}
    drawn = set(filter(is_validation, packages))
    if drawn and drawn != packages:
        return drawn
    names = sorted((file.name for file in files), key=_draw_validation)
    return set(filter(is_validation, names)) or set(names[:1])


def is_validation(name: str) -> bool:
    """True if a package, or a file, is drawn for validation."""
    return _draw_validation(name) < VALIDATION_SHARE


def _draw_validation(name: str) -> float:
    return fraction_of(f"validation {name}")
