"""Reports progress and previews of a fill to the client, and handles its cancel button. Makes no fill."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from midfill_infill.filling.fill import Preview
from midfill_lsp.messages import PreviewHole, PreviewParams, Range, Token
from midfill_lsp.text import to_units

MIN_INTERVAL_S = 0.1
PREVIEWS_PER_S = 15
CREATE_TIMEOUT_S = 2.0
CREATE_DELAY_S = 0.03  # a fill that ends sooner shows no progress unless the client gave a token


class FillProgress:
    """LSP's work-done progress of one fill; shows nothing before it has a token. Use it on the event loop only."""

    def __init__(self, server: LanguageServer, title: str) -> None:
        self._server, self._title = server, title
        self._token: int | str | None = None
        self._reported_s = 0.0
        self._masked_at_start = 0
        self._percentage = 0

    def begin(self, token: int | str, task: asyncio.Task[object]) -> None:
        """Shows progress under a token that the client knows; the cancel button cancels `task`."""
        self._token = token
        begin = types.WorkDoneProgressBegin(title=self._title, cancellable=True, percentage=0)
        self._server.work_done_progress.begin(token, begin)
        loop = asyncio.get_running_loop()
        cancelled = self._server.work_done_progress.tokens[token]
        cancelled.add_done_callback(lambda done: done.cancelled() and loop.call_soon(task.cancel))

    def end(self, message: str) -> None:
        if self._token is not None:
            self._server.work_done_progress.tokens.pop(self._token, None)
            self._server.work_done_progress.end(self._token, types.WorkDoneProgressEnd(message=message))

    def say(self, phrase: str) -> None:
        self._report(types.WorkDoneProgressReport(message=phrase))

    def step(self, step: int, num_steps: int, masked: Sequence[int]) -> None:
        """Shows how many positions of each hole are `masked` after `step` of at most `num_steps`. Step 0 starts a
        round.
        """
        num_masked = sum(masked)
        if step == 0:
            self._masked_at_start = 0
        if max(masked, default=0) > 1:  # otherwise the model writes from the left: it settles no masks, knows no bound
            self._masked_at_start = max(self._masked_at_start, num_masked)
        if time.monotonic() - self._reported_s < MIN_INTERVAL_S:
            return
        self._reported_s = time.monotonic()
        report = types.WorkDoneProgressReport(message=f"step {step}")
        if self._masked_at_start:
            settled = 100 - 100 * num_masked // self._masked_at_start
            # A second round restarts at step 0, but percentages may only rise.
            self._percentage = max(self._percentage, min(100 * step // num_steps, 100))
            message = f"step {step}/{num_steps}, {settled}% settled"
            report = types.WorkDoneProgressReport(message=message, percentage=self._percentage)
        self._report(report)

    def _report(self, report: types.WorkDoneProgressReport) -> None:
        if self._token in self._server.work_done_progress.tokens:
            self._server.work_done_progress.report(self._token, report)


class PreviewSender:
    """Sends `midfill/preview` at most 15 times a second, and always the chosen texts; nothing without a token."""

    def __init__(self, server: LanguageServer, id: int, token: Token | None, encoding: str) -> None:
        self._server, self._id, self._token, self._encoding = server, id, token, encoding
        self._sent_s = -1.0
        self._seq = 0

    def is_due(self, preview: Preview) -> bool:
        """True if the preview is to be sent, which counts as sent then. For the thread that makes the fill."""
        now_s = time.monotonic()
        is_due = self._token is not None and (preview.is_chosen or now_s - self._sent_s >= 1 / PREVIEWS_PER_S)
        self._sent_s = now_s if is_due else self._sent_s
        return is_due

    def send(self, ranges: list[types.Range], preview: Preview) -> None:
        """Sends a preview. `ranges` are the current ones of the holes. Call it on the event loop."""
        assert self._token is not None
        self._seq += 1
        holes = tuple(
            PreviewHole(
                range=Range.of(hole_range),
                text=hole.text,
                settled=to_units(hole.text, hole.settled, self._encoding),
                masked=hole.masked,
                tokens=to_units(hole.text, hole.tokens, self._encoding),
                confidence=tuple(hole.confidence),
            )
            for hole_range, hole in zip(ranges, preview.holes, strict=True)
        )
        params = PreviewParams(
            token=self._token, id=self._id, seq=self._seq, step=preview.step, num_steps=preview.num_steps, holes=holes
        )
        self._server.protocol.notify("midfill/preview", params.to_json())


@asynccontextmanager
async def show_progress(server: LanguageServer, token: int | str | None, title: str) -> AsyncIterator[FillProgress]:
    """Begins and ends progress; its cancel button cancels the current task. Requests a token if `token` is None."""
    progress, task = FillProgress(server, title), asyncio.current_task()
    assert task is not None
    asking: asyncio.Task[None] | None = None
    window = server.client_capabilities.window
    if token is not None:
        progress.begin(token, task)
    elif window and window.work_done_progress:
        asking = asyncio.create_task(_begin_when_granted(server, progress, task))
    message = "done"
    try:
        yield progress
    except asyncio.CancelledError:
        message = "cancelled"
        raise
    except Exception:
        message = "failed"
        raise
    finally:
        if asking is not None:
            asking.cancel()
        progress.end(message)


async def _begin_when_granted(server: LanguageServer, progress: FillProgress, task: asyncio.Task[object]) -> None:
    """Asks the client for a token, and begins progress if it grants one."""
    await asyncio.sleep(CREATE_DELAY_S)
    token = str(uuid.uuid4())
    try:
        # Not wait_for: in Python 3.11 it loses a cancel that comes with the answer, and progress would never end.
        async with asyncio.timeout(CREATE_TIMEOUT_S):
            await server.work_done_progress.create_async(token)
    except (JsonRpcException, TimeoutError):
        return
    progress.begin(token, task)
