"""A connection that does not wait for ever: requests arrive in time or it closes. Knows bytes and time, no routes."""

import asyncio
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from midfill_engine.wire import ErrorBody, ErrorCode, ErrorResponse

REQUEST_TIMEOUT_S: Final = 10.0  # from the first byte (or the connection) to the last byte of a request


class TimedProtocol(H11Protocol):
    """uvicorn's h11 connection with a deadline for half-sent requests, which uvicorn keeps open without end."""

    request_timeout_s = REQUEST_TIMEOUT_S
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in {h11.IDLE, h11.SEND_BODY}:
            self._arm()
        else:
            self._disarm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """For bytes that are no HTTP: JSON as ever, unless it would pass for another request's answer."""
        is_free = self.cycle is None or self.cycle.response_complete
        if not is_free:
            is_free = self.cycle.more_body and not self.cycle.response_started
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not is_free or self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE} or self.transport.is_closing():
            self.transport.close()
            return
        error = ErrorBody(code=ErrorCode.BAD_REQUEST, message="this is not a valid HTTP request")
        content = ErrorResponse(error=error).model_dump_json().encode()
        headers = [("content-type", "application/json"), ("connection", "close"), ("content-length", str(len(content)))]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=content), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _arm(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.request_timeout_s, self._expire)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()
