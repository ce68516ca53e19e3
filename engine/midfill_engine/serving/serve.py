"""Runs the engine's process: opens a socket, answers while the model loads, shuts down. Knows signals, no requests."""

import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

import uvicorn

from midfill_engine.errors import RequestError, StartError
from midfill_engine.loading.memory import available_bytes, total_bytes
from midfill_engine.scheduling.scheduler import SHARED_ROWS, Scheduler, is_out_of_memory
from midfill_engine.serving.connection import ConnectionLimits, raise_file_limit, timed_protocol
from midfill_engine.serving.security import MAX_HEADER_BYTES, Security
from midfill_engine.serving.service import EngineState, Ready, create_app
from midfill_engine.serving.sockets import EXIT_CANNOT_SERVE, listen_tcp, listen_unix
from midfill_engine.serving.tokens import find_tokens
from midfill_engine.starting import ServeOptions
from midfill_engine.wire import ErrorCode, InfillRequest

if TYPE_CHECKING:
    from midfill_engine.scheduling.work import Fill

EXIT_DEVICE_LOST: Final = 4
SHARED_ROWS_OF_DEVICE: Final = 512  # this many rows cost hardly more than one if memory bandwidth is the limit
LINGER_S: Final = 0.5  # for which an ending engine without open requests tells new clients that it ends
STOP_TIMEOUT_S: Final = 5.0  # time for the answers of cancelled fills
SHORT_IDLE_S: Final = 60.0  # the idle timeout while memory is short
TICKS_BETWEEN_LOOKS: Final = 50  # at the memory; uvicorn ticks ten times a second
SHORT_SHARE: Final = 0.1  # of the memory: if less is available, it is short

ENVIRONMENT: Final = {  # what torch reads at its import, if the user has not set it
    "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads made a step ten times slower on a busy machine
    # oneDNN, and torch's wrapper around it, cache compiled products for 1,024 shapes, 0.4 MB each; a pass has about 10.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16",
    "LRU_CACHE_CAPACITY": "16",
    "TRITON_DEFAULT_FP_FUSION": "1",  # otherwise Triton 3.9 warns, and 3.10 compiles the kernels another way
}

logger = logging.getLogger(__name__)


def is_memory_short() -> bool:
    """True if an idle engine should free its memory for other programs."""
    return available_bytes() < SHORT_SHARE * total_bytes()


class Server(uvicorn.Server):
    """uvicorn's server. After a signal or the idle timeout it refuses new requests, and ends when all open ones are
    answered or `drain_s` are over. A second signal or a failure ends it at once.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        state: EngineState,
        drain_s: float = 0.0,
        is_memory_short: Callable[[], bool] = is_memory_short,
    ) -> None:
        super().__init__(config)
        self._state = state
        self._drain_s = drain_s
        self._is_memory_short = is_memory_short
        self._drains_since_s: float | None = None

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second; returns True to end the server."""
        if self._state.failure is not None:
            self.should_exit = True
        if not self._state.is_draining and self._is_idle_too_long(counter):
            logger.info("idle for %.0f s, ending", self._state.idle_s)
            self.drain()
        if self._drains_since_s is not None:
            drained_s = time.monotonic() - self._drains_since_s
            limit_s = self._drain_s if self._state.num_open else min(LINGER_S, self._drain_s)
            if drained_s >= limit_s:
                if self._state.ready is not None:
                    self._state.ready.scheduler.stop()
                self.should_exit = True
        return await super().on_tick(counter)

    def _is_idle_too_long(self, counter: int) -> bool:
        """True after the idle timeout, or after SHORT_IDLE_S if memory is short; always false without a timeout."""
        idle_s, limit_s = self._state.idle_s, self._state.idle_timeout_s
        if limit_s is None or idle_s <= min(limit_s, SHORT_IDLE_S):
            return False
        return idle_s > limit_s or (counter % TICKS_BETWEEN_LOOKS == 0 and self._is_memory_short())

    def drain(self) -> None:
        """Accepts no new requests from now on; `on_tick` ends the server."""
        self._state.is_draining = True
        self._drains_since_s = self._drains_since_s or time.monotonic()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by uvicorn for each signal. The first one drains, a second one leaves no time for that."""
        if self._state.is_draining:
            self._drain_s = 0.0
        self.drain()
        if sig == signal.SIGINT and self.should_exit:
            super().handle_exit(sig, frame)  # uvicorn no longer waits for open connections


def serve(options: ServeOptions) -> None:
    """Serves until told to end. Raises StartError if it cannot listen, load or go on."""
    check_certificate(options)
    state = EngineState(idle_timeout_s=options.idle_timeout_s)
    with listen(options) as (sock, security):
        run(state, options, sock, security)
    if state.failure is not None:
        raise state.failure


def run(state: EngineState, options: ServeOptions, sock: socket.socket, security: Security) -> None:
    """Serves on a socket until told to end, or until an error, which is then `state.failure`."""
    threading.Thread(target=load, args=(state, options), name="midfill-loader", daemon=True).start()
    limits = ConnectionLimits(max_per_peer=options.max_connections_per_peer, max_connections=raise_file_limit())
    config = uvicorn.Config(
        create_app(state, security, options.access_log),
        http=timed_protocol(limits),
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=int(STOP_TIMEOUT_S),
        ssl_certfile=options.certfile,
        ssl_keyfile=options.keyfile,
    )
    # uvicorn raises the signal again after it has stopped; cleanup must survive that.
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: None)
    Server(config, state, options.drain_s).run(sockets=[sock])


@contextmanager
def listen(options: ServeOptions) -> Iterator[tuple[socket.socket, Security]]:
    """Opens the socket that `options` name, with the security for it. Raises StartError."""
    if options.socket is not None:
        with listen_unix(options.socket) as sock:
            yield sock, Security.for_unix_socket(tuple(options.allowed_host or ()))
        return
    assert options.host is not None
    tokens = find_tokens(options.token_file)
    sock = listen_tcp(options.host, options.port)
    scheme = "https" if options.certfile else "http"
    port = sock.getsockname()[1]
    if options.host not in {"127.0.0.1", "::1", "localhost"} and not options.certfile:
        logger.warning("%s is open to the network, and what passes is not encrypted", options.host)
    shown_host = f"[{options.host}]" if ":" in options.host else options.host
    logger.info("listening on %s://%s:%d", scheme, shown_host, port)
    logger.info("its bearer token is in %s", tokens.source)
    yield sock, Security.for_tcp(options.host, tokens, tuple(options.allowed_host or ()))


def check_certificate(options: ServeOptions) -> None:
    """Raises StartError if `certfile` and `keyfile` are not a certificate with its key."""
    if options.certfile is None:
        if options.keyfile is None:
            return
        message, next_step = "--keyfile needs --certfile", "give both, or a certfile that holds the key too"
        raise StartError(ErrorCode.BAD_REQUEST, message, next_step, EXIT_CANNOT_SERVE)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.certfile, options.keyfile, lambda: "")
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        message = f"{options.certfile} is no certificate with the key of --keyfile: {reason}"
        raise StartError(ErrorCode.BAD_REQUEST, message, "give both as PEM files", EXIT_CANNOT_SERVE) from error


def load(state: EngineState, options: ServeOptions) -> None:
    """Loads the model into `state`. Runs in a thread, so that the process answers meanwhile."""
    try:
        state.ready = make_ready(state, options)
    except StartError as error:
        state.failure = error
    except Exception as error:  # noqa: BLE001 - otherwise the thread would end without a message
        code, next_step = ErrorCode.INTERNAL, "see midfill doctor"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if is_out_of_memory(error):
            code, reason = ErrorCode.OUT_OF_MEMORY, "its device has not enough free memory"
            next_step = "choose a smaller one, or give --weights int4 or --device cpu"
        message = f"The model {options.model!r} cannot be loaded: {reason}"
        state.failure = StartError(code, message, next_step)


def make_ready(state: EngineState, options: ServeOptions) -> Ready:
    """Loads the model, and starts its scheduler. A lost device sets `state.failure`. Raises StartError."""
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    import torch  # takes seconds to import, and the socket answers before that

    from midfill_engine.backends import find_backend, open_fill
    from midfill_engine.loading.device import choose_num_threads, free_bytes
    from midfill_engine.loading.memory import return_freed
    from midfill_engine.loading.runtime import load_runtime

    runtime = load_runtime(options.model, options.device, options.operators, options.dtype, options.weights)
    backend = find_backend(runtime)
    try:
        backend.check_variants(runtime, options.cache, options.lengths)
    except RequestError as error:
        raise StartError(error.code, error.message, error.next_step) from error
    torch.set_num_threads(choose_num_threads(runtime.device, runtime.loaded.num_parameters, torch.get_num_threads()))

    if "seconds" in runtime.family.heeds:
        logger.info("a pass costs %.4f s and %.4f s a row", runtime.pace.pass_s, runtime.pace.row_s)
    cache = options.cache or backend.usual_cache(runtime)

    def fill(request: InfillRequest) -> "Fill":
        if options.cache is None and request.quality == "authors":  # without approximations
            return open_fill(runtime, request, cache=None, lengths=options.lengths)
        return open_fill(runtime, request, cache=cache, lengths=options.lengths)

    def on_device_lost() -> None:
        message = "the device was lost"
        state.failure = StartError(ErrorCode.INTERNAL, message, "start the engine again", EXIT_DEVICE_LOST)

    scheduler = Scheduler(
        fill,
        runtime.run,
        launch=runtime.launch,
        max_bytes=free_bytes(runtime.device),
        shared_rows=SHARED_ROWS if runtime.device.type == "cpu" else SHARED_ROWS_OF_DEVICE,
        on_out_of_memory=runtime.free_memory,
        on_device_lost=on_device_lost,
        on_idle=return_freed,
    )
    contexts, add_metric = runtime.contexts, scheduler.metrics.watch
    add_metric("midfill_context_hits", "Contexts found among earlier ones", lambda: contexts.hits)
    add_metric("midfill_context_misses", "Contexts encoded anew", lambda: contexts.misses)
    add_metric("midfill_context_bytes", "Memory of kept contexts", lambda: contexts.num_bytes)
    add_metric("midfill_open_requests", "Requests waiting or at work", lambda: scheduler.num_open)
    add_metric("midfill_claimed_bytes", "Memory that open fills may use", lambda: scheduler.claimed_bytes)
    logger.info("%s is ready on %s", runtime.info.id, runtime.info.device)
    info = runtime.info.model_copy(update={"created": int(time.time()), "cache": cache})
    return Ready(info, runtime.names, scheduler)


def report(error: StartError) -> None:
    """Prints the error on stderr: as a sentence on a terminal, otherwise as JSON for programs."""
    text = error.body.model_dump_json()
    if sys.stderr.isatty():
        text = f"midfill: {error.message.rstrip('.')}; {error.next_step}"
    print(text, file=sys.stderr, flush=True)


def end_process(code: int) -> None:
    """Exits without waiting for threads, because loading cannot be interrupted."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
