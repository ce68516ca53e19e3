"""An engine of the harness's own: started for a measurement, ended after it. Knows processes; no requests.

It shares nothing with the engine that editors use, so a checkpoint that was replaced in its folder is never mistaken.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from midfill_engine.wire import ErrorBody
from midfill_infill.engines.endpoint import Endpoint, relayed
from midfill_infill.engines.installed import engine_command, engine_environment
from midfill_infill.engines.supervise import EngineSettings, engine_arguments, probe
from midfill_infill.errors import MidfillError

START_TIMEOUT_S: Final = 600.0
END_TIMEOUT_S: Final = 10.0


@contextmanager
def running_engine(model: str | None, device: str = "auto") -> Iterator[Endpoint]:
    """A live engine for `model` (a known name or a checkpoint folder). Raises MidfillError if it does not start."""
    with tempfile.TemporaryDirectory(prefix="midfill-eval-") as folder:
        socket, log = Path(folder, "engine.sock"), Path(folder, "engine.log")
        command = [*engine_command(), "serve", "--socket", str(socket)]
        command += engine_arguments(EngineSettings(model, device))
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env=engine_environment(),
            )
        try:
            endpoint = Endpoint(socket=socket)
            _wait(process, endpoint, log)
            yield endpoint
        finally:
            _end(process)


def _wait(process: subprocess.Popen[bytes], endpoint: Endpoint, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while probe(endpoint) != "ok":
        if process.poll() is not None:
            raise _explain(process.returncode, log.read_text(encoding="utf-8", errors="replace"))
        if time.monotonic() > deadline:
            raise MidfillError("engine_failed", f"the engine was not ready after {START_TIMEOUT_S:g} s")
        time.sleep(0.05)


def _explain(code: int, log: str) -> MidfillError:
    """The error in the last line of the engine's log, else the line itself."""
    last = log.strip().rpartition("\n")[2]
    try:
        return relayed(ErrorBody.model_validate_json(last))
    except ValidationError:
        return MidfillError("engine_failed", f"the engine ended with exit code {code} while it started: {last}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
