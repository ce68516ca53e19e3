"""Outermost layer of the service: gives every request an id, answers every exception, writes the access log.

Knows no text of requests: unknown paths are not logged, they may contain anything, nor are messages of exceptions.
"""

import json
import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Any, Final, Literal

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from midfill_engine.errors import RequestError, describe_failure
from midfill_engine.serving.logs import ACCESS
from midfill_engine.serving.security import error_response
from midfill_engine.wire import ErrorCode

AccessLog = Literal["off", "text", "json"]
HEADER: Final = b"x-request-id"
CLOSE: Final = (b"connection", b"close")
FITTING: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")

logger = logging.getLogger(ACCESS)
failures = logging.getLogger(__name__)


class AccessLogger:
    """ASGI middleware. A harmless id of the client is kept.

    `is_ending` marks the last answers of a server, which close their connections.
    """

    def __init__(self, app: ASGIApp, log: AccessLog = "off", is_ending: Callable[[], bool] = lambda: False) -> None:
        self._app = app
        self._log = log
        self._is_ending = is_ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name, started_s, status = choose_id(scope), time.perf_counter(), 0

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", []), (HEADER, name.encode())]
                if self._is_ending() and CLOSE not in headers:
                    headers.append(CLOSE)
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Exception as error:  # noqa: BLE001 - whatever it is, its message must not reach the log
            failures.error("the answer to %s failed with %s", name, describe_failure(error))
            if not status:
                failure = RequestError(ErrorCode.INTERNAL, "the engine failed", "see the engine's log")
                await error_response(failure)(scope, receive, note)
        finally:
            if self._log != "off":
                self._write(scope, name, status, time.perf_counter() - started_s)

    def _write(self, scope: Scope, name: str, status: int, seconds: float) -> None:
        values: dict[str, Any] = {
            "request": name,
            "method": scope["method"] if scope["method"].isalpha() and len(scope["method"]) < 8 else "?",
            "route": getattr(scope.get("route"), "path", "?"),
            "status": status,
            "ms": round(1000 * seconds, 1),
            "client": scope.get("state", {}).get("token_name", ""),
        }
        if self._log == "json":
            logger.info("%s", json.dumps(values))
        else:
            logger.info("%s", " ".join(f"{key}={value}" for key, value in values.items()))


def choose_id(scope: Scope) -> str:
    given = next((value for key, value in scope["headers"] if key == HEADER), b"")
    return given.decode() if FITTING.fullmatch(given) else secrets.token_hex(8)
