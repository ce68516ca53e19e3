"""Other people's clients at the engine's doors: llama.vim's recorded exchange, OpenAI's completions, the metrics."""

import json
from pathlib import Path

import pytest
from tests.engine import tiny
from tests.engine.fakes import Service

from midfill_engine.causal.prompt import lay_prompt
from midfill_engine.families import FAMILIES
from midfill_engine.lengths import learned
from midfill_engine.loading.runtime import load_runtime
from midfill_engine.models.fim_names import FIM_NAMES
from midfill_engine.serving.fim import cut_at_stop
from midfill_engine.serving.llamacpp import (
    ExtraText,
    LlamaAnswer,
    LlamaInfillRequest,
    cut_at_indent,
    from_fill,
    to_infill,
)
from midfill_engine.wire import FilledHole, InfillResponse, Stats, TextSegment

EXCHANGE = json.loads((Path(__file__).parent / "exchanges/llama_vim.json").read_text(encoding="utf-8"))["exchange"]


@pytest.mark.parametrize("number", range(len(EXCHANGE)))
async def test_llama_vim_gets_what_it_reads(real_service: Service, number: int) -> None:
    """Its requests as it sent them; our answers have the very fields, flat, that it got then and could show."""
    recorded = EXCHANGE[number]
    async with real_service.client() as client:
        answer = await client.post("/infill", json=recorded["request"])
    assert answer.status_code == 200
    values = answer.json()
    assert set(values) == set(recorded["response"])
    for name, value in recorded["response"].items():
        assert type(values[name]) is type(value)
    if values:
        assert '"content":"' in answer.text  # what llama.vim looks for before it parses


async def test_an_infill_answer_has_the_fields_of_llama_cpp(real_service: Service) -> None:
    body = {"input_prefix": "x = [", "input_suffix": "]\n", "n_predict": 6, "input_extra": [{"text": "y = 1"}]}
    async with real_service.client() as client:
        values = (await client.post("/infill", json=body)).json()
        streamed = (await client.post("/infill", json={**body, "stream": True})).text
    assert values["stop"] is True
    assert 1 <= values["tokens_predicted"] <= 6
    assert values["timings"]["predicted_n"] == values["tokens_predicted"]
    (line,) = [line for line in streamed.splitlines() if line]
    assert json.loads(line.removeprefix("data: "))["content"] == values["content"]


async def test_a_request_to_warm_up_does_no_work(real_service: Service) -> None:
    async with real_service.client() as client:
        values = (await client.post("/infill", json={"n_predict": 0, "input_prefix": "x"})).json()
        streamed = await client.post("/infill", json={"n_predict": 0, "input_prefix": "x", "stream": True})
    assert (values["content"], values["tokens_predicted"]) == ("", 0)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert json.loads(streamed.text.removeprefix("data: ")) == values


@pytest.mark.parametrize("names", [names for names, _ in FIM_NAMES], ids=lambda names: names[0])
def test_markers_in_the_code_are_text(names: tuple[str, ...], tmp_path: Path) -> None:
    """llama.cpp's server reads these texts without special tokens, and so do we."""
    family, code = FAMILIES.find("causal"), f"a {''.join(names)}<|endoftext|></s> b"
    added = (*tiny.added_tokens_of(family.name), *names, "<|endoftext|>", "</s>")
    tiny.make_random(tmp_path / "fim", family, added_tokens=added)
    runtime = load_runtime(str(tmp_path / "fim"), "cpu", dtype="fp32")
    asked = LlamaInfillRequest(input_prefix=code, input_suffix=code, input_extra=[ExtraText(text=code)])
    (request,) = to_infill(asked)
    before, _, behind = request.segments
    assert isinstance(before, TextSegment) and isinstance(behind, TextSegment)
    assert before.text == f"{code}\n{code}" and behind.text == code
    ids, markers = lay_prompt(runtime, before.text, behind.text).ids, runtime.tokens.markers
    assert markers is not None
    special = [each for each in ids if each in runtime.tokens.special_ids]
    opening = [*(runtime.tokens.opening(None) or ())]
    laid = [markers.prefix, markers.suffix, markers.middle]
    assert special == opening + ([laid[1], laid[0], laid[2]] if markers.suffix_first else laid)
    read = b"".join(map(runtime.loaded.tokenizer.token_bytes, ids)).decode()
    assert read == (behind.text + before.text if markers.suffix_first else before.text + behind.text)


def test_lines_that_are_less_indented_end_the_answer() -> None:
    assert cut_at_indent("a\n    b\n\n  c\n    d", 4) == "a\n    b\n"
    assert cut_at_indent("a\nb", 0) == "a\nb"


def test_what_ends_an_answer_is_found_whatever_line_endings_a_client_has() -> None:
    text = "a\n    b\n  c\n\nd"
    assert cut_at_stop(text, "\r\n\r\n") == "a\n    b\n  c" and cut_at_stop(text, ["", "x", "\r"]) == "a"
    fill = FilledHole(text=text)
    response = InfillResponse(model="m", holes=[fill], stats=Stats(steps=1, forwards=1, tokens=9, ms=1.0))
    for asked, content, stop_type, word in (
        ({"stop": ["\r\n\r\n"]}, "a\r\n    b\r\n  c", "word", "\r\n\r\n"),
        ({"stop": ["\n\n"], "n_indent": 4}, "a\r\n    b", "eos", ""),
        ({"stop": ["\n"], "n_indent": 4}, "a", "word", "\n"),
    ):
        request = LlamaInfillRequest.model_validate({"input_prefix": "x\r\n", **asked})
        answer = from_fill(request, response, fill, 0)
        assert isinstance(answer, LlamaAnswer)
        assert (answer.content, answer.stop_type, answer.stopping_word) == (content, stop_type, word)


async def test_openai_completions_take_a_suffix(real_service: Service) -> None:
    body = {"model": "random", "prompt": "x = [", "suffix": "]\n", "max_tokens": 5000, "n": 2, "seed": 7}
    async with real_service.client() as client:
        values = (await client.post("/v1/completions", json={**body, "max_tokens": 6})).json()
        assert (await client.post("/v1/completions", json=body)).status_code == 200
        streamed = (await client.post("/v1/completions", json={**body, "max_tokens": 6, "stream": True})).text
        unknown = await client.post("/v1/completions", json={**body, "model": "gpt"})
    assert values["object"] == "text_completion"
    assert [choice["index"] for choice in values["choices"]] == [0, 1]
    usage = values["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    first, last = [line for line in streamed.splitlines() if line]
    assert json.loads(first.removeprefix("data: "))["choices"] == values["choices"]
    assert last == "data: [DONE]"
    assert unknown.status_code == 404


async def test_a_stop_string_ends_a_completion(real_service: Service) -> None:
    body = {"prompt": "x", "suffix": "y", "max_tokens": 8, "temperature": 1.0}
    async with real_service.client() as client:
        texts = [
            (await client.post("/v1/completions", json={**body, "seed": seed})).json()["choices"][0]["text"]
            for seed in range(1, 6)
        ]
        text = max(texts, key=len)
        asked = {**body, "seed": 1 + texts.index(text), "stop": [text[-1]]}
        cut = (await client.post("/v1/completions", json=asked)).json()["choices"][0]["text"]
    assert len(cut) < len(text)
    assert cut == text[: text.index(text[-1])]


@pytest.fixture
def _middling(monkeypatch: pytest.MonkeyPatch) -> None:
    """At this share the model's head for lengths asks for more than 3 tokens and for less than 90."""
    monkeypatch.setattr(learned, "QUANTILE", 0.3)


@pytest.mark.usefixtures("_middling")
@pytest.mark.parametrize("door", ["fim/completions", "completions"])
async def test_an_answer_says_whether_its_limit_cut_it(real_service: Service, door: str) -> None:
    body = {"prompt": "x = [", "suffix": "]\n", "temperature": 1.0}
    reasons = set()
    async with real_service.client() as client:
        for seed, limit in ((1, 3), (2, 3), (3, 90)):
            asked = {**body, "seed": seed, "random_seed": seed, "max_tokens": limit}
            values = (await client.post(f"/v1/{door}", json=asked)).json()
            reason = values["choices"][0]["finish_reason"]
            assert reason == ("length" if values["usage"]["completion_tokens"] == limit else "stop")
            reasons.add(reason)
            if reason == "length" and (text := values["choices"][0]["text"]):
                stopped = (await client.post(f"/v1/{door}", json={**asked, "stop": [text[-1]]})).json()
                assert stopped["choices"][0]["finish_reason"] == "stop"
    assert reasons == {"length", "stop"}


@pytest.mark.usefixtures("_middling")
async def test_llama_cpps_answer_says_why_it_ends(real_service: Service) -> None:
    body = {"input_prefix": "x = [", "input_suffix": "]\n", "temperature": 1.0, "seed": 0}
    async with real_service.client() as client:
        free = (await client.post("/infill", json={**body, "n_predict": 90})).json()
        cut = (await client.post("/infill", json={**body, "n_predict": 3})).json()
        word = cut["content"][-1]
        stopped = (await client.post("/infill", json={**body, "n_predict": 3, "stop": ["", word]})).json()
    assert (free["stop_type"], free["tokens_predicted"] < 90) == ("eos", True)
    assert (cut["stop_type"], cut["tokens_predicted"]) == ("limit", 3)
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", word)


async def test_metrics_count_what_was_done(real_service: Service) -> None:
    body = {"segments": [{"text": "a = "}, {"hole": {"max_tokens": 4}}]}
    async with real_service.client() as client:
        for _ in range(2):
            assert (await client.post("/v1/infill", json=body)).status_code == 200
        text = (await client.get("/metrics")).text
    numbers = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(numbers['midfill_requests_total{outcome="filled"}']) == 2
    assert float(numbers["midfill_forwards_total"]) >= float(numbers["midfill_fill_seconds_count"]) == 2
    assert float(numbers["midfill_tokens_total"]) >= 2


async def test_more_tokens_than_a_hole_may_have_are_that_many(real_service: Service) -> None:
    """As Continue asks."""
    async with real_service.client() as client:
        for path in ("/v1/fim/completions", "/v1/completions"):
            asked = {"prompt": "x = [", "suffix": "]", "max_tokens": 4096, "t_max_predict_ms": 1}
            assert (await client.post(path, json=asked)).status_code == 200


async def test_several_completions_are_a_list(real_service: Service) -> None:
    body = {"input_prefix": "x = [", "input_suffix": "]\n", "n_predict": 6, "seed": 3}
    async with real_service.client() as client:
        values = (await client.post("/infill", json={**body, "n_cmpl": 3})).json()
        few = (await client.post("/infill", json={**body, "n_cmpl": 2, "response_fields": ["content", "index"]})).json()
        line = (await client.post("/infill", json={**body, "n_cmpl": 2, "stream": True})).text.splitlines()[0]
    assert [value["index"] for value in values] == [0, 1, 2]
    assert [set(value) for value in few] == [{"content", "index"}] * 2
    assert [value["content"] for value in json.loads(line.removeprefix("data: "))] == [one["content"] for one in few]


async def test_a_time_for_predicting_ends_a_fill(real_service: Service) -> None:
    segments = [{"hole": {"min_tokens": 60, "max_tokens": 60}}]
    async with real_service.client() as client:
        asked = {"segments": segments, "quality": 1, "max_ms": 1}
        stats = (await client.post("/v1/infill", json=asked)).json()["stats"]
        without = (await client.post("/v1/infill", json={**asked, "max_ms": 10**7})).json()["stats"]
    assert stats["tokens"] == without["tokens"] == 60
    assert stats["steps"] < without["steps"] == 60, "a machine may take several steps in a millisecond"


@pytest.mark.parametrize(
    ("option", "word"),
    [({"echo": True}, "echo"), ({"logprobs": 5}, "logprobs"), ({"logprobs": True}, "logprobs"), ({"best_of": 4}, "n")],
)
async def test_options_that_are_not_supported_are_refused_by_name(
    real_service: Service, option: dict[str, object], word: str
) -> None:
    async with real_service.client() as client:
        answer = await client.post("/v1/completions", json={"prompt": "x", "max_tokens": 2, **option})
        plain = {"prompt": ["x"], "max_tokens": 2, "echo": False, "logprobs": None, "best_of": 1}
        assert (await client.post("/v1/completions", json=plain)).status_code == 200
        many = await client.post("/v1/completions", json={"prompt": ["x"] * 17})
        none = await client.post("/v1/completions", json={"prompt": []})
    assert answer.status_code == many.status_code == none.status_code == 400
    assert "Value error" not in answer.text
    assert answer.json()["error"]["next_step"] == "see the routes in serving.md; `midfill --help` names its folder"
    assert f"{word}" in answer.json()["error"]["message"]


async def test_a_model_is_retrieved(real_service: Service) -> None:
    async with real_service.client() as client:
        listed = (await client.get("/v1/models")).json()["data"][0]
        assert (await client.get(f"/v1/models/{listed['id']}")).json() == listed
        unknown = await client.get("/v1/models/nobody/gpt")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_model")


async def test_llama_cpps_clients_find_what_they_ask_for(real_service: Service) -> None:
    async with real_service.client() as client:
        props = (await client.get("/props")).json()
        assert (await client.get("/health")).json() == {"status": "ok"}
        real_service.state.is_draining = True
        health = await client.get("/health")
    assert (props["default_generation_settings"]["n_ctx"], props["total_slots"]) == (512, 8)
    assert (health.status_code, health.json()["error"]["code"]) == (503, 503)


PREFIX, SUFFIX = "def f(a):\n    return ", "\n\nprint(f(1))\n"


@pytest.mark.parametrize(
    "prompt",
    [
        f"<|fim_prefix|>{PREFIX}<|fim_suffix|>{SUFFIX}<|fim_middle|>",
        f"<fim_prefix>{PREFIX}<fim_suffix>{SUFFIX}<fim_middle>",
        f"<｜fim▁begin｜>{PREFIX}<｜fim▁hole｜>{SUFFIX}<｜fim▁end｜>",
        f"<PRE> {PREFIX} <SUF>{SUFFIX} <MID>",
        f"<|fim_prefix|>{PREFIX}<|fim_suffix|>{SUFFIX}<|fim_middle|>\n",
    ],
)
async def test_marks_of_fill_in_the_middle_are_read(real_service: Service, prompt: str) -> None:
    """As Continue's provider for llama.cpp writes them, whatever model it takes this for."""
    options = {"n_predict": 8, "seed": 5, "temperature": 0.5}
    async with real_service.client() as client:
        wanted = await client.post("/infill", json={"input_prefix": PREFIX, "input_suffix": SUFFIX, **options})
        found = await client.post("/completion", json={"prompt": prompt, **options})
        streamed = (await client.post("/completion", json={"prompt": prompt, "stream": True, **options})).text
        assert (await client.post("/completion", json={"prompt": PREFIX, **options})).status_code == 200
    assert found.json()["content"] == wanted.json()["content"]
    lines = [line for line in streamed.split("\n") if line.strip()]
    assert json.loads(lines[0].removeprefix("data: "))["content"] == found.json()["content"]


@pytest.mark.parametrize("temperature", [1e-38, 1e-45, 5e-324, 1e-7])
async def test_temperatures_next_to_nothing_are_nothing(real_service: Service, temperature: float) -> None:
    asked = {"segments": [{"text": "x = "}, {"hole": {"max_tokens": 8}}], "seed": 1}
    async with real_service.client() as client:
        none = (await client.post("/v1/infill", json={**asked, "temperature": 0})).json()
        tiny = await client.post("/v1/infill", json={**asked, "temperature": temperature})
    assert tiny.status_code == 200
    assert tiny.json()["holes"] == none["holes"]
