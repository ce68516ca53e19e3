"""Finds the user's engine, or starts one and waits for it. Knows processes, locks and folders; not HTTP, not requests.

One engine a (model, device). Its `.lock` is held by the engine itself for as long as it lives (the starter hands the
locked descriptor over), so a killed engine frees it at once and a slow one is never started twice.
"""

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from midfill_engine.wire import ErrorBody
from midfill_infill.engines.client import Endpoint, EngineClient, relayed
from midfill_infill.engines.installed import distribution_version, missing_engine_packages
from midfill_infill.engines.runtime import runtime_folder, writable
from midfill_infill.errors import MidfillError

DEFAULT_IDLE_TIMEOUT_S: Final = 1800.0
START_TIMEOUT_S: Final = 600.0
HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
_POLL_S: Final = 0.03
_MAX_LOG_BYTES: Final = 1_000_000

Progress = Callable[[str], None]

# Engines that this process started: they outlive it, but while it lives it must reap those that end.
_started: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class EngineSettings:
    """Which engine is wanted. `model` is a known name or a checkpoint folder; None is the engine's default."""

    model: str | None = None
    device: str = "auto"
    idle_timeout_s: float = DEFAULT_IDLE_TIMEOUT_S
    start_timeout_s: float = START_TIMEOUT_S


@dataclass(frozen=True)
class EnginePlace:
    """The files of one engine in the runtime folder."""

    socket: Path
    lock: Path
    log: Path

    @property
    def pid(self) -> int | None:
        """The process last started here; None before the first."""
        try:
            return int(self.lock.read_text())
        except (OSError, ValueError):
            return None


def engine_command() -> list[str]:
    """How the engine is started. `-P`: a file of the user's folder must not be imported in place of a library."""
    return [sys.executable, "-P", "-m", "midfill_engine"]


def engine_arguments(model: str | None, device: str) -> list[str]:
    """`serve` options that name the model and the device."""
    return [*(["--model", absolute_model(model)] if model else []), "--device", device]


def absolute_model(model: str) -> str:
    """A checkpoint folder by its absolute path, since the engine runs in another; OWNER/NAME and known names as is."""
    is_folder = Path(model).is_dir() or (os.sep in model and HUB_ID.fullmatch(model) is None)
    return str(Path(model).resolve()) if is_folder else model


def find_place(settings: EngineSettings) -> EnginePlace:
    """Where the engine for `settings` keeps its files. Engines of another version or installation are others."""
    model = absolute_model(settings.model) if settings.model else ""
    identity = "\0".join((model, settings.device, sys.prefix, distribution_version()))
    stem = f"engine-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    folder = runtime_folder()
    return EnginePlace(folder / f"{stem}.sock", folder / f"{stem}.lock", folder / f"{stem}.log")


def named_endpoint() -> Endpoint | None:
    """The engine that the user named by MIDFILL_ENGINE_URL, if any; `mercury+https://HOST` is Inception's service."""
    url = os.environ.get("MIDFILL_ENGINE_URL")
    if not url:
        return None
    if url.startswith("mercury+"):
        return Endpoint(
            url=url.removeprefix("mercury+").rstrip("/"), token=os.environ.get("INCEPTION_API_KEY"), is_mercury=True
        )
    if not url.startswith(("http://", "https://")):
        raise MidfillError("engine_unreachable", f"MIDFILL_ENGINE_URL is {url!r}, not an http:// or https:// address")
    return Endpoint(url=url.rstrip("/"), token=os.environ.get("MIDFILL_TOKEN"))


def ensure_engine(settings: EngineSettings | None = None, on_progress: Progress = lambda _: None) -> Endpoint:
    """A live engine for `settings`, started if there is none; `on_progress` gets a phrase at each change.

    Raises `MidfillError`: `engine_missing`, `engine_failed`, `engine_unreachable`, `runtime_folder`, or what the engine
    said before it ended (`unknown_model`, ...).
    """
    named = named_endpoint()
    if named is not None:
        return named
    settings = settings or EngineSettings()
    place = find_place(settings)
    endpoint = Endpoint(socket=place.socket)
    if probe(endpoint) == "ok":
        return endpoint
    with writable(place.socket.parent):
        _start_and_wait(settings, place, endpoint, on_progress)
    return endpoint


def probe(endpoint: Endpoint) -> str | None:
    """ "ok", "loading", or None where nobody answers."""
    if endpoint.socket is not None and not endpoint.socket.exists():
        return None
    try:
        with EngineClient(endpoint) as client:
            return client.health()
    except MidfillError as error:
        if error.code == "engine_stopped":  # it holds its lock, and nothing that waits would ever end
            raise
        return None


def _start_and_wait(settings: EngineSettings, place: EnginePlace, endpoint: Endpoint, on_progress: Progress) -> None:
    deadline = time.monotonic() + settings.start_timeout_s
    process: subprocess.Popen[bytes] | None = None
    log_start, said = 0, ""
    while True:
        state = probe(endpoint)
        if state == "ok":
            return
        phrase = "loading the model" if state == "loading" else "starting the engine"
        if phrase != said:
            on_progress(phrase)
            said = phrase
        if process is None and state is None:
            process, log_start = _try_start(settings, place)
        elif process is not None and process.poll() is not None:
            raise _explain_death(process.returncode, place, log_start)
        if time.monotonic() > deadline:
            raise _explain_silence(settings, place)
        time.sleep(_POLL_S)


def _try_start(settings: EngineSettings, place: EnginePlace) -> tuple[subprocess.Popen[bytes] | None, int]:
    """Starts the engine if no other process has; returns it with the log's size before, or None."""
    lock = _take_lock(place)
    if lock is None:
        return None, 0
    try:
        return _start(settings, place, lock)
    finally:
        os.close(lock)


def _take_lock(place: EnginePlace) -> int | None:
    """The locked descriptor, with a dead engine's socket cleared away; None while an engine lives."""
    lock = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    place.socket.unlink(missing_ok=True)
    return lock


def _sign_lock(lock: int, pid: int) -> None:
    os.truncate(lock, 0)
    os.pwrite(lock, str(pid).encode(), 0)


def claim_place(settings: EngineSettings) -> EnginePlace:
    """Makes this process, and what it becomes by exec, the engine for `settings`. Raises if one lives."""
    place = find_place(settings)
    with writable(place.socket.parent):
        lock = _take_lock(place)
    if lock is None:
        message = f"an engine for this model and device is running (process {place.pid})"
        raise MidfillError("engine_failed", message, next_step="end it first, or give another --socket")
    _sign_lock(lock, os.getpid())
    os.set_inheritable(lock, True)
    return place


def _start(settings: EngineSettings, place: EnginePlace, lock: int) -> tuple[subprocess.Popen[bytes], int]:
    check_installed()
    if place.log.exists() and place.log.stat().st_size > _MAX_LOG_BYTES:
        place.log.replace(place.log.with_suffix(".log.old"))
    command = [*engine_command(), "serve", "--socket", str(place.socket)]
    command += [*engine_arguments(settings.model, settings.device), "--idle-timeout-s", f"{settings.idle_timeout_s:g}"]
    with open(place.log, "ab", opener=_open_private) as log:
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
    return process, log_start


def check_installed() -> None:
    """Raises `engine_missing` where the engine's libraries are not installed."""
    if missing := missing_engine_packages():
        raise MidfillError("engine_missing", f"the engine's libraries are not installed ({', '.join(missing)})")


def engine_environment() -> dict[str, str]:
    """Our environment; PYTHONPATH made absolute, for the engine runs in another folder."""
    environment = dict(os.environ)
    if path := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in path.split(os.pathsep))
    return environment


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _explain_death(exit_code: int, place: EnginePlace, log_start: int) -> MidfillError:
    """What the engine said on its last line, as our error."""
    with open(place.log, "rb") as log:
        log.seek(log_start)
        lines = log.read().decode(errors="replace").splitlines()
    for line in reversed(lines):
        try:
            return relayed(ErrorBody.model_validate_json(line))
        except ValidationError:
            continue
    message = f"the engine ended with exit code {exit_code} while it started"
    return MidfillError("engine_failed", message, next_step=f"see {place.log}")


def _explain_silence(settings: EngineSettings, place: EnginePlace) -> MidfillError:
    pid = f" (process {place.pid})" if place.pid else ""
    message = f"the engine{pid} was not ready after {settings.start_timeout_s:g} s"
    return MidfillError("engine_failed", message, next_step=f"end that process and try again, or see {place.log}")
