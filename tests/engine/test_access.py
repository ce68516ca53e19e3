"""The access log: every answer has a name and a line, and no line has a word of a request."""

import json
import logging
from collections.abc import Callable

import httpx
import pytest
from tests.engine.fakes import FakeFills, Service

from midfill_engine.serving.security import Security
from midfill_engine.serving.service import create_app
from midfill_engine.serving.tokens import BearerTokens
from midfill_engine.starting import AccessLog

MakeService = Callable[..., Service]
TOKEN = "anna-" + "a" * 20


def client_of(service: Service, log: AccessLog) -> httpx.AsyncClient:
    app = create_app(service.state, Security.for_tcp("box.lan", BearerTokens({"anna": TOKEN})), log)
    headers = {"authorization": f"Bearer {TOKEN}"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://box.lan", headers=headers)


async def test_every_answer_gets_a_line_in_the_access_log(
    make_service: MakeService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "midfill.access")
    async with client_of(make_service(FakeFills(1)), "json") as client:
        filled = await client.post("/v1/fim/completions", json={"prompt": "my_secret"}, headers={"x-request-id": "a-1"})
        nowhere = await client.get("/my_secret?my_secret", headers={"x-request-id": "my secret"})
        refused = await client.get("/v1/models", headers={"authorization": "Bearer my_secret"})
        await client.post("/v1/models/my_secret", json={"my_secret": 1})
        await client.get("/v1/models/my_secret")
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "midfill.access"]
    assert [(line["method"], line["route"], line["status"], line["client"]) for line in lines] == [
        ("POST", "/v1/fim/completions", 200, "anna"),
        ("GET", "?", 404, "anna"),
        ("GET", "?", 401, ""),
        ("POST", "/v1/models/{name:path}", 405, "anna"),
        ("GET", "/v1/models/{name:path}", 404, "anna"),
    ]
    assert [line["request"] for line in lines[:3]] == [
        answer.headers["x-request-id"] for answer in (filled, nowhere, refused)
    ]
    assert filled.headers["x-request-id"] == "a-1" and len(nowhere.headers["x-request-id"]) == 16
    assert "secret" not in caplog.text and TOKEN not in caplog.text
    assert all(line["ms"] >= 0 for line in lines)


async def test_requests_are_logged_only_if_an_access_log_is_wanted(
    make_service: MakeService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with client_of(make_service(FakeFills(1)), "off") as client:
        assert (await client.get("/v1/models")).headers["x-request-id"]
    async with client_of(make_service(FakeFills(1)), "text") as client:
        await client.get("/v1/models")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "midfill.access"]
    assert "route=/v1/models status=200" in line
