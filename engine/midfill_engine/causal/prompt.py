"""Builds the prompt of a causal model, and finds the lines that judge candidates. Knows text and tokens; no requests.

Without fill-in-the-middle tokens, the prompt shows a part of the text after the stretch above the text before it. With
that part, one or two more of 129 lines from packages of 2025 and later were right.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from midfill_engine.loading.runtime import Runtime

MAX_BEFORE: Final = 2048  # the last tokens of what stands before a fill; more are not read
READ_CHARACTERS: Final = 3072  # that are read of the text before, at most
MAX_GIVEN_UP: Final = 1536  # of READ_CHARACTERS; the text before gives up at most so many for excerpts
GIVEN_UP_PER_AHEAD: Final = 4  # for every so many that the text before gives up, the text after gives up one
READ_SHARE: Final = 3  # up to a third of READ_CHARACTERS is left out, to begin at a stable line
BREAK: Final = "\n\n\n"  # between texts that are not adjacent
AHEAD_CHARACTERS: Final = 1200  # of the text after, at most; the prompt begins with them
AHEAD_STEP: Final = 512  # they start up to so many characters behind the lines that judge candidates
FOLLOWING_LINES: Final = 2  # non-blank lines of the text after that judge candidates, at most
FOLLOWING_CHARACTERS: Final = 120  # of these lines, at most; a single one may have twice as many
LINE_END: Final = re.compile(r"\n")
_WORD: Final = re.compile(r"\w")
WORD_BYTES: Final = 32  # of a begun word that are left to the fill; the start of a longer word is read
HASHED: Final = 32  # characters from a line start on, whose hash `find_start` compares


@dataclass(frozen=True)
class Prompt:
    """The `ids` to read. Behind them the text before ends with the bytes `pending`, so each fill must begin with these.
    With `has_suffix` the ids include the text after, between fill-in-the-middle tokens.
    """

    ids: tuple[int, ...]
    pending: bytes
    has_suffix: bool = False


def lay_prompt(
    runtime: Runtime,
    before: str,
    after: str = "",
    excerpts: Sequence[str] = (),
    *,
    is_body: bool = False,
    behind: str | None = None,
) -> Prompt:
    """Builds the prompt of a stretch: the excerpts, the end of the text before and the start of the text after, with
    fill-in-the-middle tokens. For models that were not trained with these: a part of the text after (of `behind`, by
    default of `after`), then the excerpts, then the end of the text before.
    """
    opening = runtime.tokens.opening(None)
    markers = runtime.tokens.markers
    above, num_ahead = lay_before(before, excerpts, is_body=is_body)
    if markers is not None:
        encode = runtime.loaded.tokenizer.encode
        ids_before = encode(above)[-MAX_BEFORE:]
        ids_after = encode(after[:num_ahead])[:AHEAD_CHARACTERS]  # a character may be several tokens
        marked = markers.lay(ids_before, ids_after)
        return Prompt((*opening, *marked), b"", has_suffix=True)
    shown = after if behind is None else behind
    ahead = lay_ahead(shown, num_ahead)
    ids, pending = open_edge(runtime, ahead + above)
    if not opening and not ids:
        opening = [runtime.tokens.special_ids[0]]
    return Prompt((*opening, *ids), pending)


def open_edge(runtime: Runtime, text: str) -> tuple[list[int], bytes]:
    """Returns the ids of `text` without the last ones, and the bytes of the last ones, which a fill spells again. They
    are left out because the text's end may have other tokens once it goes on. At least one is left out; of a word up to
    WORD_BYTES all, because half a word seldom has the tokens of the whole word; and all of an incomplete character.
    """
    tokenizer = runtime.loaded.tokenizer
    ids = tokenizer.encode(text)[-MAX_BEFORE:]
    if not ids:
        return [], b""
    pending = tokenizer.token_bytes(ids.pop())
    if len(pending) > 1 and pending.isspace() and pending.endswith(b" "):  # only the last space joins the next word
        ids += tokenizer.encode(pending[:-1].decode())
        pending = b" "
    while ids and pending.decode(errors="ignore").encode() != pending:  # a part of a character
        pending = tokenizer.token_bytes(ids.pop()) + pending
    while ids and (_begins_in_character(pending) or (len(pending) < WORD_BYTES and _begins_in_word(pending))):
        token_before = tokenizer.token_bytes(ids[-1])
        if not ends_in_word(token_before):
            break
        pending = token_before + pending
        ids.pop()
    return ids, pending


def ends_in_word(data: bytes) -> bool:
    """True if a text ends with a character of a word, or with a part of a character."""
    text = data.decode(errors="ignore")
    is_part = not data.endswith(text[-1:].encode())
    return bool(data) and (not text or is_part or _WORD.match(text[-1]) is not None)


def _begins_in_word(data: bytes) -> bool:
    """True if a text, which begins with a whole character, begins with one of a word."""
    return _WORD.match(data.decode(errors="ignore")) is not None


def _begins_in_character(data: bytes) -> bool:
    """True if a text begins within a character, behind its first byte."""
    return 0x80 <= data[0] < 0xC0


def lay_before(before: str, excerpts: Sequence[str], *, is_body: bool = False) -> tuple[str, int]:
    """Returns the excerpts with the end of the text before, and the number of characters to read of the text after.

    Excerpts take room from the text near the stretch, but not for a body, which mostly resembles its neighbors.
    """
    shown = "".join(text.strip("\n") + BREAK for text in excerpts)
    num_given_up = 0
    if not is_body:
        num_given_up = min(len(shown), MAX_GIVEN_UP)
    near = take_stable_end(before, READ_CHARACTERS - num_given_up)
    num_ahead = AHEAD_CHARACTERS - num_given_up // GIVEN_UP_PER_AHEAD
    return shown + near, num_ahead


def take_stable_end(text: str, max_characters: int = READ_CHARACTERS) -> str:
    """The end of `text`, at most `max_characters`, from a line start that mostly stays the same while it grows."""
    surplus = len(text) - max_characters
    if surplus <= 0:
        return text
    max_surplus = surplus + max_characters // READ_SHARE
    start = find_start(text, surplus, max_surplus)
    return text[start:]


def lay_ahead(text: str, max_characters: int = AHEAD_CHARACTERS) -> str:
    """Whole lines of the text after, behind those that judge candidates, with `max_characters` at most; then BREAK.
    "" if there are none. If the first line is long, it may lack its beginning.
    """
    num_judging = len(find_following(text))
    if not num_judging:
        return ""
    start = find_start(text, num_judging, num_judging + AHEAD_STEP)
    part = text[start : start + max_characters]
    if start + len(part) < len(text):
        part = part[: part.rfind("\n") + 1]
    if not part.strip():
        return ""
    return part.strip("\n") + BREAK


def find_start(text: str, low: int, high: int) -> int:
    """The line start between `low` and `high` whose line has the smallest hash, among the unindented lines if there are
    any. It mostly stays the same while the bounds move with the cursor, so the KV cache of the text from there on stays
    valid. `low` if no line starts between the bounds.
    """
    starts = [match.end() for match in LINE_END.finditer(text, max(0, low - 1), high)]
    unindented = [start for start in starts if text[start : start + 1].strip()]
    return min(unindented or starts, key=lambda start: crc32(text[start : start + HASHED].encode()), default=low)


def find_following(after: str) -> str:
    """The start of the text after, whose likelihood judges candidates: the rest of the line, and the next lines up to
    the second non-blank one, as far as they fit FOLLOWING_CHARACTERS. The first non-blank one is taken in any case, but
    twice as many characters at most.
    """
    num_lines = 0
    size = 0
    for line in after[: 4 * FOLLOWING_CHARACTERS].splitlines(keepends=True):
        if num_lines and size + len(line) > FOLLOWING_CHARACTERS:
            break
        size += len(line)
        num_lines += bool(line.strip())
        if num_lines == FOLLOWING_LINES:
            break
    return after[: min(size, 2 * FOLLOWING_CHARACTERS)].rstrip()
