"""Ollama's own API: `POST /api/generate` with a suffix, answered line by line (docs/api.md of its repository)."""

import re
from collections.abc import Iterator
from typing import Any, Final

from midfill_infill.answers.markers import find_dialect
from midfill_infill.engines.outside.protocol import BLOCK_TOKENS, ENDED, Call, HoleQuery, Piece, Protocol

# Every request asks for a window of so many tokens, however few it sends, because Ollama loads a model anew when the
# number changes, and takes only a few thousand tokens unless it is asked for more.
NUM_CTX: Final = 8192
_NUM_CTX: Final = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)  # in the parameters of a model's file


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
        if query.limit is not None:
            options["num_ctx"] = query.limit
        code = query.defused
        body = {"model": query.model, "stream": True, "logprobs": True, "options": options}
        if query.behind.strip() and code.has_own_layout:  # a template has no place for other files
            raw_options = {**options, "stop": find_dialect(query.model).stops(query.stops)}
            yield Call("/api/generate", {**body, "prompt": code.prompt, "raw": True, "options": raw_options})
        elif query.behind.strip():  # the template of a model without fill-in-the-middle rejects a suffix
            yield Call("/api/generate", {**body, "prompt": code.headed.before, "suffix": code.behind})
        yield Call("/api/generate", {**body, "prompt": code.headed.left, "raw": True}, is_continuation=True)

    def limit_question(self, model: str) -> tuple[str, dict[str, Any]]:
        return "/api/show", {"model": model}

    def read_limit(self, answer: Any, model: str, wanted: int) -> int | None:
        """The number that the model's file sets. Otherwise the `wanted` tokens with an answer, at least NUM_CTX, but
        not more than the model can take; None if that is unknown.
        """
        if match := _NUM_CTX.search(str(answer.get("parameters") or "")):
            return int(match[1])
        model_limits = [int(value) for key, value in answer["model_info"].items() if key.endswith(".context_length")]
        if not model_limits:
            return None
        return min(*model_limits, max(NUM_CTX, wanted + BLOCK_TOKENS))

    def read_message(self, message: dict[str, Any]) -> Piece | None:
        logprobs = tuple((token["token"], float(token["logprob"])) for token in message.get("logprobs") or ())
        ending = str(message.get("done_reason") or ENDED) if message.get("done") else ""
        return Piece(str(message["response"]), logprobs, str(message.get("model", "")), ending=ending)
