"""Splits a byte stream into LSP messages, and resynchronizes after a bad frame. Knows no method and no document."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_HEAD_BYTES = 32 * 1024

_FIELD = rb"[A-Za-z-]+:[^\r\n]*\r\n"
_LENGTH = rb"Content-Length: ?([0-9]{1,18})\r\n"
_HEAD = re.compile(rb"(?:%b)*?%b(?:%b)*" % (_FIELD, _LENGTH, _FIELD), re.IGNORECASE)
_LAST_HEAD = re.compile(rb"%b(?:%b)*\Z" % (_LENGTH, _FIELD), re.IGNORECASE)
_RAW_LENGTH = re.compile(_LENGTH, re.IGNORECASE)


@dataclass(frozen=True)
class BadFrame:
    """Bytes that are no message; parsing continues at the next header."""

    reason: str


class FrameParser:
    """Bytes in, messages out. Every byte sequence yields messages, bad frames, or waits for more."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._body_bytes: int | None = None
        self._skipping = False

    @property
    def unfinished(self) -> bool:
        return bool(self._buffer) or self._body_bytes is not None

    def feed(self, chunk: bytes) -> Iterator[Any]:
        """Yields the decoded JSON of each complete message, and BadFrame for invalid bytes."""
        self._buffer += chunk
        more = True
        while more:
            more, found = self._take_head() if self._body_bytes is None else self._take_body(len(chunk))
            if found is not None:
                yield found

    def _take_head(self) -> tuple[bool, BadFrame | None]:
        if not self._skipping:
            del self._buffer[: len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))]
        head, blank_line, rest = self._buffer.partition(b"\r\n\r\n")
        if len(head) > MAX_HEAD_BYTES:
            del self._buffer[: len(head) - MAX_HEAD_BYTES // 2]
            return True, self._skip("the header is too long")
        if not blank_line:
            return False, None
        head += b"\r\n"
        good = _HEAD.fullmatch(head)
        match = good or _LAST_HEAD.search(head)
        self._buffer = rest
        if match is None:
            return True, self._skip("the header has no valid Content-Length")
        problem = None if good else self._skip("the header is malformed")
        self._body_bytes, self._skipping = int(match[1]), False
        if self._body_bytes <= MAX_BODY_BYTES:
            return True, problem
        self._body_bytes = None
        return True, self._skip(f"the message is larger than {MAX_BODY_BYTES} bytes")

    def _take_body(self, new_bytes: int) -> tuple[bool, Any]:
        assert self._body_bytes is not None
        if len(self._buffer) < self._body_bytes:
            return self._look_for_cut(len(self._buffer) - new_bytes - 64)
        body, self._body_bytes = bytes(self._buffer[: self._body_bytes]), None
        try:
            message = json.loads(body.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            # The length may be wrong, so the body is kept and searched for the next header.
            return True, self._skip("the body is not JSON in UTF-8")
        del self._buffer[: len(body)]
        return True, message if message is not None else BadFrame("the body is null")

    def _look_for_cut(self, start: int) -> tuple[bool, BadFrame | None]:
        """A raw line ending cannot occur inside a JSON string: a header line in a body means that the body was
        truncated.
        """
        if (match := _RAW_LENGTH.search(self._buffer, max(start, 0))) is None:
            return False, None
        del self._buffer[: match.start()]
        self._body_bytes = None
        return True, BadFrame("the body ends early")

    def _skip(self, reason: str) -> BadFrame | None:
        """Reports only the first error until a header is found again."""
        already, self._skipping = self._skipping, True
        return None if already else BadFrame(reason)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
