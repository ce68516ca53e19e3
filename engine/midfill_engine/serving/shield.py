"""Outermost layer of the service: answers every exception and hides its message. Knows no route."""

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from midfill_engine.errors import RequestError, describe_failure
from midfill_engine.serving.access import request_id
from midfill_engine.serving.security import error_response
from midfill_engine.wire import ErrorCode

logger = logging.getLogger(__name__)


class Shield:
    """ASGI middleware that catches all exceptions; a server would log the message, which could quote code."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def watch(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:  # noqa: BLE001 - whatever it is, its message must not reach the log
            logger.error("the answer to %s failed with %s", request_id.get(), describe_failure(error))
            if not has_begun:
                failure = RequestError(ErrorCode.INTERNAL, "the engine failed", "see the engine's log")
                await error_response(failure)(scope, receive, send)
