"""OpenAI's `POST /v1/completions`, as vLLM, LM Studio and TGI answer it (the API reference, "Completions").

Some of them refuse or ignore `suffix`, so a model with known fill-in-the-middle tokens gets those in the prompt.
"""

from collections.abc import Iterator
from typing import Any

from midfill_infill.answers.markers import find_dialect
from midfill_infill.engines.outside.protocol import Call, HoleQuery, Piece, Protocol


class OpenAI(Protocol):
    default_url = "http://127.0.0.1:8000"
    key_variables = {"openai.com": "OPENAI_API_KEY"}
    needs_model = True

    def calls(self, query: HoleQuery) -> Iterator[Call]:
        body: dict[str, Any] = {
            "model": query.model,
            "max_tokens": query.max_tokens,
            "temperature": query.temperature,
            "seed": query.seed,
            "stream": True,
        }
        code = query.defused
        dialect = find_dialect(query.model)
        stopped = dict(body)
        if query.stops:
            stopped["stop"] = list(query.stops)
        inserting: dict[str, Any] = {}
        if dialect.template:
            inserting = {**body, "prompt": code.prompt}
            ends = dialect.stops(query.stops)
            if ends:
                inserting["stop"] = ends
        elif query.behind.strip():
            inserting = {**stopped, "prompt": code.headed.before, "suffix": code.behind}
        if inserting:
            yield Call("/v1/completions", {**inserting, "logprobs": 1})
            yield Call("/v1/completions", inserting)
        yield Call("/v1/completions", {**stopped, "prompt": code.headed.left}, goes_on=True)

    def limit_question(self, model: str) -> tuple[str, None]:
        return "/v1/models", None

    def read_limit(self, told: Any, model: str, wanted: int) -> int | None:
        """vLLM's `max_model_len`; others tell none."""
        limits = [each.get("max_model_len") for each in told["data"] if each["id"] == model]
        return int(limits[0]) if limits and limits[0] else None

    def read_message(self, message: dict[str, Any]) -> Piece | None:
        if not message["choices"]:  # some engines end with an event that only counts tokens
            return None
        choice = message["choices"][0]
        told = choice.get("logprobs") or {}
        pairs = zip(told.get("tokens") or (), told.get("token_logprobs") or (), strict=False)
        logprobs = tuple((str(token), float(value)) for token, value in pairs if value is not None)
        return Piece(str(choice.get("text") or ""), logprobs, str(message.get("model", "")))
