"""Tells the client how far a fill is and how it looks, and takes its cancel button. Makes nothing itself."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from midfill_infill.fill import Preview
from midfill_lsp.messages import PreviewHole, PreviewParams, Range, Token
from midfill_lsp.text import to_units

MIN_INTERVAL_S = 0.1
PREVIEWS_PER_S = 15
CREATE_TIMEOUT_S = 2.0


class FillProgress:
    """Work-done progress of one fill; says nothing where the client has no token for it. For the event loop only."""

    def __init__(self, server: LanguageServer, token: int | str | None) -> None:
        self._server = server
        self._token = token
        self._reported_s = 0.0
        self._masked_at_start = 0
        self._percentage = 0

    def say(self, phrase: str) -> None:
        self._report(types.WorkDoneProgressReport(message=phrase))

    def step(self, step: int, num_steps: int, masked: int) -> None:
        """`masked` positions are left after `step` of at most `num_steps`. Step 0 starts a round."""
        self._masked_at_start = masked if step == 0 else max(self._masked_at_start, masked)
        if time.monotonic() - self._reported_s < MIN_INTERVAL_S:
            return
        self._reported_s = time.monotonic()
        settled = 100 - 100 * masked // max(self._masked_at_start, 1)
        message = f"step {step}/{num_steps}, {settled}% settled"
        # A second round starts again at step 0, but a percentage may only rise.
        self._percentage = max(self._percentage, min(100 * step // num_steps, 100))
        self._report(types.WorkDoneProgressReport(message=message, percentage=self._percentage))

    def _report(self, report: types.WorkDoneProgressReport) -> None:
        if self._token in self._server.work_done_progress.tokens:
            self._server.work_done_progress.report(self._token, report)


class PreviewSender:
    """Sends `midfill/preview`, at most 15 a second; nothing where the client gave no token."""

    def __init__(self, server: LanguageServer, token: Token | None, encoding: str) -> None:
        self._server, self._token, self._encoding = server, token, encoding
        self._sent_s = -1.0
        self._seq = 0

    def is_due(self) -> bool:
        """Whether it is time for one; for the thread that makes the fill."""
        now_s = time.monotonic()
        if self._token is None or now_s - self._sent_s < 1 / PREVIEWS_PER_S:
            return False
        self._sent_s = now_s
        return True

    def send(self, places: list[types.Range], preview: Preview) -> None:
        """`places` are where the holes lie now; for the event loop."""
        assert self._token is not None
        self._seq += 1
        holes = tuple(
            PreviewHole(
                range=Range.of(place),
                text=hole.text,
                settled=to_units(hole.text, hole.settled, self._encoding),
                masked=hole.masked,
            )
            for place, hole in zip(places, preview.holes, strict=True)
        )
        params = PreviewParams(
            token=self._token, seq=self._seq, step=preview.step, num_steps=preview.num_steps, holes=holes
        )
        self._server.protocol.notify("midfill/preview", params.to_json())


@asynccontextmanager
async def show_progress(server: LanguageServer, token: int | str | None, title: str) -> AsyncIterator[FillProgress]:
    """Begins and ends the progress; the client's cancel cancels the current task. `token` is the client's, if any."""
    token = await _create_token(server) if token is None else token
    if token is None:
        yield FillProgress(server, None)
        return
    loop, task, tokens = asyncio.get_running_loop(), asyncio.current_task(), server.work_done_progress.tokens
    assert task is not None
    begin = types.WorkDoneProgressBegin(title=title, cancellable=True, percentage=0)
    server.work_done_progress.begin(token, begin)
    tokens[token].add_done_callback(lambda done: done.cancelled() and loop.call_soon(task.cancel))
    message = "done"
    try:
        yield FillProgress(server, token)
    except asyncio.CancelledError:
        message = "cancelled"
        raise
    except JsonRpcException:
        message = "failed"
        raise
    finally:
        tokens.pop(token, None)
        server.work_done_progress.end(token, types.WorkDoneProgressEnd(message=message))


async def _create_token(server: LanguageServer) -> str | None:
    window = server.client_capabilities.window
    if window is None or not window.work_done_progress:
        return None
    token = str(uuid.uuid4())
    try:
        await asyncio.wait_for(server.work_done_progress.create_async(token), CREATE_TIMEOUT_S)
    except (JsonRpcException, TimeoutError):
        return None
    return token
