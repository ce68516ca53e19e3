"""Fills a request with the backend that its model's family names, if the family declares that its models heed the
request. Knows no tokens.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from midfill_engine.causal import continuing
from midfill_engine.diffusion import denoise, plan
from midfill_engine.errors import RequestError
from midfill_engine.loading.runtime import Runtime
from midfill_engine.registry import Registry
from midfill_engine.requests.timer import Clock
from midfill_engine.scheduling.work import Fill
from midfill_engine.wire import ErrorCode, InfillRequest, InfillResponse

Name = str | None  # of a cache or a length policy, None for the model's own


@dataclass(frozen=True)
class Backend:
    """A way to fill requests. `fill` takes the names of a cache and a length policy; `check_variants` raises
    RequestError if names of these do not fit the model; `usual_cache` returns the name of the cache to use if none is
    named.
    """

    fill: Callable[[Runtime, InfillRequest, Clock, Name, Name], Fill]
    check_variants: Callable[[Runtime, Name, Name], object]
    usual_cache: Callable[[Runtime], str]


BACKENDS: Final = Registry(
    "backend",
    {
        "causal": Backend(
            lambda runtime, request, clock, *_: continuing.fill_causally(runtime, request, clock),
            continuing.check_variants,
            lambda runtime: runtime.family.cache,
        ),
        "diffusion": Backend(denoise.fill_by_denoising, plan.find_variants, plan.usual_cache),
    },
)


def find_backend(runtime: Runtime) -> Backend:
    return BACKENDS.find(runtime.family.backend)


async def open_fill(
    runtime: Runtime,
    request: InfillRequest,
    *,
    cache: Name = None,
    lengths: Name = None,
    clock: Clock = time.perf_counter,
) -> InfillResponse:
    """Fills a request, or raises RequestError. Only the scheduler can run the coroutine, because it awaits memory,
    forward passes, and that its steps are shown. `clock` returns the time in seconds.
    """
    check_wishes(runtime, request)
    return await find_backend(runtime).fill(runtime, request, clock, cache, lengths)


def check_wishes(runtime: Runtime, request: InfillRequest) -> None:
    """Raises RequestError if the request has wishes that the model would not heed."""
    unheeded = [wish for wish in request.wishes if wish not in runtime.family.heeds]
    if unheeded:
        fields = {"lines": "min_lines and max_lines"}
        named = ", ".join(fields.get(wish, wish) for wish in unheeded)
        message = f"{runtime.names[0]}, a model of the family {runtime.family.name!r}, does not heed {named}"
        raise RequestError(ErrorCode.BAD_REQUEST, message, "leave it out; /v1/models says what a model `heeds`")
