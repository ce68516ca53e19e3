"""Requests of other people's clients, unmodified: recorded, or in the shape of their public sources, and OpenAI's own.

minuet-ai.nvim 479487c was recorded. llama.vscode 009e5b7 (src/llama-server.ts), Continue 0c38ecf (LlamaCpp.ts)
and 0069b94 (OpenAI.ts, which its Mistral provider inherits) tell what they send and what they read of the answer.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.engine.fakes import Service

from midfill_engine.serving.service import create_app

MINUET = json.loads((Path(__file__).parent / "exchanges/minuet.json").read_text(encoding="utf-8"))["exchange"]
PREFIX, SUFFIX = "def total(items):\n    result = 0\n    for item in items:\n        ", "\n    return result\n"
CONTINUES_OPTIONS: dict[str, Any] = {
    "temperature": 0.01,
    "top_p": 0.9,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "stop": ["<|endoftext|>", "\n\n", "/src/", "#- coding: utf-8", "```", "\ndef", "\nclass"],
}


def values_of(stream: str) -> Iterator[dict[str, Any]]:
    """As their readers do: lines that begin with `data:`, up to [DONE]; a comment would end Continue's."""
    for line in stream.splitlines():
        assert not line.startswith(":")
        value = line.removeprefix("data:").strip()
        if line.startswith("data:") and value != "[DONE]":
            yield json.loads(value)


@pytest.mark.parametrize("recorded", MINUET, ids=lambda recorded: recorded["path"])
async def test_answers_have_the_keys_that_minuet_read_when_it_was_recorded(
    real_service: Service, recorded: dict[str, Any]
) -> None:
    async with real_service.client() as client:
        refused = await client.post(recorded["path"], json=recorded["request"])
        answer = await client.post(recorded["path"], json={**recorded["request"], "model": None})
    assert refused.status_code == 404  # the tiny model has another name
    assert answer.status_code == recorded["status"] == 200
    (found,), (then,) = list(values_of(answer.text)), list(values_of(recorded["response"]))
    assert found.keys() == then.keys()
    assert found["choices"][0].keys() == then["choices"][0].keys()
    if recorded["path"] == "/v1/completions":
        assert isinstance(found["choices"][0]["text"], str)
    else:
        assert isinstance(found["choices"][0]["delta"]["content"], str)


async def test_llama_vscode(real_service: Service) -> None:
    sides = {"input_prefix": PREFIX, "input_suffix": SUFFIX, "input_extra": [{"text": "x = 1\n", "filename": "a.py"}]}
    asked = {
        **sides,
        "prompt": "result +",
        "n_predict": 128,
        "top_k": 40,
        "top_p": 0.99,
        "stream": False,
        "samplers": ["top_k", "top_p", "infill"],
        "cache_prompt": True,
        "n_indent": 8,
        "t_max_prompt_ms": 500,
        "t_max_predict_ms": 2500,
    }
    warming = {"samplers": [], "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 1, "n_predict": 0}
    async with real_service.client() as client:
        answer = await client.post("/infill", json=asked)
        warmed = await client.post("/infill", json={**sides, "prompt": "", **warming})
    assert answer.status_code == warmed.status_code == 200
    values = answer.json()
    assert isinstance(values["content"], str) and isinstance(values["tokens_cached"], int)
    names = {"prompt_n", "prompt_ms", "prompt_per_second", "predicted_n", "predicted_ms", "predicted_per_second"}
    assert values["truncated"] is False and names <= values["timings"].keys()


async def test_continues_llama_cpp_provider(real_service: Service) -> None:
    marked = f"<|fim_prefix|>{PREFIX}<|fim_suffix|>{SUFFIX}<|fim_middle|>"
    asked = {"prompt": marked, "stream": True, "n_predict": 4096, "top_k": 40, **CONTINUES_OPTIONS}
    async with real_service.client() as client:
        answer = await client.post("/completion", json=asked)
    assert answer.status_code == 200
    assert [type(value["content"]) for value in values_of(answer.text)] == [str]


async def test_continues_mistral_provider(real_service: Service) -> None:
    asked = {"model": "random", "prompt": PREFIX, "suffix": SUFFIX, "max_tokens": 4096, "stream": True}
    async with real_service.client() as client:
        answer = await client.post("/v1/fim/completions", json={**asked, **CONTINUES_OPTIONS})
    assert answer.status_code == 200
    assert [type(value["choices"][0]["delta"]["content"]) for value in values_of(answer.text)] == [str]


async def test_openais_own_client(real_service: Service) -> None:
    openai = pytest.importorskip("openai")
    transport = httpx.ASGITransport(create_app(real_service.state, real_service.security))
    async with httpx.AsyncClient(transport=transport) as http:
        client = openai.AsyncOpenAI(base_url="http://midfill/v1", api_key="x", http_client=http, max_retries=0)
        listed = [model.id async for model in client.models.list()]
        assert (await client.models.retrieve(listed[0])).id == listed[0]
        asked = {"model": listed[0], "prompt": PREFIX, "suffix": SUFFIX, "max_tokens": 8, "n": 2, "seed": 1}
        whole = await client.completions.create(**asked)
        stream = await client.completions.create(**asked, stream=True)
        chunks = [chunk async for chunk in stream]
        several = await client.completions.create(**{**asked, "prompt": [PREFIX, "x = "]})
        with pytest.raises(openai.BadRequestError, match="echo"):
            await client.completions.create(**asked, echo=True)
        with pytest.raises(openai.NotFoundError, match="no model named"):
            await client.completions.create(**{**asked, "model": "gpt"})
    texts = [choice.text for choice in whole.choices]
    assert [choice.text for chunk in chunks for choice in chunk.choices] == texts
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in several.choices[:2]] == texts
    assert several.usage.completion_tokens > whole.usage.completion_tokens > 0
