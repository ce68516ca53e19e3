"""`POST /v1/chat/completions`, for models that were tuned to chat, as OpenAI, vLLM, LM Studio, llama.cpp, Ollama and
Inception answer it (the API reference, "Chat"). The prompt shows the file with its hole marked. It demands a fence, so
that `uncover` takes it off whatever the hole wants; `answers` takes off what else a model says around the code.
Thinking that a server sends in a field of its own is not read.
"""

import re
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from midfill_infill.answers.wrapping import has_fence, is_wrapping, take_off_fence
from midfill_infill.engines.outside.openai import OpenAI
from midfill_infill.engines.outside.protocol import BLOCK_TOKENS, THINKING_TOKENS, Call, HoleQuery, Piece, read_delta

_TASK: Final = (
    "You fill gaps in code. The user shows a file in which {gap} stands for missing code. Answer with the missing code "
    "alone, in one fenced code block: no explanation, nothing of the lines around the gap, indented as in the file."
)
_EXTENTS: Final = {
    "line": "{gap} stands for a part of its line.",
    "rest": "{gap} stands for a part of its line.",
    "statement": "{gap} stands for one statement.",
    "block": "{gap} stands for one or more lines.",
}
FILE: Final = "The file:\n\n```\n"
# The first line of thoughts whose opening tag the prompt of a model holds, and what ends them; code may look so, too.
_THOUGHT: Final = re.compile(r"\s*[A-Z][\w'’]*[,.!]*(?:(?<=[,.!])$|(?:[ \t]+\S+){2,})")
_THOUGHTS_END: Final = re.compile(r"(?<![\"'`])</(?:think|thinking|reasoning)>(?:[ \t]*\n)*(?=[ \t]*\S)")


class Chat(OpenAI):
    key_variables = {
        "openai.com": "OPENAI_API_KEY",
        "inceptionlabs.ai": "INCEPTION_API_KEY",
        "mistral.ai": "MISTRAL_API_KEY",
    }
    has_stops = False  # an answer begins with a fence
    knows_end = True
    context_tokens = 6144
    answer_tokens = BLOCK_TOKENS + THINKING_TOKENS  # many servers count thoughts as well

    def calls(self, query: HoleQuery) -> Iterator[Call]:
        code = query.defused
        marks = (f"<GAP_{number}>" for number in count(1))
        gap = next(mark for mark in marks if mark not in code.before + code.behind)
        extent = _EXTENTS[query.extent].format(gap=gap)
        others = "".join(f"Part of {path}:\n\n```\n{text}\n```\n\n" for path, text in code.sources.files)
        max_tokens = query.max_tokens + THINKING_TOKENS
        if query.limit is not None:
            max_tokens = min(max_tokens, query.limit // 2)
        body: dict[str, Any] = {
            "model": query.model,
            "messages": [
                {"role": "system", "content": _TASK.format(gap=gap)},
                {"role": "user", "content": f"{extent}\n\n{others}{FILE}{code.before}{gap}{code.behind}\n```"},
            ],
            "max_tokens": max_tokens,
            "stream": True,
        }
        likeliest = {**body, "temperature": query.temperature}
        yield Call("/chat/completions", {**likeliest, "seed": query.seed})
        yield Call("/chat/completions", likeliest)  # Mistral's service refuses a seed
        yield Call("/chat/completions", body)  # some models refuse any temperature but their own

    def find_answer(self, text: str) -> int | None:
        lines = [line for line in text.split("\n") if line.strip()][:3]
        if any(map(has_fence, lines[:2])) or (any(map(has_fence, lines)) and is_wrapping("\n".join(lines))):
            return 0
        if not lines or not _THOUGHT.match(lines[0]):
            return super().find_answer(text)
        end = _THOUGHTS_END.search(text)
        return None if end is None else end.end()

    def uncover(self, answer: str) -> str:
        return take_off_fence(answer)

    def read_message(self, message: dict[str, Any]) -> Piece | None:
        piece = read_delta(message)
        if piece is None or not (piece.text or piece.ending):  # an empty one comes with a thought
            return None
        return piece
