"""Remembers lines that Midfill wrote and nobody has accepted yet, as digests in one file per user; stores no code.

A fill that nobody reviewed is no evidence for similar fills. A line counts as accepted when a person accepts it, when a
command passes with it, or after a day.
"""

import hashlib
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_AGE_S: Final = 24 * 3600
MAX_LINES: Final = 4096
MIN_CHARACTERS: Final = 6  # of a line; `else:` and `)` occur everywhere


class Written(frozenset[str]):
    """Digests of lines."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Written":
        """The digests of the lines of some texts."""
        digests: set[str] = set()
        for text in texts:
            for line in map(str.strip, text.splitlines()):
                if len(line) >= MIN_CHARACTERS:
                    digest = hashlib.blake2b(line.encode("utf-8", "replace"), digest_size=8)
                    digests.add(digest.hexdigest())
        return cls(digests)

    def has(self, text: str) -> bool:
        """True if Midfill wrote all lines of a text."""
        digests = self.of([text])
        return bool(digests) and digests <= self


def load() -> Written:
    """The lines that are not accepted yet. Never raises."""
    with suppress(OSError, ValueError):
        return Written(_read(_path()))
    return Written()


def add(texts: Iterable[str]) -> None:
    """Remembers texts that went into files. Ignores a folder that cannot be written."""
    _change(texts, is_kept=False)


def keep(texts: Iterable[str]) -> None:
    """Forgets texts that a person accepted or a command passed with."""
    _change(texts, is_kept=True)


def _change(texts: Iterable[str], *, is_kept: bool) -> None:
    digests = Written.of(texts)
    with suppress(OSError, ValueError):
        path = _path()
        now = int(time.time())
        known = _read(path)
        if is_kept and not digests & known.keys():
            return
        rows = {digest: written_at for digest, written_at in known.items() if digest not in digests}
        if not is_kept:
            rows |= dict.fromkeys(digests, now)
        newest = list(rows.items())[-MAX_LINES:]
        path.parent.mkdir(parents=True, exist_ok=True)
        other = path.with_suffix(f".{os.getpid()}")
        other.write_text("".join(f"{written_at} {digest}\n" for digest, written_at in newest), encoding="ascii")
        other.replace(path)


def _path() -> Path:
    from platformdirs import user_state_path

    return user_state_path("midfill") / "written"


def _read(path: Path) -> dict[str, int]:
    if not path.exists():
        return {}
    oldest = time.time() - MAX_AGE_S
    known: dict[str, int] = {}
    for row in path.read_text(encoding="ascii").splitlines():
        written_at, digest = row.split()
        if int(written_at) > oldest:
            known[digest] = int(written_at)
    return known
