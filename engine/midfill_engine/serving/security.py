"""Checks a request's token, Host, Origin and format: web pages reach localhost by DNS rebinding or plain forms."""

import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from midfill_engine.errors import RequestError
from midfill_engine.serving.tokens import BearerTokens
from midfill_engine.wire import ErrorCode, ErrorResponse

MAX_HEADER_BYTES: Final = 32 * 1024
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/health"})
READING: Final = frozenset({"GET", "HEAD"})
UNIX_HOSTS: Final = frozenset({"localhost", "midfill"})
LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
WILDCARDS: Final = frozenset({"0.0.0.0", "::", ""})


@dataclass(frozen=True)
class Security:
    """What a request must have. `hosts` are the names allowed in Host, with any port; `any_address` allows every IP
    address too. `tokens` is None if the transport authenticates: a unix socket with mode 0600.

    Addresses and ports need no check, because a page that uses DNS rebinding sends its own host name.
    """

    hosts: frozenset[str]
    tokens: BearerTokens | None = None
    any_address: bool = False

    @classmethod
    def for_unix_socket(cls, allowed_hosts: Iterable[str] = ()) -> "Security":
        return cls(UNIX_HOSTS | clean_hosts(allowed_hosts))

    @classmethod
    def for_tcp(cls, host: str, tokens: BearerTokens, allowed_hosts: Iterable[str] = ()) -> "Security":
        return cls(LOCAL_HOSTS | clean_hosts([host, *allowed_hosts]), tokens, host in WILDCARDS)

    def check(self, scope: Scope) -> RequestError | None:
        """The error for a request that is refused, or None. Stores the token's name in the scope's state."""
        headers = Headers(scope=scope)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            return RequestError(ErrorCode.BAD_REQUEST, "the headers are too long", status=431)
        if not self.knows_host(headers.getlist("host")):
            message = "the Host header does not name this engine"
            return RequestError(ErrorCode.FORBIDDEN, message, "use its own address, or start it with --allowed-host")
        if "origin" in headers or headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
            return RequestError(ErrorCode.FORBIDDEN, "web pages may not use the engine", "call it from a program")
        is_open = scope["path"] in OPEN_PATHS and scope["method"] in READING
        if self.tokens is not None and not is_open:
            name = self.find_token(headers.getlist("authorization"))
            if name is None:
                message = "the bearer token is missing or wrong"
                next_step = "send it as Authorization: Bearer TOKEN"
                headers_wanted = {"www-authenticate": "Bearer"}
                return RequestError(ErrorCode.UNAUTHORIZED, message, next_step, headers=headers_wanted)
            scope.setdefault("state", {})["token_name"] = name
        if scope["method"] not in READING | {"OPTIONS"} and not is_json(headers.getlist("content-type")):
            message = "the body must be JSON in UTF-8"
            return RequestError(ErrorCode.BAD_REQUEST, message, "send Content-Type: application/json", status=415)
        return None

    def knows_host(self, values: list[str]) -> bool:
        """True if `values`, those of the Host headers, are one allowed name."""
        if len(values) != 1:
            return False
        name = name_of(values[0].lower())
        return name is not None and (name in self.hosts or (self.any_address and is_address(name)))

    def find_token(self, values: list[str]) -> str | None:
        """The name of the bearer token in `values`, those of the Authorization headers; None without a valid one."""
        assert self.tokens is not None
        value = values[0] if len(values) == 1 else ""
        scheme, _, given = value.partition(" ")
        name = self.tokens.find(given.strip())
        return name if scheme.lower() == "bearer" else None


def clean_hosts(hosts: Iterable[str]) -> frozenset[str]:
    """Host names, without empty ones and ports, as `name_of` returns them: lower case, IPv6 addresses in brackets."""
    lowered = (f"[{host.lower()}]" if host.count(":") > 1 and host[0] != "[" else host.lower() for host in hosts)
    return frozenset(name for name in map(name_of, lowered) if name)


def name_of(host: str) -> str | None:
    """A Host header without its port; None if it is malformed."""
    name, separator, port = host.rpartition(":")
    if not separator or host.endswith("]"):
        return host or None
    is_port = port.isascii() and port.isdigit() and len(port) <= 5
    return name if is_port and (":" not in name or name.endswith("]")) else None


def is_address(name: str) -> bool:
    """True for an IP address; one of IPv6 may be in brackets."""
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name.removeprefix("[").removesuffix("]")))
    return False


def is_json(values: list[str]) -> bool:
    """True if `values`, those of the Content-Type headers, are one that says JSON in UTF-8."""
    if len(values) != 1:
        return False
    media, _, parameters = values[0].lower().partition(";")
    return media.strip() == "application/json" and parameters.strip() in {"", "charset=utf-8", 'charset="utf-8"'}


@dataclass(frozen=True)
class Gate:
    """ASGI middleware that passes on the requests that `security` accepts, and answers the others with an error."""

    app: ASGIApp
    security: Security

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
            return
        app = self.app
        if scope["type"] == "http":
            error = self.security.check(scope)
            if error is not None:
                app = error_response(error)
        await app(scope, receive, send)


def error_response(error: RequestError) -> Response:
    content = ErrorResponse(error=error.body).model_dump_json()
    return Response(content, error.status, headers=error.headers, media_type="application/json")
