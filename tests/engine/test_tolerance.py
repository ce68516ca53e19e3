"""What other projects' clients send to their own servers works here: nulls, values beyond a range, halves of
characters, prompts with markers.
"""

import json
from typing import Any

import pytest
from tests.engine.fakes import Service

from midfill_engine.serving.fim import CompletionRequest, FimRequest, choose_sampling
from midfill_engine.serving.fim import to_infill as of_completion
from midfill_engine.serving.llamacpp import LlamaInfillRequest, completion_to_infill
from midfill_engine.serving.llamacpp import to_infill as of_llama
from midfill_engine.serving.marked import split_prompt
from midfill_engine.serving.service import DOORS, SURROGATE, leave_out_halves
from midfill_engine.wire import InfillRequest, TextSegment

JSON = {"content-type": "application/json"}
BEFORE, BEHIND = "def f(a):\n    return ", "\n\nf(1)\n"
ASKED: dict[str, dict[str, Any]] = {
    "/infill": {"input_prefix": BEFORE, "input_suffix": BEHIND, "n_predict": 2},
    "/completion": {"prompt": BEFORE, "n_predict": 2},
    "/v1/completions": {"prompt": BEFORE, "suffix": BEHIND, "max_tokens": 2},
    "/v1/fim/completions": {"prompt": BEFORE, "suffix": BEHIND, "max_tokens": 2},
}


def sides(request: InfillRequest) -> list[str]:
    return [segment.text for segment in request.segments if isinstance(segment, TextSegment)]


@pytest.mark.parametrize("path", DOORS)
async def test_null_in_a_request_counts_as_left_out(real_service: Service, path: str) -> None:
    fields = DOORS[path].request.model_fields
    nulls = {name: None for name, field in fields.items() if not field.is_required() and name not in ASKED[path]}
    assert len(nulls) > 4 and {"stream", "stop"} <= {*nulls}
    async with real_service.client() as client:
        answer = await client.post(path, json=ASKED[path] | nulls)
        assert answer.status_code == 200, answer.text
        plain = await client.post(path, json=ASKED[path])
        extra = await client.post("/infill", json=ASKED["/infill"] | {"input_extra": [{"text": "x", "filename": None}]})
        missing = await client.post("/v1/completions", json={"prompt": None})
    assert answer.json().keys() == plain.json().keys() and extra.status_code == 200
    assert missing.status_code == 400 and "prompt" in missing.json()["error"]["message"]


@pytest.mark.parametrize(
    ("temperature", "top_p", "expected"),
    [(-1.0, 1.0, (0.0, 1.0)), (0.7, 0.0, (0.0, 1.0)), (9.0, 3.0, (2.0, 1.0)), (0.7, 0.9, (0.7, 0.9))],
)
async def test_values_beyond_a_range_mean_its_end(
    real_service: Service, temperature: float, top_p: float, expected: tuple[float, float]
) -> None:
    assert choose_sampling(temperature, top_p) == expected
    request = LlamaInfillRequest(input_prefix="x", temperature=temperature, top_p=top_p)
    requests = of_llama(request)
    if 0 <= temperature <= 2:
        options = {"prompt": "x", "temperature": temperature, "top_p": top_p, "random_seed": 7}
        requests += of_completion(FimRequest.model_validate(options))
        assert requests[-1].seed == 7
    assert {(asked.temperature, asked.top_p) for asked in requests} == {expected}
    async with real_service.client() as client:
        options = {"temperature": temperature, "top_p": top_p}
        for path in ("/infill", "/completion"):
            assert (await client.post(path, json=ASKED[path] | options)).status_code == 200
        if 0 <= temperature <= 2:
            assert (await client.post("/v1/completions", json=ASKED["/v1/completions"] | options)).status_code == 200
        infinite = await client.post("/infill", content=b'{"input_prefix": "x", "temperature": Infinity}', headers=JSON)
    assert infinite.status_code == 400


@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize("half", ["\\ud83d", "\\uDE00", "\\ud83d\\ud83d", "a\\ud83d\\n"])
async def test_half_a_character_is_left_out(real_service: Service, path: str, half: str) -> None:
    body = json.dumps(ASKED[path]).replace("def f", f"{half}def f")
    async with real_service.client() as client:
        answer = await client.post(path, content=body.encode(), headers=JSON)
        own = await client.post(
            "/v1/infill", content=b'{"segments": [{"text": "\\ud83d"}, {"hole": {}}]}', headers=JSON
        )
    assert answer.status_code == 200, answer.text
    assert own.status_code == 400, "our own protocol has no such client"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('"\\ud83d\\ude00"', "😀"),
        ('"\\ud83d\\ude00\\ud83d"', "😀"),
        ('"\\\\ud83d"', "\\ud83d"),
        ('"\\\\\\ud83d"', "\\"),
        ('"\\ude00\\ud83d\\ude00"', "😀"),
        ('"ä\\u00e4😀"', "ää😀"),
    ],
)
def test_whole_characters_stay(text: str, kept: str) -> None:
    assert json.loads(leave_out_halves(text.encode())) == kept


def test_a_text_of_backslashes_takes_no_longer_than_another() -> None:
    """Each match calls a function, and a body of 8 MB may have millions of them."""
    assert len(SURROGATE.findall(rb"\\" * 1000 + rb"\ud83d")) == 1


PROMPTS = {
    f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{BEHIND}<|fim_middle|>": BEFORE,
    f"<|fim_suffix|>{BEHIND}<|fim_prefix|>{BEFORE}<|fim_middle|>": BEFORE,
    f"<fim_prefix><fim_suffix>{BEHIND}<fim_middle>{BEFORE}": BEFORE,
    f"<fim-prefix>{BEFORE}<fim-suffix>{BEHIND}<fim-middle>": BEFORE,
    f"<[fim-suffix]>{BEHIND}<[fim-prefix]>{BEFORE}<[fim-middle]>": BEFORE,
    f"<｜fim▁begin｜>{BEFORE}<｜fim▁hole｜>{BEHIND}<｜fim▁end｜>": BEFORE,
    f"<PRE> {BEFORE} <SUF>{BEHIND} <MID>": BEFORE,
    f"[SUFFIX]{BEHIND}[PREFIX]{BEFORE}": BEFORE,
    f"<s>[SUFFIX]{BEHIND}[PREFIX]{BEFORE}": BEFORE,
    f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{BEHIND}<|fim_middle|>a +": f"{BEFORE}a +",
    f"<|repo_name|>r\n<|file_sep|>a.py\nx\n<|file_sep|>b.py\n"
    f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{BEHIND}<|fim_middle|>\n": f"r\na.py\nx\nb.py\n{BEFORE}",
}


@pytest.mark.parametrize(("prompt", "before"), PROMPTS.items())
def test_markers_in_a_prompt_tell_the_hole(prompt: str, before: str) -> None:
    assert split_prompt(prompt) == (before, BEHIND)
    requests = [
        *completion_to_infill(LlamaInfillRequest(prompt=prompt)),
        *of_completion(CompletionRequest(prompt=[prompt, prompt])),
        *of_completion(FimRequest(prompt=prompt)),
    ]
    assert [sides(each) for each in requests] == [[before, BEHIND]] * 4
    (told,) = of_completion(CompletionRequest(prompt=prompt, suffix="x"))
    assert sides(told) == [prompt, "x"], "the suffix is told already"


@pytest.mark.parametrize(
    "prompt",
    [
        "a = '<|fim_prefix|>'\nb = '<|fim_suffix|>'\n",
        "'<|fim_prefix|>', '<|fim_suffix|>', '<|fim_middle|>'\n'<|fim_prefix|>'",
        "x = [SUFFIX][PREFIX]\n",
        "<|fim_middle|><|fim_prefix|><|fim_suffix|>",
        "def f(a):\n",
        "",
    ],
)
def test_a_text_that_mentions_markers_is_a_text(prompt: str) -> None:
    assert split_prompt(prompt) is None
    assert sides(of_completion(CompletionRequest(prompt=prompt))[0])[0] == prompt
