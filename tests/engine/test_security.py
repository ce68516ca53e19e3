"""Who is let in: every route times every way of asking, the expected status worked out by itself."""

import itertools
from collections.abc import Callable

import httpx
import pytest
from fastapi.routing import APIRoute
from tests.engine.fakes import FakeFills, Service

from midfill_engine.serving.security import Security, is_json
from midfill_engine.serving.service import create_app
from midfill_engine.serving.tokens import BearerTokens
from midfill_engine.wire import ErrorResponse

TOKEN = "correct-horse-battery-staple"
TCP = Security.for_tcp("box.lan", BearerTokens({"": TOKEN}), ["Proxy.example", "Second.example:8427", "FE80::1", ""])
GOOD_HOSTS = [
    "127.0.0.1:8427",
    "127.0.0.1",
    "localhost:9000",
    "LOCALHOST:8427",
    "[::1]:8427",
    "[::1]",
    "box.lan:8427",
    "proxy.example",
    "second.example:443",
    "[fe80::1]:8427",
]
BAD_HOSTS = [
    "",
    "evil.example",
    "::1",
    "192.168.1.7",
    "localhost:8427.evil.example",
    "localhost:http",
    "localhost:" + "9" * 5000,
    "localhost.evil.example",
    "box.lan.internal:8427",
    "0:8427",
]
ORIGINS: list[dict[str, str]] = [
    {},
    {"origin": "http://127.0.0.1:8427"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
]
TOKENS = [None, f"Bearer {TOKEN}", f"bearer {TOKEN}", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer \xe9"]
TYPES = ["application/json", "application/json; charset=utf-8", "text/plain", "application/x-www-form-urlencoded", ""]
SAMPLED = 11  # prime to the number of values in every dimension, so that all of them come up on every route
OPEN, READING = {"/health", "/healthz", "/readyz"}, {"GET", "HEAD"}
BODY = {"segments": [{"hole": {}}], "prompt": ""}


def routes() -> list[tuple[str, str]]:
    app = create_app(None, TCP)  # type: ignore[arg-type]
    found = [(route.path, min(route.methods)) for route in app.routes if isinstance(route, APIRoute)]
    assert len(found) == len(app.routes) >= 5
    return found


def is_let_in(host: str, origin: dict[str, str], token: str | None, is_open: bool) -> int:
    """The status of a refusal, or 0."""
    if host not in GOOD_HOSTS or "origin" in origin or origin.get("sec-fetch-site", "none") != "none":
        return 403
    return 0 if is_open or token in {f"Bearer {TOKEN}", f"bearer {TOKEN}"} else 401


@pytest.mark.parametrize("every", [SAMPLED, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("path", "right_method"), [*routes(), ("/nowhere", "GET")])
async def test_every_combination_of_method_host_origin_token_and_type_is_answered_or_refused(
    make_service: Callable[..., Service], path: str, right_method: str, every: int
) -> None:
    """One of `every` cells, other ones on the next route: together the routes cover the matrix."""
    first = [path for path, _ in routes()].index(path) if path != "/nowhere" else len(routes())
    service, right_methods = make_service(FakeFills(1), TCP), READING if right_method == "GET" else {right_method}
    async with service.client() as client:
        cells = itertools.product(["GET", "HEAD", "POST", "DELETE"], GOOD_HOSTS + BAD_HOSTS, ORIGINS, TOKENS)
        for number, (method, host, origin, token) in enumerate(cells):
            if (number - first) % every:
                continue
            kind = TYPES[number % len(TYPES)]
            headers = {"host": host, **origin, "content-type": kind}
            if token is not None:
                headers["authorization"] = token
            raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            expected = is_let_in(host, origin, token, is_open=path in OPEN and method in READING)
            if not expected and method not in READING and not kind.startswith("application/json"):
                expected = 415
            if not expected:
                expected = 404 if path == "/nowhere" else 200 if method in right_methods else 405
            if expected == 200 and path == "/v1/infill":
                expected = 400  # the body below suits other routes
            if expected == 200 and path == "/v1/models/{name:path}":
                expected = 404  # there is no model of this name
            response = await client.request(method, path, headers=raw, content='{"prompt": ""}')
            assert response.status_code == expected, (method, path, headers, response.text)
            assert not any(name.startswith("access-control") for name in response.headers)
            if expected >= 400 and method != "HEAD":
                assert ErrorResponse.model_validate_json(response.content).error.message
                assert TOKEN not in response.text


async def test_a_refused_token_says_how_to_send_it(make_service: Callable[..., Service]) -> None:
    async with make_service(FakeFills(1), TCP).client(host="localhost:8427") as client:
        response = await client.get("/v1/models")
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(
    ("host", "status"), [("localhost", 200), ("midfill", 200), ("LocalHost", 200), ("localhost:80", 200), ("evil", 403)]
)
async def test_a_unix_socket_has_two_names_and_needs_no_token(
    make_service: Callable[..., Service], host: str, status: int
) -> None:
    async with make_service(FakeFills(1)).client(host=host) as client:
        assert (await client.get("/v1/models")).status_code == status


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("192.168.1.7:8427", True),
        ("[fe80::1]:8427", True),
        ("192.168.1.7:80", True),
        ("192.168.1.7", True),
        ("fe80::1", False),
        ("rebound.example:8427", False),
        ("1.2.3.4.example:8427", False),
    ],
)
def test_an_engine_on_all_addresses_takes_addresses_and_no_strange_names(host: str, is_known: bool) -> None:
    assert Security.for_tcp("0.0.0.0", BearerTokens({"": TOKEN})).knows_host([host]) is is_known


def test_two_hosts_or_none_are_refused() -> None:
    assert not TCP.knows_host([])
    assert not TCP.knows_host(["localhost:8427", "localhost:8427"])


def test_only_json_in_utf8_is_a_json_content_type() -> None:
    assert is_json(["application/json"]) and is_json(['Application/JSON; charset="utf-8"'])
    wrong = [[], ["application/json", "application/json"], ["application/jsonx"], ["application/json; charset=utf-16"]]
    assert not any(is_json(values) for values in wrong)


async def test_websockets_are_closed(make_service: Callable[..., Service]) -> None:
    app = create_app(make_service(FakeFills(1)).state, Security.for_unix_socket())
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await app({"type": "websocket", "path": "/", "headers": []}, receive, send)  # type: ignore[arg-type]
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_only_the_health_is_open(make_service: Callable[..., Service]) -> None:
    service = make_service(FakeFills(1), TCP)
    async with service.client(host="localhost:8427") as client:
        answers: dict[str, httpx.Response] = {
            path: await client.request(method, path, json=BODY) for path, method in routes()
        }
    statuses = {path: answer.status_code for path, answer in answers.items()}
    assert [statuses.pop(path) for path in sorted(OPEN)] == [200, 200, 200]
    assert set(statuses.values()) == {401}
    assert answers["/healthz"].json() == answers["/readyz"].json() == {"status": "ok"}
