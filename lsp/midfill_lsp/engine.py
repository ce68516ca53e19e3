"""Runs fills on the engines that the settings name, over kept connections. Knows `infill`'s calls, not what they do."""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Filled, Options, Preview, fill, propose_fill
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_lsp.settings import Settings

if TYPE_CHECKING:  # imports an HTTP client, a fifth of the server's start-up time; the first fill needs it
    from midfill_infill.engines.client import EngineClient

FIRST_BACKOFF_S = 2.0
MAX_BACKOFF_S = 300.0
POLL_S = 0.05
# How the codes of errors begin that the next fill would get again.
_ENGINE_ERRORS = ("engine_", "out_of", "unknown_model")

ModelAndDevice = tuple[str | None, str]
Say = Callable[[str], None]
Events = Generator[Preview | Filled, None, None]
Filler = Callable[[Document, Sequence[Hole], Options, Settings, Say], Events]


@dataclass(frozen=True)
class EngineFacts:
    """Facts about the engine that was used last."""

    model: str
    device: str
    dtype: str
    parameters: int


class Engines:
    """One connection per engine in use. Its methods block; thread-safe."""

    def __init__(self) -> None:
        self.facts: EngineFacts | None = None
        self._clients: dict[ModelAndDevice, tuple[EngineClient, EngineFacts | None]] = {}

    def fill(self, document: Document, holes: Sequence[Hole], options: Options, settings: Settings, say: Say) -> Events:
        """Fills with the engine that the settings name. If it must be started first, previews a proposal, or no holes,
        meanwhile. Closing the generator stops the work. Raises MidfillError.
        """
        model_and_device = settings.model, settings.device
        known = self._clients.get(model_and_device)
        if known is not None:
            client, facts = known
            events = fill(document, holes, options, client)
            try:
                first = next(events)
            except MidfillError as error:
                # The engine of this connection has ended: below, another one is found or started.
                if error.code not in ("engine_died", "engine_unreachable"):
                    raise
                if self._clients.get(model_and_device) is known:  # otherwise another fill has replaced it already
                    del self._clients[model_and_device]  # not closed, because other fills may still read from it
            else:
                self.facts = facts
                yield first
                yield from events
                return
        proposed = propose_fill(document, holes, options)
        yield Preview.of(proposed, 0, None) if proposed else Preview(0, 1, (), is_proposed=True)
        connector = ThreadPoolExecutor(1)
        connecting = connector.submit(self._connect, model_and_device, say)
        connector.shutdown(wait=False)
        while not wait([connecting], POLL_S).done:
            yield Preview(0, 1, (), is_proposed=True)  # lets the caller stop
        yield from fill(document, holes, options, connecting.result())

    def _connect(self, model_and_device: ModelAndDevice, say: Say) -> "EngineClient":
        """A connection to an engine, which is started if none runs. `say` gets sentences about it for the user."""
        from midfill_infill.engines.client import EngineClient
        from midfill_infill.engines.offer import tell_where
        from midfill_infill.engines.supervise import EngineSettings, ensure_engine

        endpoint = ensure_engine(EngineSettings(*model_and_device), say)
        sentence = tell_where(endpoint.remote_host)
        if sentence is not None:
            say(sentence)
        client = EngineClient(endpoint)
        facts = None
        if models := client.models():
            facts = EngineFacts(models[0].id, models[0].device, models[0].dtype, models[0].parameters)
        client, self.facts = self._clients.setdefault(model_and_device, (client, facts))
        return client


class WatchedFiller:
    """A filler that records its engine's errors, also for fills that nobody waits for. Thread-safe. After a failure,
    unrequested fills pause for 2 s; after each further one twice as long as before, up to 5 minutes.
    """

    def __init__(self, filler: Filler, tell: Callable[[], None]) -> None:
        """`tell` is called whenever `error` has changed, in the fill's thread."""
        self.error: MidfillError | None = None
        self._filler, self._tell = filler, tell
        self._num_failures, self._paused_until_s = 0, 0.0
        self._last_succeeded = False
        self._one_at_a_time, self._state_lock = threading.Lock(), threading.Lock()

    @property
    def is_resting(self) -> bool:
        """True while unrequested fills are paused."""
        return time.monotonic() < self._paused_until_s

    def fill(self, document: Document, holes: Sequence[Hole], options: Options, settings: Settings, say: Say) -> Events:
        """Fills with the filler, and records success and the errors of its engine."""
        try:
            with closing(self._filler(document, holes, options, settings, say)) as events:
                for event in events:
                    if isinstance(event, Filled):
                        self.succeed()
                    elif event.is_proposed:  # the engine must be started
                        self._last_succeeded = False
                    yield event
        except MidfillError as error:
            if error.code.startswith(_ENGINE_ERRORS):
                self._note(error)
            raise

    def fill_unasked(
        self, document: Document, holes: Sequence[Hole], options: Options, settings: Settings, say: Say
    ) -> Events:
        """Like `fill`, but without proposals, and empty in a pause. Unless the last fill succeeded, only one at a time
        begins.
        """
        with closing(self.fill(document, holes, options, settings, say)) as all_events:
            events = (event for event in all_events if isinstance(event, Filled) or not event.is_proposed)
            is_alone = not self._last_succeeded
            while is_alone and not self._one_at_a_time.acquire(timeout=POLL_S):
                yield Preview(0, 1, ())  # lets the caller stop
            try:
                first = None if self.is_resting else next(events, None)
            finally:
                if is_alone:
                    self._one_at_a_time.release()
            if first is not None:
                yield first
                yield from events

    def succeed(self) -> None:
        """Records that a fill succeeded."""
        self._note(None)

    def _note(self, error: MidfillError | None) -> None:
        """Records how the last fill ended: with an error of its engine, or with None."""
        with self._state_lock:
            is_news = error is not self.error
            self.error, self._last_succeeded = error, error is None
            if error is None:
                self._num_failures, self._paused_until_s = 0, 0.0
            elif not self.is_resting:  # failures during the pause belong to fills that began before it
                self._paused_until_s = time.monotonic() + min(FIRST_BACKOFF_S * 2**self._num_failures, MAX_BACKOFF_S)
                self._num_failures += 1
        if is_news:
            self._tell()
