"""Builds the prompt of a causal base, and finds the lines that judge candidates. Knows text and tokens; no requests.

The prompt shows a part of the text after the stretch above the text before it. With it one or two more of 129 lines
from packages of 2025 and later were right.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from midfill_engine.loading.runtime import Runtime

MAX_BEFORE: Final = 2048  # tokens that are read
READ_CHARACTERS: Final = 3072  # of the text before, at most
YIELDED: Final = 1536  # at most so many of these make room for excerpts
AHEAD_YIELDS: Final = 4  # for so many of them the text after gives up one character
READ_SHARE: Final = 3  # of a longer text up to one part in so many is left out
BREAK: Final = "\n\n\n"  # between texts that are not adjacent
AHEAD_CHARACTERS: Final = 1200  # of the text after, which are read first
AHEAD_STEP: Final = 512  # they start up to so many characters after the lines that judge
FOLLOWING_LINES: Final = 2
FOLLOWING_CHARACTERS: Final = 120
LINE_END: Final = re.compile(r"\n")
WORD: Final = re.compile(rb"\w")
WORD_BYTES: Final = 32
HASHED: Final = 32  # characters of a line


@dataclass(frozen=True)
class Prompt:
    """The `ids` to read; the fill must begin with the bytes `pending`. `has_suffix`: `ids` include the text after."""

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
    """The text around a stretch with fill-in-the-middle tokens, if the model was trained with them. Otherwise a part of
    the text after (`behind`, by default `after`), then the excerpts and the end of the text before.
    """
    opening = runtime.tokens.opening(None)
    markers = runtime.tokens.markers
    above, most_ahead = lay_before(before, excerpts, is_block=is_block)
    if markers is not None:
        encode = runtime.loaded.tokenizer.encode
        ids_before = encode(above)[-MAX_BEFORE:]
        ids_after = encode(after[:most_ahead])
        marked = markers.lay(ids_before, ids_after)
        return Prompt((*opening, *marked), b"", has_suffix=True)
    if behind is None:
        behind = after
    ahead = lay_ahead(behind, most_ahead)
    ids, pending = open_edge(runtime, ahead + above)
    if not opening and not ids:
        opening = [runtime.tokens.special_ids[0]]
    return Prompt((*opening, *ids), pending)


def open_edge(runtime: Runtime, text: str) -> tuple[list[int], bytes]:
    """The ids of `text` without its last token, and that token's bytes, because the token at the edge may differ. All
    tokens of a word that may go on are left out: half a word is seldom made of the whole word's tokens.
    """
    tokenizer = runtime.loaded.tokenizer
    ids = tokenizer.encode(text)[-MAX_BEFORE:]
    if not ids:
        return [], b""
    pending = tokenizer.token_bytes(ids.pop())
    if len(pending) > 1 and pending.isspace() and pending.endswith(b" "):  # the last space belongs to the next word
        ids += tokenizer.encode(pending[:-1].decode())
        pending = b" "
    while ids and pending.decode(errors="ignore").encode() != pending:  # a part of a character
        pending = tokenizer.token_bytes(ids.pop()) + pending
    while ids and len(pending) < WORD_BYTES and WORD.match(pending):
        before = tokenizer.token_bytes(ids[-1])
        if not WORD.match(before[-1:]):
            break
        pending = before + pending
        ids.pop()
    return ids, pending


def lay_before(before: str, excerpts: Sequence[str], *, is_block: bool = False) -> tuple[str, int]:
    """The excerpts and the end of the text before, and the number of characters to read of the text after.

    Excerpts replace near text, but not for a block, because a block mostly resembles its neighbors.
    """
    shown = "".join(text.strip("\n") + BREAK for text in excerpts)
    room = 0
    if not is_block:
        room = min(len(shown), YIELDED)
    near = take_stable_end(before, READ_CHARACTERS - room)
    most_ahead = AHEAD_CHARACTERS - room // AHEAD_YIELDS
    return shown + near, most_ahead


def take_stable_end(text: str, most: int = READ_CHARACTERS) -> str:
    """The end of `text`, at most `most` characters, from a line start that mostly stays while the text grows."""
    surplus = len(text) - most
    if surplus <= 0:
        return text
    most_surplus = surplus + most // READ_SHARE
    start = find_start(text, surplus, most_surplus)
    return text[start:]


def lay_ahead(text: str, most: int = AHEAD_CHARACTERS) -> str:
    """Whole lines of the text after, at most `most` characters and without the lines that judge, and BREAK; or ""."""
    judging = len(find_following(text))
    if not judging:
        return ""
    start = find_start(text, judging, judging + AHEAD_STEP)
    part = text[start : start + most]
    if start + len(part) < len(text):
        part = part[: part.rfind("\n") + 1]
    if not part.strip():
        return ""
    return part.strip("\n") + BREAK


def find_start(text: str, low: int, high: int) -> int:
    """The line start between `low` and `high` whose line has the smallest hash. It mostly stays as the cursor
    moves the bounds, so the KV cache of the text after it stays valid.
    """
    starts = [match.end() for match in LINE_END.finditer(text, max(0, low - 1), high)]
    filled = [start for start in starts if text[start : start + 1].strip()]
    return min(filled or starts, key=lambda start: crc32(text[start : start + HASHED].encode()), default=low)


def find_following(after: str) -> str:
    """The next non-blank lines after a stretch; their likelihood judges candidates."""
    num_lines = 0
    taken = 0
    for line in after[: 4 * FOLLOWING_CHARACTERS].splitlines(keepends=True):
        if taken and taken + len(line) > FOLLOWING_CHARACTERS:
            break
        taken += len(line)
        num_lines += bool(line.strip())
        if num_lines == FOLLOWING_LINES:
            break
    return after[: min(taken, 2 * FOLLOWING_CHARACTERS)].rstrip()
