"""One door before several engines: with engines of this process, and (soak) with Ray's, one of them killed."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from tests.engine.fakes import INFO, LIMIT_S, FakeFills, Service
from tests.engine.test_service import ASK

from midfill_engine.denoising.scheduler import Scheduler
from midfill_engine.errors import RequestError
from midfill_engine.serving.cluster import RemoteFills
from midfill_engine.serving.replica import decode_event, encode_event
from midfill_engine.serving.security import Security
from midfill_engine.serving.server import Server
from midfill_engine.serving.service import EngineState, Ready, create_app
from midfill_engine.wire import ErrorCode, InfillRequest

MakeService = Callable[..., Service]


class ActorDied(Exception):
    """As Ray's."""

    __module__ = "ray.exceptions"


class Events:
    """What a handle answers with."""

    def __init__(self, events: AsyncIterator[str]) -> None:
        self._events = events
        self.is_cancelled = False

    def __aiter__(self) -> AsyncIterator[str]:
        return self._events

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class FakeHandle:
    """Stands for Ray Serve's: `answer` is what the engine does. Notes sessions and what was broken off."""

    answer: Callable[[str], AsyncIterator[str]]
    sessions: list[str] = field(default_factory=list)
    given: list[Events] = field(default_factory=list)

    @property
    def infill(self) -> "FakeHandle":
        return self

    def options(self, *, stream: bool, session_id: str) -> "FakeHandle":
        assert stream
        self.sessions.append(session_id)
        return self

    def remote(self, request_json: str, client: str) -> Events:
        self.given.append(Events(self.answer(request_json)))
        return self.given[-1]


def service_over(handle: FakeHandle, *, is_able: bool = True) -> Service:
    ready = Ready(INFO, ("fake",), RemoteFills(handle), is_able=lambda: is_able)
    return Service(EngineState(ready=ready), None, Security.for_unix_socket())  # type: ignore[arg-type]


def replying(make_service: MakeService) -> Callable[[str], AsyncIterator[str]]:
    scheduler: Scheduler = make_service(FakeFills()).scheduler

    async def answer(request_json: str) -> AsyncIterator[str]:
        request, loop = InfillRequest.model_validate_json(request_json), asyncio.get_running_loop()
        events: asyncio.Queue[Any] = asyncio.Queue()
        scheduler.submit(request, lambda event: loop.call_soon_threadsafe(events.put_nowait, event))
        while True:
            text = encode_event(await events.get())
            yield text
            if not text.startswith('["step"'):
                return

    return answer


async def test_every_door_answers_through_a_cluster(make_service: MakeService) -> None:
    async with service_over(FakeHandle(replying(make_service))).client() as client:
        whole = await client.post("/v1/infill", json=ASK)
        streamed = (await client.post("/v1/infill", json={**ASK, "stream": True})).text
        other = await client.post("/v1/completions", json={"prompt": "a", "suffix": "b"})
        counted = (await client.get("/metrics")).text
    assert whole.json()["holes"][0]["text"] == other.json()["choices"][0]["text"] == "5"
    assert streamed.count("event: step") == 5 and streamed.count("event: done") == 1
    assert 'midfill_requests_total{outcome="filled"} 3.0' in counted


async def test_a_document_meets_one_engine_and_its_name_stays_here(make_service: MakeService) -> None:
    handle = FakeHandle(replying(make_service))
    async with service_over(handle).client() as client:
        for name in ("secret/a.py", "secret/b.py", "secret/a.py"):
            await client.post("/v1/infill", json={**ASK, "document": name})
    first, other, again = handle.sessions
    assert first == again != other
    assert "a.py" not in first


async def die(request_json: str) -> AsyncIterator[str]:
    raise ActorDied
    yield ""


async def fail(request_json: str) -> AsyncIterator[str]:
    raise ValueError("def secret(): pass")
    yield ""


async def refuse(request_json: str) -> AsyncIterator[str]:
    yield encode_event(RequestError(ErrorCode.BUSY, "64 requests are open", headers={"retry-after": "7"}))


@pytest.mark.parametrize(("answer", "status", "retry_after"), [(die, 503, "1"), (refuse, 429, "7"), (fail, 500, None)])
async def test_an_engine_that_fails_is_answered_for(
    answer: Callable[[str], AsyncIterator[str]], status: int, retry_after: str | None
) -> None:
    async with service_over(FakeHandle(answer)).client() as client:
        found = await client.post("/v1/infill", json=ASK)
    assert (found.status_code, found.headers.get("retry-after")) == (status, retry_after)
    assert "secret" not in found.text


async def test_what_is_cancelled_is_cancelled_over_there() -> None:
    async def never(request_json: str) -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield ""

    handle, ended = FakeHandle(never), asyncio.Queue[Any]()
    fills = RemoteFills(handle)
    fills.submit(InfillRequest.model_validate(ASK), ended.put_nowait).cancel()
    first = await asyncio.wait_for(ended.get(), LIMIT_S)
    fills.submit(InfillRequest.model_validate(ASK), ended.put_nowait)
    await asyncio.sleep(0)
    fills.stop()
    second = await asyncio.wait_for(ended.get(), LIMIT_S)
    assert (first.code, second.status) == (ErrorCode.CANCELLED, 503)
    assert handle.given[-1].is_cancelled and fills.num_open == 0
    with pytest.raises(RequestError):
        fills.submit(InfillRequest.model_validate(ASK), ended.put_nowait)


async def test_a_door_without_engines_is_not_ready(make_service: MakeService) -> None:
    async with service_over(FakeHandle(replying(make_service)), is_able=False).client() as client:
        assert (
            (await client.get("/readyz")).status_code == (await client.post("/v1/infill", json=ASK)).status_code == 503
        )
        assert (await client.get("/healthz")).status_code == 200


async def test_signals_that_a_library_took_are_the_servers_again() -> None:
    state = EngineState(has_lost_signals=True)
    server = Server(uvicorn.Config(create_app(state, Security.for_unix_socket())), state)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        await server.on_tick(1)
        assert all(signal.getsignal(number) == server.handle_exit for number in before)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert not state.has_lost_signals


def test_an_error_survives_the_way() -> None:
    error = RequestError(ErrorCode.TOO_LARGE, "too much", "send less", status=418, headers={"a": "b"})
    found = decode_event(encode_event(error))
    assert isinstance(found, RequestError)
    assert (found.body, found.status, found.headers) == (error.body, 418, {"a": "b"})


def test_ray_that_is_not_installed_is_named(tmp_path: Path, checkpoint_folder: Path) -> None:
    code = "import sys; sys.modules['ray'] = None; from midfill_engine.__main__ import app; app()"
    options = ["serve", "--socket", str(tmp_path / "engine.sock"), "--model", str(checkpoint_folder), "--ray", "2"]
    found = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True, timeout=LIMIT_S)
    assert found.returncode == 5
    assert "pip install 'midfill[ray]'" in found.stderr


@dataclass
class Crowd:
    """Threads that ask without a pause; counts what they are told while `phase` is what it is."""

    ask: Callable[[httpx.Client, int], httpx.Response]
    open_client: Callable[[], httpx.Client]
    phase: str = ""
    seen: Counter[tuple[str, int]] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    is_over: bool = False

    def work(self, number: int) -> None:
        with self.open_client() as client:
            turn = 0
            while not self.is_over:
                turn += 1
                try:
                    answer = self.ask(client, 100 * number + turn % 7)
                except httpx.TransportError as error:
                    self.broken.append(f"{self.phase}: {error!r}")
                    return
                self.seen[self.phase, answer.status_code] += 1
                if answer.status_code == 503:
                    assert answer.headers["retry-after"]
                    time.sleep(0.2)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_an_engine_of_a_cluster_is_killed_all_are_replaced_and_it_ends(tmp_path: Path, checkpoint_folder: Path) -> None:
    """Nothing is lost but what the killed engine was at, which gets 503; a rolling restart and an end lose nothing."""
    psutil = pytest.importorskip("psutil")
    socket = tmp_path / "engine.sock"
    command = [sys.executable, "-m", "midfill_engine", "serve", "--socket", str(socket), "--ray", "2"]
    with open(tmp_path / "log", "w") as log:
        door = subprocess.Popen([*command, "--model", str(checkpoint_folder), "--device", "cpu"], stderr=log)

    def open_client() -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(socket))
        return httpx.Client(transport=transport, base_url="http://midfill", timeout=300)

    def engines() -> list[Any]:
        return [child for child in psutil.Process(door.pid).children(recursive=True) if is_engine(child)]

    def is_engine(child: Any) -> bool:
        try:
            return "ServeReplica" in " ".join(child.cmdline())
        except psutil.Error:  # ended meanwhile
            return False

    def wait_until(condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 600
        while not condition():
            assert time.monotonic() < deadline_s and door.poll() is None
            time.sleep(0.5)

    def counts(client: httpx.Client, number: int) -> bool:
        return f"midfill_replicas {number}.0" in client.get("/metrics").text

    crowd = Crowd(lambda client, number: client.post("/v1/infill", json={**ASK, "document": str(number)}), open_client)
    threads = [threading.Thread(target=crowd.work, args=(number,)) for number in range(6)]
    try:
        wait_until(socket.exists)
        with open_client() as client:
            wait_until(lambda: client.get("/readyz").status_code == 200)
            again = [client.post("/v1/infill", json={**ASK, "document": "a"}).json()["stats"] for _ in range(4)]
            assert [stats["cached_context"] for stats in again] == [False, True, True, True]
            crowd.phase = "two engines"
            for thread in threads:
                thread.start()
            time.sleep(10)
            crowd.phase, old = "one is killed", engines()
            old[0].send_signal(signal.SIGKILL)
            wait_until(lambda: counts(client, 1))
            wait_until(lambda: counts(client, 2))
            crowd.phase, old = "all are replaced", engines()
            door.send_signal(signal.SIGHUP)
            wait_until(lambda: not {child.pid for child in old} & {child.pid for child in engines()})
            wait_until(lambda: counts(client, 2))
            crowd.phase = "the end"
            door.send_signal(signal.SIGTERM)
            time.sleep(0.4)
        crowd.is_over = True
        for thread in threads:
            thread.join()
        assert door.wait(120) == 0
    finally:
        crowd.is_over = True
        door.kill()
        print(f"\n{dict(crowd.seen)}\n{(tmp_path / 'log').read_text()}")
    assert not crowd.broken
    for phase, most in (("two engines", 0), ("one is killed", len(threads)), ("all are replaced", 0)):
        assert crowd.seen[phase, 200] > 0 and crowd.seen[phase, 503] <= most
    assert {status for _, status in crowd.seen} <= {200, 503}
    assert not socket.exists()
