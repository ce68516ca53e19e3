"""Finds the user's engine, or starts one and waits for it. Knows processes, locks and folders; no HTTP, no requests.

There is one engine for each combination of settings. An engine inherits its locked `.lock` from the process that starts
it and holds the lock until it ends, so a killed engine frees it at once and a slow one is never started twice.
"""

import hashlib
import os
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

from midfill_engine.starting import is_hub_id, packaged_folder
from midfill_engine.wire import BASE, FetchProgress
from midfill_infill import config
from midfill_infill.engines import records
from midfill_infill.engines.client import HUNG_S, EngineClient
from midfill_infill.engines.endpoint import (
    Endpoint,
    hide_password,
    last_words,
    parse_engine,
    refuse_password,
    split_address,
)
from midfill_infill.engines.fetching import fetch, show_progress
from midfill_infill.engines.installed import (
    distribution_version,
    engine_command,
    engine_environment,
    missing_engine_packages,
)
from midfill_infill.engines.records import OPTIONS, EnginePlace, EngineRecord, list_living, writable
from midfill_infill.errors import MidfillError

DEFAULT_IDLE_TIMEOUT_S: Final = 1800.0
START_TIMEOUT_S: Final = 600.0
SHIPPED: Final = "embedded"  # the model that ships with Midfill
# An engine that got a request within this time is not idle: its caller may send another one.
IDLE_S: Final = 60.0
SWEEP_AFTER_S: Final = 24 * 3600.0  # when the files of an engine that has ended are removed, see `sweep_dead`
_POLL_S: Final = 0.03
# An engine that is silent for so long at its start is given up. It does not answer while it loads its libraries, which
# takes longer on a busy machine.
_HUNG_AT_START_S: Final = 2 * HUNG_S
_SAY_EVERY_S: Final = 1.0  # progress of a download
_MAX_LOG_BYTES: Final = 1_000_000

Progress = Callable[[str], None]  # is called with a phrase such as "loading the model"

# Engines that this process started. They outlive it, but it must wait for those that end earlier, or they stay zombies.
_started: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class EngineSettings:
    """The engine that a user asks for. `model` is a known name, a checkpoint's folder or a hub id. `complete` fills in
    fields that are None and the device `auto` from the configuration, with that of the folder `project`, if given.
    `may_fetch` allows downloading the model.
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
        """The record of an engine that is started with these settings by this installation."""
        model = ""
        if self.model and self.model != SHIPPED:
            model = absolute_model(self.model)
        installation = f"{sys.prefix} {distribution_version()}"
        options: dict[str, Any] = {name: getattr(self, name) or "" for name in OPTIONS}
        return EngineRecord(model, self.device, **options, installation=installation)


def complete(settings: EngineSettings) -> EngineSettings:
    """The settings with their open fields filled in: from a fitting engine that `midfill serve` runs, if neither the
    user nor the environment names a model; otherwise from the configuration.

    A model that only a project's file names is never downloaded, because the user did not ask for it.
    """
    configured = config.load(settings.project)
    model = configured["model"]
    if settings.model is None and model.source != "environment" and (served := _find_served(settings)) is not None:
        return served
    options: dict[str, Any] = {name: getattr(settings, name) or _to_text(configured[name]) for name in OPTIONS}
    device = settings.device
    if device == "auto":
        device = _to_text(configured["device"]) or device
    return replace(
        settings,
        model=settings.model or _to_text(model) or default_model(),
        device=device,
        **options,
        project=None,
        may_fetch=settings.may_fetch and (settings.model is not None or model.source != "project"),
    )


def default_model() -> str | None:
    """The pretrained base if it is installed; None, which means the shipped model, otherwise."""
    return BASE if any((packaged_folder() / BASE).glob("*.gguf")) else None


def _find_served(settings: EngineSettings) -> EngineSettings | None:
    """The settings with those of an engine that `midfill serve` runs and that fits them; None if there is none."""
    for _, record in list_living():
        wanted = replace(settings.record, model=record.model)
        if record.is_served and record.serves(wanted):
            options: dict[str, Any] = {name: getattr(record, name) or None for name in OPTIONS}
            return replace(settings, model=record.model or SHIPPED, device=record.device, **options)
    return None


def _to_text(setting: config.Setting) -> str | None:
    """The value of a setting as text; None if it has none."""
    return None if setting.value is None else str(setting.value)


def engine_arguments(settings: EngineSettings) -> list[str]:
    """The options of the engine's `serve` command for the model, the device and what else the settings name."""
    model = absolute_model(settings.model) if settings.model else None
    values = [("--model", model), ("--device", settings.device)]
    values += [(f"--{name}", getattr(settings, name)) for name in OPTIONS]
    return [word for option, value in values if value is not None for word in (option, value)]


def absolute_model(model: str) -> str:
    """Makes the path of a model's folder or file absolute, because the engine runs elsewhere. Other names stay; those
    of Midfill's models do even if a folder has them.
    """
    if model in (SHIPPED, BASE):
        return model
    if model.endswith(".gguf"):  # in the hub's cache it is a link to a file whose name says nothing
        folder, name = os.path.split(model)
        return os.path.join(os.path.realpath(folder), name)
    is_path = Path(model).is_dir() or (os.sep in model and not is_hub_id(model))
    if is_path:
        return os.path.realpath(model)
    return model


def check_model(model: str) -> str:
    """The name of a model as settings store it. Raises MidfillError if no engine could find such a model."""
    name = absolute_model(model)
    is_file = name.endswith(".gguf") and Path(name).is_file()
    if is_file:
        start = b""
        with suppress(OSError), open(name, "rb") as opened:
            start = opened.read(4)
        if start != b"GGUF":
            raise MidfillError("unknown_model", f"{name} is no GGUF file that can be read", "copy or download it again")
    if model and (name in (SHIPPED, BASE) or is_file or Path(name).is_dir() or is_hub_id(name)):
        return name
    message = f"there is no model {model!r}, and no folder or GGUF file of that name"
    next_step = f"known are {BASE}, {SHIPPED} and OWNER/NAME on the hub; `midfill models list` shows what is here"
    raise MidfillError("unknown_model", message, next_step)


def find_place(settings: EngineSettings) -> EnginePlace:
    """The place of a running engine that fits `settings`, otherwise of the engine to start with them."""
    wanted = complete(settings).record
    exact_place = place_of(wanted)
    if exact_place.is_alive:
        return exact_place
    return next((place for place, record in list_living() if record.serves(wanted)), exact_place)


def place_of(record: EngineRecord) -> EnginePlace:
    """The place of an engine with exactly this record, whether it runs or not, and who runs it."""
    identity = "\0".join(astuple(record)[:-1])  # without `is_served`
    return EnginePlace.at(records.runtime_folder() / f"engine-{hashlib.sha256(identity.encode()).hexdigest()[:12]}")


def named_endpoint() -> Endpoint | None:
    """The engine that the user names: another project's by the setting `engine`, otherwise an engine of Midfill by
    MIDFILL_ENGINE_URL; None if neither is set. Raises MidfillError if what is named is no address.
    """
    setting = config.load()["engine"].value
    if setting is not None:
        return parse_engine(str(setting), config.choose_context_tokens())
    url = os.environ.get("MIDFILL_ENGINE_URL")
    if not url:
        return None
    if split_address(url) is None:
        message = f"MIDFILL_ENGINE_URL is {hide_password(url)!r}, not an http:// or https:// address"
        raise MidfillError("engine_unreachable", message)
    refuse_password(url)
    return Endpoint(url=url.rstrip("/"), token=os.environ.get("MIDFILL_TOKEN"))


def ensure_engine(
    settings: EngineSettings | None = None,
    on_progress: Progress = lambda _: None,
    start_timeout_s: float = START_TIMEOUT_S,
) -> Endpoint:
    """The engine that the user names, otherwise a live engine for `settings`, started if there is none. `on_progress`
    is called with a phrase whenever the work changes.

    Raises MidfillError: `engine_missing`, `engine_failed`, `engine_silent`, `engine_unreachable`, `runtime_folder`, or
    the error that the engine logged before it ended, such as `unknown_model`.
    """
    named = named_endpoint()
    if named is not None:
        return named
    return ensure_own(settings or EngineSettings(), on_progress, start_timeout_s)


def ensure_own(
    settings: EngineSettings, on_progress: Progress = lambda _: None, start_timeout_s: float = START_TIMEOUT_S
) -> Endpoint:
    """As `ensure_engine`, but always Midfill's own engine, even if the user names another one."""
    completed = complete(settings)
    place = find_place(completed)
    endpoint = Endpoint(socket=place.socket)
    if probe(endpoint) == "ok":
        return endpoint
    if not place.is_alive:
        fetch_model(completed, on_progress)
    with writable(place.socket.parent):
        _start_and_wait(completed, place, endpoint, on_progress, start_timeout_s)
    return endpoint


def fetch_model(settings: EngineSettings, on_progress: Progress) -> None:
    """Downloads a model of the hub that is not here, before an engine starts with it. Raises MidfillError."""
    model = settings.model
    if model is None or absolute_model(model) != model or not is_hub_id(model):
        return
    check_installed()
    options = ["--if-missing", "--device", settings.device]
    if not settings.may_fetch:
        options.append("--cached-only")
    last_shown_s = 0.0

    def hear(progress: FetchProgress) -> None:
        nonlocal last_shown_s
        if progress.folder is None and time.monotonic() - last_shown_s > _SAY_EVERY_S:
            last_shown_s = time.monotonic()
            on_progress(show_progress(progress))

    fetch(model, hear, *options)


def probe(endpoint: Endpoint) -> str | None:
    """The state of an engine: as `EngineClient.health` tells, "silent" if it listens but does not answer, None if it
    does not run. Raises MidfillError `engine_stopped`.
    """
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
    """Waits until an engine at `place` is ready, and starts it if none runs. Raises MidfillError if the engine ends, is
    silent for too long, or is not ready after `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    process: subprocess.Popen[bytes] | None = None
    log_start, last_phrase = 0, ""
    heard_s = time.monotonic()  # when the engine was last not silent
    while True:
        state = probe(endpoint)
        if state == "ok":
            return
        if state != "silent":
            heard_s = time.monotonic()
        elif time.monotonic() - heard_s > _HUNG_AT_START_S:
            raise MidfillError("engine_silent", f"{_describe(place)} accepts requests and does not answer")
        phrase = "loading the model" if state == "loading" else "starting the engine"
        if phrase != last_phrase:
            on_progress(phrase)
            last_phrase = phrase
        if process is None and state is None:
            process, log_start = _start(settings, place)
        elif process is not None and process.poll() is not None:
            raise _explain_death(process.returncode, place, log_start)
        if time.monotonic() > deadline_s:
            message = f"{_describe(place)} was not ready after {timeout_s:g} s"
            raise MidfillError("engine_failed", message, f"end that process and try again, or see {place.log}")
        time.sleep(_POLL_S)


def _take_lock(place: EnginePlace) -> int | None:
    """Locks a place, and removes a dead engine's socket and process id. Returns the lock's descriptor, None while an
    engine lives.
    """
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
    os.truncate(lock, 0)
    place.socket.unlink(missing_ok=True)
    return lock


def end_idle(wanted: EngineRecord) -> None:
    """Ends engines of the same model that have been idle for a minute, except those that `midfill serve` runs."""
    for place, record in list_living():
        if record.is_served or record.model != wanted.model or place.pid is None:
            continue
        with suppress(MidfillError, ProcessLookupError), EngineClient(Endpoint(socket=place.socket)) as client:
            if client.idle()[0] > IDLE_S:
                os.kill(place.pid, signal.SIGTERM)


def claim_place(settings: EngineSettings) -> EnginePlace:
    """Makes this process, also after an exec, the engine for `settings`. Raises MidfillError if one lives already."""
    place = find_place(settings)
    with writable(place.socket.parent):
        lock = _take_lock(place)
    if lock is None:
        message = f"an engine for this model and device is running (process {place.pid})"
        raise MidfillError("engine_failed", message, "run `midfill engine stop`, or give another --socket")
    os.write(lock, str(os.getpid()).encode())
    place.write(replace(settings.record, is_served=True))
    os.set_inheritable(lock, True)
    return place


def _start(settings: EngineSettings, place: EnginePlace) -> tuple[subprocess.Popen[bytes] | None, int]:
    """Starts an engine. Returns its process, and the size that its log had before; no process if another one has just
    started the engine.
    """
    lock = _take_lock(place)
    if lock is None:
        return None, 0
    with os.fdopen(lock):  # closes it here; the engine inherits it and so holds the lock
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
        os.write(lock, str(process.pid).encode())
        place.write(settings.record)
        return process, log_start


def check_installed() -> None:
    """Raises MidfillError `engine_missing` if the engine's libraries are not installed."""
    if missing := missing_engine_packages():
        raise MidfillError("engine_missing", f"the engine's libraries are not installed ({', '.join(missing)})")


def _explain_death(exit_code: int, place: EnginePlace, log_start: int) -> MidfillError:
    """The error of an engine that ended while it started: the last one in its log from `log_start`, if there is any."""
    with open(place.log, "rb") as log:
        log.seek(log_start)
        log_text = log.read().decode(errors="replace")
    if (error := last_words(log_text)) is not None:
        return error
    message = f"the engine ended with exit code {exit_code} while it started"
    return MidfillError("engine_failed", message, f"see {place.log}")


def _describe(place: EnginePlace) -> str:
    """The engine of a place as the subject of a message, with its process id if known."""
    return f"the engine (process {place.pid})" if place.pid else "the engine"
