"""Routes, bodies and streams, over fake fills, the tiny model and a real server."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, NoReturn

import httpx
import pytest
from tests.engine.fakes import ENDLESS, LIMIT_S, FakeFills, Pace, Service
from tests.engine.requests import mutate
from tests.engine.running import RunningServer

from midfill_engine.errors import RequestError
from midfill_engine.scheduling.turns import Ticket
from midfill_engine.serving import service as service_module
from midfill_engine.serving.connection import ConnectionLimits
from midfill_engine.wire import (
    MAX_BODY_BYTES,
    MAX_TEXT_CHARACTERS,
    ErrorCode,
    ErrorResponse,
    InfillRequest,
    InfillResponse,
    ModelList,
    StepEvent,
    TextSegment,
)

MakeService = Callable[..., Service]
RunServer = Callable[..., RunningServer]
JSON = {"content-type": "application/json"}
ASK: dict[str, Any] = {"segments": [{"text": "def f():\n    "}, {"hole": {"max_tokens": 4}}, {"text": "\n"}]}
POSTS = ["/v1/infill", "/v1/fim/completions"]


async def read_events(response: httpx.Response) -> AsyncIterator[tuple[str, str]]:
    """Name and data of each server-sent event."""
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, line.removeprefix("data: ")


async def test_one_answer_as_json(real_service: Service) -> None:
    async with real_service.client() as client:
        response = await client.post("/v1/infill", json=ASK)
    answer = InfillResponse.model_validate_json(response.content)
    assert (response.status_code, answer.model, len(answer.holes)) == (200, "random", 1)


async def test_a_stream_tells_every_step_and_the_answer(real_service: Service) -> None:
    async with (
        real_service.client() as client,
        client.stream("POST", "/v1/infill", json={**ASK, "stream": True}) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [event async for event in read_events(answer)]
    steps = [StepEvent.model_validate_json(data) for name, data in events if name == "step"]
    assert [step.step for step in steps] == list(range(len(steps)))
    assert [name for name, _ in events[-2:]] == ["step", "done"]
    done = InfillResponse.model_validate_json(events[-1][1])
    assert done.stats.steps == steps[-1].step


async def test_a_stream_that_fails_ends_with_an_error(real_service: Service) -> None:
    ask = {**ASK, "stream": True, "sampler": "nonsense"}
    async with real_service.client() as client, client.stream("POST", "/v1/infill", json=ask) as answer:
        events = [event async for event in read_events(answer)]
    assert [name for name, _ in events] == ["error"]
    assert "threshold" in events[0][1]


async def test_models_are_listed(real_service: Service) -> None:
    async with real_service.client() as client:
        listed = ModelList.model_validate_json((await client.get("/v1/models")).content)
    assert [(model.id, model.family, model.max_context_tokens) for model in listed.data] == [
        ("random", "embedded", 512)
    ]


@pytest.mark.parametrize("path", POSTS)
async def test_an_unknown_model_lists_the_known(make_service: MakeService, path: str) -> None:
    async with make_service(FakeFills()).client() as client:
        response = await client.post(path, json={**(ASK if path == "/v1/infill" else {"prompt": ""}), "model": "gpt"})
        assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_model")
        assert "fake, alias" in response.json()["error"]["message"]
        known = await client.post("/v1/fim/completions", json={"prompt": "", "model": "alias"})
        assert known.status_code == 200


async def test_fill_in_the_middle_as_other_clients_speak_it(real_service: Service) -> None:
    ask = {
        "model": "embedded",
        "prompt": "a = ",
        "suffix": "\n",
        "max_tokens": 6,
        "temperature": 0.2,
        "top_p": 1,
        "stop": None,
    }
    async with real_service.client() as client:
        answer = (await client.post("/v1/fim/completions", json=ask)).json()
    choice = answer["choices"][0]
    reason = "length" if answer["usage"]["completion_tokens"] == 6 else "stop"
    assert (answer["object"], choice["index"], choice["finish_reason"]) == ("fim.completion", 0, reason)
    assert choice["text"] == choice["message"]["content"]
    assert choice["message"]["role"] == "assistant"
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]
    assert answer["usage"]["prompt_tokens"] == 6  # with its beginning and end, without the space that the fill has


async def test_fill_in_the_middle_streams_one_chunk(make_service: MakeService) -> None:
    ask = {"prompt": "x", "stream": True}
    async with make_service(FakeFills(3)).client() as client, client.stream("POST", POSTS[1], json=ask) as answer:
        events = [data async for _, data in read_events(answer)]
    assert events[-1] == "[DONE]"
    chunk = json.loads(events[0])
    assert chunk["choices"][0]["delta"]["content"] == chunk["choices"][0]["text"] == "3"
    assert len(events) == 2


async def test_stop_strings_cut(make_service: MakeService) -> None:
    service = make_service(FakeFills(num_steps=1234))
    async with service.client() as client:
        cut = (await client.post(POSTS[1], json={"prompt": "", "stop": ["4", "", "3"]})).json()
        whole = (await client.post(POSTS[1], json={"prompt": "", "stop": "z"})).json()
    assert [answer["choices"][0]["text"] for answer in (cut, whole)] == ["12", "1234"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("before", "behind", "text"),
    [
        ("x\r\n", "y\r\n", "a\r\nb"),
        ("x", "y\r\nz", "a\r\nb"),
        ("x\r\n", "", "a\r\nb"),
        ("x\n", "y\n", "a\nb"),
        ("x", None, "a\nb"),
    ],
    ids=["both", "behind", "before", "line feeds", "one line"],
)
async def test_line_endings_return_at_every_door(
    make_service: MakeService, before: str, behind: str | None, text: str, stream: bool
) -> None:
    fills = FakeFills(1, filled="a\nb")
    answers: list[dict[str, Any]] = []
    async with make_service(fills).client() as client:
        for path, body in (
            ("/v1/fim/completions", {"prompt": before, "suffix": behind}),
            ("/v1/completions", {"prompt": before, "suffix": behind}),
            ("/infill", {"input_prefix": before, "input_suffix": behind or ""}),
            ("/infill", {"prompt": before, "input_suffix": behind or ""}),
        ):
            response = await client.post(path, json={**body, "stream": stream})
            line = response.text.splitlines()[0].removeprefix("data: ")
            answers.append(json.loads(line))
    mistral, openai, *llama = answers
    (choice,) = mistral["choices"]
    assert [choice["text"], choice["delta" if stream else "message"]["content"]] == [text, text]
    assert openai["choices"][0]["text"] == text
    assert [answer["content"] for answer in llama] == [text, text]
    for request in fills.stepped:
        assert "\r" not in request.model_dump_json()


async def test_while_loading_only_the_health_answers(make_service: MakeService) -> None:
    service = make_service(FakeFills())
    service.state.ready = None
    async with service.client() as client:
        assert (await client.get("/healthz")).json() == {"status": "loading"}
        for response in (await client.get("/v1/models"), await client.post("/v1/infill", json=ASK)):
            assert (response.status_code, response.headers["retry-after"]) == (503, "1")
            assert response.json()["error"]["code"] == "busy"


MALFORMED = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"NaN",
    b"\xff\xfe",
    b'{"segments": NaN}',
    b'{"segments": [{"hole": {}}], "temperature": NaN}',
    b'{"segments": [{"hole": {}}], "temperature": Infinity}',
    b'{"segments": [{"hole": {}}], "temperature": 1e400}',
    b'{"segments": [{"hole": {}}], "seed": -1}',
    b'{"segments": [{"hole": {}}], "seed": 99999999999999999999999999}',
    b'{"segments": [{"hole": {}}], "n": 1000000}',
    b'{"segments": [{"hole": {}}], "steps": 0}',
    b'{"segments": [{"hole": {}}], "unknown": 1}',
    b'{"segments": [{"hole": {}}], "\\ud800": 1}',
    b'{"segments": [{"text": "\\ud800"}, {"hole": {}}]}',
    b'{"segments": [{"text": "\xed\xa0\x80"}, {"hole": {}}]}',
    b'{"segments": [{"text": "a"}]}',
    b'{"segments": []}',
    b'{"segments": [{"hole": {"keep": [[0, 5]]}}]}',
    b'{"segments": [{"hole": {"draft": "abc", "keep": [[2, 1]]}}]}',
    b'{"segments": [{"hole": {"draft": "abc", "keep": [[0, 2], [1, 3]]}}]}',
    b'{"segments": [{"hole": {"min_tokens": 9, "max_tokens": 1}}]}',
    b'{"segments": [{"hole": {"forbid": [""]}}]}',
    b'{"prompt": 1e400}',
    b'{"segments": [{"hole": {}}], "max_ms": 1' + b"0" * 400 + b"}",
    b'{"prompt": "a", "t_max_predict_ms": 1' + b"0" * 400 + b"}",
    b'{"prompt": "a", "stop": [' + b'"b",' * 256 + b'"b"]}',
    b'{"prompt": {"a": 1}, "segments": 0}',
    b'{"segments": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b"[" * 1_000_000,
    b'{"a":' * 50_000,
    b'{"segments": [' + b'{"hole": {}},' * 1024 + b'{"hole": {}}]}',
    b'{"prompt": "' + b"x" * (4 * 1024 * 1024 + 1) + b'"}',
]


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: repr(body[:40]))
async def test_malformed_bodies_are_refused(make_service: MakeService, path: str, body: bytes) -> None:
    async with make_service(FakeFills()).client() as client:
        response = await client.post(path, content=body, headers=JSON)
    assert response.status_code == 400
    error = ErrorResponse.model_validate_json(response.content).error
    assert 0 < len(error.message) <= 300


async def test_an_error_does_not_repeat_the_code(make_service: MakeService) -> None:
    async with make_service(FakeFills()).client() as client:
        response = await client.post("/v1/infill", json={"segments": [{"text": ["my_secret"]}]})
    assert response.status_code == 400
    assert "my_secret" not in response.text


DOORS: dict[str, Any] = {
    "/v1/fim/completions": {"prompt": "my_secret"},
    "/v1/completions": {"prompt": "my_secret"},
    "/infill": {"input_prefix": "my_secret"},
}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"input_prefix": "my_secret " * 400_000, "input_extra": [{"text": "extra " * 150_000}]}, 200),
        ({"prompt": "my_secret " * 400_000, "input_prefix": "before " * 400_000}, 200),
        ({"input_prefix": "my_secret", "seed": 2**63}, 400),
        ({"input_prefix": "my_secret", "seed": -(2**70)}, 200),
        ({"input_prefix": "my_secret", "t_max_predict_ms": 10**400}, 400),
        ({"input_prefix": "my_secret", "t_max_predict_ms": -(10**400), "n_indent": 10**400, "n_predict": 10**400}, 200),
        ({"input_prefix": "my_secret", "stop": ["my_secret"] * 257}, 400),
    ],
    ids=["other files", "two texts", "a large seed", "a negative seed", "a long time", "large numbers", "many stops"],
)
async def test_large_values_of_llama_cpps_clients_are_no_failure(
    make_service: MakeService, caplog: pytest.LogCaptureFixture, body: dict[str, Any], status: int
) -> None:
    """Of texts that are too long together the end is used, which is nearest to the hole."""
    fills = FakeFills(1)
    async with make_service(fills).client() as client:
        response = await client.post("/infill", json=body)
    assert response.status_code == status
    assert "my_secret" not in response.text + caplog.text
    for request in fills.stepped:
        (before, *_) = request.segments
        assert isinstance(before, TextSegment)
        whole = body.get("input_prefix", "") + body.get("prompt", "")
        assert before.text.endswith(whole[-MAX_TEXT_CHARACTERS:])


@pytest.mark.parametrize(("path", "body"), DOORS.items())
async def test_what_cannot_be_asked_of_the_engine_is_refused_at_every_door(
    make_service: MakeService, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, str]
) -> None:
    def to_infill(request: object) -> list[InfillRequest]:
        return [InfillRequest.model_validate({"segments": [body]})]

    monkeypatch.setitem(service_module.DOORS, path, replace(service_module.DOORS[path], to_infill=to_infill))
    async with make_service(FakeFills(1)).client() as client:
        response = await client.post(path, json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_request")
    assert "my_secret" not in response.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), DOORS.items())
async def test_a_failure_is_logged_without_the_code(
    run_server: RunServer,
    make_service: MakeService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
    body: dict[str, str],
    stream: bool,
) -> None:
    """Whatever a handler raises: where something was sent already, the answer breaks off."""

    def fail(request: object, *_: object) -> NoReturn:
        raise ValueError(f"cannot answer {request}")

    monkeypatch.setitem(service_module.DOORS, path, replace(service_module.DOORS[path], from_infill=fail))
    async with run_server(make_service(FakeFills(1))).client() as client:
        if stream:
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post(path, json={**body, "stream": True})
        else:
            response = await client.post(path, json=body)
            assert (response.status_code, response.json()["error"]["code"]) == (500, "internal")
        assert (await client.get("/healthz")).status_code == 200
    assert "ValueError" in caplog.text and "service.py" in caplog.text
    assert "my_secret" not in caplog.text


@pytest.mark.parametrize(("path", "body"), DOORS.items())
async def test_a_stream_that_fails_is_an_error_to_other_peoples_clients(
    make_service: MakeService, path: str, body: dict[str, str]
) -> None:
    def refuse(step: int) -> None:
        raise RequestError(ErrorCode.TOO_LARGE, "hole 0 needs more", "make it smaller")

    async with make_service(FakeFills(1, on_step=refuse)).client() as client:
        response = await client.post(path, json={**body, "stream": True})
    first, *rest = [line for line in response.text.splitlines() if line]
    error = ErrorResponse.model_validate_json(first.removeprefix("data: ")).error
    assert (error.code, error.message) == (ErrorCode.TOO_LARGE, "hole 0 needs more")
    assert rest == ([] if path == "/infill" else ["data: [DONE]"])


async def test_the_last_of_repeated_keys_counts(make_service: MakeService) -> None:
    async with make_service(FakeFills()).client() as client:
        response = await client.post(POSTS[1], content=b'{"prompt": 1, "prompt": "x"}', headers=JSON)
    assert response.status_code == 200


async def test_unknown_routes_and_methods(make_service: MakeService) -> None:
    async with make_service(FakeFills()).client() as client:
        for path in ("/", "/docs", "/redoc", "/v1/infill/", "/healthz/", "/%00"):
            response = await client.get(path)
            assert response.status_code == 404
            assert ErrorResponse.model_validate_json(response.content).error.code == "not_found"
        wrong = await client.get("/v1/infill")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


async def test_large_bodies_are_refused_without_being_held(run_server: RunServer, make_service: MakeService) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3 * MAX_BODY_BYTES // 65536):
            yield b"x" * 65536

    async with run_server(make_service(FakeFills())).client() as client:
        chunked = await client.post("/v1/infill", content=chunks(), headers=JSON)
        declared = await client.post("/v1/infill", content=b"x" * (MAX_BODY_BYTES + 1), headers=JSON)
        health = await client.get("/healthz")
    for response in (chunked, declared):
        assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")
    assert health.status_code == 200


async def wait_until(condition: Callable[[], bool]) -> None:
    """However slow the machine is."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.fixture
def at_cancel(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeFills], list[int]]:
    """How many steps fills had done once they were told to end, for each time that somebody told one."""

    def watch(fills: FakeFills) -> list[int]:
        counts, cancel = list[int](), Ticket.cancel

        def note(ticket: Ticket) -> None:
            cancel(ticket)
            counts.append(len(fills.stepped))

        monkeypatch.setattr(Ticket, "cancel", note)
        return counts

    return watch


async def test_leaving_a_stream_frees_the_place_at_the_next_step(
    run_server: RunServer, make_service: MakeService, at_cancel: Callable[[FakeFills], list[int]]
) -> None:
    fills = FakeFills(ENDLESS, step_s=0.01)
    service, counts = make_service(fills), at_cancel(fills)
    async with run_server(service).client() as client:
        async with client.stream("POST", "/v1/infill", json={**ASK, "stream": True}) as response:
            async for name, _ in read_events(response):
                assert name == "step"
                break
            assert service.scheduler.num_open == 1
            assert not counts
        await wait_until(lambda: service.scheduler.num_open == 0)
    assert len(fills.stepped) <= counts[0] + 1


@pytest.mark.parametrize("path", POSTS)
async def test_leaving_a_plain_request_frees_the_place_at_the_next_step(
    run_server: RunServer, make_service: MakeService, at_cancel: Callable[[FakeFills], list[int]], path: str
) -> None:
    fills = FakeFills(ENDLESS, step_s=0.01)
    service, counts = make_service(fills), at_cancel(fills)
    async with run_server(service).client() as client:
        asking = asyncio.create_task(client.post(path, json=ASK if path == "/v1/infill" else {"prompt": "x"}))
        await wait_until(lambda: len(fills.stepped) > 0)
        assert not counts
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await wait_until(lambda: service.scheduler.num_open == 0)
    assert len(fills.stepped) <= counts[0] + 1


async def test_many_leaving_clients_leave_no_place_taken(run_server: RunServer, make_service: MakeService) -> None:
    service = make_service(FakeFills(ENDLESS, step_s=0.002))
    async with run_server(service).client() as client:
        for round_number in range(5):
            asking = [asyncio.create_task(client.post("/v1/infill", json=ASK)) for _ in range(6)]
            await asyncio.sleep(0.01 * round_number)
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        await wait_until(lambda: service.scheduler.num_open == 0)
        assert (await client.get("/healthz")).status_code == 200


async def test_a_reader_that_stalls_is_given_up(run_server: RunServer, make_service: MakeService) -> None:
    service = make_service(FakeFills(ENDLESS, step_s=0.001, shown="x" * 100_000))
    server = run_server(service, send_timeout_s=0.2)
    reader, writer = await asyncio.open_unix_connection(str(server.socket))
    body = json.dumps({**ASK, "stream": True}).encode()
    writer.write(POST_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    await wait_until(lambda: service.scheduler.num_open == 1)
    await wait_until(lambda: service.scheduler.num_open == 0)
    writer.transport.abort()
    assert reader is not None


async def test_unread_answers_hold_no_connection(run_server: RunServer, make_service: MakeService) -> None:
    """Whoever asks again and again and reads nothing, without a token even."""
    server = run_server(make_service(FakeFills()), send_timeout_s=0.2)
    reader, writer = await asyncio.open_unix_connection(str(server.socket))
    assert reader is not None
    with pytest.raises(OSError):  # once the engine has hung up
        async with asyncio.timeout(LIMIT_S):
            while True:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: midfill\r\n\r\n" * 100)
                await writer.drain()
                await asyncio.sleep(0)
    writer.transport.abort()


async def test_a_slow_reader_is_not_given_up(run_server: RunServer, make_service: MakeService) -> None:
    fills = FakeFills(60, step_s=0.001, shown="x" * 30_000)
    server = run_server(make_service(fills), send_timeout_s=1.0)
    body = json.dumps({**ASK, "stream": True}).encode()
    reader, writer = await asyncio.open_unix_connection(str(server.socket), limit=1024)
    writer.write(POST_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    received = b""
    async with asyncio.timeout(LIMIT_S):
        while b"event: done" not in received[-2000:]:
            received += (part := await reader.read(65536))
            assert part
            await asyncio.sleep(0.1)
    writer.transport.abort()


async def test_a_connection_too_many_is_told_so(run_server: RunServer, make_service: MakeService) -> None:
    server = run_server(make_service(FakeFills()), max_connections=3)
    held = [await asyncio.open_unix_connection(str(server.socket)) for _ in range(3)]
    head, _, content = (await exchange(server, b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503") and b"retry-after: 1" in head
    assert ErrorResponse.model_validate_json(content).error.code == "busy"
    for _, writer in held:
        writer.transport.abort()
    async with server.client() as client:
        await wait_until_ok(client)


async def wait_until_ok(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(LIMIT_S):
        while (await client.get("/healthz")).status_code != 200:
            await asyncio.sleep(0.01)


def test_connections_are_counted_by_peer() -> None:
    limits = ConnectionLimits(max_per_peer=2, max_connections=5)
    limits.open.update({"10.0.0.1": 2, "": 2})
    assert [limits.is_full(peer) for peer in ("10.0.0.1", "10.0.0.2", "")] == [True, False, False]
    limits.open["10.0.0.2"] += 1
    assert limits.is_full("10.0.0.3")


async def test_readiness_is_a_status_and_heads_are_answered(make_service: MakeService) -> None:
    service = make_service(FakeFills(1))
    async with service.client() as client:
        for path in ("/healthz", "/readyz", "/v1/models", "/metrics"):
            assert (await client.head(path)).status_code == 200
        service.state.is_draining = True
        health, ready = await client.get("/healthz"), await client.get("/readyz")
        refused = await client.post("/v1/infill", json=ASK)
        service.state.is_draining, service.state.ready = False, None
        loading = await client.get("/readyz")
    assert (health.status_code, health.json()) == (200, {"status": "draining"})
    assert (ready.status_code, ready.json()) == (503, {"status": "draining"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
    assert (loading.status_code, loading.json()) == (503, {"status": "loading"})
    assert {answer.headers["retry-after"] for answer in (ready, refused, loading)} == {"1"}
    assert {answer.headers.get_list("connection")[0] for answer in (health, ready, refused)} == {"close"}
    assert "connection" not in loading.headers  # nobody is sent away from an engine that goes on


async def test_a_fill_that_takes_its_time_is_no_silence(
    make_service: MakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "PING_INTERVAL_S", 0.02)
    async with make_service(FakeFills(4, step_s=0.05)).client() as client:
        for path, body in DOORS.items():
            text = (await client.post(path, json={**body, "stream": True})).text
            assert text.startswith("\n") and ":" not in text[: text.index("data")]


async def test_a_full_queue_answers_at_once(run_server: RunServer, make_service: MakeService) -> None:
    """While nothing moves at all."""
    pace = Pace()
    service = make_service(FakeFills(ENDLESS, on_step=pace), max_requests=2)
    async with run_server(service).client() as client:
        asking = [asyncio.create_task(client.post("/v1/infill", json=ASK)) for _ in range(2)]
        await wait_until(lambda: service.scheduler.num_open == 2)
        refused = await client.post("/v1/infill", json=ASK)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        pace.free()


async def test_several_clients_are_served_at_once(run_server: RunServer, real_service: Service) -> None:
    async with run_server(real_service).client() as client:
        answers = await asyncio.gather(*(client.post("/v1/infill", json={**ASK, "seed": seed}) for seed in range(6)))
    assert [answer.status_code for answer in answers] == [200] * 6


POST_HEAD = b"POST /v1/infill HTTP/1.1\r\nHost: midfill\r\nContent-Type: application/json\r\n"


async def exchange(server: RunningServer, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(server.socket))
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.read(), LIMIT_S)
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET",
        b"GET /healthz HTTP/1.1\r\nHost: midfill\r\n",
        POST_HEAD + b"Content-Length: 99\r\n\r\n{",
        POST_HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n",
    ],
    ids=["nothing", "a word", "half the headers", "half the body", "half a chunk"],
)
async def test_half_sent_requests_are_closed_in_time(
    run_server: RunServer, make_service: MakeService, sent: bytes
) -> None:
    server = run_server(make_service(FakeFills()), request_timeout_s=0.2)
    started_s = time.monotonic()
    await exchange(server, sent)
    assert time.monotonic() - started_s > 0.1


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: midfill\r\nHost: midfill\r\n\r\n",
        b"POST /v1/infill HTTP/1.1\r\nHost: midfill\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/infill HTTP/1.1\r\nHost: midfill\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    ],
    ids=["nonsense", "no host", "two hosts", "a negative length", "two lengths"],
)
async def test_bytes_that_are_no_request_get_a_400(
    run_server: RunServer, make_service: MakeService, sent: bytes
) -> None:
    answer = await exchange(run_server(make_service(FakeFills())), sent)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert ErrorResponse.model_validate_json(body).error.code == "bad_request"


WHOLE: dict[str, Any] = {
    "segments": [
        {"text": "def f():\n    "},
        {"hole": {"min_tokens": 1, "max_tokens": 4, "draft": "a b\n", "keep": [[0, 1], [2, 3]], "forbid": ["\n"]}},
        {"text": " \n  x"},
        {"hole": {}},
    ],
    "seed": 1,
    "temperature": 0.5,
    "steps": 2,
    "quality": 0.5,
    "sampler": "topk",
    "n": 2,
    "tag": "python",
    "stream": False,
}


async def test_mutated_requests_never_fail_the_server(real_service: Service) -> None:
    """Against the real fills: each request is answered or refused, none is an error of the engine."""
    rng = random.Random(7)
    seen: set[int] = set()
    async with real_service.client() as client:
        for _ in range(300):
            asked: Any = WHOLE
            for _ in range(rng.randint(1, 3)):
                asked = mutate(asked, rng)
            response = await client.post("/v1/infill", json=asked)
            assert response.status_code < 500, asked
            assert "event: error" not in response.text or '"internal"' not in response.text, asked
            seen.add(response.status_code)
        for _ in range(100):
            asked = mutate({"prompt": "a ", "suffix": "\n", "stop": ["x"], "max_tokens": 3, "temperature": 0.1}, rng)
            assert (await client.post(POSTS[1], json=asked)).status_code < 500, asked
    assert {200, 400} <= seen


@pytest.mark.parametrize("size", [40_000, 1_000_000])
async def test_long_headers_are_refused(run_server: RunServer, make_service: MakeService, size: int) -> None:
    async with run_server(make_service(FakeFills())).client() as client:
        response = await client.get("/healthz", headers={"x-long": "y" * size})
        assert response.status_code in {400, 431}
        assert ErrorResponse.model_validate_json(response.content).error.code == "bad_request"
        assert (await client.get("/healthz")).status_code == 200


async def test_a_slow_fill_outlives_the_request_deadline(run_server: RunServer, make_service: MakeService) -> None:
    service = make_service(FakeFills(num_steps=4, step_s=0.6))
    async with run_server(service, request_timeout_s=2.0).client() as client:
        assert (await client.post("/v1/infill", json=ASK)).status_code == 200


async def test_requests_count_as_activity_and_monitoring_does_not(make_service: MakeService) -> None:
    service = make_service(FakeFills(1))
    async with service.client() as client:
        service.state.last_request_s -= 100
        for path in ("/healthz", "/readyz", "/health", "/props", "/metrics"):
            assert (await client.get(path)).status_code == 200
        assert service.state.idle_s > 99
        await client.get("/v1/models")
        assert service.state.idle_s < 50


async def test_garbage_behind_a_request_is_not_its_answer(run_server: RunServer, make_service: MakeService) -> None:
    body = json.dumps(ASK).encode()
    sent = POST_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body + b"\x00nonsense\r\n\r\n"
    answer = await exchange(run_server(make_service(FakeFills(num_steps=3, step_s=0.02))), sent)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400"]


async def test_garbage_in_a_body_gets_400(run_server: RunServer, make_service: MakeService) -> None:
    sent = POST_HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    answer = await exchange(run_server(make_service(FakeFills())), sent)
    assert answer.startswith(b"HTTP/1.1 400")
