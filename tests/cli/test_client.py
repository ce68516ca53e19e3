"""The client against a scripted engine: streams, endings, refusals."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.fake_engine import Plan, wait_for

from midfill_engine import wire
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.errors import MidfillError

Start = Callable[[Plan], EngineClient]
REQUEST = wire.InfillRequest(segments=[wire.TextSegment(text="a"), wire.HoleSegment(hole=wire.HoleSpec())])


def test_stream_is_steps_then_the_answer(engine_client: Start) -> None:
    *steps, answer = engine_client(Plan(rows=[["x\u2028y\x85\x0cz"]], num_steps=2)).infill(REQUEST)
    assert [step.step for step in steps if isinstance(step, wire.StepEvent)] == [0, 1, 2]
    assert isinstance(answer, wire.InfillResponse)
    assert answer.holes[0].text == "x\u2028y\x85\x0cz"


def test_health_and_models(engine_client: Start) -> None:
    client = engine_client(Plan())
    assert client.health() == "ok"
    assert [info.id for info in client.models()] == ["fake"]


def test_nobody_at_the_socket_is_engine_died(tmp_path: Path) -> None:
    with EngineClient(Endpoint(socket=tmp_path / "none.sock")) as client, pytest.raises(MidfillError) as error:
        client.health()
    assert error.value.code == "engine_died"


def test_nobody_at_the_url_is_unreachable() -> None:
    with EngineClient(Endpoint(url="http://127.0.0.1:9")) as client, pytest.raises(MidfillError) as error:
        list(client.infill(REQUEST))
    assert error.value.code == "engine_unreachable"
    assert "MIDFILL_ENGINE_URL" in error.value.sentence


@pytest.mark.parametrize("url", ["http://[", "http://a:port", "http://"])
def test_what_is_no_address_is_one_sentence(url: str) -> None:
    with pytest.raises(MidfillError) as error, EngineClient(Endpoint(url=url)) as client:
        list(client.infill(REQUEST))
    assert error.value.code == "engine_unreachable"


def test_refused_token_names_the_variable(engine_client: Start) -> None:
    client = engine_client(Plan(refused=True))
    with pytest.raises(MidfillError) as error:
        list(client.infill(REQUEST))
    assert (error.value.code, error.value.next_step) == ("engine_refused", "check MIDFILL_TOKEN")


def test_stream_that_ends_early_is_engine_died(engine_client: Start) -> None:
    stream = engine_client(Plan(end_after_step=1)).infill(REQUEST)
    with pytest.raises(MidfillError) as error:
        list(stream)
    assert error.value.code == "engine_died"


def test_error_event_is_relayed(engine_client: Start) -> None:
    with pytest.raises(MidfillError) as error:
        list(engine_client(Plan(error_after_step=1)).infill(REQUEST))
    assert (error.value.code, error.value.message) == ("out_of_memory", "no memory left")


def test_busy_engine_is_asked_twice(engine_client: Start) -> None:
    assert len(list(engine_client(Plan(busy_times=1, num_steps=1)).infill(REQUEST))) == 3
    with pytest.raises(MidfillError) as error:
        list(engine_client(Plan(busy_times=2)).infill(REQUEST))
    assert error.value.code == "engine_busy"


def test_answer_of_another_version_is_one_sentence(engine_client: Start) -> None:
    with pytest.raises(MidfillError) as error:
        list(engine_client(Plan(raw_answer='event: done\ndata: {"surprise": 1}\n\n')).infill(REQUEST))
    assert error.value.code == "engine_error"
    assert "same version" in error.value.sentence


def test_events_of_a_later_version_are_skipped(engine_client: Start) -> None:
    with pytest.raises(MidfillError) as error:
        list(engine_client(Plan(raw_answer="event: news\ndata: {}\n\n: ping\n\n")).infill(REQUEST))
    assert error.value.code == "engine_died"


def test_closing_the_stream_closes_the_connection(engine_client: Start, tmp_path: Path) -> None:
    record = tmp_path / "record"
    stream = engine_client(Plan(endless=True, record=str(record))).infill(REQUEST)
    next(stream)
    stream.close()
    wait_for(record, '{"closed": "step"}')
