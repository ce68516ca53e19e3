"""Downloads a checkpoint by a process of the engine's package, without a time limit. Knows no network."""

import subprocess
from collections.abc import Callable

from pydantic import ValidationError

from midfill_engine.wire import FetchProgress, StoredModels
from midfill_infill.engines.endpoint import last_words
from midfill_infill.engines.installed import engine_command, engine_environment
from midfill_infill.errors import MidfillError
from midfill_infill.text.visible import duration

GRACE_S = 5.0  # for the process to end before it is killed


def fetch(model: str, hear: Callable[[FetchProgress], None], *options: str) -> str:
    """Downloads a model and returns its folder; resumes an earlier download. `hear` is called with the progress. Raises
    MidfillError; `cancelled` on Ctrl-C.
    """
    last: FetchProgress | None = None
    with _spawn("fetch", model, *options) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            for line in process.stdout:
                last = FetchProgress.model_validate_json(line)
                hear(last)
            log = process.stderr.read()
            code = process.wait()
        except KeyboardInterrupt:
            message = "stopped"
            if last is not None:
                message += f" with {show_amount(last)} here"
            raise MidfillError("cancelled", message, f"run `midfill models get {model}` to go on") from None
        except ValidationError:
            raise MidfillError("fetch_failed", f"the engine says of {model} what is not understood") from None
        finally:
            _end(process)
    if code or last is None or last.folder is None:
        raise explain(log, code)
    return last.folder


def show_progress(progress: FetchProgress) -> str:
    """The progress of a download as text for a log or a status line."""
    text = f"getting {progress.model}: {show_amount(progress)}, {show_size(progress.bytes_per_s)}/s"
    if progress.left_s and progress.done_bytes < progress.total_bytes:
        text += f", {duration(progress.left_s)} left"
    if progress.note:
        text += f" ({progress.note})"
    return text


def show_amount(progress: FetchProgress) -> str:
    return f"{show_size(progress.done_bytes)} of {show_size(progress.total_bytes)}"


def show_size(num_bytes: float) -> str:
    """A number of bytes in GB, MB or kB, with one decimal."""
    for unit, unit_bytes in (("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= unit_bytes:
            return f"{num_bytes / unit_bytes:.1f} {unit}"
    return f"{num_bytes / 1e3:.1f} kB"


def list_stock(*options: str) -> StoredModels:
    """Lists the models on this machine. Raises MidfillError."""
    with _spawn("stock", *options) as process:
        out, log = process.communicate()
    if process.returncode:
        raise explain(log, process.returncode)
    return StoredModels.model_validate_json(out)


def explain(log: str, exit_code: int) -> MidfillError:
    """The error that the engine's process logged last; if it logged none, one with the last line of its log."""
    error = last_words(log)
    if error is not None:
        return error
    ending = f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
    last_line = next((line for line in reversed(log.splitlines()) if line.strip()), "it said nothing")
    return MidfillError("fetch_failed", f"the process that fetches {ending} ({last_line.strip()})")


def _spawn(*words: str) -> "subprocess.Popen[str]":
    """Starts the engine's command with these words."""
    return subprocess.Popen(
        [*engine_command(), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=engine_environment(),
        text=True,
    )


def _end(process: "subprocess.Popen[str]") -> None:
    """Ends a process if it still runs: asks it to, and kills it after GRACE_S."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
