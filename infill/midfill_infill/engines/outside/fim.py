"""`POST /v1/fim/completions` as Mistral's and Inception's services take it (their API references)."""

from collections.abc import Iterator
from typing import Any

from midfill_infill.engines.outside.protocol import Call, Gap, Piece, Protocol, read_error, read_event


class Fim(Protocol):
    key_variables = {"mistral.ai": "MISTRAL_API_KEY", "inceptionlabs.ai": "INCEPTION_API_KEY"}
    needs_model = True
    context_tokens = 8192  # they say nothing of their limits, and all that is sent is paid for

    def calls(self, gap: Gap) -> Iterator[Call]:
        body: dict[str, Any] = {
            "model": gap.model,
            "prompt": gap.before,
            "suffix": gap.behind,
            "max_tokens": gap.max_tokens,
            "stream": True,
        }
        if gap.temperature:
            body["temperature"] = gap.temperature
        stops = {"stop": list(gap.stops)} if gap.stops else {}
        yield Call("/v1/fim/completions", {**body, **stops, "random_seed": gap.seed})
        yield Call("/v1/fim/completions", {**body, "stream": False})

    def read(self, line: str) -> Piece | None:
        if (message := read_event(line)) is None:
            return None
        if error := read_error(message):
            return Piece(error=error)
        if not message["choices"]:
            return None
        choice = message["choices"][0]
        said = choice.get("delta") or choice.get("message") or {}
        return Piece(str(said.get("content") or choice.get("text") or ""), (), str(message.get("model", "")))
