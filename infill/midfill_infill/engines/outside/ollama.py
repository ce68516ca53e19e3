"""Ollama's own API: `POST /api/generate` with a suffix, answered line by line (docs/api.md of its repository)."""

from collections.abc import Iterator
from typing import Any

from midfill_infill.engines.outside.protocol import Call, HoleQuery, Piece, Protocol


class Ollama(Protocol):
    default_url = "http://127.0.0.1:11434"
    needs_model = True

    def calls(self, query: HoleQuery) -> Iterator[Call]:
        options: dict[str, Any] = {
            "num_predict": query.max_tokens,
            "temperature": query.temperature,
            "seed": query.seed,
        }
        if query.stops:
            options["stop"] = list(query.stops)
        code = query.defused
        body = {"model": query.model, "prompt": code.before, "stream": True, "logprobs": True, "options": options}
        if query.behind.strip():  # the template of a model without fill-in-the-middle rejects a suffix
            yield Call("/api/generate", {**body, "suffix": code.behind})
        yield Call("/api/generate", {**body, "prompt": code.left, "raw": True}, goes_on=True)

    def read_message(self, message: dict[str, Any]) -> Piece | None:
        logprobs = tuple((each["token"], float(each["logprob"])) for each in message.get("logprobs") or ())
        return Piece(str(message["response"]), logprobs, str(message.get("model", "")))
