"""`POST /v1/fim/completions` as Mistral's and Inception's services take it (their API references)."""

from collections.abc import Iterator
from typing import Any

from midfill_infill.engines.outside.protocol import Call, HoleQuery, Piece, Protocol, read_delta


class Fim(Protocol):
    root = "/v1"
    key_variables = {"mistral.ai": "MISTRAL_API_KEY", "inceptionlabs.ai": "INCEPTION_API_KEY"}
    needs_model = True
    context_tokens = 8192  # they publish no limits, and bill every token that is sent

    def calls(self, query: HoleQuery) -> Iterator[Call]:
        code = query.headed
        body: dict[str, Any] = {
            "model": query.model,
            "prompt": code.before,
            "suffix": code.behind,
            "max_tokens": query.max_tokens,
            "stream": True,
        }
        likeliest = {**body, "temperature": query.temperature}
        stop = {"stop": list(query.stops)} if query.stops else {}
        yield Call("/fim/completions", {**likeliest, **stop, "random_seed": query.seed})
        yield Call("/fim/completions", {**likeliest, "stream": False})
        yield Call("/fim/completions", {**body, "stream": False})  # a service may set a least temperature

    def read_message(self, message: dict[str, Any]) -> Piece | None:
        return read_delta(message)
