"""OpenAI's `POST /v1/completions`, as vLLM, LM Studio and TGI answer it (the API reference, "Completions").

Some of these servers refuse or ignore `suffix`, so a model whose fill-in-the-middle tokens are known gets them in the
prompt.
"""

from collections.abc import Iterator
from typing import Any

from midfill_infill.answers.markers import find_dialect
from midfill_infill.engines.outside.protocol import Call, HoleQuery, Piece, Protocol, read_ending


class OpenAI(Protocol):
    default_url, root = "http://127.0.0.1:8000", "/v1"
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
        with_stops = {**body, "stop": list(query.stops)} if query.stops else body
        insertion: dict[str, Any] = {}  # a call in which the model sees the text behind the hole
        if dialect.template:
            insertion = {**body, "prompt": code.prompt}
            if stops := dialect.stops(query.stops):
                insertion["stop"] = stops
        elif query.behind.strip():
            insertion = {**with_stops, "prompt": code.headed.before, "suffix": code.behind}
        if insertion:
            yield Call("/completions", {**insertion, "logprobs": 1})
            yield Call("/completions", insertion)  # the same without asking for log-probabilities
        yield Call("/completions", {**with_stops, "prompt": code.headed.left}, is_continuation=True)

    def limit_question(self, model: str) -> tuple[str, None]:
        return "/models", None

    def read_limit(self, answer: Any, model: str, wanted: int) -> int | None:
        """vLLM's `max_model_len`; other servers tell no limit."""
        limits = (int(entry.get("max_model_len") or 0) for entry in answer["data"] if entry["id"] == model)
        return next(limits, None)

    def read_message(self, message: dict[str, Any]) -> Piece | None:
        if not message.get("choices"):  # some engines end with an event that only counts tokens
            return None
        choice = message["choices"][0]
        rated = choice.get("logprobs") or {}
        pairs = zip(rated.get("tokens") or (), rated.get("token_logprobs") or (), strict=False)
        logprobs = tuple((str(token), float(value)) for token, value in pairs if value is not None)
        model = str(message.get("model", ""))
        return Piece(str(choice.get("text") or ""), logprobs, model, ending=read_ending(choice))
