"""Finds the user's engine, or starts one and waits for it. Knows processes, locks and folders; not HTTP, not requests.

There is one engine per model, device and so on. An engine inherits its locked `.lock` from its starter and holds it as
long as it lives, so a killed engine frees it at once and a slow one is never started twice.
"""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from midfill_engine.starting import packaged_folder
from midfill_engine.wire import BASE, FetchProgress
from midfill_infill import config
from midfill_infill.engines import records
from midfill_infill.engines.client import HUNG_S, EngineClient
from midfill_infill.engines.endpoint import Endpoint, last_words, parse_engine
from midfill_infill.engines.fetching import fetch, show_progress
from midfill_infill.engines.installed import (
    distribution_version,
    engine_command,
    engine_environment,
    missing_engine_packages,
)
from midfill_infill.engines.records import OPTIONS, EnginePlace, EngineRecord, living, writable
from midfill_infill.errors import MidfillError

DEFAULT_IDLE_TIMEOUT_S: Final = 1800.0
START_TIMEOUT_S: Final = 600.0
HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
SHIPPED: Final = "embedded"
# An engine that got a request within this time is not idle: its caller may send another one.
IDLE_S: Final = 60.0
SWEEP_AFTER_S: Final = 24 * 3600.0
_POLL_S: Final = 0.03
# An engine does not answer while it loads its libraries, which takes longer on a busy machine.
_HUNG_AT_START_S: Final = 2 * HUNG_S
_SAY_EVERY_S: Final = 1.0
_MAX_LOG_BYTES: Final = 1_000_000

Progress = Callable[[str], None]

# Engines that this process started. They outlive it, but it must reap those that end before.
_started: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class EngineSettings:
    """The wanted engine. `model` is a known name, a checkpoint folder or a hub id. The configuration, including that of
    `project` if given, fills in fields that are None and the device `auto`.
    """

    model: str | None = None
    device: str = "auto"
    idle_timeout_s: float = DEFAULT_IDLE_TIMEOUT_S
    dtype: str | None = None
    cache: str | None = None
    weights: str | None = None
    project: Path | None = None
    may_fetch: bool = True

    @property
    def record(self) -> EngineRecord:
        model = ""
        if self.model and self.model != SHIPPED:
            model = absolute_model(self.model)
        installation = f"{sys.prefix} {distribution_version()}"
        chosen: dict[str, Any] = {name: getattr(self, name) or "" for name in OPTIONS}
        return EngineRecord(model, self.device, **chosen, installation=installation)


def complete(settings: EngineSettings) -> EngineSettings:
    """Fills in open fields: from the engine that `midfill serve` runs, if any, otherwise from the configuration.

    A model that only a project's file names is never fetched, because the user did not ask for it.
    """
    known = config.load(settings.project)
    model = known["model"]
    if settings.model is None and model.source != "environment" and (served := _find_served(settings)) is not None:
        return served
    chosen: dict[str, Any] = {name: getattr(settings, name) or _text(known[name]) for name in OPTIONS}
    device = settings.device
    if device == "auto":
        device = _text(known["device"]) or device
    return replace(
        settings,
        model=settings.model or _text(model) or default_model(),
        device=device,
        **chosen,
        project=None,
        may_fetch=settings.may_fetch and (settings.model is not None or model.source != "project"),
    )


def default_model() -> str | None:
    """The pretrained base if it is installed, otherwise None: the shipped model."""
    if any((packaged_folder() / BASE).glob("*.gguf")):
        return BASE
    return None


def _find_served(settings: EngineSettings) -> EngineSettings | None:
    for _, record in living():
        wanted = replace(settings.record, model=record.model)
        if record.is_served and record.serves(wanted):
            chosen: dict[str, Any] = {name: getattr(record, name) or None for name in OPTIONS}
            return replace(settings, model=record.model or SHIPPED, device=record.device, **chosen)
    return None


def _text(setting: config.Setting) -> str | None:
    if setting.value is None:
        return None
    return str(setting.value)


def engine_arguments(settings: EngineSettings) -> list[str]:
    """Options of `serve` for the model, the device and all other choices."""
    model = absolute_model(settings.model) if settings.model else None
    given = [("--model", model), ("--device", settings.device)]
    given += [(f"--{name}", getattr(settings, name)) for name in OPTIONS]
    return [word for name, value in given if value is not None for word in (name, value)]


def absolute_model(model: str) -> str:
    """Makes a folder or GGUF file absolute, because the engine runs in another folder; keeps other names."""
    is_path = Path(model).is_dir() or model.endswith(".gguf") or (os.sep in model and HUB_ID.fullmatch(model) is None)
    if is_path:
        return os.path.realpath(model)
    return model


def check_model(model: str) -> str:
    """The name as settings store it. Raises MidfillError if no engine could find such a model."""
    name = absolute_model(model)
    is_file = name.endswith(".gguf") and Path(name).is_file()
    if is_file and not _is_gguf(name):
        raise MidfillError("unknown_model", f"{name} is no GGUF file that can be read", "copy or download it again")
    if model and (name in (SHIPPED, BASE) or is_file or Path(name).is_dir() or HUB_ID.fullmatch(name)):
        return name
    message = f"there is no model {model!r}, and no folder or GGUF file of that name"
    next_step = f"known are {BASE}, {SHIPPED} and OWNER/NAME on the hub; `midfill models list` shows what is here"
    raise MidfillError("unknown_model", message, next_step)


def _is_gguf(name: str) -> bool:
    with suppress(OSError), open(name, "rb") as opened:
        return opened.read(4) == b"GGUF"
    return False


def find_place(settings: EngineSettings) -> EnginePlace:
    """The files of a running engine that fits `settings`, otherwise of the one to start."""
    wanted = complete(settings).record
    own = place_of(wanted)
    if own.lives:
        return own
    return next((place for place, record in living() if record.serves(wanted)), own)


def place_of(record: EngineRecord) -> EnginePlace:
    identity = "\0".join(astuple(record)[:-1])
    return EnginePlace.at(records.runtime_folder() / f"engine-{hashlib.sha256(identity.encode()).hexdigest()[:12]}")


def named_endpoint() -> Endpoint | None:
    """The engine of the setting `engine`, which is another project's, otherwise the one of MIDFILL_ENGINE_URL."""
    chosen = config.load()["engine"].value
    if chosen is not None:
        return parse_engine(str(chosen), config.choose_context_tokens())
    url = os.environ.get("MIDFILL_ENGINE_URL")
    if not url:
        return None
    if not url.startswith(("http://", "https://")):
        raise MidfillError("engine_unreachable", f"MIDFILL_ENGINE_URL is {url!r}, not an http:// or https:// address")
    return Endpoint(url=url.rstrip("/"), token=os.environ.get("MIDFILL_TOKEN"))


def ensure_engine(
    settings: EngineSettings | None = None,
    on_progress: Progress = lambda _: None,
    start_timeout_s: float = START_TIMEOUT_S,
) -> Endpoint:
    """A live engine for `settings`, started if there is none; `on_progress` gets a phrase at each change.

    Raises `MidfillError`: `engine_missing`, `engine_failed`, `engine_silent`, `engine_unreachable`, `runtime_folder`,
    or what the engine said before it ended (`unknown_model`, ...).
    """
    named = named_endpoint()
    if named is not None:
        return named
    return ensure_own(settings or EngineSettings(), on_progress, start_timeout_s)


def ensure_own(
    settings: EngineSettings, on_progress: Progress = lambda _: None, start_timeout_s: float = START_TIMEOUT_S
) -> Endpoint:
    """As `ensure_engine`, but Midfill's own engine, whatever the user named."""
    settings = complete(settings)
    place = find_place(settings)
    endpoint = Endpoint(socket=place.socket)
    if probe(endpoint) == "ok":
        return endpoint
    if not place.lives:
        fetch_model(settings, on_progress)
    with writable(place.socket.parent):
        _start_and_wait(settings, place, endpoint, on_progress, start_timeout_s)
    return endpoint


def fetch_model(settings: EngineSettings, on_progress: Progress) -> None:
    """Downloads a model of the hub before an engine starts, if necessary. Raises MidfillError."""
    model = settings.model
    if model is None or absolute_model(model) != model or HUB_ID.fullmatch(model) is None or Path(model).is_dir():
        return
    check_installed()
    options = ["--if-missing", "--device", settings.device]
    if not settings.may_fetch:
        options.append("--cached-only")
    said_s = 0.0

    def hear(progress: FetchProgress) -> None:
        nonlocal said_s
        if progress.folder is None and time.monotonic() - said_s > _SAY_EVERY_S:
            said_s = time.monotonic()
            on_progress(show_progress(progress))

    fetch(model, hear, *options)


def probe(endpoint: Endpoint) -> str | None:
    """ "ok" or "loading"; "silent" if something listens but does not answer; None if nothing listens."""
    if endpoint.socket is not None and not endpoint.socket.exists():
        return None
    try:
        with EngineClient(endpoint) as client:
            return client.health()
    except MidfillError as error:
        if error.code == "engine_stopped":  # it holds its lock, so waiting would never end
            raise
        if error.code == "engine_silent":
            return "silent"
        return None


def _start_and_wait(
    settings: EngineSettings, place: EnginePlace, endpoint: Endpoint, on_progress: Progress, timeout_s: float
) -> None:
    deadline = time.monotonic() + timeout_s
    process: subprocess.Popen[bytes] | None = None
    log_start, last_phrase, heard_s = 0, "", time.monotonic()
    while True:
        state = probe(endpoint)
        if state == "ok":
            return
        if state != "silent":
            heard_s = time.monotonic()
        elif time.monotonic() - heard_s > _HUNG_AT_START_S:
            raise MidfillError("engine_silent", f"{_name(place)} accepts requests and does not answer")
        phrase = "loading the model" if state == "loading" else "starting the engine"
        if phrase != last_phrase:
            on_progress(phrase)
            last_phrase = phrase
        if process is None and state is None:
            process, log_start = _start(settings, place)
        elif process is not None and process.poll() is not None:
            raise _explain_death(process.returncode, place, log_start)
        if time.monotonic() > deadline:
            message = f"{_name(place)} was not ready after {timeout_s:g} s"
            raise MidfillError("engine_failed", message, f"end that process and try again, or see {place.log}")
        time.sleep(_POLL_S)


def _take_lock(place: EnginePlace) -> int | None:
    """The locked descriptor, after removing a dead engine's socket; None while an engine lives."""
    import fcntl  # Windows has none, and a client of a named engine needs none

    lock = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    if not os.fstat(lock).st_nlink:  # it was removed in the meantime
        os.close(lock)
        return _take_lock(place)
    place.socket.unlink(missing_ok=True)
    return lock


def end_idle(wanted: EngineRecord) -> None:
    """Ends other engines of the same model after an idle minute, except those of `midfill serve`."""
    for place, record in living():
        if record.is_served or record.model != wanted.model or place.pid is None:
            continue
        with suppress(MidfillError, ProcessLookupError), EngineClient(Endpoint(socket=place.socket)) as client:
            if client.idle()[0] > IDLE_S:
                os.kill(place.pid, signal.SIGTERM)


def _sign_lock(lock: int, pid: int) -> None:
    os.truncate(lock, 0)
    os.pwrite(lock, str(pid).encode(), 0)


def claim_place(settings: EngineSettings) -> EnginePlace:
    """Makes this process, and what it becomes by exec, the engine for `settings`. Raises MidfillError if one lives."""
    place = find_place(settings)
    with writable(place.socket.parent):
        lock = _take_lock(place)
    if lock is None:
        message = f"an engine for this model and device is running (process {place.pid})"
        raise MidfillError("engine_failed", message, "run `midfill engine stop`, or give another --socket")
    _sign_lock(lock, os.getpid())
    place.write(replace(settings.record, is_served=True))
    os.set_inheritable(lock, True)
    return place


def _start(settings: EngineSettings, place: EnginePlace) -> tuple[subprocess.Popen[bytes] | None, int]:
    """The started process and the log's size before; None if another process has started the engine."""
    lock = _take_lock(place)
    if lock is None:
        return None, 0
    with os.fdopen(lock):  # closes it
        check_installed()
        records.sweep_dead(SWEEP_AFTER_S)
        end_idle(settings.record)
        if place.log.exists() and place.log.stat().st_size > _MAX_LOG_BYTES:
            place.log.replace(place.log.with_suffix(".log.old"))
        command = [*engine_command(), "serve", "--socket", str(place.socket), *engine_arguments(settings)]
        command += ["--idle-timeout-s", f"{settings.idle_timeout_s:g}"]
        with open(place.log, "ab", opener=partial(os.open, mode=0o600)) as log:
            log_start = log.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=place.socket.parent,
                env=engine_environment(),
                start_new_session=True,
                pass_fds=(lock,),
            )
        _started[:] = [process, *(earlier for earlier in _started if earlier.poll() is None)]
        _sign_lock(lock, process.pid)
        place.write(settings.record)
        return process, log_start


def check_installed() -> None:
    """Raises `engine_missing` if the engine's libraries are not installed."""
    if missing := missing_engine_packages():
        raise MidfillError("engine_missing", f"the engine's libraries are not installed ({', '.join(missing)})")


def _explain_death(exit_code: int, place: EnginePlace, log_start: int) -> MidfillError:
    """The last error in the engine's log."""
    with open(place.log, "rb") as log:
        log.seek(log_start)
        log_text = log.read().decode(errors="replace")
    if (error := last_words(log_text)) is not None:
        return error
    message = f"the engine ended with exit code {exit_code} while it started"
    return MidfillError("engine_failed", message, f"see {place.log}")


def _name(place: EnginePlace) -> str:
    if place.pid:
        return f"the engine (process {place.pid})"
    return "the engine"
