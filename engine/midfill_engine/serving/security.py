"""The gate before every route: who may ask, from where, in which format. Knows headers; no route but the open one.

Localhost is no boundary: a web page can reach it by DNS rebinding or by a plain form, so names and origins are checked.
"""

import ipaddress
import secrets
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from midfill_engine.errors import RequestError
from midfill_engine.wire import ErrorCode, ErrorResponse

MAX_HEADER_BYTES: Final = 32 * 1024
OPEN_PATH: Final = "/healthz"
UNIX_HOSTS: Final = frozenset({"localhost", "midfill"})
WILDCARDS: Final = frozenset({"0.0.0.0", "::", ""})


@dataclass(frozen=True)
class Security:
    """`hosts` are the exact values of Host that are let in; with `any_address` also every IP address with `port`.

    A web page that has another name resolved to this machine still sends that name, so an address is no rebinding.
    `token` None means that the transport itself says who asks (a unix socket with mode 0600).
    """

    hosts: frozenset[str]
    token: str | None = None
    any_address: bool = False
    port: int = 0

    @classmethod
    def for_unix_socket(cls) -> "Security":
        return cls(UNIX_HOSTS)

    @classmethod
    def for_tcp(cls, host: str, port: int, token: str) -> "Security":
        names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host.lower()}
        hosts = {f"{name}:{port}" for name in names} | (names if port == 80 else set())
        return cls(frozenset(hosts), token, host in WILDCARDS, port)

    def check(self, scope: Scope) -> RequestError | None:
        """The refusal that a request deserves, or None."""
        headers = Headers(scope=scope)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            return RequestError(ErrorCode.BAD_REQUEST, "the headers are too long", status=431)
        if not self.knows_host(headers.getlist("host")):
            return RequestError(ErrorCode.FORBIDDEN, "the Host header does not name this engine", "use its own address")
        if "origin" in headers or headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
            return RequestError(ErrorCode.FORBIDDEN, "web pages may not use the engine", "call it from a program")
        is_open = scope["path"] == OPEN_PATH and scope["method"] == "GET"
        if self.token is not None and not is_open and not self.knows_token(headers.getlist("authorization")):
            next_step = "send it as Authorization: Bearer TOKEN"
            wanted = {"www-authenticate": "Bearer"}
            return RequestError(
                ErrorCode.UNAUTHORIZED, "the bearer token is missing or wrong", next_step, headers=wanted
            )
        if scope["method"] not in {"GET", "HEAD", "OPTIONS"} and not is_json(headers.getlist("content-type")):
            message = "the body must be JSON in UTF-8"
            return RequestError(ErrorCode.BAD_REQUEST, message, "send Content-Type: application/json", status=415)
        return None

    def knows_host(self, values: list[str]) -> bool:
        if len(values) != 1:
            return False
        value = values[0].lower()
        return value in self.hosts or (self.any_address and is_address(value, self.port))

    def knows_token(self, values: list[str]) -> bool:
        scheme, _, given = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        assert self.token is not None
        is_right = secrets.compare_digest(given.strip().encode(), self.token.encode())
        return is_right and scheme.lower() == "bearer"


def is_address(host: str, port: int) -> bool:
    """Whether `host` is an IP address with this very port."""
    name, separator, given_port = host.rpartition(":")
    if not separator or given_port != str(port):
        return False
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def is_json(values: list[str]) -> bool:
    if len(values) != 1:
        return False
    media, _, parameters = values[0].lower().partition(";")
    return media.strip() == "application/json" and parameters.strip() in {"", "charset=utf-8", 'charset="utf-8"'}


class Gate:
    """ASGI middleware that lets through only what `security` has nothing against."""

    def __init__(self, app: ASGIApp, security: Security) -> None:
        self._app = app
        self._security = security

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
            return
        error = self._security.check(scope) if scope["type"] == "http" else None
        await (self._app if error is None else error_response(error))(scope, receive, send)


def error_response(error: RequestError) -> Response:
    content = ErrorResponse(error=error.body).model_dump_json()
    return Response(content, error.status, headers=error.headers, media_type="application/json")
