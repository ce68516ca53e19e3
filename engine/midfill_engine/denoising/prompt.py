"""What a causal base reads of the text around a stretch, and what of it judges. Knows text and tokens; no requests.

A part of the text behind stands above the text before. Of 129 lines of packages of 2025 and later one or two more were
right with it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from midfill_engine.loading.runtime import Runtime

MAX_BEFORE: Final = 2048  # tokens that are read
READ_CHARACTERS: Final = 3072  # of the text before, at most
YIELDED: Final = 1536  # of these, at most, make room for excerpts
AHEAD_YIELDS: Final = 4  # and of the text behind a character for so many of them
READ_SHARE: Final = 3  # where there is more, up to one part in so many is left out
BREAK: Final = "\n\n\n"  # between texts that do not stand together
AHEAD_CHARACTERS: Final = 1200  # of the text behind that is read first,
AHEAD_STEP: Final = 512  # from a line that begins up to so many characters behind the lines that judge
FOLLOWING_LINES: Final = 2
FOLLOWING_CHARACTERS: Final = 120
LINE_END: Final = re.compile(r"\n")
HASHED: Final = 32  # characters of a line


@dataclass(frozen=True)
class Prompt:
    """`ids` that are read, then the text must spell `pending`. `has_suffix`: the text behind is in view as such."""

    ids: tuple[int, ...]
    pending: bytes
    has_suffix: bool = False


def lay_prompt(
    runtime: Runtime,
    before: str,
    after: str = "",
    excerpts: Sequence[str] = (),
    *,
    is_block: bool = False,
    behind: str | None = None,
) -> Prompt:
    """The text around a stretch with the model's fill-in-the-middle tokens, where it was trained with such.

    Else a part of the text behind (`behind`, by default `after`), as if it stood above, then the excerpts and the end
    of the text before.
    """
    opening, markers = runtime.tokens.opening(None), runtime.tokens.markers
    encode = runtime.loaded.tokenizer.encode
    above, most_ahead = lay_before(before, excerpts, is_block=is_block)
    if markers is not None:
        parts = encode(above)[-MAX_BEFORE:], encode(after[:most_ahead])
        return Prompt((*opening, *markers.lay(*parts)), b"", has_suffix=True)
    ids, pending = open_edge(runtime, cut_behind(after if behind is None else behind, most_ahead) + above)
    return Prompt((*(opening or ([] if ids else [runtime.tokens.special_ids[0]])), *ids), pending)


def open_edge(runtime: Runtime, text: str) -> tuple[list[int], bytes]:
    """The ids of `text` up to its last token, and the bytes of that token.

    A tokenizer joins what stands on both sides of an edge; so the model chooses the joint token itself.
    """
    tokenizer = runtime.loaded.tokenizer
    ids = tokenizer.encode(text)[-MAX_BEFORE:]
    if not ids:
        return [], b""
    pending = tokenizer.token_bytes(ids.pop())
    if len(pending) > 1 and pending.isspace() and pending.endswith(b" "):  # of a run the last space is the word's own
        ids += tokenizer.encode(pending[:-1].decode())
        pending = b" "
    while ids and not _is_text(pending):
        pending = tokenizer.token_bytes(ids.pop()) + pending
    return ids, pending


def lay_before(before: str, excerpts: Sequence[str], *, is_block: bool = False) -> tuple[str, int]:
    """The excerpts and the end of the text before, and how many characters of the text behind are read beside them.

    Excerpts take the place of near text, but not for a block: its neighbors are mostly what it is like.
    """
    shown = "".join(text.strip("\n") + BREAK for text in excerpts)
    room = 0 if is_block else min(len(shown), YIELDED)
    return shown + cut_before(before, READ_CHARACTERS - room), AHEAD_CHARACTERS - room // AHEAD_YIELDS


def cut_before(text: str, most: int = READ_CHARACTERS) -> str:
    """The end of `text` from the beginning of a line on, at most so many characters."""
    surplus = len(text) - most
    return text if surplus <= 0 else text[find_start(text, surplus, surplus + most // READ_SHARE) :]


def cut_behind(text: str, most: int = AHEAD_CHARACTERS) -> str:
    """At most so many characters of the text behind in whole lines, but for those that judge candidates, and BREAK; or
    nothing.
    """
    judging = len(find_following(text))
    start = find_start(text, judging, judging + AHEAD_STEP) if judging else 0
    part = text[start : start + most]
    part = part if start + len(part) == len(text) else part[: part.rfind("\n") + 1]
    return part.strip("\n") + BREAK if judging and part.strip() else ""


def find_start(text: str, low: int, high: int) -> int:
    """The line start between `low` and `high` whose line has the smallest hash: as the bounds move with the cursor, it
    mostly stays the same, and so do the keys of the text behind it.
    """
    starts = [match.end() for match in LINE_END.finditer(text, max(0, low - 1), high)]
    filled = [start for start in starts if text[start : start + 1].strip()]
    return min(filled or starts, key=lambda start: crc32(text[start : start + HASHED].encode()), default=low)


def find_following(after: str) -> str:
    """The next filled lines behind a stretch, which judge candidates."""
    lines, taken = 0, 0
    for line in after[: 4 * FOLLOWING_CHARACTERS].splitlines(keepends=True):
        if taken and taken + len(line) > FOLLOWING_CHARACTERS:
            break
        taken += len(line)
        lines += bool(line.strip())
        if lines == FOLLOWING_LINES:
            break
    return after[: min(taken, 2 * FOLLOWING_CHARACTERS)].rstrip()


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
