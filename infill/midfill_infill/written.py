"""What Midfill wrote on its own and nobody has kept yet: lines by digest, no code. Knows one file of this user.

A fill that nobody looked at is no evidence that the next one like it is right. Kept is what a person accepts, or a
command passes with; after a day all counts as kept.
"""

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_AGE_S: Final = 24 * 3600
MAX_LINES: Final = 4096
MIN_CHARACTERS: Final = 6  # of a line; `else:` and `)` stand everywhere


class Written(frozenset[str]):
    """Digests of lines."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Written":
        return cls(digest for text in texts for digest in _digests(text))

    def has(self, text: str) -> bool:
        """Whether all of a text was written so."""
        digests = self.of([text])
        return bool(digests) and digests <= self


def load() -> Written:
    """What is not kept yet. Raises nothing."""
    with suppress(OSError, ValueError):
        return Written(_read(_path()))
    return Written()


def add(texts: Iterable[str]) -> None:
    """Call after they went into files. A folder that cannot be written is no reason to fail."""
    _change(texts, is_kept=False)


def keep(texts: Iterable[str]) -> None:
    """Call when a person or a command said yes to them."""
    _change(texts, is_kept=True)


def _change(texts: Iterable[str], *, is_kept: bool) -> None:
    digests = Written.of(texts)
    with suppress(OSError, ValueError):
        path, now = _path(), int(time.time())
        known = _read(path)
        if is_kept and not digests & known.keys():
            return
        left = {digest: at for digest, at in known.items() if digest not in digests}
        rows = list((left | ({} if is_kept else dict.fromkeys(digests, now))).items())[-MAX_LINES:]
        path.parent.mkdir(parents=True, exist_ok=True)
        other = path.with_suffix(f".{os.getpid()}")
        other.write_text("".join(f"{at} {digest}\n" for digest, at in rows), encoding="ascii")
        other.replace(path)


def _path() -> Path:
    from platformdirs import user_state_path

    return user_state_path("midfill") / "written"


def _read(path: Path) -> dict[str, int]:
    if not path.exists():
        return {}
    rows = (row.split() for row in path.read_text(encoding="ascii").splitlines())
    return {digest: int(at) for at, digest in rows if int(at) > time.time() - MAX_AGE_S}


def _digests(text: str) -> Iterator[str]:
    for line in map(str.strip, text.splitlines()):
        if len(line) >= MIN_CHARACTERS:
            yield hashlib.blake2b(line.encode("utf-8", "replace"), digest_size=8).hexdigest()
