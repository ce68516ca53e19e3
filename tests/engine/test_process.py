"""`python -m midfill_engine` as a process: start, answers, signals, ends."""

import json
import os
import signal
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from tests.engine.fakes import LIMIT_S, FakeFills, Service, wait_until

from midfill_engine.serving import serve
from midfill_engine.serving.service import EngineState
from midfill_engine.serving.sockets import answers

ENGINE = Path(__file__).parents[2] / "engine"
Start = Callable[..., "subprocess.Popen[str]"]
# The engine itself, but a forward of 8 passes ends only when the engine was told to.
HOLDING = """
import threading
from midfill_engine import __main__
from midfill_engine.loading import runtime
from midfill_engine.scheduling import scheduler
told, run, stop = threading.Event(), runtime.Runtime.run, scheduler.Scheduler.stop
def wait_and_run(self, passes):
    assert len(passes) < 8 or told.wait(60)
    return run(self, passes)
def stop_and_tell(self):
    stop(self)
    told.set()
runtime.Runtime.run, scheduler.Scheduler.stop = wait_and_run, stop_and_tell
__main__.app()
"""


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []
    environment = {**os.environ, "PYTHONPATH": str(ENGINE), "OMP_NUM_THREADS": "1"}

    def run(*arguments: str, code: str = "", **extra: str) -> subprocess.Popen[str]:
        command = [sys.executable, *(["-c", code] if code else ["-m", "midfill_engine"]), *arguments]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**environment, **extra}))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def is_ready(client: httpx.Client) -> bool:
    return client.get("/healthz").raise_for_status().json() == {"status": "ok"}


def test_an_engine_on_a_socket_from_start_to_end(start: Start, checkpoint_folder: Path, tmp_path: Path) -> None:
    socket = tmp_path / "run" / "engine.sock"
    options = ("--socket", str(socket), "--model", str(checkpoint_folder), "--device", "cpu", "--drain-s", "0")
    process = start("serve", *options, code=HOLDING)
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://midfill", timeout=30) as client:
        wait_until(lambda: answers(socket))
        wait_until(lambda: is_ready(client))
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        ask = {"prompt": "def very_secret_name():\n    return ", "suffix": "\n", "max_tokens": 4}
        assert client.post("/v1/fim/completions", json=ask).status_code == 200
        body = {"segments": [{"hole": {"max_tokens": 4}}], "n": 8, "stream": True}
        times = [client.get("/props").json() for _ in range(2)]
        assert 0 <= times[0]["idle_s"] <= times[1]["idle_s"], "a look is no use"
        assert times[0]["idle_timeout_s"] is None
        with client.stream("POST", "/v1/infill", json=body) as response:
            lines = response.iter_lines()
            assert next(lines) == "event: step"
            process.send_signal(signal.SIGTERM)
            assert '"busy"' in "".join(lines)
    _, logged = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert not socket.exists()
    assert "very_secret_name" not in logged


def test_an_engine_that_is_told_to_end_finishes_what_it_took(
    start: Start, checkpoint_folder: Path, tmp_path: Path
) -> None:
    socket = tmp_path / "engine.sock"
    process = start("serve", "--socket", str(socket), "--model", str(checkpoint_folder), "--device", "cpu")
    transport = httpx.HTTPTransport(uds=str(socket))
    with httpx.Client(transport=transport, base_url="http://midfill", timeout=LIMIT_S) as client:
        wait_until(lambda: answers(socket))
        wait_until(lambda: is_ready(client))
        body = {"segments": [{"hole": {"min_tokens": 90, "max_tokens": 90}}], "n": 8, "quality": 1, "stream": True}
        with client.stream("POST", "/v1/infill", json=body) as response:
            lines = response.iter_lines()
            assert next(lines) == "event: step"
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: client.get("/readyz").status_code == 503)
            refused = client.post("/v1/infill", json=body)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert client.get("/healthz").json() == {"status": "draining"}
            assert "event: done" in list(lines)
    assert process.wait(LIMIT_S) == 0
    assert not socket.exists()


@pytest.mark.parametrize("kind", ["nothing there", "no certificate", "a key alone"])
def test_a_certificate_that_cannot_be_used_is_one_line(start: Start, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "cert.pem"
    if kind == "no certificate":
        file.write_text("hello")
    option = "--keyfile" if kind == "a key alone" else "--certfile"
    process = start("serve", "--host", "127.0.0.1", "--port", "0", option, str(file), MIDFILL_TOKEN="t" * 20)
    _, logged = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2
    assert "cert" in json.loads(logged.splitlines()[-1])["message"]


def test_tls(start: Start, checkpoint_folder: Path, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made, *names], check=True, capture_output=True)
    files = ("--certfile", str(certificate), "--keyfile", str(key))
    arguments = ("--host", "127.0.0.1", "--port", "0", "--model", str(checkpoint_folder), *files)
    process = start("serve", *arguments, MIDFILL_TOKEN="t" * 20)
    assert process.stderr is not None
    address = process.stderr.readline().split()[-1]
    assert address.startswith("https://")
    trusted = ssl.create_default_context(cafile=str(certificate))
    with httpx.Client(base_url=address, verify=trusted, timeout=30) as client:
        wait_until(lambda: is_ready(client))
        bearer = {"authorization": "Bearer " + "t" * 20}
        assert client.get("/v1/models", headers=bearer).status_code == 200


def test_an_idle_engine_ends(start: Start, checkpoint_folder: Path, tmp_path: Path) -> None:
    socket = tmp_path / "engine.sock"
    process = start("serve", "--socket", str(socket), "--model", str(checkpoint_folder), "--idle-timeout-s", "0.5")
    assert process.wait(2 * LIMIT_S) == 0
    assert not socket.exists()


def test_an_engine_on_a_port_wants_its_token(start: Start, checkpoint_folder: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    arguments = ("--port", "0", "--model", str(checkpoint_folder), "--token-file", str(token))
    process = start("serve", "--host", "127.0.0.1", *arguments)
    assert process.stderr is not None
    address = process.stderr.readline().split()[-1]
    with httpx.Client(base_url=address, timeout=30) as client:
        wait_until(lambda: is_ready(client))
        assert client.get("/v1/models").status_code == 401
        bearer = {"authorization": f"Bearer {token.read_text().strip()}"}
        assert client.get("/v1/models", headers=bearer).status_code == 200
    process.terminate()
    _, logged = process.communicate(timeout=LIMIT_S)
    assert token.read_text().strip() not in logged


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--model", "{empty}"], "unknown_model"),
        (["--model", "embedded", "--lengths", "nonsense"], "bad_request"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_one_line(start: Start, tmp_path: Path, options: list[str], code: str) -> None:
    (tmp_path / "empty").mkdir()
    filled = [option.format(empty=tmp_path / "empty") for option in options]
    process = start("serve", "--socket", str(tmp_path / "engine.sock"), *filled)
    _, logged = process.communicate(timeout=2 * LIMIT_S)
    line = json.loads(logged.splitlines()[-1])
    assert (process.returncode, line["code"]) == (5, code)
    assert line["message"] and line["next_step"]
    assert not (tmp_path / "engine.sock").exists()


def test_the_service_does_not_wait_for_torch() -> None:
    code = "import sys, midfill_engine.serving.serve; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ENGINE)}).returncode == 0


def test_an_idle_engine_ends_sooner_where_memory_is_short(make_service: Callable[..., Service]) -> None:
    state = make_service(FakeFills()).state
    state.idle_timeout_s = 1800.0
    for idle_s, short, ends in [(61.0, False, False), (61.0, True, True), (59.0, True, False), (1801.0, False, True)]:
        engine = serve.Server(uvicorn.Config("app:app"), state, is_memory_short=lambda short=short: short)
        state.last_request_s = time.monotonic() - idle_s
        assert engine._is_idle_too_long(0) is ends
    assert not engine._is_idle_too_long(1) or ends, "memory is looked at now and then"
    forever = serve.Server(uvicorn.Config("app:app"), EngineState())
    assert not forever._is_idle_too_long(0)
