"""Splits a byte stream into LSP messages, and resynchronizes after a bad frame. Knows no method and no document."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_HEAD_BYTES = 32 * 1024

_FIELD = rb"[A-Za-z-]+:[^\r\n]*\r\n"
_LENGTH = re.compile(rb"Content-Length: ?([0-9]{1,18})\r\n", re.IGNORECASE)
_FIELDS = re.compile(rb"(?:%b)*" % _FIELD)
_HEAD = re.compile(rb"%b(?:%b)*\Z" % (_LENGTH.pattern, _FIELD), re.IGNORECASE)


@dataclass(frozen=True)
class BadFrame:
    """Bytes that are not a message; parsing continues at the next header."""

    reason: str


class FrameParser:
    """Takes chunks of bytes, and yields messages, or BadFrame for bytes that are none; incomplete messages wait."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0  # up to this byte, an incomplete body was searched for the header of the next message

    def feed(self, chunk: bytes) -> Iterator[Any]:
        """Yields the decoded JSON of each complete message, and BadFrame for invalid bytes."""
        self._buffer += chunk
        while (blank_line := self._buffer.find(b"\r\n\r\n")) >= 0:  # a header is complete
            fields = self._buffer[: blank_line + 2]
            head = _HEAD.search(fields)
            garbage = fields[: head.start() if head else None].lstrip(b"\r\n")
            if head is None or not _FIELDS.fullmatch(garbage):
                self._drop(head.start() if head else blank_line + 4)
                if garbage:
                    yield BadFrame("the header is malformed")
                continue
            message = self._take_message(blank_line + 4, int(head[1]))
            if message is None:
                return
            yield message
        if len(self._buffer) > MAX_HEAD_BYTES:
            self._drop(len(self._buffer) - MAX_HEAD_BYTES // 2)
            yield BadFrame("the header is too long")

    def _take_message(self, start: int, num_bytes: int) -> Any:
        """The message or BadFrame whose body of `num_bytes` starts at `start`; None if the body is incomplete."""
        end = start + num_bytes
        if num_bytes > MAX_BODY_BYTES:
            self._drop(start)
            return BadFrame(f"the message is larger than {MAX_BODY_BYTES} bytes")
        # No JSON string contains a raw line ending: a header line in a body means that the body was truncated.
        next_header = _LENGTH.search(self._buffer, max(start, self._searched), end)
        if next_header is not None:
            self._drop(next_header.start())
            return BadFrame("the body ends early")
        if len(self._buffer) < end:
            self._searched = len(self._buffer) - 64
            return None
        try:
            message = json.loads(self._buffer[start:end].decode(), parse_constant=int)  # raises for NaN and infinities
        except (ValueError, RecursionError):
            self._drop(start)  # the length may be wrong: the next header may be in the body
            return BadFrame("the body is not JSON in UTF-8")
        self._drop(end)
        return message if message is not None else BadFrame("the body is null")

    def _drop(self, num_bytes: int) -> None:
        del self._buffer[:num_bytes]
        self._searched = 0
