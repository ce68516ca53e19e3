"""Remembers lines that Midfill wrote and nobody has accepted yet, as digests in one file per user; stores no code.

These lines are doubted when they are proposed again, because a fill that nobody reviewed is no evidence for similar
fills. A line counts as accepted when a person accepts it, when a command passes with it, or after a day.
"""

import hashlib
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from midfill_infill.config import locked_for_change, replace_file

MAX_AGE_S: Final = 24 * 3600
MAX_LINES: Final = 4096
MIN_CHARACTERS: Final = 6  # shorter lines are not remembered: `else:` and `)` occur everywhere


class Written(frozenset[str]):
    """Digests of lines that Midfill wrote and nobody has accepted."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Written":
        """The digests of all lines of some texts, without short ones."""
        digests: set[str] = set()
        for text in texts:
            for line in map(str.strip, text.splitlines()):
                if len(line) >= MIN_CHARACTERS:
                    digest = hashlib.blake2b(line.encode("utf-8", "replace"), digest_size=8)
                    digests.add(digest.hexdigest())
        return cls(digests)

    def has(self, text: str) -> bool:
        """True if all lines of a text that are long enough are among these, and there is one."""
        digests = self.of([text])
        return bool(digests) and digests <= self


def load() -> Written:
    """The digests of the lines that nobody has accepted yet; empty if they cannot be read. Never raises."""
    with suppress(OSError):
        return Written(_read(_path()))
    return Written()


def remember(texts: Iterable[str]) -> None:
    """Remembers texts that went into files. Does nothing if the file cannot be written."""
    _change(texts, is_accepted=False)


def forget(texts: Iterable[str]) -> None:
    """Forgets texts that a person accepted or a command passed with. Does nothing if the file cannot be written."""
    _change(texts, is_accepted=True)


def _change(texts: Iterable[str], *, is_accepted: bool) -> None:
    """Adds the lines of the texts to the file as the newest ones, or removes them if they are accepted."""
    digests = Written.of(texts)
    path = _path()
    with suppress(OSError), locked_for_change(path):
        times = _read(path)
        if is_accepted and not digests & times.keys():
            return
        changed = {digest: written_at for digest, written_at in times.items() if digest not in digests}
        if not is_accepted:
            changed |= dict.fromkeys(digests, int(time.time()))
        newest = list(changed.items())[-MAX_LINES:]
        replace_file(path, "".join(f"{written_at} {digest}\n" for digest, written_at in newest).encode())


def _path() -> Path:
    from platformdirs import user_state_path

    return user_state_path("midfill") / "written"


def _read(path: Path) -> dict[str, int]:
    """When each line in the file was written, in seconds since 1970, by its digest; without lines that are too old."""
    if not path.exists():
        return {}
    oldest = time.time() - MAX_AGE_S
    times: dict[str, int] = {}
    for row in path.read_text(encoding="ascii", errors="replace").splitlines():
        written_at, _, digest = row.partition(" ")
        if written_at.isdecimal() and int(written_at) > oldest:
            times[digest] = int(written_at)
    return times
