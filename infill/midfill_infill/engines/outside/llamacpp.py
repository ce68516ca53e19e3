"""llama.cpp's server: `/infill`, or `/completion` for a model that lacks the tokens for it (tools/server/README.md)."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from midfill_infill.engines.outside.protocol import CUT, ENDED, Call, HoleQuery, Piece, Protocol


class LlamaCpp(Protocol):
    default_url = "http://127.0.0.1:8080"

    def calls(self, query: HoleQuery) -> Iterator[Call]:
        body: dict[str, Any] = {
            "n_predict": query.max_tokens,
            "temperature": query.temperature,
            "seed": query.seed,
            "stop": list(query.stops),
            "stream": True,
            "cache_prompt": True,
            "n_probs": 1,
        }
        if query.model:
            body["model"] = query.model
        # These texts need not be defused: `/infill` reads no special tokens in them, while `/completion` does.
        texts: dict[str, Any] = {"input_prefix": query.before, "input_suffix": query.behind, "prompt": ""}
        if query.sources.files:
            texts["input_extra"] = [{"filename": path, "text": text} for path, text in query.sources.files]
        yield Call("/infill", {**body, **texts})
        yield Call("/completion", {**body, "prompt": query.defused.headed.left}, is_continuation=True)

    def limit_question(self, model: str) -> tuple[str, None]:
        return "/props", None

    def read_limit(self, answer: Any, model: str, wanted: int) -> int:
        return int(answer["default_generation_settings"]["n_ctx"])

    def read_message(self, message: dict[str, Any]) -> Piece | None:
        rated = message.get("completion_probabilities") or ()
        ending = ""
        if message.get("stop"):  # the last message
            rated = ()
            is_cut = message.get("stop_type") == "limit" or message.get("stopped_limit")
            ending = CUT if is_cut else ENDED
        logprobs = tuple((str(token["token"]), float(token["logprob"])) for token in rated)
        name = PurePath(str(message.get("model", ""))).name
        return Piece(str(message["content"]), logprobs, name, ending=ending)
