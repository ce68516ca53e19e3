"""Connections to an engine: kept and replaced ones, proxies, TLS that nobody trusts."""

import base64
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest
from tests.ports import serving

from midfill_infill.engines import connections
from midfill_infill.engines.client import EngineClient, get_json
from midfill_infill.engines.connections import Connections, Silent, Unreachable
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.errors import MidfillError


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.client_address[1], dict(self.headers)))  # type: ignore[attr-defined]
        self.send_response(200)
        body: bytes = self.server.body  # type: ignore[attr-defined]
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_CONNECT(self) -> None:
        self.server.asked.append((self.path, 0, dict(self.headers)))  # type: ignore[attr-defined]
        self.send_error(403)

    def log_message(self, format: str, *values: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.asked, made.body = [], b"{}"  # type: ignore[attr-defined]
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def url_of(server: ThreadingHTTPServer, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{server.server_port}"


def get(pool: Connections, path: str = "/x") -> bytes:
    with pool.open() as connection:
        return connection.ask("GET", path).read()


def ports(server: ThreadingHTTPServer) -> list[int]:
    return [port for _, port, _ in server.asked]  # type: ignore[attr-defined]


def test_a_connection_is_kept_and_one_that_was_closed_or_unused_for_long_is_replaced(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Connections(Endpoint(url=f"{url_of(server)}/base/"))
    assert get(pool) == get(pool) == b"{}"
    first, second = ports(server)
    assert first == second and server.asked[0][0] == "/base/x"  # type: ignore[attr-defined]
    pool._idle[0].sock.shutdown(socket.SHUT_RDWR)
    assert get(pool) == b"{}" and ports(server)[2] != first
    with pool.open(), pool.open():
        assert not pool._idle
    with pool.open() as connection:
        connection.ask("GET", "/x")  # what is not read is not kept
    assert not pool._idle
    get(pool)
    monkeypatch.setattr(connections, "MAX_IDLE_S", -1.0)  # it may be dead, and nobody has said so
    get(pool)
    assert len({*ports(server)[-2:]}) == 2
    pool.close()


def test_a_proxy_of_the_environment_sees_only_what_leaves_the_machine(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, url_of(server).replace("//", "//me:pass%21@"))
    monkeypatch.setenv("no_proxy", "inner.example")
    pool = Connections(Endpoint(url="http://engine.example:8427/base", token="key"))
    assert get(pool) == b"{}"
    pool.close()
    with pytest.raises(Unreachable):
        get(Connections(Endpoint(url="https://engine.example")))
    seen = {path: headers for path, _, headers in server.asked}  # type: ignore[attr-defined]
    assert seen.keys() == {"http://engine.example:8427/base/x", "engine.example:443"}
    word = f"Basic {base64.b64encode(b'me:pass!').decode()}"
    assert {{name.lower(): value for name, value in each.items()}["proxy-authorization"] for each in seen.values()} == {
        word
    }
    assert seen["http://engine.example:8427/base/x"]["authorization"] == "Bearer key"
    for url in ("http://inner.example", "http://localhost:1"):
        assert Connections(Endpoint(url=url))._proxy is None


class Other(StreamRequestHandler):
    """A server of another protocol, such as SSH."""

    def handle(self) -> None:
        self.rfile.readline()
        self.wfile.write(b"SSH-2.0-OpenSSH\r\n")


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "http://127.0.0.1:port", "http://127.0.0.1:9"])
def test_a_proxy_that_does_not_help_is_named_in_one_sentence(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("all_proxy", proxy)
    for url in ("http://engine.example", "https://engine.example"):
        with pytest.raises(MidfillError, match="by the proxy that the environment sets; set HTTP_PROXY") as error:
            EngineClient(Endpoint(url=url)).health()
        assert error.value.code == "engine_unreachable"
    with ThreadingTCPServer(("127.0.0.1", 0), Other) as other, serving(other):
        monkeypatch.setenv("all_proxy", f"127.0.0.1:{other.server_address[1]}")
        with pytest.raises(MidfillError, match="by the proxy that the environment sets; set HTTP_PROXY"):
            EngineClient(Endpoint(url="https://engine.example")).health()


@pytest.mark.parametrize("failure", [socket.gaierror("unknown"), UnicodeError("label too long")])
def test_a_name_that_no_machine_has_is_told(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")

    def find_address(*_: object) -> None:
        raise failure

    monkeypatch.setattr(socket, "getaddrinfo", find_address)
    with pytest.raises(MidfillError, match="is not found by its name; check the name and the network"):
        EngineClient(Endpoint(url="http://engine.example")).health()


@pytest.mark.parametrize(("url", "timeout_s"), [("http://127.0.0.1:9", 2.0), ("https://engine.example", 10.0)])
def test_another_machine_has_more_time_to_connect(url: str, timeout_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")

    def connect(http: HTTPConnection) -> None:
        assert http.timeout == timeout_s
        raise ConnectionRefusedError

    monkeypatch.setattr(HTTPConnection, "connect", connect)
    monkeypatch.setattr(HTTPSConnection, "connect", connect)
    with pytest.raises(MidfillError, match="is not running"):
        EngineClient(Endpoint(url=url)).connect()


@pytest.mark.parametrize("body", [b"[]", b'"ok"', b"null", b"{}", b"ok"])
def test_a_server_that_is_no_engine_is_named_in_one_sentence(body: bytes, server: ThreadingHTTPServer) -> None:
    server.body = body  # type: ignore[attr-defined]
    with EngineClient(Endpoint(url=url_of(server))) as client:
        for ask in (client.health, client.idle, client.models):
            with pytest.raises(MidfillError, match="answers what this version does not understand"):
                ask()


@pytest.mark.parametrize("token", ["secret\r", "secret\n", "gehe\u00edm", "\u20ac"])
def test_a_token_that_no_header_can_hold_is_named(token: str, server: ThreadingHTTPServer) -> None:
    with pytest.raises(MidfillError, match="no token has, such as the end of a line; check MIDFILL_TOKEN") as error:
        EngineClient(Endpoint(url=url_of(server), token=token)).health()
    assert error.value.code == "engine_refused" and token not in error.value.sentence


def test_a_server_without_tls_is_named_in_one_sentence(server: ThreadingHTTPServer) -> None:
    with EngineClient(Endpoint(url=url_of(server, "https"))) as client, pytest.raises(MidfillError) as error:
        client.models()
    assert error.value.code == "engine_unreachable" and "speaks no TLS that is trusted" in error.value.message


def test_a_server_that_accepts_and_never_answers_counts_as_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Endpoint(url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(Silent), Connections(address).open(0.1) as connection:
            connection.ask("GET", "/")
        assert get_json(f"{address.url}/x", 0.1) is None
    assert connections.READ_TIMEOUT_S > 60
