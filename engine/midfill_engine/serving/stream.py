"""Carries a fill's events from the worker thread to an HTTP answer. Does not interpret events."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from midfill_engine.errors import RequestError
from midfill_engine.scheduling.scheduler import Scheduler
from midfill_engine.scheduling.turns import Event, Ticket
from midfill_engine.wire import ErrorCode, InfillRequest, InfillResponse, StepEvent

PING_INTERVAL_S: Final = 15.0
MAX_STEPS_KEPT: Final = 16
EVENTS: Final = "text/event-stream"  # the media type


class Mailbox:
    """Holds the latest events of a request. A slow reader misses the oldest steps, but never the last event."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.events = asyncio.Queue[Event]()

    def post(self, event: Event) -> None:
        """Adds an event; the worker thread calls it."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._put, event)

    def _put(self, event: Event) -> None:
        if isinstance(event, StepEvent) and self.events.qsize() >= MAX_STEPS_KEPT:
            self.events.get_nowait()  # it is a step, because the event that is none comes last
        self.events.put_nowait(event)

    async def end(self) -> InfillResponse:
        """Waits for the last event, and returns the answer. Raises RequestError."""
        while True:
            event = await self.events.get()
            if isinstance(event, RequestError):
                raise event
            if isinstance(event, InfillResponse):
                return event


def client_of(http: Request) -> str:
    """The client for fair scheduling: the token's name if tokens have names, otherwise the connection."""
    token_name: str = getattr(http.state, "token_name", "")
    connection: int | None = getattr(http.state, "connection", None)
    return token_name if token_name or connection is None else f"connection {connection}"


class Asked:
    """The requests behind one HTTP answer, submitted all or none. `watches`: it sees steps. Raises RequestError."""

    def __init__(
        self, http: Request, scheduler: Scheduler, requests: Sequence[InfillRequest], *, watches: bool = False
    ) -> None:
        self._http = http
        self._mailboxes = [Mailbox() for _ in requests]
        self._tickets: list[Ticket] = []
        try:
            for request, mailbox in zip(requests, self._mailboxes, strict=True):
                self._tickets.append(scheduler.submit(request, mailbox.post, client_of(http), watches=watches))
        except RequestError:
            self.cancel()
            raise

    def cancel(self) -> None:
        for ticket in self._tickets:
            ticket.cancel()

    async def ends(self) -> list[InfillResponse]:
        """The answers of all requests. Raises RequestError if one fails."""
        return [await mailbox.end() for mailbox in self._mailboxes]

    async def wait(self) -> list[InfillResponse]:
        """The answers of all requests. If the client disconnects, cancels the work. Raises RequestError."""
        answers, leaving = asyncio.ensure_future(self.ends()), asyncio.ensure_future(self._wait_for_disconnect())
        try:
            await asyncio.wait({answers, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answers.done():
                raise RequestError(ErrorCode.CANCELLED, "the client went away")
            return answers.result()
        finally:
            self.cancel()
            answers.cancel()
            leaving.cancel()
            await asyncio.gather(answers, leaving, return_exceptions=True)

    async def _wait_for_disconnect(self) -> None:
        while (await self._http.receive())["type"] != "http.disconnect":
            pass

    async def events(self) -> AsyncIterator[bytes]:
        """The first request's server-sent events: `step`, then `done` or `error`."""
        while True:
            try:
                event = await asyncio.wait_for(self._mailboxes[0].events.get(), PING_INTERVAL_S)
            except TimeoutError:
                yield KEEPALIVE_COMMENT
                continue
            match event:
                case StepEvent():
                    yield encode_event(event, "step")
                    continue
                case RequestError():
                    yield encode_event(event.body, "error")
                case InfillResponse():
                    yield encode_event(event, "done")
            return


def encode_event(message: object, name: str | None = None) -> bytes:
    """A server-sent event with the message as JSON."""
    return format_sse_event(data_str=to_json(message).decode(), event=name)


class EventStream(StreamingResponse):
    """A stream of server-sent events that cancels its requests when it ends."""

    def __init__(self, events: AsyncIterator[bytes], asked: Asked) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(events, headers=headers, media_type=EVENTS)
        self._asked = asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._asked.cancel()
