"""Limits connections: deadlines for requests and answers, a number for each peer. Knows bytes and time, no routes."""

import asyncio
import itertools
import resource
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from midfill_engine.wire import ErrorBody, ErrorCode, ErrorResponse

RESERVED_FILES: Final = 64  # file descriptors that are not connections


@dataclass
class ConnectionLimits:
    """Limits of a server's connections, how many are `open` for each peer, and numbers for new ones. All clients of a
    unix socket are the same user, so only `max_connections` applies to them.

    `request_timeout_s` is the time from the connect, or the first byte, to the last byte of a request. A client may
    leave an answer unread for `send_timeout_s`.
    """

    request_timeout_s: float = 10.0
    send_timeout_s: float = 30.0
    max_per_peer: int = 256
    max_connections: int = 4096
    open: Counter[str] = field(default_factory=Counter)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def is_full(self, peer: str) -> bool:
        return self.open.total() >= self.max_connections or bool(peer and self.open[peer] >= self.max_per_peer)


def raise_file_limit() -> int:
    """Raises the limit of file descriptors as far as allowed; returns the number of connections that it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = hard if hard != resource.RLIM_INFINITY else 65536
    if soft != resource.RLIM_INFINITY and soft < limit:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (ValueError, OSError):  # macOS allows less than it reports
            limit = soft
    return min(4096, limit - RESERVED_FILES)


class TimedProtocol(H11Protocol):
    """uvicorn's h11 connection with deadlines for half-sent requests and unread answers."""

    limits = ConnectionLimits()

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], **loop: Any) -> None:
        super().__init__(config, server_state, {**app_state, "connection": next(self.limits.numbers)}, **loop)
        self._request_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._unread_bytes, self._was_read = 0, False  # at the last check of the reader, and since then
        self._peer: str | None = None  # None while the connection is not counted

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = self.client[0] if self.client else ""
        if self.limits.is_full(peer):
            transport.write(self._refusal(503, ErrorCode.BUSY, "too many connections are open", b"retry-after: 1\r\n"))
            transport.close()
            return
        self._peer = peer
        self.limits.open[peer] += 1
        self._start_request_timer()
        self._reader_timer = self.loop.call_later(self.limits.send_timeout_s, self._check_reader)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():  # already refused
            return
        super().data_received(data)
        if self.conn.their_state in {h11.IDLE, h11.SEND_BODY}:  # the request is not complete
            self._start_request_timer()
        else:
            self._stop_request_timer()

    def resume_writing(self) -> None:
        self._was_read = True
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_request_timer()
        if self._reader_timer is not None:
            self._reader_timer.cancel()
        if self._peer is not None:
            self.limits.open[self._peer] -= 1
            self.limits.open += Counter()  # drops peers with no connection
            self._peer = None
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answers invalid HTTP with JSON, unless that would look like the answer to another request."""
        may_answer = self.cycle is None or self.cycle.response_complete
        if not may_answer:
            may_answer = self.cycle.more_body and not self.cycle.response_started
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not may_answer or self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE} or self.transport.is_closing():
            self.transport.close()
            return
        self.transport.write(self._refusal(400, ErrorCode.BAD_REQUEST, "this is not a valid HTTP request"))
        self.transport.close()

    def _refusal(self, status: int, code: ErrorCode, message: str, headers: bytes = b"") -> bytes:
        """A complete answer to a connection whose request was not read."""
        content = ErrorResponse(error=ErrorBody(code=code, message=message)).model_dump_json().encode()
        return (
            b"HTTP/1.1 %d \r\ncontent-type: application/json\r\nconnection: close\r\n%scontent-length: %d\r\n\r\n%s"
        ) % (status, headers, len(content), content)

    def _check_reader(self) -> None:
        """Aborts a connection, even a closing one, whose client has read nothing since the last check."""
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes >= self._unread_bytes > 0 and not self._was_read:
            self.transport.abort()
            return
        self._unread_bytes, self._was_read = unread_bytes, False
        self._reader_timer = self.loop.call_later(self.limits.send_timeout_s, self._check_reader)

    def _start_request_timer(self) -> None:
        """Starts the timer, unless it runs already."""
        if self._request_timer is None:
            self._request_timer = self.loop.call_later(self.limits.request_timeout_s, self._expire)

    def _stop_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _expire(self) -> None:
        """Ends a connection whose request is late, at once if an answer is still unread."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()


def timed_protocol(limits: ConnectionLimits) -> type[TimedProtocol]:
    """The class of a server's connections, as uvicorn takes it."""
    return type("LimitedProtocol", (TimedProtocol,), {"limits": limits})
