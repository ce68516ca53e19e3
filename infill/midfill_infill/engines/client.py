"""Speaks to one engine over a unix socket or a URL. The only file here that knows sockets and HTTP; starts nothing."""

import _thread
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self
from weakref import WeakSet

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError
from pydantic import ValidationError

from midfill_engine.wire import (
    ErrorBody,
    ErrorResponse,
    InfillRequest,
    InfillResponse,
    ModelInfo,
    ModelList,
    StepEvent,
)
from midfill_infill.engines.endpoint import Endpoint, relayed
from midfill_infill.engines.outside import PROTOCOLS
from midfill_infill.engines.outside.exchange import Exchange, Refused
from midfill_infill.engines.outside.protocol import Call, read_error
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
        """ "ok", or "loading" while the engine loads its model. Others' engines are asked nothing before a fill."""
        if self.endpoint.is_outside:
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

    def idle(self) -> tuple[float, float | None]:
        """For how many seconds nobody has asked our engine, and after how many it ends; None where it stays."""
        with self._failures():
            self._knock()
            response = self._http.get("/props", timeout=HEALTH_TIMEOUT_S)
            self._check(response)
            known = response.json()
            return float(known["idle_s"]), known["idle_timeout_s"]

    def models(self) -> tuple[ModelInfo, ...]:
        """The loaded models, the default first; asked again only after an engine failed.

        Engines of others are not asked, because they answer differently: what is known of them is said.
        """
        if self.endpoint.is_outside:
            return (self.endpoint.info,)
        if self._models:
            return self._models
        with self._failures():
            response = self._http.get("/v1/models", timeout=HUNG_S)
            self._check(response)
            self._models = tuple(ModelList.model_validate_json(response.content).data)
        return self._models

    def infill(self, request: InfillRequest) -> Generator[StepEvent | InfillResponse, None, None]:
        """The steps as they happen, then the answer. Closing the iterator closes the connection and stops the work."""
        if self.endpoint.is_outside:
            yield from self._exchange.run(request)
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

    @cached_property
    def _exchange(self) -> Exchange:
        endpoint = self.endpoint
        protocol, model = PROTOCOLS[endpoint.protocol], endpoint.model
        if protocol.needs_model and not model:
            with self._failures():
                known = self._http.get("/v1/models", timeout=HUNG_S)
                self._accept(known)
                model = str(known.json()["data"][0]["id"])
        return Exchange(protocol, model, endpoint.protocol, self._ask)

    def _ask(self, call: Call) -> Generator[str, None, None]:
        """The lines of another engine's answer, as they come. Raises Refused, and MidfillError."""
        request = self._http.build_request("POST", call.path, json=call.body)
        with self._failures(), closing(self._http.send(request, stream=True)) as response:
            self._accept(response)
            yield from response.iter_lines()

    def _accept(self, response: httpx.Response) -> None:
        """Raises Refused for what another way to ask may mend, MidfillError for all else that is no good answer."""
        if response.is_success:
            return
        status, words = response.status_code, f"HTTP {response.status_code}"
        with suppress(ValueError, AttributeError):
            words = read_error(json.loads(response.read()))[:200] or words
        if status in (401, 402, 403):
            keys = PROTOCOLS[self.endpoint.protocol].key_variables.values()
            next_step = f"check {' or '.join([*keys, 'MIDFILL_TOKEN'])}"
            raise MidfillError("engine_refused", f"{self.endpoint} refused the key", next_step=next_step)
        if status in (429, 503):
            raise MidfillError("engine_busy", f"{self.endpoint} says: {words}")
        if status == 404 and "model" in words:
            next_step = "see which it has, and set one by `midfill config engine`"
            raise MidfillError("unknown_model", f"{self.endpoint} says: {words}", next_step=next_step)
        if status in (400, 404, 405, 415, 422, 501):
            raise Refused(words)
        raise MidfillError("engine_error", f"{self.endpoint} says: {words}", next_step="see that engine's log")

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
            step = (
                "start it, or run `midfill config engine --unset` for the local one"
                if self.endpoint.is_outside
                else None
            )
            return MidfillError("engine_unreachable", f"the engine at {self.endpoint} {what}", next_step=step)
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
    return httpx.Client(base_url=endpoint.url, headers=headers, timeout=timeout, trust_env=bool(endpoint.remote_host))


def get_json(url: str, timeout_s: float) -> Any:
    """What an engine of this machine answers, None where nothing does. Raises nothing."""
    with suppress(httpx.HTTPError, ValueError), httpx.Client(trust_env=False, timeout=timeout_s) as http:
        response = http.get(url)
        return response.json() if response.is_success else None
    return None


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
