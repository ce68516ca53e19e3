"""Mercury's form of filling, against a stand-in on this machine: never asked unless its address was named."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from midfill_engine.wire import InfillRequest, InfillResponse
from midfill_infill.cli.doctor import examine_engine
from midfill_infill.context.references import Reference
from midfill_infill.engines import mercury
from midfill_infill.engines.client import Endpoint, EngineClient
from midfill_infill.engines.supervise import EngineSettings, named_endpoint
from midfill_infill.errors import MidfillError
from midfill_infill.fill import Filled, Options, fill
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.text.document import Document


class StandIn(ThreadingHTTPServer):
    """Answers every gap with `text`, `#` in it with the gap's number; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, object]] = []
        self.keys: list[str | None] = []
        self.status = 200
        self.text = "<#>"


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append({"path": self.path, **body})
        self.server.keys.append(self.headers["authorization"])
        text = self.server.text.replace("#", str(len(self.server.asked)))
        choice = {"index": 0, "text": text, "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8, "reasoning_tokens": 0}
        answer = json.dumps({"object": "text_completion", "choices": [choice], "usage": usage}).encode()
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    server = StandIn()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def connect(server: StandIn) -> EngineClient:
    return EngineClient(Endpoint(url=f"http://127.0.0.1:{server.server_port}", token="key", is_mercury=True))


def ask(server: StandIn, **request: object) -> InfillResponse:
    with connect(server) as client:
        (answer,) = client.infill(InfillRequest.model_validate(request))
    assert isinstance(answer, InfillResponse)
    return answer


def test_holes_are_filled_one_after_the_other(stand_in: StandIn) -> None:
    segments = [{"text": "a("}, {"hole": {"max_tokens": 9}}, {"text": ", "}, {"hole": {}}, {"text": ")\n"}]
    answer = ask(stand_in, segments=segments)
    assert [hole.text for hole in answer.holes] == ["<1>", "<2>"]
    first, second = stand_in.asked
    assert (first["path"], first["prompt"], first["suffix"]) == ("/v1/fim/completions", "a(", ", )\n")
    assert (second["prompt"], second["suffix"]) == ("a(<1>, ", ")\n")
    assert (first["model"], first["max_tokens"], second["max_tokens"]) == (mercury.MODEL, 9, mercury.DEFAULT_TOKENS)
    assert stand_in.keys == ["Bearer key"] * 2
    assert answer.stats.tokens == 6


def test_kept_text_at_the_edges_is_part_of_the_text_around(stand_in: StandIn) -> None:
    hole = {"draft": "return x + y", "keep": [[0, 7], [11, 12]]}
    answer = ask(stand_in, segments=[{"text": "def f():\n    "}, {"hole": hole}, {"text": "\n"}])
    assert answer.holes[0].text == "return <1>y"
    assert answer.holes[0].anchors == [(0, 7), (10, 11)]
    assert (stand_in.asked[0]["prompt"], stand_in.asked[0]["suffix"]) == ("def f():\n    return ", "y\n")


def test_kept_text_in_the_middle_is_refused(stand_in: StandIn) -> None:
    with pytest.raises(MidfillError, match="middle"):
        ask(stand_in, segments=[{"hole": {"draft": "a b c", "keep": [[2, 3]]}}])
    assert not stand_in.asked


def test_alternatives_are_asked_for_one_by_one(stand_in: StandIn) -> None:
    answer = ask(stand_in, segments=[{"text": "x"}, {"hole": {}}], n=2, temperature=0.5)
    assert [answer.holes[0].text, answer.alternatives[0][0].text] == ["<1>", "<2>"]
    assert stand_in.asked[0]["temperature"] == 0.5


def fill_stub(server: StandIn) -> tuple[bytes, Filled]:
    document = Document(b"def add(a, b):\n    ...\n", "python")
    with connect(server) as client:
        (filled,) = fill(document, find_stubs(document), Options(), client)
    assert isinstance(filled, Filled)
    return filled.patch.apply(document.data), filled


def test_a_stub_is_filled(stand_in: StandIn) -> None:
    stand_in.text = "return a + b"
    result, filled = fill_stub(stand_in)
    assert (result, filled.new_errors) == (b"def add(a, b):\n    return a + b\n", 0)
    assert [(body["prompt"], body["suffix"]) for body in stand_in.asked] == [("def add(a, b):\n    ", "\n")]


def test_nothing_of_other_files_goes_to_another_host(stand_in: StandIn) -> None:
    document = Document(b"def add(a, b):\n    ...\n", "python")
    other = Reference(kind="open", text="hunter2")
    sent: list[InfillRequest] = []
    with connect(stand_in) as client:
        ask_mercury = client.infill
        client.infill = lambda request: sent.append(request) or ask_mercury(request)  # type: ignore[assignment,method-assign,func-returns-value]
        list(fill(document, find_stubs(document), Options(references=(other,)), client))
    assert sent and not any(request.references for request in sent)
    assert "hunter2" not in str(stand_in.asked)


def test_a_fill_whose_repair_it_cannot_take_stays_and_is_marked(stand_in: StandIn) -> None:
    stand_in.text = "x = = 1\n    y = 2\n    z = = 3\n    return y"
    result, filled = fill_stub(stand_in)
    assert result.decode() == f"def add(a, b):\n    {stand_in.text}\n"
    assert filled.new_errors > 0
    assert len(stand_in.asked) == 1


def test_the_doctor_says_that_it_was_not_asked(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDFILL_ENGINE_URL", f"mercury+http://127.0.0.1:{stand_in.server_port}")
    (finding,) = examine_engine(EngineSettings())
    assert "not asked" in finding.value and "answers" not in finding.value
    assert not stand_in.asked


@pytest.mark.parametrize(("status", "code"), [(401, "engine_refused"), (429, "engine_busy"), (500, "engine_error")])
def test_refusals_are_ours(stand_in: StandIn, status: int, code: str) -> None:
    stand_in.status = status
    with pytest.raises(MidfillError) as error:
        ask(stand_in, segments=[{"hole": {}}])
    assert error.value.code == code
    assert status != 401 or error.value.next_step == "check INCEPTION_API_KEY"


def test_it_is_used_only_where_it_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INCEPTION_API_KEY", "secret")
    monkeypatch.delenv("MIDFILL_ENGINE_URL", raising=False)
    assert named_endpoint() is None
    monkeypatch.setenv("MIDFILL_ENGINE_URL", "mercury+https://api.example.org/")
    endpoint = named_endpoint()
    assert endpoint == Endpoint(url="https://api.example.org", token="secret", is_mercury=True)
    assert "secret" not in repr(endpoint)
    monkeypatch.setenv("MIDFILL_ENGINE_URL", "https://api.example.org")
    plain = named_endpoint()
    assert plain is not None and not plain.is_mercury and plain.token != "secret"
