"""Sends requests to one engine and explains failures. It is ours at a socket, ours at a URL that the user named, or an
outside engine: another project's, always at a URL. Knows no sockets.
"""

import _thread
import json
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import ValidationError

from midfill_engine.wire import ErrorBody, ErrorResponse, InfillRequest, InfillResponse, ModelInfo, ModelList, StepEvent
from midfill_infill.context.origins import Origins
from midfill_infill.engines.connections import Broken, Connection, Connections, Silent, Unreachable
from midfill_infill.engines.endpoint import Endpoint, relayed
from midfill_infill.errors import MidfillError

if TYPE_CHECKING:  # a fill by our own engine imports no protocol of others
    from midfill_infill.engines.outside.exchange import Exchange
    from midfill_infill.engines.outside.protocol import Call, Protocol

HEALTH_TIMEOUT_S: Final = 2.0
# After this long without an event the client checks whether the engine still lives: it may be stopped or hang.
SILENCE_S: Final = 3.0
# An engine that does not answer a health check within this time counts as hung.
HUNG_S: Final = 30.0
MAX_RETRY_AFTER_S: Final = 10.0
_STREAMED: Final = {"accept": "text/event-stream", "cache-control": "no-store"}


class EngineClient(AbstractContextManager["EngineClient"]):
    """A connection pool to one engine; may be used from several threads.

    Every method raises MidfillError: `engine_died` if our engine is gone, `engine_silent` if it hangs,
    `engine_stopped` if its process is suspended, `engine_unreachable` if a named URL does not answer, `engine_busy`,
    `engine_refused`, and errors that the engine reports. After `silence_s` without an event of a fill, the client asks
    for the engine's health.
    """

    def __init__(self, endpoint: Endpoint, silence_s: float | None = None) -> None:
        self.endpoint, self.silence_s = endpoint, SILENCE_S if silence_s is None else silence_s
        self._models: tuple[ModelInfo, ...] = ()
        try:
            self._connections = Connections(endpoint)
        except ValueError:
            raise MidfillError("engine_unreachable", f"{endpoint} is not the address of an engine") from None
        except Unreachable as error:
            raise self._note_gone(str(error), error.next_step) from None

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._connections.close()

    def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> str:
        """ "ok", "loading" while the engine loads its model, or "draining" while it ends. An outside engine is not
        contacted before a fill, and "ok".
        """
        if self.endpoint.is_outside:
            return "ok"
        with self._get("/healthz", timeout_s) as reply:
            return str(reply["status"])

    def connect(self) -> None:
        """Opens a connection and sends nothing. Raises MidfillError `engine_unreachable` where nothing listens."""
        with self._explained_failures(), self._connections.open(is_new=True):
            pass

    def idle(self) -> tuple[float, float | None]:
        """Seconds since the last request to our engine, and after how many idle seconds it exits; None for never."""
        with self._get("/props", HEALTH_TIMEOUT_S) as reply:
            return float(reply["idle_s"]), reply["idle_timeout_s"]

    def models(self) -> tuple[ModelInfo, ...]:
        """The loaded models, the default first; cached until the engine fails. An outside engine is not asked."""
        if self.endpoint.is_outside:
            return (self.endpoint.info,)
        if not self._models:
            with self._get("/v1/models", HUNG_S) as reply:
                self._models = tuple(ModelList.model_validate(reply).data)
        return self._models

    @contextmanager
    def _get(self, path: str, timeout_s: float) -> Iterator[Any]:
        """Yields the JSON that our engine answers. A ValueError, KeyError or TypeError of the `with` body, which means
        that it is not as expected, becomes a MidfillError too.
        """
        with self._explained_failures():
            # A new connection, because an engine that hangs may still answer on one that is open.
            with self._connections.open(timeout_s, is_new=True) as connection:
                self._check_own(connection.ask("GET", path))
                reply = connection.json()
            yield reply

    @property
    def window(self) -> int:
        """How many tokens may be sent to an outside engine, which is asked for its limit the first time."""
        return self._exchange.window

    def infill_outside(
        self, request: InfillRequest, origins: Origins
    ) -> Generator[StepEvent | InfillResponse, None, None]:
        """As `infill`, by an outside engine. `origins` has the file of each excerpt, which a prompt shows."""
        return self._exchange.run(request, origins)

    def infill(self, request: InfillRequest) -> Generator[StepEvent | InfillResponse, None, None]:
        """Yields each step, then the answer. Closing the generator closes the connection, which stops the engine. An
        outside engine gets no excerpts here, because they may be too long for its window; `infill_outside` sends them.
        """
        if self.endpoint.is_outside:
            yield from self.infill_outside(request.model_copy(update={"excerpts": []}), Origins())
            return
        body = request.model_copy(update={"stream": True}).model_dump_json(exclude_defaults=True)
        wait_s = yield from self._stream(body, may_wait=True)
        if wait_s is not None:
            time.sleep(wait_s)
            yield from self._stream(body, may_wait=False)

    def _stream(self, body: str, *, may_wait: bool) -> Generator[StepEvent | InfillResponse, None, float | None]:
        """Yields the steps and the answer; if `may_wait` and the engine is busy, returns the seconds to wait."""
        with (
            self._explained_failures(),
            self._connections.open() as connection,
            _Watch(lambda: self.health(HUNG_S), connection, self.silence_s) as watch,
        ):
            wait_s = _wait_s(connection.ask("POST", "/v1/infill", body, _STREAMED))
            if may_wait and wait_s is not None:
                return wait_s
            self._check_own(connection)
            if not (connection.header("content-type") or "").startswith("text/event-stream"):
                raise ValueError("no stream of events")  # becomes an `engine_error`
            answer: InfillResponse | None = None
            try:
                for name, data in _read_events(connection.lines()):
                    watch.note_event()
                    message = _parse_event(name, data)
                    if isinstance(message, InfillResponse):
                        answer = message  # the stream is read to its end: the next fill takes the same connection
                    elif message is not None:
                        yield message
            except Broken:
                if answer is None:
                    raise
            if answer is None:
                raise Broken
            yield answer
        return None

    @cached_property
    def _exchange(self) -> "Exchange":
        from midfill_infill.engines.outside.exchange import Exchange

        endpoint = self.endpoint
        protocol, model = endpoint.adapter, endpoint.model
        if protocol.needs_model and not model:
            model = self._ask_model()
        wanted = endpoint.context_tokens or protocol.context_tokens
        limit = self._ask_limit(protocol, model, wanted)
        return Exchange(protocol, model, endpoint.protocol, self._ask, wanted, limit)

    def _ask_model(self) -> str:
        """The first model that an outside engine lists. Raises MidfillError `unknown_model` if it lists none."""
        from midfill_infill.engines.outside.exchange import Refused

        with self._explained_failures(), self._connections.open(HUNG_S) as connection:
            try:
                self._check_outside(connection.ask("GET", "/models"))
                return str(connection.json()["data"][0]["id"])
            except (Refused, ValueError, LookupError, TypeError):
                door, url = self.endpoint.protocol, self.endpoint.url
                next_step = f"name one: `midfill config engine {door}:MODEL@{url}`"
                raise MidfillError("unknown_model", f"{url} lists no model", next_step) from None

    def _ask_limit(self, protocol: "Protocol", model: str, wanted: int) -> int | None:
        """The limit of context and answer, in tokens, that an outside engine states; None without one, also after any
        failure.
        """
        question = protocol.limit_question(model)
        if question is None:
            return None
        path, body = question
        answer = self._connections.look_up(path, None if body is None else json.dumps(body), HEALTH_TIMEOUT_S)
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            limit = protocol.read_limit(answer, model, wanted)
            return limit if limit and limit > 0 else None
        return None

    def _ask(self, call: "Call") -> Generator[str, None, None]:
        """Yields the lines of an outside engine's answer; if it is busy and says for how long, asks once more then.
        Raises Refused and MidfillError: `engine_unreachable` behind the last line if nothing but the lines themselves
        can tell that they are all.
        """
        wait_s = yield from self._read_lines(call, may_wait=True)
        if wait_s is not None:
            time.sleep(wait_s)
            yield from self._read_lines(call, may_wait=False)

    def _read_lines(self, call: "Call", *, may_wait: bool) -> Generator[str, None, float | None]:
        """As `_ask`, but if `may_wait` and the engine is busy, returns the seconds to wait."""
        with self._explained_failures(), self._connections.open() as connection:
            wait_s = _wait_s(connection.ask("POST", call.path, json.dumps(call.body)))
            if may_wait and wait_s is not None:
                return wait_s
            self._check_outside(connection)
            yield from connection.lines()
            if not connection.tells_end:
                raise Broken  # unless its last message says that it is whole, which `Exchange` knows
        return None

    def _check_outside(self, answer: Connection) -> None:
        """Raises Refused if another of `Protocol.calls` may work, MidfillError for every other failure."""
        if answer.is_success:
            return
        from midfill_infill.engines.outside.exchange import Refused
        from midfill_infill.engines.outside.protocol import read_error

        status, words = answer.status, f"HTTP {answer.status}"
        with suppress(ValueError, AttributeError):
            words = read_error(answer.json())[:200] or words
        if status in (401, 402, 403):
            keys = self.endpoint.adapter.key_variables.values()
            next_step = f"check {' or '.join([*keys, 'MIDFILL_TOKEN'])}"
            told = "refused the key" if status == 401 else f"says: {words}"  # words on a key may repeat it
            raise MidfillError("engine_refused", f"{self.endpoint} {told}", next_step)
        if (moved_to := answer.header("location")) is not None:
            message = f"the engine at {self.endpoint} has moved to {moved_to}"
            raise MidfillError("engine_unreachable", message, "name that address by `midfill config engine`")
        if status in (429, 503):
            raise MidfillError("engine_busy", f"{self.endpoint} says: {words}")
        if "context" in words:  # a shorter call of another kind may work, but with less of the user's code
            next_step = "let it have fewer tokens by `midfill config context`"
            raise MidfillError("engine_error", f"{self.endpoint} says: {words}", next_step)
        if status == 404 and "model" in words:
            self.__dict__.pop("_exchange", None)  # the next fill asks for the model that is there now
            next_step = "see which it has, and set one by `midfill config engine`"
            raise MidfillError("unknown_model", f"{self.endpoint} says: {words}", next_step)
        if status in (400, 404, 405, 415, 422, 501):
            raise Refused(words)
        raise MidfillError("engine_error", f"{self.endpoint} says: {words}", "see that engine's log")

    def _check_own(self, answer: Connection) -> None:
        """Raises MidfillError unless our engine answers with success."""
        if answer.is_success:
            return
        try:
            error = ErrorResponse.model_validate_json(answer.read()).error
        except ValidationError:
            message = f"{self.endpoint} answers HTTP {answer.status}, and not as a Midfill engine"
            raise MidfillError("engine_unreachable" if self.endpoint.url else "engine_error", message) from None
        raise relayed(error)

    def _note_gone(self, what: str, next_step: str = "") -> MidfillError:
        """Forgets the models of an engine that is gone. The error says `what` it does, such as "does not answer", and
        the `next_step`, the usual one if that is empty.
        """
        self._models = ()
        if self.endpoint.url:
            if not next_step and self.endpoint.is_outside:
                next_step = "start it, or run `midfill config engine --unset` for the local one"
            return MidfillError("engine_unreachable", f"the engine at {self.endpoint} {what}", next_step or None)
        return MidfillError("engine_died", f"the engine {what}")

    @contextmanager
    def _explained_failures(self) -> Iterator[None]:
        """Turns the exceptions of `connections.py`, and those of a reply that cannot be read, into MidfillErrors."""
        try:
            yield
        except Unreachable as error:
            raise self._note_gone(str(error), error.next_step) from None
        except Silent:
            if self.endpoint.url:
                raise self._note_gone("does not answer") from None
            message = f"the engine at {self.endpoint} accepts requests and does not answer"
            raise MidfillError("engine_silent", message) from None
        except Broken:
            raise self._note_gone("ended in the middle of the fill") from None
        except (ValueError, KeyError, TypeError):
            message = f"the engine at {self.endpoint} answers what this version does not understand"
            next_step = "install the same version of midfill on both sides"
            if self.endpoint.is_outside:
                next_step = "check the protocol and the address"
            raise MidfillError("engine_error", message, next_step) from None


class _Watch:
    """Checks the engine during silence in a fill, and closes the fill's connection if the engine is dead or hangs."""

    def __init__(self, check: Callable[[], object], connection: Connection, silence_s: float) -> None:
        """`check` raises MidfillError for an engine that is stopped or hangs, which the fill then raises."""
        self._check, self._connection, self._silence_s = check, connection, silence_s
        self._trouble: MidfillError | None = None
        self._heard_s = time.monotonic()  # when the last event came
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        _thread.start_new_thread(self._watch_silence, ())  # Thread.start would wait until it runs: 0.2 ms per fill
        return self

    def __exit__(self, _: object, error: object, trace: object) -> None:
        self._ended.set()
        # The fill raises Broken after `shut_down`; its cause is told instead.
        if self._trouble is not None and isinstance(error, Broken):
            raise self._trouble from None

    def note_event(self) -> None:
        self._heard_s = time.monotonic()

    def _watch_silence(self) -> None:
        while not self._ended.wait(self._silence_s):
            heard_s = self._heard_s
            if time.monotonic() - heard_s < self._silence_s:
                continue
            try:
                self._check()
            except MidfillError as failure:
                is_still_silent = heard_s == self._heard_s
                if is_still_silent and not self._ended.is_set():
                    self._trouble = failure
                    return self._connection.shut_down()


def get_json(url: str, timeout_s: float) -> Any:
    """The JSON at a URL of this machine, where another project's server may run; None without one. Raises nothing."""
    with suppress(Unreachable, ValueError), closing(Connections(Endpoint(url=url))) as connections:
        return connections.look_up("", None, timeout_s)
    return None


def _wait_s(answer: Connection) -> float | None:
    """The seconds that a busy engine asks to wait for; None for any other answer, and if it does not say."""
    header = answer.header("retry-after")  # an engine of Midfill that is out of memory answers 503 without it
    if answer.status not in (429, 503) or header is None:
        return None
    try:
        return min(max(0.0, float(header)), MAX_RETRY_AFTER_S)  # in this order 0 for nan
    except ValueError:  # an HTTP date
        return 1.0


def _read_events(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The name and the data of every server-sent event."""
    name, data = "", list[str]()
    for line in lines:
        field, _, value = line.partition(":")
        if field == "event":
            name = value.removeprefix(" ")
        elif field == "data":
            data.append(value.removeprefix(" "))
        elif not line:
            if data:
                yield name, "\n".join(data)
            name, data = "", []


def _parse_event(name: str, data: str) -> StepEvent | InfillResponse | None:
    """A message of the stream; None for events of a later version. Raises the error of an `error` event."""
    match name:
        case "step":
            return StepEvent.model_validate_json(data)
        case "done":
            return InfillResponse.model_validate_json(data)
        case "error":
            raise relayed(ErrorBody.model_validate_json(data))
        case _:
            return None
