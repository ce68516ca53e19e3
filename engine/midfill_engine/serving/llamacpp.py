"""Translates llama.cpp's routes `/infill` and `/completion` for llama.vim, llama.vscode, Continue. Knows no model."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from midfill_engine import wire
from midfill_engine.scheduling.scheduler import MAX_ACTIVE
from midfill_engine.serving.fim import (
    ForeignRequest,
    Stops,
    Tolerant,
    around_hole,
    choose_sampling,
    cut_at_stop,
    to_line_feeds,
    with_line_endings_of,
)
from midfill_engine.serving.marked import split_prompt


class ExtraText(Tolerant):
    """Text of another file."""

    text: str = Field(default="", max_length=1024 * 1024)
    filename: str = Field(default="", max_length=4096)


class LlamaInfillRequest(ForeignRequest):
    """llama.cpp's `POST /infill`. The hole is after `input_prefix` and `prompt` and before `input_suffix`. The answer
    ends before a later line that is indented by less than `n_indent` characters. `response_fields` selects its fields.
    """

    input_prefix: str = Field(default="", max_length=wire.MAX_TEXT_CHARACTERS)
    input_suffix: str = Field(default="", max_length=wire.MAX_TEXT_CHARACTERS)
    prompt: str = Field(default="", max_length=wire.MAX_TEXT_CHARACTERS)
    input_extra: list[ExtraText] = Field(default_factory=list, max_length=256)
    n_predict: int = -1
    n_indent: int = 0
    n_cmpl: int = Field(default=1, ge=1, le=8, description="with more than one the answer is a list")
    t_max_predict_ms: wire.Milliseconds = Field(default=0, description="of work, then the best guess; 0: no limit")
    temperature: wire.FiniteFloat = Field(default=0.0, description="below 0 like 0, beyond 2 like 2")
    top_p: wire.FiniteFloat = Field(default=1.0, description="0 and below: the likeliest token; beyond 1 like 1")
    seed: int = Field(default=-1, lt=2**63)
    stop: Stops = Field(default_factory=list)
    response_fields: list[str] = Field(default_factory=list, max_length=64)


StopType = Literal["eos", "limit", "word"]


class LlamaAnswer(BaseModel):
    """The parts of llama.cpp's answer that its clients read."""

    index: int = 0
    content: str
    model: str
    stop: bool = True
    stop_type: StopType = "eos"
    stopping_word: str = ""
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    truncated: bool = False
    seed: int | None = None
    timings: dict[str, int | float]


Answer = LlamaAnswer | dict[str, Any]


def completion_to_infill(request: LlamaInfillRequest) -> list[wire.InfillRequest]:
    """Translates `POST /completion` as Continue sends it: markers in the prompt tell where the text behind begins."""
    sides = split_prompt(request.prompt)
    if sides is None:
        return to_infill(request)
    before, behind = sides
    texts = {"input_prefix": before, "input_suffix": behind, "prompt": ""}
    return to_infill(request.model_copy(update=texts))


def to_infill(request: LlamaInfillRequest) -> list[wire.InfillRequest]:
    """Translates `POST /infill`. Text of other files comes first, because too long a text loses its start."""
    extra = "".join(f"{part.text}\n" for part in request.input_extra if part.text)
    before = (extra + request.input_prefix + request.prompt)[-wire.MAX_TEXT_CHARACTERS :]
    limit = request.n_predict if request.n_predict > 0 else None
    temperature, top_p = choose_sampling(request.temperature, request.top_p)
    return [
        wire.InfillRequest(
            segments=around_hole(before, request.input_suffix, limit),
            model=request.model or None,
            seed=request.seed if request.seed >= 0 else None,
            temperature=temperature,
            top_p=top_p,
            n=request.n_cmpl,
            max_ms=max(request.t_max_predict_ms, 0) or None,
        )
    ]


def from_infill(request: LlamaInfillRequest, responses: list[wire.InfillResponse]) -> Answer | list[Answer]:
    """The answer; if several were asked for (`n_cmpl`), a list of them, best first."""
    (response,) = responses
    fills = [filled_holes[0] for filled_holes in (response.holes, *response.alternatives)]
    answers = [from_fill(request, response, fill, index) for index, fill in enumerate(fills)]
    return answers[0] if request.n_cmpl == 1 else answers


def from_fill(request: LlamaInfillRequest, response: wire.InfillResponse, fill: wire.FilledHole, index: int) -> Answer:
    """The answer with one of the fills: its text up to the first stop string or line with too little indent."""
    text = cut_at_indent(cut_at_stop(fill.text, request.stop), request.n_indent)
    content = with_line_endings_of(text, request.input_prefix, request.prompt, request.input_suffix)
    words_behind = (word for word in request.stop if word and fill.text.startswith(to_line_feeds(word), len(text)))
    stopping_word = next(words_behind, "")  # "" if no word cut the text, because none stands behind it
    stop_type: StopType = "eos"
    if stopping_word:
        stop_type = "word"
    elif fill.cut and text == fill.text:
        stop_type = "limit"
    stats = response.stats
    num_tokens = stats.tokens
    ms = max(stats.ms, 1e-3)
    timings: dict[str, int | float] = {  # all time counts as prediction: the engine does not measure the prompt apart
        "prompt_n": stats.context_tokens,
        "prompt_ms": 0.0,
        "prompt_per_token_ms": 0.0,
        "prompt_per_second": 0.0,
        "predicted_n": num_tokens,
        "predicted_ms": ms,
        "predicted_per_token_ms": ms / max(1, num_tokens),
        "predicted_per_second": 1000 * num_tokens / ms,
    }
    answer = LlamaAnswer(
        index=index,
        content=content,
        model=response.model,
        tokens_predicted=num_tokens,
        tokens_evaluated=stats.context_tokens,
        tokens_cached=stats.context_tokens if stats.cached_context else 0,
        stop_type=stop_type,
        stopping_word=stopping_word,
        seed=response.seed,
        timings=timings,
    )
    return select(answer, request.response_fields)


def answer_nothing(request: LlamaInfillRequest, model: str) -> Answer:
    """The empty answer to `n_predict` 0, with which clients only warm up llama.cpp's cache."""
    stats = wire.Stats(steps=0, forwards=0, tokens=0, ms=0.0)
    hole = wire.FilledHole(text="", tokens=[], confidence=[])
    return from_fill(request, wire.InfillResponse(model=model, holes=[hole], stats=stats), hole, 0)


def select(answer: LlamaAnswer, fields: list[str]) -> Answer:
    """The whole answer; or a dict of the requested `fields` by path ("timings/prompt_n"), without unknown ones."""
    if not fields:
        return answer
    values: dict[str, Any] = answer.model_dump()
    flat = values | {f"timings/{name}": value for name, value in values["timings"].items()}
    return {name: flat[name] for name in fields if name in flat}


def cut_at_indent(text: str, min_indent: int) -> str:
    """The lines of `text` before one indented less than `min_indent`; the first and blank ones do not count."""
    lines = text.split("\n")
    for index, line in enumerate(lines[1:], start=1):
        if line.strip() and len(line) - len(line.lstrip()) < min_indent:
            return "\n".join(lines[:index])
    return text


def describe_server(info: wire.ModelInfo) -> dict[str, Any]:
    """The properties that llama.cpp's clients read from `/props`."""
    settings = {"n_ctx": info.max_context_tokens, "params": {"n_predict": info.max_hole_tokens}}
    return {
        "default_generation_settings": settings,
        "total_slots": MAX_ACTIVE,
        "model_path": info.id,
        "model_alias": info.id,
        "modalities": {"vision": False, "audio": False},
        "chat_template": "",
        "build_info": "midfill",
        "is_sleeping": False,
    }
