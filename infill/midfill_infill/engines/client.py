"""Speaks to one engine over a unix socket or a URL. The only file here that knows sockets and HTTP; starts nothing."""

import _thread
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit
from weakref import WeakSet

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError
from pydantic import ValidationError

from midfill_engine.wire import (
    ErrorBody,
    ErrorCode,
    ErrorResponse,
    InfillRequest,
    InfillResponse,
    ModelInfo,
    ModelList,
    StepEvent,
)
from midfill_infill.engines import mercury
from midfill_infill.errors import MidfillError

CONNECT_TIMEOUT_S: Final = 2.0
HEALTH_TIMEOUT_S: Final = 2.0
# One step of a large model on a slow machine; a dead engine is noticed by its closed socket, not by this.
READ_TIMEOUT_S: Final = 300.0
# After so long without a word it is looked whether the engine still lives: it may be stopped, or hang.
SILENCE_S: Final = 3.0
# An engine that does not even say that it lives within this time will not fill either.
HUNG_S: Final = 30.0
MAX_RETRY_AFTER_S: Final = 10.0
# What httpcore says when there is a socket.
_CONNECTED: Final = frozenset(
    f"connection.{how}.complete" for how in ("connect_unix_socket", "connect_tcp", "start_tls")
)

_CODES: Final[dict[ErrorCode, str]] = {
    ErrorCode.BAD_REQUEST: "bad_request",
    ErrorCode.UNAUTHORIZED: "engine_refused",
    ErrorCode.FORBIDDEN: "engine_refused",
    ErrorCode.NOT_FOUND: "engine_error",
    ErrorCode.UNKNOWN_MODEL: "unknown_model",
    ErrorCode.TOO_LARGE: "hole_too_large",
    ErrorCode.BUSY: "engine_busy",
    ErrorCode.CANCELLED: "cancelled",
    ErrorCode.OUT_OF_MEMORY: "out_of_memory",
    ErrorCode.FETCH_FAILED: "fetch_failed",
    ErrorCode.INTERNAL: "engine_error",
}


@dataclass(frozen=True)
class Endpoint:
    """Where an engine listens: a unix socket of ours, or a URL that the user named (Mercury's service, if so said)."""

    socket: Path | None = None
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    is_mercury: bool = False

    def __post_init__(self) -> None:
        assert (self.socket is None) != (self.url is None)

    def __str__(self) -> str:
        return str(self.socket or self.url)


def relayed(body: ErrorBody) -> MidfillError:
    """The engine's own words as our error; what to do about a token our table knows better."""
    code = _CODES[body.code]
    return MidfillError(code, body.message, next_step=None if code == "engine_refused" else body.next_step or None)


def last_words(log: str) -> MidfillError | None:
    """The last line that an engine's process wrote for us, as our error; None where it wrote none."""
    for line in reversed(log.splitlines()):
        try:
            return relayed(ErrorBody.model_validate_json(line))
        except ValidationError:
            continue
    return None


class EngineClient:
    """A connection pool to one engine; may be used from several threads.

    Every method raises `MidfillError`: `engine_died` when our engine is gone, `engine_silent` when it hangs,
    `engine_stopped`, `engine_unreachable` when a named URL does not answer, `engine_busy`, `engine_refused`, and what
    the engine says itself.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._models: tuple[ModelInfo, ...] = ()
        self._connections: WeakSet[socket.socket] = WeakSet()
        self._streaming: set[socket.socket] = set()  # those whose fill is known
        self._trouble: MidfillError | None = None
        try:
            self._http = _open_pool(endpoint)
            self._http.event_hooks = {"request": [self._trace]}
            headers = {"content-type": "application/json", "accept": "text/event-stream", "cache-control": "no-store"}
            self._asked = self._http.build_request("POST", "/v1/infill", headers=headers)
        except (ValueError, httpx.InvalidURL):
            raise MidfillError("engine_unreachable", f"{endpoint} is not the address of an engine") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> str:
        """ "ok", or "loading" while the engine loads its model. Mercury is asked nothing before a fill."""
        if self.endpoint.is_mercury:
            return "ok"
        with self._failures():
            self._knock()
            response = self._http.get("/healthz", timeout=timeout_s)
            self._check(response)
            return str(response.json()["status"])

    def _knock(self) -> None:
        """Raises where nobody listens at our socket: httpcore would leave a descriptor open (1.0.9)."""
        if self.endpoint.socket is None:
            return
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(CONNECT_TIMEOUT_S)
            try:
                probe.connect(str(self.endpoint.socket))
            except (BlockingIOError, TimeoutError):  # as many wait as the system lets
                raise self._silent() from None
            except OSError:
                raise self._gone("is not running") from None
            _check_runs(probe)

    def models(self) -> tuple[ModelInfo, ...]:
        """What the engine has loaded, the default first; asked again only of an engine that failed since.

        Mercury is not asked: nothing is known of it.
        """
        if self.endpoint.is_mercury or self._models:
            return self._models
        with self._failures():
            response = self._http.get("/v1/models", timeout=HUNG_S)
            self._check(response)
            self._models = tuple(ModelList.model_validate_json(response.content).data)
        return self._models

    def infill(self, request: InfillRequest) -> Generator[StepEvent | InfillResponse, None, None]:
        """The steps as they happen, then the answer. Closing the iterator closes the connection and stops the work."""
        if self.endpoint.is_mercury:
            yield self._ask_mercury(request)
            return
        body = request.model_copy(update={"stream": True}).model_dump_json(exclude_defaults=True)
        try:
            yield from self._stream(body, busy_waits=1)
        except _Busy as busy:
            time.sleep(busy.retry_after_s)
            yield from self._stream(body, busy_waits=0)

    def _stream(self, body: str, *, busy_waits: int) -> Generator[StepEvent | InfillResponse, None, None]:
        self._trouble = None
        with (
            self._failures(),
            _Watch(lambda: self.health(HUNG_S), self._end) as watch,
            closing(self._http.send(self._request(body), stream=True)) as response,
        ):
            if response.is_error:
                response.read()
            # 503 without the header is an engine out of memory, which waiting does not cure.
            if response.status_code in (429, 503) and "retry-after" in response.headers and busy_waits:
                raise _Busy(_retry_after_s(response))
            self._check(response)
            answer: InfillResponse | None = None
            with self._known(response, watch):
                for event in EventSource(response).iter_sse():
                    watch.hear()
                    message = _parse_event(event)
                    if isinstance(message, InfillResponse):
                        answer = message  # the stream is read to its end: the next fill takes the same connection
                    elif message is not None:
                        yield message
            if answer is None:
                raise self._gone("ended in the middle of the fill")
            yield answer

    def _request(self, body: str) -> httpx.Request:
        """A fill's; what all of them share is put together once."""
        headers = [pair for pair in self._asked.headers.raw if pair[0].lower() != b"content-length"]
        extensions = dict(self._asked.extensions)
        return httpx.Request("POST", self._asked.url, headers=headers, content=body.encode(), extensions=extensions)

    def _trace(self, request: httpx.Request) -> None:
        request.extensions["trace"] = self._note_connection

    def _note_connection(self, event: str, info: Mapping[str, Any]) -> None:
        if event in _CONNECTED:
            self._connections.add(info["return_value"].get_extra_info("socket"))

    @contextmanager
    def _known(self, response: httpx.Response, watch: "_Watch") -> Iterator[None]:
        watch.connection = response.extensions["network_stream"].get_extra_info("socket")
        self._streaming.add(watch.connection)
        try:
            yield
        finally:
            self._streaming.discard(watch.connection)

    def _end(self, trouble: MidfillError, connection: socket.socket | None) -> None:
        """Ends a fill that waits for an engine which will not answer. Before an answer begins no connection tells whose
        request it serves: then all go that are not another fill's.
        """
        self._trouble = trouble
        waiting = set(self._connections) - self._streaming if connection is None else {connection}
        for each in waiting:
            with suppress(OSError):  # closed meanwhile
                each.shutdown(socket.SHUT_RDWR)

    def _ask_mercury(self, request: InfillRequest) -> InfillResponse:
        """All holes, one request after the other."""
        steps = mercury.exchange(request)
        try:
            body = next(steps)
            while True:
                with self._failures():
                    content = body.model_dump_json(exclude_none=True).encode()
                    headers = {"content-type": "application/json"}
                    response = self._http.post(mercury.PATH, content=content, headers=headers)
                body = steps.send(mercury.read_reply(self._accept(response)))
        except StopIteration as stop:
            assert isinstance(stop.value, InfillResponse)
            return stop.value

    def _accept(self, response: httpx.Response) -> bytes:
        """The content of a good answer; errors of OpenAI's form as ours."""
        if response.is_success:
            return response.content
        status, code = response.status_code, "engine_error"
        if status in (401, 402, 403):
            next_step = f"check {mercury.KEY_VARIABLE}"
            raise MidfillError("engine_refused", f"{self.endpoint} refused the key", next_step=next_step)
        if status in (429, 503):
            code = "engine_busy"
        raise MidfillError(code, f"{self.endpoint} answers HTTP {status}")

    def _check(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        try:
            error = ErrorResponse.model_validate_json(response.content).error
        except ValidationError:
            message = f"{self.endpoint} answers HTTP {response.status_code}, and not as a Midfill engine"
            raise MidfillError("engine_unreachable" if self.endpoint.url else "engine_error", message) from None
        raise relayed(error)

    def _gone(self, what: str) -> MidfillError:
        self._models = ()
        if self._trouble is not None:
            return self._trouble
        if self.endpoint.url:
            return MidfillError("engine_unreachable", f"the engine at {self.endpoint} {what}")
        return MidfillError("engine_died", f"the engine {what}")

    def _silent(self) -> MidfillError:
        if self.endpoint.url:
            return self._gone("does not answer")
        return MidfillError("engine_silent", f"the engine at {self.endpoint} accepts requests and does not answer")

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError:
            raise self._gone("is not running") from None
        except httpx.TimeoutException:
            raise self._silent() from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise MidfillError("engine_unreachable", f"{self.endpoint} is not the address of an engine") from None
        except httpx.TransportError:
            raise self._gone("ended in the middle of the fill") from None
        except (ValidationError, SSEError, ValueError, KeyError):
            message = f"the engine at {self.endpoint} answers what this version does not understand"
            raise MidfillError(
                "engine_error", message, next_step="install the same version of midfill on both sides"
            ) from None


def _check_runs(connection: socket.socket) -> None:
    """Raises `engine_stopped` where Linux says that the process at the other end takes no part in anything."""
    if not hasattr(socket, "SO_PEERCRED"):
        return
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return
    if state in "Tt":
        next_step = f"continue it with `kill -CONT {pid}`, or end it with `kill -9 {pid}`"
        raise MidfillError("engine_stopped", f"the engine (process {pid}) is stopped", next_step=next_step)


class _Watch:
    """Looks, while a fill is silent, whether its engine still lives."""

    def __init__(self, check: Callable[[], object], end: Callable[[MidfillError, socket.socket | None], None]) -> None:
        """`check` raises MidfillError for an engine that is stopped or hangs; `end` gets it and `connection`."""
        self._check, self._end = check, end
        self.connection: socket.socket | None = None  # that of the fill, once its answer has begun
        self._last_s = time.monotonic()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        _thread.start_new_thread(self._look, ())  # threading's would wait until it runs: 0.2 ms of every fill
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()

    def hear(self) -> None:
        self._last_s = time.monotonic()

    def _look(self) -> None:
        while not self._ended.wait(SILENCE_S):
            heard_s = self._last_s
            if time.monotonic() - heard_s < SILENCE_S:
                continue
            try:
                self._check()
            except MidfillError as failure:
                if heard_s == self._last_s and not self._ended.is_set():
                    return self._end(failure, self.connection)


def _open_pool(endpoint: Endpoint) -> httpx.Client:
    """Raises ValueError or httpx.InvalidURL for what is no URL."""
    timeout = httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    if endpoint.socket is not None:
        transport = httpx.HTTPTransport(uds=str(endpoint.socket), verify=False)  # no TLS: no certificates to load
        return httpx.Client(transport=transport, base_url="http://localhost", timeout=timeout)
    assert endpoint.url is not None
    headers = {"authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
    # A proxy of the environment must not see what stays on this machine.
    is_local = urlsplit(endpoint.url).hostname in ("localhost", "127.0.0.1", "::1")
    return httpx.Client(base_url=endpoint.url, headers=headers, timeout=timeout, trust_env=not is_local)


class _Busy(Exception):
    def __init__(self, retry_after_s: float) -> None:
        super().__init__()
        self.retry_after_s = retry_after_s


def _retry_after_s(response: httpx.Response) -> float:
    try:
        return min(max(float(response.headers.get("retry-after", "1")), 0.0), MAX_RETRY_AFTER_S)
    except ValueError:  # an HTTP date
        return 1.0


def _parse_event(event: ServerSentEvent) -> StepEvent | InfillResponse | None:
    """A message of the stream; None for events of a later version. Raises what an `error` event says."""
    match event.event:
        case "step":
            return StepEvent.model_validate_json(event.data)
        case "done":
            return InfillResponse.model_validate_json(event.data)
        case "error":
            raise relayed(ErrorBody.model_validate_json(event.data))
        case _:
            return None
