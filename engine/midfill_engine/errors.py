"""Errors that answer a request or end a start. Knows the wire's error codes and their HTTP status."""

import traceback
from typing import Final

from midfill_engine.wire import ErrorBody, ErrorCode

EXIT_NO_MODEL: Final = 5
HTTP_STATUS: Final = {
    ErrorCode.BAD_REQUEST: 400,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.UNKNOWN_MODEL: 404,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.BUSY: 429,
    ErrorCode.CANCELLED: 499,
    ErrorCode.INTERNAL: 500,
    ErrorCode.FETCH_FAILED: 502,
    ErrorCode.OUT_OF_MEMORY: 503,
}


class RequestError(Exception):
    """Ends a request with an error answer. `status` overrides the code's usual HTTP status."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        next_step: str = "",
        *,
        status: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.next_step = next_step
        self.status = HTTP_STATUS[code] if status is None else status
        self.headers = headers or {}

    @property
    def body(self) -> ErrorBody:
        return ErrorBody(code=self.code, message=self.message, next_step=self.next_step)


class StartError(RequestError):
    """Ends a command of the engine, which reports it as one line of JSON on stderr and exits with `exit_code`."""

    def __init__(self, code: ErrorCode, message: str, next_step: str, exit_code: int = EXIT_NO_MODEL) -> None:
        super().__init__(code, message, next_step)
        self.exit_code = exit_code


def fetch_failed(message: str, next_step: str) -> StartError:
    return StartError(ErrorCode.FETCH_FAILED, message, next_step)


def unknown_model(message: str, next_step: str) -> StartError:
    return StartError(ErrorCode.UNKNOWN_MODEL, message, next_step)


def describe_failure(error: Exception) -> str:
    """Type and stack of an exception for the log, without its message, which could quote the user's code."""
    return "\n".join((type(error).__name__, *traceback.format_tb(error.__traceback__)))
