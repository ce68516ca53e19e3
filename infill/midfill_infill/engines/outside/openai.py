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
        code, dialect, told = query.defused, find_dialect(query.model), {"logprobs": 1}
        stopped = body | ({"stop": list(query.stops)} if query.stops else {})
        inserting: list[dict[str, Any]] = []
        if dialect.template:
            ends = dialect.stops(query.stops)
            inserting = [{**body, "prompt": code.prompt} | ({"stop": ends} if ends else {})]
        elif query.behind.strip():
            inserting = [{**stopped, "prompt": code.headed.before, "suffix": code.behind}]
        yield from (Call("/v1/completions", each | more) for each in inserting for more in (told, {}))
        yield Call("/v1/completions", {**stopped, "prompt": code.headed.left}, goes_on=True)

    def limit_question(self, model: str) -> tuple[str, None]:
        return "/v1/models", None

    def read_limit(self, told: Any, model: str) -> int | None:
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
