"""Describes the engine: properties and tokens for llama.cpp's clients, and an OpenAPI document. Fills nothing."""

from typing import Any, Final, Protocol

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from midfill_engine.denoising.scheduler import MAX_ACTIVE
from midfill_engine.errors import RequestError
from midfill_engine.serving.requests import (
    CompletionRequest,
    DetokenizeRequest,
    FimRequest,
    LlamaCompletionRequest,
    LlamaInfillRequest,
    TokenizeRequest,
)
from midfill_engine.wire import ErrorCode, ErrorResponse, InfillRequest, InfillResponse, ModelInfo, ModelList

REQUESTS: Final[dict[str, type[BaseModel]]] = {
    "/v1/infill": InfillRequest,
    "/v1/fim/completions": FimRequest,
    "/v1/completions": CompletionRequest,
    "/infill": LlamaInfillRequest,
    "/completion": LlamaCompletionRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
}
ANSWERS: Final[dict[str, type[BaseModel]]] = {"/v1/infill": InfillResponse, "/v1/models": ModelList}
READING: Final = ("/v1/models", "/healthz", "/readyz", "/health", "/props", "/metrics")


class TextTokenizer(Protocol):
    """A tokenizer."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def token_bytes(self, index: int) -> bytes: ...


def tokens_of(tokenizer: TextTokenizer | None, request: TokenizeRequest) -> dict[str, Any]:
    assert tokenizer is not None
    ids = tokenizer.encode(request.content)
    if not request.with_pieces:
        return {"tokens": ids}
    return {"tokens": [{"id": token, "piece": piece_of(tokenizer.token_bytes(token))} for token in ids]}


def piece_of(piece: bytes) -> str | list[int]:
    """A token as text, or as bytes if it is not valid UTF-8."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def text_of(tokenizer: TextTokenizer | None, request: DetokenizeRequest) -> dict[str, str]:
    """Raises RequestError."""
    assert tokenizer is not None
    if any(token >= tokenizer.vocab_size for token in request.tokens):
        message = f"the model has {tokenizer.vocab_size} tokens, counted from 0"
        raise RequestError(ErrorCode.BAD_REQUEST, message, "send ids of /tokenize")
    return {"content": b"".join(map(tokenizer.token_bytes, request.tokens)).decode(errors="replace")}


def describe_server(info: ModelInfo) -> dict[str, Any]:
    """The properties that llama.cpp's clients read from `/props`."""
    return {
        "default_generation_settings": {
            "n_ctx": info.max_context_tokens,
            "params": {"n_predict": info.max_hole_tokens},
        },
        "total_slots": MAX_ACTIVE,
        "model_path": info.id,
        "model_alias": info.id,
        "modalities": {"vision": False, "audio": False},
        "chat_template": "",
        "build_info": "midfill",
        "is_sleeping": False,
    }


def describe_routes() -> dict[str, Any]:
    """The OpenAPI document."""
    models: list[type[BaseModel]] = [*REQUESTS.values(), *ANSWERS.values(), ErrorResponse]
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    posts = {path: {"post": describe_post(path, model)} for path, model in REQUESTS.items()}
    gets = {path: {"get": {"responses": {"200": answer_of(path)}}} for path in READING}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Midfill's engine", "version": "1"},
        "paths": posts | gets,
        "components": {
            "schemas": schemas.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def describe_post(path: str, model: type[BaseModel]) -> dict[str, Any]:
    content = {"application/json": {"schema": reference(model)}}
    error = {"description": "Refused", "content": {"application/json": {"schema": reference(ErrorResponse)}}}
    return {
        "summary": (model.__doc__ or "").splitlines()[0],
        "requestBody": {"required": True, "content": content},
        "responses": {"200": answer_of(path), "default": error},
    }


def answer_of(path: str) -> dict[str, Any]:
    if path not in ANSWERS:
        return {"description": "Answered"}
    return {"description": "Answered", "content": {"application/json": {"schema": reference(ANSWERS[path])}}}


def reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
