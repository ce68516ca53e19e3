"""One engine of a cluster: a model and its scheduler without a socket. Knows no cluster; messages are JSON."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from midfill_engine.errors import RequestError
from midfill_engine.serving.about import TextTokenizer
from midfill_engine.serving.serve import make_ready
from midfill_engine.serving.service import EngineState
from midfill_engine.serving.stream import Mailbox
from midfill_engine.wire import ErrorBody, ErrorCode, InfillRequest, InfillResponse, ModelInfo, ServeOptions, StepEvent

KINDS: Final[dict[str, type[StepEvent] | type[InfillResponse]]] = {"step": StepEvent, "done": InfillResponse}


@dataclass(frozen=True)
class About:
    """What the front process must know about its engines."""

    info: ModelInfo
    names: tuple[str, ...]
    tokenizer: TextTokenizer | None


class Replica:
    """Raises RuntimeError if another Midfill version is installed, StartError if the model cannot load."""

    def __init__(self, options: ServeOptions, wanted: str) -> None:
        if (here := version("midfill")) != wanted:
            raise RuntimeError(f"this node has midfill {here}, the door {wanted}")
        self._state = EngineState()
        self._ready = make_ready(self._state, options)

    async def about(self) -> About:
        return About(self._ready.info, self._ready.names, self._ready.tokenizer)

    async def infill(self, request_json: str, client: str) -> AsyncIterator[str]:
        """Events of a fill; only the last one if no steps were requested."""
        request, mailbox = InfillRequest.model_validate_json(request_json), Mailbox()
        try:
            ticket = self._ready.scheduler.submit(request, mailbox.post, client)
        except RequestError as error:
            yield encode_event(error)
            return
        try:
            while True:
                event = await mailbox.take()
                is_step = isinstance(event, StepEvent)
                if request.stream or not is_step:
                    yield encode_event(event)
                if not is_step:
                    return
        finally:
            ticket.cancel()

    async def check_health(self) -> None:
        """Raises RuntimeError after the device was lost, so that the cluster starts another engine."""
        if self._state.failure is not None:
            raise RuntimeError(self._state.failure.message)


def encode_event(event: StepEvent | InfillResponse | RequestError) -> str:
    if isinstance(event, RequestError):
        return json.dumps(["error", event.body.model_dump(mode="json"), event.status, event.headers])
    return json.dumps(["step" if isinstance(event, StepEvent) else "done", event.model_dump(mode="json")])


def decode_event(text: str) -> StepEvent | InfillResponse | RequestError:
    kind, value, *rest = json.loads(text)
    if kind in KINDS:
        return KINDS[kind].model_validate(value)
    status, headers = rest
    body = ErrorBody.model_validate(value)
    return RequestError(ErrorCode(body.code), body.message, body.next_step, status=status, headers=headers)
