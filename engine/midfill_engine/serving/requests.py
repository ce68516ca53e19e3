"""Request models of Mistral's, OpenAI's and llama.cpp's clients. Knows JSON, nothing behind it."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from midfill_engine.wire import MAX_TEXT_CHARACTERS, FiniteFloat, Text

MAX_PROMPTS = 16


class ForeignRequest(BaseModel):
    """What requests of other projects' clients have in common. Unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str | None = Field(default=None, max_length=512)
    stream: bool = False


class FimRequest(ForeignRequest):
    """`POST /v1/fim/completions` as Mistral's and Mercury's clients send it."""

    prompt: str = Field(max_length=MAX_TEXT_CHARACTERS)
    suffix: str | None = Field(default=None, max_length=MAX_TEXT_CHARACTERS)
    max_tokens: int | None = Field(
        default=None, ge=1, description="more than the model can fill at once counts as that"
    )
    t_max_predict_ms: int | None = None
    temperature: FiniteFloat | None = Field(default=None, ge=0, le=2)
    random_seed: int | None = Field(default=None, ge=0, lt=2**63)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: str | list[str] | None = None


class CompletionRequest(ForeignRequest):
    """`POST /v1/completions` with `suffix` as OpenAI's clients send it."""

    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_PROMPTS)]
    suffix: str | None = Field(default=None, max_length=MAX_TEXT_CHARACTERS)
    max_tokens: int | None = Field(default=None, ge=1)
    t_max_predict_ms: int | None = None
    temperature: FiniteFloat | None = Field(default=None, ge=0, le=2)
    top_p: FiniteFloat | None = Field(default=None, gt=0, le=1)
    n: int = Field(default=1, ge=1, le=8)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: str | list[str] | None = None
    echo: bool = False
    logprobs: int | bool | None = None
    best_of: int | None = None

    @property
    def prompts(self) -> list[str]:
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    @model_validator(mode="after")
    def _refuse_what_is_not_done(self) -> Self:
        if self.echo:
            raise ValueError("echo is not supported: put the prompt before the answer")
        if self.logprobs is not None and self.logprobs is not False:
            raise ValueError("logprobs are not supported: /v1/infill tells every token's confidence")
        if self.best_of is not None and self.best_of != self.n:
            raise ValueError("best_of is not supported: ask for n, and the surest comes first")
        return self


class ExtraText(BaseModel):
    """Text of another file that llama.cpp's clients send along."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    text: str = Field(default="", max_length=1024 * 1024)
    filename: str = Field(default="", max_length=4096)


class LlamaInfillRequest(ForeignRequest):
    """llama.cpp's `POST /infill` as llama.vim and llama.vscode send it.

    The hole is after `input_prefix` and `prompt` and before `input_suffix`. Later lines of the answer are indented by
    at least `n_indent` characters. `response_fields` selects fields of the answer.
    """

    input_prefix: str = Field(default="", max_length=MAX_TEXT_CHARACTERS)
    input_suffix: str = Field(default="", max_length=MAX_TEXT_CHARACTERS)
    prompt: str = Field(default="", max_length=MAX_TEXT_CHARACTERS)
    input_extra: list[ExtraText] = Field(default_factory=list, max_length=256)
    n_predict: int = -1
    n_indent: int = 0
    n_cmpl: int = Field(default=1, ge=1, le=8, description="with more than one the answer is a list")
    t_max_predict_ms: int = Field(default=0, description="of work; then the best guesses are the answer")
    temperature: FiniteFloat = Field(default=0.0, ge=0, le=2)
    top_p: FiniteFloat = Field(default=1.0, gt=0, le=1)
    seed: int = Field(default=-1, lt=2**63)
    stop: list[str] = Field(default_factory=list)
    response_fields: list[str] = Field(default_factory=list, max_length=64)


class LlamaCompletionRequest(LlamaInfillRequest):
    """llama.cpp's `POST /completion` as Continue sends it: `prompt` holds the text around the hole, with or without
    fill-in-the-middle markers.
    """
