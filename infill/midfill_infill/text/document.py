"""Holds one source file as bytes: a document. Knows text, lines and positions; of syntax only strings and comments."""

import stat
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar, Self, TypeVar

from midfill_infill.errors import MidfillError
from midfill_infill.languages import Language, find_language, get_language
from midfill_infill.text import encoding as encodings
from midfill_infill.text.lines import Lines, find_newline
from midfill_infill.text.spans import Hole, Patch

MAX_DOCUMENT_BYTES = 1024 * 1024
"""Larger files are not read: parsing them would take longer than filling."""

DEFAULT_INDENT = "    "

T = TypeVar("T")


@dataclass(frozen=True)
class Document:
    """One source file. All offsets are bytes of `data`, a byte order mark included.

    `language` is an id of the registry. In a document without a language, ranges can be filled, but no functions are
    found. `stored_as` names the encoding if the bytes themselves do not tell it. A Notebook, whose file is JSON around
    the bytes of `data`, overrides what reads and writes the file, and what tells positions to users.
    Raises MidfillError `file_binary` for binary data and `unknown_language` for an unknown id.
    """

    data: bytes
    language: str | None = None
    path: Path | None = None
    stored_as: str | None = None
    max_bytes: ClassVar[int] = MAX_DOCUMENT_BYTES

    def __post_init__(self) -> None:
        encodings.check_is_text(self.data, self.name)
        if self.language is not None:
            get_language(self.language)

    @classmethod
    def read(cls, path: Path, language: str | None = None) -> Self:
        """Reads a file; its name determines the language unless one is given. Raises MidfillError."""
        return cls.from_bytes(read_bytes(path, cls.max_bytes), path, language)

    @classmethod
    def from_bytes(cls, data: bytes, path: Path, language: str | None = None) -> Self:
        """A document of `data`, which the file at `path` need not have. Raises MidfillError."""
        if len(data) > MAX_DOCUMENT_BYTES:
            raise _too_large_error(path.name, len(data))
        return cls(data, language or find_language(path, data), path)

    @classmethod
    def from_text(cls, text: str, language: str | None = None, path: Path | None = None) -> "Document":
        """A document as an editor holds it: UTF-8, whatever the file on disk says. Raises MidfillError."""
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > MAX_DOCUMENT_BYTES:
            raise _too_large_error(path.name if path else "the document", len(data))
        if not language and path is not None:
            language = find_language(path, data)
        return cls(data, language, path, stored_as="utf-8")

    @cached_property
    def _derived(self) -> tuple[RLock, dict[tuple[object, ...], Any]]:
        """A lock, which `read` may take again, and the results that `derive` keeps, by function and arguments."""
        return RLock(), {}

    def derive(self, read: Callable[..., T], *arguments: Hashable) -> T:
        """The result of `read(document, *arguments)`, which is computed once and kept with the document. `read` is a
        function of a module: a lambda would never be found again.
        """
        lock, derived = self._derived
        key = (read, *arguments)
        with lock:
            if key not in derived:
                derived[key] = read(self, *arguments)
            result: T = derived[key]
            return result

    def with_patch(self, patch: Patch) -> "Document":
        """The document with a patch applied."""
        return replace(self, data=patch.apply(self.data))

    @property
    def original(self) -> bytes:
        """The file's bytes before any fill."""
        return self.data

    def apply(self, patch: Patch) -> bytes:
        """The file's bytes after edits of the document."""
        return patch.apply(self.data)

    @property
    def name(self) -> str:
        """The file's name, or words for a document without one, for messages."""
        return self.path.name if self.path else "the document"

    @cached_property
    def syntax(self) -> Language | None:
        """What is registered for the id `language`."""
        if self.language is None:
            return None
        return get_language(self.language)

    @cached_property
    def encoding(self) -> str:
        has_cookie = self.syntax is not None and self.syntax.has_coding_cookie
        return self.stored_as or encodings.find_encoding(self.data, has_cookie=has_cookie)

    @property
    def bom(self) -> bytes:
        """The byte order mark of UTF-8, if the file has one."""
        if self.data.startswith(encodings.UTF8_BOM):
            return encodings.UTF8_BOM
        return b""

    @cached_property
    def text(self) -> str:
        """The whole text without the byte order mark; line ends are kept, undecodable bytes are lone surrogates."""
        return self.decode(len(self.bom), len(self.data))

    @cached_property
    def lines(self) -> Lines:
        return Lines(self.data, self._find_inert_lines)

    @cached_property
    def newline(self) -> str:
        r"""The most frequent line end: `\n`, `\r\n` or `\r`."""
        return find_newline(self.data)

    @cached_property
    def indent_unit(self) -> str:
        """One level of indentation: a tab or some spaces as in the file, else the language's default."""
        return self.lines.indent_unit or (self.syntax.indent if self.syntax else DEFAULT_INDENT)

    @cached_property
    def source(self) -> bytes:
        """The document in UTF-8 as the parser reads it. `to_source` and `to_data` convert offsets."""
        return encodings.to_source(encodings.decode(self.data, self.encoding))

    @cached_property
    def source_lines(self) -> Lines:
        """Lines of `source`, numbered as those of `data` are."""
        return Lines(self.source, self._find_inert_lines)

    def _find_inert_lines(self) -> frozenset[int]:
        """The lines that begin inside of a string or comment; none without a grammar."""
        if self.syntax is None:
            return frozenset()
        inert: set[int] = set()
        for start, end in self.syntax.list_texts(self.source):
            first = self.source_lines.at(start)
            last = self.source_lines.at(max(start, end - 1))
            inert.update(range(first + 1, last + 1))
        return frozenset(inert)

    @cached_property
    def _offsets(self) -> encodings.OffsetMap | None:
        """Converts offsets; None if they are the same in `data` and `source`."""
        if self.encoding in ("utf-8", "ascii"):
            return None
        return encodings.OffsetMap.build(self.data, self.encoding)

    def to_source(self, data_byte: int) -> int:
        """The offset in `source` of the character that an offset in `data` is in."""
        if self._offsets is None:
            return data_byte
        return self._offsets.to_source(data_byte)

    def to_data(self, source_byte: int) -> int:
        """The offset in `data` of the character that an offset in `source` is in."""
        if self._offsets is None:
            return source_byte
        return self._offsets.to_data(source_byte)

    def decode(self, start_byte: int, end_byte: int) -> str:
        """The text of a byte range that starts and ends between characters."""
        return encodings.decode(self.data[start_byte:end_byte], self.encoding)

    def visible_text(self, start_byte: int, end_byte: int) -> str:
        r"""A byte range as a model reads it: `\n` line ends, no byte order mark, U+FFFD for undecodable bytes."""
        return encodings.to_visible(self.normalized_text(start_byte, end_byte))

    def normalized_text(self, start_byte: int, end_byte: int) -> str:
        r"""A byte range with `\n` line ends and without a byte order mark; undecodable bytes are lone surrogates."""
        first = len(self.bom)
        text = self.decode(max(start_byte, first), max(end_byte, first))
        return encodings.to_line_feeds(text)

    def texts_around(self, holes: Sequence[Hole]) -> list[str]:
        """The normalized texts before, between and behind `holes`, which are in document order."""
        starts = [0, *(hole.end_byte for hole in holes)]
        ends = [*(hole.start_byte for hole in holes), len(self.data)]
        return list(map(self.normalized_text, starts, ends))

    def encode(self, text: str) -> bytes:
        r"""The bytes of a text with `\n` line ends, for this document. Lone surrogates stand for undecodable bytes.

        Raises MidfillError `file_encoding` for characters that the encoding lacks, and for all but ASCII in a file that
        claims to be UTF-8 and is not.
        """
        data = encodings.encode(text.replace("\n", self.newline), self.encoding)
        non_ascii = next((char for char in text if not char.isascii() and encodings.is_decoded(char)), None)
        if non_ascii is not None and self._is_invalid_utf8:
            message = f"the fill holds U+{ord(non_ascii):04X}, and {self.name} is not valid UTF-8"
            raise MidfillError("file_encoding", message)
        if self.encoding == "ascii":  # it stands in for a codec that is not read, such as UTF-7, where "+" means more
            encodings.check_ascii(text, encodings.find_cookie(self.data))
        return data

    @cached_property
    def _is_invalid_utf8(self) -> bool:
        """True for a file that claims to be UTF-8 and has bytes that are not."""
        return self.stored_as is None and self.encoding == "utf-8" and not encodings.is_decoded(self.text)

    @property
    def num_lines(self) -> int:
        return len(self.lines)

    def offset_at(self, line: int, column: int) -> int:
        """The byte at a position as users write it: line and column from 1, columns in code points, the line's end
        included. Raises MidfillError `position_outside`.
        """
        if not 1 <= line <= self.num_lines:
            plural = "" if self.num_lines == 1 else "s"
            raise MidfillError("position_outside", f"{self.name} has {self.num_lines} line{plural}, not {line}")
        start = self.lines.start(line - 1)
        text = self.decode(start, self.lines.end(line - 1))
        if not 1 <= column <= len(text) + 1:
            message = f"line {line} of {self.name} ends at column {len(text) + 1}"
            raise MidfillError("position_outside", f"{message}, column {column} is outside")
        before = encodings.to_source(text[: column - 1])
        return self.to_data(self.to_source(start) + len(before))

    def position_at(self, byte: int) -> tuple[int, int]:
        """Line and column of a byte of the document, both counted from 1, columns in code points."""
        line = self.lines.at(byte)
        start = self.lines.start(line)
        before = self.decode(start, max(start, byte))
        return line + 1, len(before) + 1

    def where(self, byte: int) -> str:
        """File and line of a byte, as the command writes them: `t.py:3`."""
        return f"{self.path or 'text'}:{self.lines.at(byte) + 1}"

    def cell_at(self, byte: int) -> tuple[int | None, int]:
        """Number and first byte of the notebook cell that holds a byte; in other files None and 0."""
        return None, 0

    def snap(self, byte: int) -> int:
        r"""The last offset at or before `byte` that splits no character and no `\r\n`; behind the byte order mark for a
        byte in it. Raises MidfillError `position_outside`.
        """
        if not 0 <= byte <= len(self.data):
            raise MidfillError("position_outside", f"{self.name} has {len(self.data)} bytes, byte {byte} is outside")
        byte = max(byte, len(self.bom))
        if self.data[byte - 1 : byte + 1] == b"\r\n":
            return byte - 1
        if self._offsets is not None:
            return self.to_data(self.to_source(byte))
        for start in range(byte - 1, max(byte - 4, -1), -1):
            if _splits_character(self.data, start, byte):
                return start
        return byte


def _splits_character(data: bytes, start: int, byte: int) -> bool:
    """True if one UTF-8 character begins at `start` and ends behind `byte`."""
    for end in range(byte + 1, min(start + 4, len(data)) + 1):
        try:
            return len(data[start:end].decode("utf-8")) == 1
        except UnicodeDecodeError:
            continue
    return False


def _too_large_error(name: str, size: int, max_bytes: int = MAX_DOCUMENT_BYTES) -> MidfillError:
    return MidfillError("file_too_large", f"{name} has {size // 1024} KiB, the limit is {max_bytes // 1024} KiB")


def read_bytes(path: Path, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """The bytes of a file. Raises MidfillError if it is not a file, cannot be read or has more than `max_bytes`."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise MidfillError("file_is_directory", f"{path} is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise MidfillError("file_unreadable", f"{path} is not a regular file", "name a regular file")
        if status.st_size > max_bytes:
            raise _too_large_error(str(path), status.st_size, max_bytes)
        return path.read_bytes()
    except FileNotFoundError:
        raise MidfillError("file_missing", f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # ValueError for a path with a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise MidfillError("file_unreadable", f"{path} cannot be read: {reason}") from None
