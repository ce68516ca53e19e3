"""Requests at every door with something in them changed: each is answered or refused, none is the engine's error."""

import os
import random
from typing import Any

import httpx
import pytest
from tests.engine.fakes import Service
from tests.engine.requests import mutate

SIDES = {"input_prefix": "x = [", "input_suffix": "]\n", "prompt": "a "}
SEEDS: dict[str, Any] = {
    "/v1/infill": {
        "segments": [
            {"text": "x = "},
            {"hole": {"max_tokens": 4, "draft": "a b", "keep": [[0, 1]]}},
            {"hole": {"candidates": [{"text": "1", "certainty": 0.5}]}},
            {"text": "\n"},
        ],
        "seed": 1,
        "temperature": 1e-40,
        "max_ms": 5,
        "n": 2,
        "drafts": True,
    },
    "/v1/fim/completions": {"prompt": "a ", "suffix": "\r\n", "max_tokens": 3, "stop": ["x"], "t_max_predict_ms": 5},
    "/v1/completions": {"prompt": ["a "], "suffix": "b", "max_tokens": 3, "n": 2, "logprobs": None, "best_of": 2},
    "/infill": {**SIDES, "n_predict": 3, "n_cmpl": 2, "input_extra": [{"text": "y"}], "response_fields": ["content"]},
    "/completion": {"prompt": "<PRE> a <SUF>b <MID>", "n_predict": 3, "temperature": 0.3, "seed": -1},
}


async def strike(client: httpx.AsyncClient, rng: random.Random) -> int:
    path = rng.choice(list(SEEDS))
    asked = SEEDS[path]
    for _ in range(rng.randint(1, 3)):
        asked = mutate(asked, rng)
    if isinstance(asked, dict):
        asked = {**asked, "stream": rng.random() < 0.3}
    answer = await client.post(path, json=asked)
    assert answer.status_code < 500, (path, asked)
    assert '"internal"' not in answer.text, (path, asked)
    return answer.status_code


async def test_hundreds_of_changed_requests(real_service: Service) -> None:
    rng = random.Random(20)
    async with real_service.client() as client:
        seen = {await strike(client, rng) for _ in range(300)}
    assert {200, 400} <= seen


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_a_hundred_thousand_changed_requests(real_service: Service) -> None:
    rng = random.Random(21)
    async with real_service.client() as client:
        for _ in range(int(os.environ.get("MIDFILL_SOAK_REQUESTS", "100000"))):
            await strike(client, rng)
