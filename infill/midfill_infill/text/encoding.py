"""Decodes and encodes a document's bytes and tells which bytes each character has. Knows encodings, no syntax."""

import codecs
import re
from bisect import bisect_right
from dataclasses import dataclass

from midfill_infill.errors import MidfillError

UTF8_BOM = codecs.BOM_UTF8
_OTHER_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK_OR_COMMENT = re.compile(rb"^[ \t\f]*(?:#.*)?$")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ASCII = rb"\u12" + bytes(range(128)) + b"\x1b$B0!\x1b(B"
"""Bytes that a usable codec decodes as ASCII. The truncated escape is first: a codec that decodes escapes fails there
before it warns about others. The last bytes are a character of ISO 2022.
"""
_COOKIE_START = "# coding"
UNDECODED = "\x1a"
"""Stands for an undecodable byte in the source: the control character SUBSTITUTE."""


def check_is_text(data: bytes, name: str) -> None:
    """Raises MidfillError `file_binary` for NUL bytes, and for UTF-16 and UTF-32, which have many."""
    if data.startswith(_OTHER_BOMS):
        raise MidfillError("file_binary", f"{name} is UTF-16 or UTF-32", "save it as UTF-8")
    if b"\0" in data:
        raise MidfillError("file_binary", f"{name} holds NUL bytes")


def find_encoding(data: bytes, *, has_cookie: bool) -> str:
    """The codec's name: UTF-8 unless a PEP 263 cookie names another one, in a language that `has_cookie`.

    A byte order mark wins over the cookie. The codec is "ascii" if Python does not know the named one, if that is no
    stateless superset of ASCII, or if it does not tell which bytes of `data` each character has. Then other bytes are
    kept, and only ASCII can be filled in.
    """
    name = find_cookie(data) if has_cookie and not data.startswith(UTF8_BOM) else "utf-8"
    try:
        codec = codecs.lookup(name).name
        keeps_ascii = _ASCII.decode(codec, "surrogateescape") == _ASCII.decode("ascii")
    except (LookupError, ValueError):
        return "ascii"
    if codec in ("utf-8", "utf-8-sig"):
        return "utf-8"
    return codec if keeps_ascii and _is_exact(data, codec) else "ascii"


def find_cookie(data: bytes) -> str:
    """The encoding that a PEP 263 cookie in the first two lines names; UTF-8 without a cookie."""
    for line in re.split(rb"\r\n|\n|\r", data[:4096])[:2]:
        cookie = _COOKIE.match(line)
        if cookie is not None:
            return cookie.group(1).decode("ascii", "replace")
        if not _BLANK_OR_COMMENT.match(line):
            break
    return "utf-8"


def _is_exact(data: bytes, codec: str) -> bool:
    """True if a codec tells which bytes of `data` each character has."""
    try:
        characters = _decode_each(data, codec)
    except ValueError:
        return False
    if sum(size for _, size in characters) != len(data):
        return False
    return "".join(char for char, _ in characters) == decode(data, codec)


def decode(data: bytes, encoding: str) -> str:
    """Decodes `data`; undecodable bytes become lone surrogates, one each (PEP 383)."""
    return data.decode(encoding, "surrogateescape")


def encode(text: str, encoding: str) -> bytes:
    """The bytes of a fill; lone surrogates stand for undecodable bytes. Raises MidfillError `file_encoding` for a
    character that `encoding` lacks or decodes as another one, as Shift JIS and EUC-JP do with a yen sign.
    """
    try:
        data = text.encode(encoding, "surrogateescape")
    except UnicodeEncodeError as error:
        raise _lacking_error(encoding, text[error.start]) from None
    back = decode(data, encoding)
    if back != text:
        changed = (char for char, decoded in zip(text, back, strict=False) if char != decoded)
        raise _lacking_error(encoding, next(changed, text[-1]))
    return data


def check_ascii(text: str, encoding: str) -> None:
    """Raises MidfillError `file_encoding` for an ASCII character with another meaning in `encoding`, such as the plus
    sign of UTF-7. Ignores an encoding that Python does not know, or in which no file could name it in a cookie.
    """
    if all(_keeps(char, encoding) for char in _COOKIE_START):
        for char in dict.fromkeys(text):
            if not _keeps(char, encoding):
                raise _lacking_error(encoding, char)


def _keeps(char: str, encoding: str) -> bool:
    """True if the byte of an ASCII character means the same character in `encoding`."""
    try:
        return char.encode("ascii").decode(encoding) == char
    except (LookupError, ValueError):
        return False


def _lacking_error(encoding: str, char: str) -> MidfillError:
    return MidfillError("file_encoding", f"the fill holds U+{ord(char):04X}, which {encoding} lacks")


def is_decoded(text: str) -> bool:
    """True if `text` holds no lone surrogate, which would stand for an undecodable byte."""
    return text.isascii() or _SURROGATES.search(text) is None


def to_source(text: str) -> bytes:
    r"""UTF-8 for the parser. It has `\n` for a lone `\r`, which the parser takes for no line end, and the byte
    `UNDECODED` for each undecodable byte.
    """
    if not text.isascii():
        text = _SURROGATES.sub(UNDECODED, text)
    if "\r" in text:
        text = re.sub(r"\r(?!\n)", "\n", text)
    return text.encode("utf-8")


def to_line_feeds(text: str) -> str:
    r"""The text with `\n` for every line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def to_visible(text: str) -> str:
    r"""The text as a model reads it: every line end is `\n`, undecodable bytes are U+FFFD."""
    visible = to_line_feeds(text)
    if text.isascii():
        return visible
    return _SURROGATES.sub("\ufffd", visible)


@dataclass(frozen=True)
class OffsetMap:
    """The starts of each character in the document's bytes and in its UTF-8 source; both lists end with the length."""

    data_starts: list[int]
    source_starts: list[int]

    @classmethod
    def build(cls, data: bytes, encoding: str) -> "OffsetMap":
        data_starts, source_starts = [0], [0]
        for char, size in _decode_each(data, encoding):
            data_starts.append(data_starts[-1] + size)
            source_starts.append(source_starts[-1] + len(to_source(char)))
        assert data_starts[-1] == len(data)
        return cls(data_starts, source_starts)

    def to_data(self, source_byte: int) -> int:
        """The start in the document's bytes of the character that an offset in the source is in."""
        return self.data_starts[bisect_right(self.source_starts, source_byte) - 1]

    def to_source(self, data_byte: int) -> int:
        """The start in the source of the character that an offset in the document's bytes is in."""
        return self.source_starts[bisect_right(self.data_starts, data_byte) - 1]


def _decode_each(data: bytes, encoding: str) -> list[tuple[str, int]]:
    """Each character of `data` with its number of bytes."""
    text = decode(data, encoding)
    if len(text) == len(data):
        return [(char, 1) for char in text]
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
    characters: list[tuple[str, int]] = []
    pending = 0
    for index in range(len(data)):
        pending += 1
        decoded = decoder.decode(data[index : index + 1], final=index + 1 == len(data))
        for position, char in enumerate(decoded):
            is_last = position + 1 == len(decoded)
            size = pending if is_last else min(1, pending)
            characters.append((char, size))
            pending -= size
    return characters
