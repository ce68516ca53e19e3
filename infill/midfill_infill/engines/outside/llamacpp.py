"""llama.cpp's server: `/infill`, or `/completion` for a model without the tokens for it (tools/server/README.md)."""

from collections.abc import Iterator
from pathlib import PurePath

from midfill_infill.engines.outside.protocol import Call, Gap, Piece, Protocol, read_error, read_event


class LlamaCpp(Protocol):
    default_url = "http://127.0.0.1:8080"

    def calls(self, gap: Gap) -> Iterator[Call]:
        body = {
            "n_predict": gap.max_tokens,
            "temperature": gap.temperature,
            "seed": gap.seed,
            "stop": list(gap.stops),
            "stream": True,
            "cache_prompt": True,
            "n_probs": 1,
        } | ({"model": gap.model} if gap.model else {})
        yield Call("/infill", {**body, "input_prefix": gap.before, "input_suffix": gap.behind, "prompt": ""})
        yield Call("/completion", {**body, "prompt": gap.left}, goes_on=True)

    def read(self, line: str) -> Piece | None:
        if (message := read_event(line)) is None:
            return None
        if error := read_error(message):
            return Piece(error=error)
        told = message.get("completion_probabilities") or () if not message.get("stop") else ()
        logprobs = tuple((str(each["token"]), float(each["logprob"])) for each in told)
        return Piece(str(message["content"]), logprobs, PurePath(str(message.get("model", ""))).name)
