"""Answers HTTP requests: routes, bodies, errors. Knows the wire and the scheduler; loads no torch."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from fastapi import FastAPI, Request
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from midfill_engine import wire
from midfill_engine.errors import RequestError, StartError
from midfill_engine.scheduling.scheduler import Scheduler, ending_error
from midfill_engine.serving import fim, llamacpp
from midfill_engine.serving.access import AccessLogger
from midfill_engine.serving.security import Gate, Security, error_response
from midfill_engine.serving.stream import EVENTS, PING_INTERVAL_S, Asked, EventStream, encode_event
from midfill_engine.starting import AccessLog

# Below the connection's deadline, so that a slow client still gets an answer.
BODY_TIMEOUT_S: Final = 8.0
MAX_ERROR_CHARACTERS: Final = 300

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Ready:
    """A loaded model: what `/v1/models` tells of it, the names that requests may use for it, and its scheduler."""

    info: wire.ModelInfo
    names: tuple[str, ...]
    scheduler: Scheduler


@dataclass
class EngineState:
    """State shared by the service, the loader and the idle watch. `failure` ends the process. Every request for a model
    is activity, but not one that only watches the engine, as monitors do.
    """

    ready: Ready | None = None
    failure: StartError | None = None
    last_request_s: float = field(default_factory=time.monotonic)
    is_draining: bool = False
    idle_timeout_s: float | None = None

    def use(self, model: str | None = None) -> Ready:
        """The model for a request, which counts as activity. Raises RequestError as `look` does."""
        self.last_request_s = time.monotonic()
        return self.look(model)

    def look(self, model: str | None = None) -> Ready:
        """The model. Raises RequestError while it is loading, while the process ends, and for another model's name."""
        if self.is_draining:
            raise ending_error()
        if self.ready is None:
            message, headers = "the model is still loading", {"retry-after": "1"}
            raise RequestError(wire.ErrorCode.BUSY, message, "try again", status=503, headers=headers)
        if model is not None and model not in self.ready.names:
            message = f"There is no model named {model!r} here; known: {', '.join(dict.fromkeys(self.ready.names))}."
            raise RequestError(wire.ErrorCode.UNKNOWN_MODEL, message, "leave the model out, or see /v1/models")
        return self.ready

    @property
    def status(self) -> str:
        if self.is_draining:
            return "draining"
        return "loading" if self.ready is None else "ok"

    @property
    def num_open(self) -> int:
        """How many requests are open."""
        return 0 if self.ready is None else self.ready.scheduler.num_open

    @property
    def idle_s(self) -> float:
        """Seconds since the last request began or ended; 0 while one is open or the model is loading."""
        if self.ready is None or self.num_open:
            self.last_request_s = time.monotonic()
        return time.monotonic() - self.last_request_s


def create_app(state: EngineState, security: Security, access_log: AccessLog = "off") -> FastAPI:
    """The ASGI application. It parses bodies itself, so that every error has the same shape."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(Gate, security=security)
    app.add_middleware(AccessLogger, log=access_log, is_ending=lambda: state.is_draining)
    app.add_exception_handler(RequestError, answer_error)
    app.add_exception_handler(HTTPException, answer_error)

    get = partial(app.api_route, methods=["GET", "HEAD"], response_model=None)

    @get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": state.status}

    @get("/readyz")
    async def readyz() -> Response:
        if state.status == "ok":
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": state.status}, 503, {"retry-after": "1"})

    @get("/v1/models")
    async def models() -> Response:
        return json_response(wire.ModelList(data=[state.use().info]))

    @get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        return json_response(state.use(name).info)

    @get("/health")
    async def health() -> Response:
        """llama.cpp's route, whose clients read the HTTP status."""
        if state.status == "ok":
            return JSONResponse({"status": "ok"})
        error = {"code": 503, "message": f"the engine is {state.status}", "type": "unavailable_error"}
        return JSONResponse({"error": error}, 503, {"retry-after": "1"})

    @get("/props")
    async def props() -> Response:
        times = {"idle_s": round(state.idle_s, 1), "idle_timeout_s": state.idle_timeout_s}
        return JSONResponse(llamacpp.describe_server(state.look().info) | times)

    @get("/metrics")
    async def metrics() -> Response:
        return Response(state.look().scheduler.metrics.show(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.post("/v1/infill", response_model=None)
    async def infill(http: Request) -> Response:
        request = await read_body(http, wire.InfillRequest)
        asked = Asked(http, state.use(request.model).scheduler, [request], watches=request.stream)
        if request.stream:
            return EventStream(asked.events(), asked)
        (answer,) = await asked.wait()
        return json_response(answer)

    for path, door in DOORS.items():
        app.add_api_route(path, partial(answer_door, state, door), methods=["POST"], response_model=None)
    return app


@dataclass(frozen=True)
class Door:
    """A route for clients of another project: `to_infill` translates a request, `from_infill` the answers. A stream
    `ends_with_done` if these clients wait for `data: [DONE]`.
    """

    request: type[fim.ForeignRequest]
    to_infill: Callable[[Any], list[wire.InfillRequest]]
    from_infill: Callable[[Any, list[wire.InfillResponse]], object]
    ends_with_done: bool = True


# The escape of a surrogate in JSON, with escaped backslashes before it. These and a pair of surrogates are kept.
SURROGATE: Final = re.compile(
    rb"(?<!\\)(?P<kept>(?:\\\\)*+)"
    rb"(?:(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)

DOORS: Final = {
    "/v1/fim/completions": Door(fim.FimRequest, fim.to_infill, fim.from_infill),
    "/v1/completions": Door(fim.CompletionRequest, fim.to_infill, fim.from_infill),
    "/infill": Door(llamacpp.LlamaInfillRequest, llamacpp.to_infill, llamacpp.from_infill, ends_with_done=False),
    "/completion": Door(
        llamacpp.LlamaInfillRequest, llamacpp.completion_to_infill, llamacpp.from_infill, ends_with_done=False
    ),
}


async def answer_door(state: EngineState, door: Door, http: Request) -> Response:
    """Answers a request at another project's route. Raises RequestError."""
    request = await read_body(http, door.request)
    if isinstance(request, llamacpp.LlamaInfillRequest) and request.n_predict == 0:
        answer = llamacpp.answer_nothing(request, state.use(request.model or None).info.id)
        return Response(encode_event(answer), media_type=EVENTS) if request.stream else json_response(answer)
    with invalid_values_refused():
        requests = door.to_infill(request)
    asked = Asked(http, state.use(requests[0].model).scheduler, requests)
    if request.stream:
        return EventStream(stream_whole(asked, door, request), asked)
    return json_response(door.from_infill(request, await asked.wait()))


async def stream_whole(asked: Asked, door: Door, request: fim.ForeignRequest) -> AsyncIterator[bytes]:
    """Streams the whole text as one chunk, because any part may change until the last step; if it fails, an error.

    Before that, empty lines keep the connection open: proxies close a silent one, and clients stop at comments.
    """
    answers = asyncio.ensure_future(asked.ends())
    try:
        while True:
            done, _ = await asyncio.wait({answers}, timeout=PING_INTERVAL_S)
            if done:
                break
            yield b"\n"
        yield encode_event(door.from_infill(request, answers.result()))
    except RequestError as error:
        yield encode_event(wire.ErrorResponse(error=error.body))
    finally:
        answers.cancel()
    if door.ends_with_done:
        yield b"data: [DONE]\n\n"


async def read_body(http: Request, model: type[M]) -> M:
    """Reads and validates a JSON body of at most `MAX_BODY_BYTES`. Raises RequestError."""
    body = bytearray()
    message = f"the body is larger than {wire.MAX_BODY_BYTES} bytes"
    too_large = RequestError(wire.ErrorCode.TOO_LARGE, message, "send less context")
    if int(http.headers.get("content-length", "0")) > wire.MAX_BODY_BYTES:
        raise too_large
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in http.stream():
                body += chunk
                if len(body) > wire.MAX_BODY_BYTES:
                    raise too_large
    except TimeoutError as error:
        closing = {"connection": "close"}
        message = f"the body did not arrive within {BODY_TIMEOUT_S:.0f} seconds"
        raise RequestError(wire.ErrorCode.BAD_REQUEST, message, status=408, headers=closing) from error
    except ClientDisconnect as error:
        raise RequestError(wire.ErrorCode.CANCELLED, "the client went away") from error
    with invalid_values_refused():
        json_text = bytes(body)
        if issubclass(model, fim.ForeignRequest):
            json_text = leave_out_halves(json_text)
        return model.model_validate_json(json_text)


def leave_out_halves(body: bytes) -> bytes:
    """A JSON text without halves of characters, single surrogates, which clients make where they cut their texts."""
    if rb"\ud" not in body.lower():  # the expression takes 100 times as long to find none
        return body
    return SURROGATE.sub(lambda match: match["kept"] + (match["pair"] or b""), body)


@contextmanager
def invalid_values_refused() -> Iterator[None]:
    """Turns pydantic's ValidationError into a RequestError."""
    try:
        yield
    except ValidationError as error:
        next_step = "see the routes in serving.md; `midfill --help` names its folder"
        raise RequestError(wire.ErrorCode.BAD_REQUEST, describe_first_error(error), next_step) from error


def describe_first_error(error: ValidationError) -> str:
    """The first validation error in one line, without the value, which may be code."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if key:
        message = f"{key}: {message}"
    return message[:MAX_ERROR_CHARACTERS]


async def answer_error(http: Request, error: Exception) -> Response:
    """Answers an exception of a route or the router with an ErrorResponse."""
    if isinstance(error, RequestError):
        return error_response(error)
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return error_response(RequestError(wire.ErrorCode.NOT_FOUND, "there is no such route", "see /v1/models"))
    message, headers = f"this route does not answer {http.method}", dict(error.headers or {})
    return error_response(RequestError(wire.ErrorCode.BAD_REQUEST, message, status=error.status_code, headers=headers))


def json_response(message: object) -> Response:
    return Response(to_json(message), media_type="application/json")
