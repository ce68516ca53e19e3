"""Serves requests with several engines on a Ray cluster: keeps them running and routes each request to one of them.

Knows Ray Serve; no model, no HTTP. Ray is imported nowhere else in the engine.
"""

import asyncio
import hashlib
import logging
import os
import secrets
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

from midfill_engine.denoising.metrics import Metrics
from midfill_engine.denoising.scheduler import MAX_REQUESTS, Listener, Ticket, is_ending
from midfill_engine.errors import EXIT_NO_MODEL, RequestError, StartError
from midfill_engine.serving.replica import About, Replica, decode_event
from midfill_engine.serving.service import EngineState, Ready
from midfill_engine.wire import ErrorCode, InfillRequest, InfillResponse, ServeOptions, StepEvent

NAME: Final = "midfill"
ROUTER: Final = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
HEALTH_PERIOD_S: Final = 1.0
START_TIMEOUT_S: Final = "120"  # Ray's default of 30 s is too short on a busy machine

logger = logging.getLogger(__name__)


class Cluster:
    """`count` engines, on a new local Ray cluster unless an address is given."""

    def __init__(self, count: int, address: str | None = None) -> None:
        self._count = count
        self._address = address
        self._serve: Any = None
        self._num_running = 0
        # Ray's processes end with the thread that started them, so one thread starts everything.
        self._worker = ThreadPoolExecutor(1, "midfill-cluster")
        self._is_closed = threading.Event()

    def make_ready(self, state: EngineState, options: ServeOptions) -> Ready:
        """Starts the engines and waits until they are ready. Raises StartError."""
        self._options = options
        handle, about = self._worker.submit(self._start, state).result()
        fills = RemoteFills(handle)
        threading.Thread(target=self._watch, name="midfill-engines", daemon=True).start()
        fills.metrics.watch("midfill_replicas", "Engines that take requests", lambda: self._num_running)
        fills.metrics.watch("midfill_open_requests", "Requests waiting or at work", lambda: fills.num_open)
        info = about.info.model_copy(update={"created": int(time.time())})
        return Ready(info, about.names, fills, about.tokenizer, is_able=lambda: self._num_running > 0)

    def restart(self) -> None:
        """Replaces the engines one by one; the new ones read the checkpoint again."""
        self._worker.submit(self._restart)

    def close(self) -> None:
        self._is_closed.set()
        if self._serve is not None:
            self._serve.delete(NAME)
            import_module("ray").shutdown()

    def _start(self, state: EngineState) -> tuple[Any, About]:
        self._open_ray()
        state.has_lost_signals = True
        try:
            self._serve.start(proxy_location="Disabled", logging_config=quiet())
            handle = self._deploy()
            return handle, handle.about.remote().result()
        except Exception as error:
            raise self._explain(error) from error

    def _open_ray(self) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", START_TIMEOUT_S)
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if self._address is None:
            os.environ["RAY_AUTH_MODE"] = "token"
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            cpus = max(self._count, os.cpu_count() or 1)
            options |= {"num_cpus": cpus, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        try:
            ray, serve = import_module("ray"), import_module("ray.serve")
        except ImportError as error:
            message, next_step = "Ray Serve is not installed", "run `pip install 'midfill[ray]'`"
            raise StartError(ErrorCode.BAD_REQUEST, message, next_step, EXIT_NO_MODEL) from error
        try:
            ray.init(address=self._address, **options)
        except Exception as error:
            # Ray raises a bare Exception if the machine is too busy.
            said = (str(error).splitlines() or [type(error).__name__])[0]
            message = f"Ray does not start: {said}"
            raise StartError(ErrorCode.INTERNAL, message, "see /tmp/ray, or start again", EXIT_NO_MODEL) from error
        self._serve = serve
        logging.getLogger("ray.serve").setLevel(logging.ERROR)

    def _deploy(self) -> Any:
        resources = import_module("ray").cluster_resources()
        wants_gpu = self._options.device == "cuda" or (
            self._options.device == "auto" and resources.get("GPU", 0) >= self._count
        )
        what, has = ("GPU", resources.get("GPU", 0)) if wants_gpu else ("CPU", resources.get("CPU", 0))
        if has < self._count:
            raise StartError(
                ErrorCode.BAD_REQUEST,
                f"--ray {self._count} wants {self._count} {what}s, the cluster has {int(has)}",
                f"give --ray {int(has)}" if has >= 1 else "add nodes to it",
                EXIT_NO_MODEL,
            )
        share = {"num_gpus": 1} if wants_gpu else {"num_cpus": int(has // self._count)}
        deployment = self._serve.deployment(
            name="Engine",
            num_replicas=self._count,
            ray_actor_options=share,
            max_ongoing_requests=MAX_REQUESTS,
            max_queued_requests=MAX_REQUESTS,
            graceful_shutdown_timeout_s=self._options.drain_s,
            graceful_shutdown_wait_loop_s=0.2,
            health_check_period_s=HEALTH_PERIOD_S,
            request_router_config=self._serve.config.RequestRouterConfig(request_router_class=ROUTER),
            logging_config=quiet(),
        )(Replica)
        options = self._options.model_copy(update={"device": "cuda"} if wants_gpu else {})
        bound = deployment.bind(options, version(NAME))
        return self._serve.run(bound, name=NAME, route_prefix=None, logging_config=quiet())

    def _restart(self) -> None:
        logger.info("the engines are replaced one after the other")
        try:
            self._deploy()
        except Exception as error:  # noqa: BLE001 - what Ray raises here has no common class
            logger.error("the engines could not be replaced: %s", self._explain(error).message)
        else:
            logger.info("the engines were replaced")

    def _explain(self, error: Exception) -> StartError:
        if isinstance(error, StartError):
            return error
        try:
            said = self._serve.status().applications[NAME].message
        except Exception:  # noqa: BLE001 - then the error itself must do
            said = ""
        lines = [line for line in (said or str(error)).splitlines() if line.strip()] or [type(error).__name__]
        message = f"the engines do not start: {lines[-1].strip()}"
        return StartError(ErrorCode.INTERNAL, message, "see midfill doctor on every node", EXIT_NO_MODEL)

    def _watch(self) -> None:
        while not self._is_closed.is_set():
            try:
                engines = self._serve.status().applications[NAME].deployments["Engine"]
                self._num_running = engines.replica_states.get("RUNNING", 0)
            except Exception:  # noqa: BLE001 - while the controller itself is restarted nothing is known
                self._num_running = 0
            self._is_closed.wait(HEALTH_PERIOD_S)


def quiet() -> dict[str, Any]:
    return {"enable_access_log": False, "log_level": "ERROR"}


@dataclass(eq=False)
class RemoteFills:
    """Sends fills to engines, with the interface of a Scheduler. Requests of one document (or client) go to the same
    engine, which has their context cached, while it lives and has room.
    """

    handle: Any
    metrics: Metrics = field(default_factory=Metrics)
    tasks: dict[Ticket, "asyncio.Task[None]"] = field(default_factory=dict)
    is_closed: bool = False

    @property
    def num_open(self) -> int:
        return len(self.tasks)

    def submit(self, request: InfillRequest, listener: Listener, client: str = "") -> Ticket:
        """Call it on the event loop only. Raises RequestError after `stop`."""
        if self.is_closed:
            raise is_ending()
        loop = asyncio.get_running_loop()

        def cancel() -> None:
            loop.call_soon_threadsafe(self._cancel, ticket)

        ticket = Ticket(request, listener, cancel, client)
        self.tasks[ticket] = loop.create_task(self._follow(ticket))
        return ticket

    def stop(self) -> None:
        self.is_closed = True
        for ticket in list(self.tasks):
            ticket.cancel()

    def _cancel(self, ticket: Ticket) -> None:
        if task := self.tasks.get(ticket):
            task.cancel()

    async def _follow(self, ticket: Ticket) -> None:
        """Forwards an engine's events. A failure becomes the last event."""
        try:
            event = await self._ask(ticket)
        except asyncio.CancelledError:
            event = is_ending() if self.is_closed else RequestError(ErrorCode.CANCELLED, "the request was cancelled")
        except Exception as error:  # noqa: BLE001 - one request's failure must be answered, whatever it is
            event = self._explain(error)
        self.tasks.pop(ticket, None)
        if isinstance(event, InfillResponse):
            self.metrics.count_fill(event.stats, time.monotonic() - ticket.submitted_s)
        self.metrics.count_request("filled" if isinstance(event, InfillResponse) else event.code.value)
        ticket.listener(event)

    async def _ask(self, ticket: Ticket) -> InfillResponse | RequestError:
        engine = self.handle.options(stream=True, session_id=session_of(ticket)).infill
        events = engine.remote(ticket.request.model_dump_json(), ticket.client)
        try:
            async for text in events:
                event = decode_event(text)
                if not isinstance(event, StepEvent):
                    return event
                ticket.listener(event)
        finally:
            events.cancel()
        raise RuntimeError("the engine said nothing")

    def _explain(self, error: Exception) -> RequestError:
        headers = {"retry-after": "1"}
        if type(error).__name__ == "BackPressureError":
            return RequestError(ErrorCode.BUSY, "all engines are busy", "try again in a moment", headers=headers)
        logger.error("an engine failed with %s", type(error).__name__)
        if not type(error).__module__.startswith("ray."):
            return RequestError(ErrorCode.INTERNAL, f"the fill failed ({type(error).__name__})", "see the engine's log")
        return RequestError(ErrorCode.BUSY, "the engine at work was lost", "ask again", status=503, headers=headers)


def session_of(ticket: Ticket) -> str:
    """A hash that is equal for requests that should reach the same engine."""
    return hashlib.blake2b((ticket.request.document or ticket.client).encode(), digest_size=8).hexdigest()


def restart_at_signal(cluster: Cluster) -> None:
    signal.signal(signal.SIGHUP, lambda *_: cluster.restart())
