"""OpenAI's `POST /v1/completions`, as vLLM, LM Studio and TGI answer it (the API reference, "Completions").

Some of them refuse or ignore `suffix`, so a model with known fill-in-the-middle tokens gets those in the prompt.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from midfill_infill.engines.outside.protocol import Call, HoleQuery, Piece, Protocol

# Fill-in-the-middle prompts by a part of the model's name, from the model cards.
TEMPLATES: Final = {
    r"qwen.*coder|codegemma|granite.*code.*fim|seed-?coder": (
        "<|fim_prefix|>{before}<|fim_suffix|>{behind}<|fim_middle|>"
    ),
    r"starcoder|stable-?code|refact|granite|santacoder": "<fim_prefix>{before}<fim_suffix>{behind}<fim_middle>",
    r"code-?llama": "<PRE> {before} <SUF>{behind} <MID>",
    r"deepseek.*coder": "<｜fim▁begin｜>{before}<｜fim▁hole｜>{behind}<｜fim▁end｜>",
    r"codestral|devstral": "[SUFFIX]{behind}[PREFIX]{before}",
}
_ENDS: Final = ("<|fim_pad|>", "<|endoftext|>", "<|file_sep|>", "<|file_separator|>", "<file_sep>", "<EOT>")


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
        template = next((shape for name, shape in TEMPLATES.items() if re.search(name, query.model.lower())), None)
        stops, told = list(query.stops), {"logprobs": 1}
        stopped = body | ({"stop": stops} if stops else {})
        inserting: list[dict[str, Any]] = []
        if template is not None:
            texts = {"{before}": query.before, "{behind}": query.behind}
            prompt = re.sub(r"\{\w+\}", lambda name: texts[name[0]], template)
            inserting = [{**body, "prompt": prompt, "stop": [*stops, *_ENDS][:4]}]
        elif query.behind.strip():
            inserting = [{**stopped, "prompt": query.before, "suffix": query.behind}]
        yield from (Call("/v1/completions", each | more) for each in inserting for more in (told, {}))
        yield Call("/v1/completions", {**stopped, "prompt": query.left}, goes_on=True)

    def read_message(self, message: dict[str, Any]) -> Piece | None:
        if not message["choices"]:  # some engines end with an event that only counts tokens
            return None
        choice = message["choices"][0]
        told = choice.get("logprobs") or {}
        pairs = zip(told.get("tokens") or (), told.get("token_logprobs") or (), strict=False)
        logprobs = tuple((str(token), float(value)) for token, value in pairs if value is not None)
        return Piece(str(choice.get("text") or ""), logprobs, str(message.get("model", "")))
