"""Gives every request an id, answers every exception, writes the access log: the outermost layer of the service.

Log records are limited for each call site. They never contain text of requests, unknown paths or exception messages.
"""

import json
import logging
import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from midfill_engine.errors import RequestError, describe_failure
from midfill_engine.serving.security import error_response
from midfill_engine.starting import AccessLog
from midfill_engine.wire import ErrorCode

MAX_LINES: Final = 10  # records per call site and interval
INTERVAL_S: Final = 60.0
ACCESS: Final = "midfill.access"  # the logger of access lines, which are never dropped


class RateLimit(logging.Filter):
    """Passes MAX_LINES records per call site and interval. The next one of the site says how many were dropped."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._started_s = now()
        self._counts, self._dropped = Counter[tuple[str, int]](), Counter[tuple[str, int]]()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == ACCESS:
            return True
        if self._now() - self._started_s >= INTERVAL_S:
            self._started_s = self._now()
            self._counts.clear()
        call_site = (record.pathname, record.lineno)
        self._counts[call_site] += 1
        if self._counts[call_site] > MAX_LINES:
            self._dropped[call_site] += 1
            return False
        num_dropped = self._dropped.pop(call_site, 0)
        if num_dropped:
            record.msg, record.args = f"{record.getMessage()} ({num_dropped} more like this were not logged)", ()
        return True


def set_up_logging() -> None:
    """Logs to stderr from level INFO on, uvicorn's errors only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(RateLimit())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.ERROR)


HEADER: Final = "x-request-id"
WELL_FORMED: Final = re.compile("[A-Za-z0-9._-]{1,64}")

logger = logging.getLogger(ACCESS)
failures = logging.getLogger(__name__)


@dataclass(frozen=True)
class AccessLogger:
    """ASGI middleware. Keeps the id that a client sent, if it is well-formed. While the process `is_ending`, answers
    close their connections.
    """

    app: ASGIApp
    log: AccessLog = "off"
    is_ending: Callable[[], bool] = lambda: False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if WELL_FORMED.fullmatch(given) else secrets.token_hex(8)
        started_s, status = time.perf_counter(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[HEADER] = request_id
                if self.is_ending():
                    headers["connection"] = "close"
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception as error:  # noqa: BLE001 - whatever it is, its message must not reach the log
            failures.error("the answer to %s failed with %s", request_id, describe_failure(error))
            if not status:  # nothing was sent yet
                failure = RequestError(ErrorCode.INTERNAL, "the engine failed", "see the engine's log")
                await error_response(failure)(scope, receive, send_with_id)
        finally:
            if self.log != "off":
                self._write(scope, request_id, status, time.perf_counter() - started_s)

    def _write(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        """Writes the access line of a request."""
        method = scope["method"]
        if not method.isalpha() or len(method) > 7:
            method = "?"
        values: dict[str, Any] = {
            "request": request_id,
            "method": method,
            "route": getattr(scope.get("route"), "path", "?"),
            "status": status,
            "ms": round(1000 * seconds, 1),
            "client": scope.get("state", {}).get("token_name", ""),
        }
        if self.log == "json":
            line = json.dumps(values)
        else:
            line = " ".join(f"{key}={value}" for key, value in values.items())
        logger.info("%s", line)
