"""Engines of other projects, against stand-ins on this machine that answer in the forms their documents show.

The forms: Ollama docs/api.md (generate, suffix, logprobs), llama.cpp tools/server/README.md (/infill, /completion),
OpenAI's API reference (completions) with vLLM's refusal of `suffix`, Mistral's and Inception's (FIM completions).
"""

import json
import re
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from tests.infill.stand_in import FORMS, StandIn, serve
from typer.testing import CliRunner

from midfill_engine.serving.llamacpp import LlamaInfillRequest
from midfill_engine.wire import ALTERNATIVE_TEMPERATURE, InfillRequest, InfillResponse, StepEvent
from midfill_infill import config
from midfill_infill.answers.ending import EndFinder, Extent, find_loop_end
from midfill_infill.answers.markers import DIALECTS, find_dialect
from midfill_infill.answers.wrapping import is_wrapping
from midfill_infill.cli import build_app
from midfill_infill.cli.doctor import examine_engine, find_others
from midfill_infill.context.references import Reference, find_references
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.discovery import find_servers
from midfill_infill.engines.endpoint import Endpoint, hide_password, parse_engine
from midfill_infill.engines.offer import tell_where
from midfill_infill.engines.outside import PROTOCOLS
from midfill_infill.engines.outside.exchange import LINE_TOKENS
from midfill_infill.engines.outside.openai import OpenAI
from midfill_infill.engines.outside.protocol import CUT, HoleQuery
from midfill_infill.engines.supervise import EngineSettings, named_endpoint
from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import advise_on_cut, describe_fill
from midfill_infill.filling.fill import Filled, Options, Preview, fill
from midfill_infill.syntax.holes import find_stubs, hole_at_range
from midfill_infill.text.document import Document

ADD = b"def add(a, b):\n    ...\n"


@pytest.fixture(params=[*FORMS])
def stand_in(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    with serve(request.param) as server:
        yield server


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDFILL_CONFIG", str(tmp_path / "config/config.toml"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("MIDFILL_ENGINE", "MIDFILL_ENGINE_URL", "OLLAMA_HOST", "MIDFILL_TOKEN", "MISTRAL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work/.git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")


def name_of(server: StandIn) -> str:
    return server.form.__name__


def connect(server: StandIn) -> EngineClient:
    return EngineClient(Endpoint(url=server.url, token="key", protocol=name_of(server), model="m"))


def ask(server: StandIn, **request: object) -> InfillResponse:
    with connect(server) as client:
        *steps, answer = client.infill(InfillRequest.model_validate(request))
    assert isinstance(answer, InfillResponse) and all(isinstance(step, StepEvent) for step in steps)
    return answer


def fill_in(server: StandIn, source: bytes = ADD, **options: Any) -> tuple[Filled, list[Preview]]:
    document = Document(source, "python")
    with connect(server) as client:
        *previews, filled = fill(document, find_stubs(document), Options(**options), client)
    assert isinstance(filled, Filled)
    return filled, [preview for preview in previews if isinstance(preview, Preview)]


def around(body: dict[str, Any]) -> tuple[str, str]:
    if "messages" in body:
        before, _, behind = (
            body["messages"][-1]["content"].split("The file:\n\n```\n", 1)[1].removesuffix("\n```").partition("<GAP_1>")
        )
        return before, behind
    return body.get("input_prefix", body.get("prompt")), body.get("input_suffix", body.get("suffix"))


def test_holes_are_filled_one_after_the_other(stand_in: StandIn) -> None:
    segments = [{"text": "a("}, {"hole": {"max_tokens": 9}}, {"text": ", "}, {"hole": {}}, {"text": ")\n"}]
    answer = ask(stand_in, segments=segments)
    assert [hole.text for hole in answer.holes] == ["<1>", "<2>"]
    assert [around(body) for body in stand_in.asked] == [("a(", ", )\n"), ("a(<1>, ", ")\n")]
    limits = [
        body.get("max_tokens", body.get("n_predict", body.get("options", {}).get("num_predict")))
        for body in stand_in.asked
    ]
    more = 2048 if name_of(stand_in) == "chat" else 0  # for thoughts
    assert limits == [9 + more, LINE_TOKENS + more] and stand_in.keys == ["Bearer key"] * 2
    assert answer.model == f"{name_of(stand_in)}:m" and answer.stats.forwards >= 4


def test_the_name_by_which_an_engine_calls_its_model_is_told_and_not_asked_for(stand_in: StandIn) -> None:
    form, protocol = stand_in.form, name_of(stand_in)
    stand_in.form = lambda parts: [line.replace('"model": "m"', '"model": "m-2026"') for line in form(parts)]
    segments = [{"text": "a("}, {"hole": {}}, {"text": ", "}, {"hole": {}}, {"text": ")\n"}]
    with connect_as(stand_in, protocol) as client:
        *_, answer = client.infill(InfillRequest.model_validate({"segments": segments}))
    assert isinstance(answer, InfillResponse) and answer.model in (f"{protocol}:m-2026", "llamacpp:m")
    assert [body["model"] for body in stand_in.asked] == ["m", "m"]


def test_log_probabilities_are_confidences_where_they_are_told_and_a_certainty_never_is(stand_in: StandIn) -> None:
    (hole,) = ask(stand_in, segments=[{"text": "a("}, {"hole": {}}, {"text": ")\n"}]).holes
    assert hole.certainty is None
    assert hole.tokens == ([] if name_of(stand_in) in ("fim", "chat") else [(0, 2), (2, 3)])
    assert hole.confidence == pytest.approx([0.6065] * len(hole.tokens), abs=1e-4)


def test_kept_text_at_the_edges_is_part_of_the_text_around(stand_in: StandIn) -> None:
    hole = {"draft": "return x + y", "keep": [[0, 7], [11, 12]]}
    (filled,) = ask(stand_in, segments=[{"text": "def f():\n    "}, {"hole": hole}, {"text": "\n"}]).holes
    assert filled.text == "return <1>y" and filled.anchors == [(0, 7), (10, 11)]
    assert around(stand_in.asked[0]) == ("def f():\n    return ", "y\n")
    with pytest.raises(MidfillError, match="middle"):
        ask(stand_in, segments=[{"hole": {"draft": "a b c", "keep": [[2, 3]]}}])
    assert len(stand_in.asked) == 1


def test_alternatives_that_take_queries_of_their_own_may_be_spared(stand_in: StandIn) -> None:
    filled, _ = fill_in(stand_in, n=3, spares_queries=True, repair=False)
    assert (len(stand_in.asked), filled.alternatives) == (1, ())


def test_the_first_fill_is_the_likeliest_and_alternatives_are_drawn(stand_in: StandIn) -> None:
    answer = ask(stand_in, segments=[{"text": "x"}, {"hole": {}}, {"text": "y"}], n=2)
    assert [answer.holes[0].text, answer.alternatives[0][0].text] == ["<1>", "<2>"]
    heat = [body.get("temperature", body.get("options", {}).get("temperature")) for body in stand_in.asked]
    assert heat == [0, ALTERNATIVE_TEMPERATURE]


def test_an_alternative_that_fails_costs_nothing_that_is_there(stand_in: StandIn) -> None:
    stand_in.refuse = lambda _: (500, {"error": "out of memory"}) if len(stand_in.asked) > 2 else None
    with connect(stand_in) as client:
        request = {"segments": [{"text": "x"}, {"hole": {}}, {"text": "y"}], "n": 3}
        *steps, answer = client.infill(InfillRequest.model_validate(request))
    assert isinstance(answer, InfillResponse) and [len(answer.alternatives), answer.holes[0].text] == [1, "<1>"]
    shown = [step.holes[0].text for step in steps if isinstance(step, StepEvent)]
    assert shown[-1] == "<1>" and len(shown) > 2, "an editor may end the fill meanwhile"
    stand_in.refuse = lambda _: (500, {"error": "out of memory"})
    with pytest.raises(MidfillError):
        ask(stand_in, segments=[{"hole": {}}], n=3)


def test_a_body_is_filled_with_its_steps_shown_and_ends_where_its_block_does(stand_in: StandIn) -> None:
    stand_in.parts = ["if a:\n", "        return a", " + b\n", "    return b\n", "\n\ndef other():\n", "    pass\n"]
    filled, previews = fill_in(stand_in, ADD + b"\n\ndef later():\n    return 1\n", temperature=0.0)
    after = filled.patch.apply(ADD + b"\n\ndef later():\n    return 1\n").partition(b"\n\n\n")[0] + b"\n"
    assert after == b"def add(a, b):\n    if a:\n        return a + b\n    return b\n" and not filled.new_errors
    assert [preview.holes[0].text for preview in previews][:2] == ["if a:\n", "if a:\n        return a"]
    assert filled.best.certainty is None and filled.model == f"{name_of(stand_in)}:m" and filled.keeps == "nothing"


def test_a_line_ends_with_its_line(stand_in: StandIn) -> None:
    stand_in.parts = ["a + b", "\n    return a\n"]
    document = Document(b"def add(a, b):\n    c = \n    return c\n", "python")
    with connect(stand_in) as client:
        *_, filled = fill(document, [hole_at_range(document, 23, 23)], Options(), client)
    assert isinstance(filled, Filled) and filled.fills[0].text == "a + b"
    body = stand_in.asked[0]
    stops = ["\n"] if name_of(stand_in) != "chat" else None
    assert body.get("stop", body.get("options", {}).get("stop")) == stops


@pytest.mark.parametrize(
    ("language", "before", "statement", "behind"),
    [
        ("python", "def f(x):\n", "    if x:\n        y = g(x)\n        return y\n", "    return None\n"),
        (
            "python",
            "def f(x):\n",
            "    try:\n        return g(x)\n    except OSError:\n        pass\n",
            "    leave()\n",
        ),
        ("go", "func f(x int) {\n", "\tfor x > 0 {\n\t\tx--\n\t}\n", "\tg()\n}\n"),
        ("typescript", "function f(x: T) {\n", "  if (x) {\n    g(x);\n  } else {\n    h();\n  }\n", "  i();\n}\n"),
    ],
)
def test_a_blank_line_takes_the_block_of_a_header(
    stand_in: StandIn, language: str, before: str, statement: str, behind: str
) -> None:
    stand_in.parts = [statement[at : at + 7] for at in range(0, len(statement), 7)] + list(behind)
    document = Document(f"{before}\n{behind}".encode(), language)
    with connect(stand_in) as client:
        *_, filled = fill(document, [hole_at_range(document, len(before), len(before))], Options(), client)
    assert isinstance(filled, Filled)
    assert filled.patch.apply(document.data).decode() == before + statement + behind
    body = stand_in.asked[0]
    assert "\n" not in body.get("stop", body.get("options", {}).get("stop", []))


STEPS = [f"    step_{name} = rows.pop()\n" for name in "one two three four five six seven eight nine ten".split()]
REGISTERS = ["    registers = {}\n", *(f"    registers['r{n}'] = {n}\n" for n in range(14)), "    return registers\n"]
SKIPS = ["    reader = iter(rows)\n", *["    next(reader)\n"] * 3, "    return next(reader)\n"]
ROUND = ["    rows.sort()\n", "    total = sum(rows)\n", "    assert total\n", "    rows.clear()\n"]


def fill_place(server: StandIn, source: str, mark: str = "@") -> str:
    """The source after a fill of its `mark`."""
    place = source.index(mark)
    document = Document(source.replace(mark, "").encode(), "python")
    with connect(server) as client:
        *_, filled = fill(document, [hole_at_range(document, place, place)], Options(repair=False), client)
    assert isinstance(filled, Filled)
    return filled.patch.apply(document.data).decode()


@pytest.mark.parametrize("lines", [STEPS, STEPS * 2, REGISTERS, SKIPS, [*ROUND * 2, "    rows.append(1)\n"]])
@pytest.mark.parametrize("indent", ["", "    "])
def test_an_answer_that_ends_by_itself_stays_whole(stand_in: StandIn, lines: list[str], indent: str) -> None:
    text = "".join(lines)
    stand_in.parts = [text[at : at + 7] for at in range(0, len(text), 7)]
    if indent and name_of(stand_in) != "chat":  # a model that goes on where the cursor stands
        stand_in.parts = [text[4:11], *(text[at : at + 7] for at in range(11, len(text), 7))]
    source = f"def report(rows):\n    total = 0\n{indent}@\n    return total, mean, best, worst\n"
    assert fill_place(stand_in, source) == source.replace(f"{indent}@\n", text)


@pytest.mark.parametrize("lines", [SKIPS, REGISTERS])
def test_a_body_with_repeated_lines_stays_whole(stand_in: StandIn, lines: list[str]) -> None:
    text = "".join(lines)
    stand_in.parts = [text[4:11], *(text[at : at + 7] for at in range(11, len(text), 7))]
    filled, _ = fill_in(stand_in, temperature=0.0)
    assert filled.fills[0].text == text.strip()


def test_only_a_model_that_was_not_tuned_to_end_is_cut_by_its_lines(stand_in: StandIn) -> None:
    stand_in.parts = [f"    value_{number * number} = rows[{number}:]\n" for number in range(60)]
    after = fill_place(stand_in, "def report(rows):\n@\n    return 1\n")
    assert after.count("value_") == (60 if name_of(stand_in) == "chat" else 5)


def test_a_loop_that_does_not_end_is_cut_after_its_first_round(stand_in: StandIn) -> None:
    stand_in.parts = ["    rows.sort()\n", *["    rows.remove(1)\n"] * 500]
    after = fill_place(stand_in, "def report(rows):\n@\n    return 1\n")
    assert after.count("rows.remove(1)") == 1
    with connect(stand_in) as client:
        hole = {"hole": {"indent": "    "}}
        *steps, _ = client.infill(InfillRequest.model_validate({"segments": [{"text": "def f():\n    "}, hole]}))
    assert len(steps) < 100, "it was stopped"


def test_struck_text_of_html_ends_no_answer(stand_in: StandIn) -> None:
    stand_in.parts = ["<p>\n    <s>{old}", "</s>", " {now}\n  </p>"]
    document = Document(b"const price = () => (\n  TODO\n);\n", "tsx")
    with connect(stand_in) as client:
        *_, filled = fill(document, [hole_at_range(document, 24, 28)], Options(repair=False), client)
    assert isinstance(filled, Filled) and filled.fills[0].text == "<p>\n    <s>{old}</s> {now}\n  </p>"


OPTIONS = "const options = «{}»;\ng();\n"
SUMMARY = 'def f(x):\n    """«TODO»"""\n    return x\n'


@pytest.mark.parametrize(
    ("language", "source", "answer", "filled_text"),
    [
        ("javascript", OPTIONS, "{\n  a: 1,\n  b: [\n    2],\n}", "{\n  a: 1,\n  b: [\n    2],\n}"),
        ("javascript", OPTIONS, "{\n  a: 1,\n};\ng();\nh();\n", "{\n  a: 1,\n}"),
        ("javascript", OPTIONS, "{ a: 1 };\nh();\n", "{ a: 1 }"),
        ("javascript", OPTIONS, "/[(]/;\n((", "/[(]/"),
        ("javascript", "if «(y)»\n  g();\n}\n", "(x) {\n  h();\n}\n", "(x) {"),
        ("javascript", "/** «TODO» */\ng();\n", "Calls g.\n *\n * Twice.", "Calls g.\n *\n * Twice."),
        ("python", "x = f(«1», 2)\n", "h(3)\nk(\n", "h(3)"),
        ("python", "x = f(«1», 2)\n", "[\n    1,\n    2,\n]", "[\n    1,\n    2,\n]"),
        ("python", SUMMARY, "X.\n\n    Args:\n        x: X.\n    ", "X.\n\n    Args:\n        x: X.\n    "),
        ("python", SUMMARY, 'X.\n\n    Y.\n    """\n    return x\n', "X.\n\n    Y.\n    "),
        ("python", "x = 1  # «TODO»\n", "one\ny = 2\n", "one"),
        ("python", "x = f(«1», 2)\n", "\nh(3)", "h(3)"),
        ("python", "x = f(«1», 2)\n", " \n\nh(3)\nk()\n", "h(3)"),
    ],
)
@pytest.mark.parametrize("obeys", [True, False])
def test_a_part_of_a_line_has_several_lines_where_one_is_wrong(
    stand_in: StandIn, language: str, source: str, answer: str, filled_text: str, obeys: bool
) -> None:
    start, end = source.index("«"), source.index("»") - 1
    document = Document(source.replace("«", "").replace("»", "").encode(), language)

    def answer_up_to_stop(body: dict[str, Any]) -> None:
        stops = body.get("stop") or body.get("options", {}).get("stop") or []
        text = answer.partition("\n")[0] if obeys and "\n" in stops else answer
        stand_in.parts = [text[at : at + 7] for at in range(0, len(text), 7)]

    stand_in.refuse = answer_up_to_stop
    with connect(stand_in) as client:
        *_, filled = fill(document, [hole_at_range(document, start, end)], Options(repair=False), client)
    assert isinstance(filled, Filled)
    assert filled.patch.apply(document.data).decode() == f"{source[:start]}{filled_text}{source[end + 2 :]}"


def test_the_files_own_text_replaces_only_what_fails(stand_in: StandIn) -> None:
    source = b"def count(rows):\n    return len(rows)\n\n\ndef count_all(rows):\n    ...\n"
    stand_in.parts = ["return unknown_name(rows)"]
    filled, _ = fill_in(stand_in, source)
    assert (filled.fills[0].text, filled.fills[0].origin) == ("return unknown_name(rows)", "drafted")
    stand_in.parts = ["return ((rows"]
    filled, _ = fill_in(stand_in, source)
    assert (filled.fills[0].text, filled.fills[0].origin) == ("return len(rows)", "like `count`")


def test_closing_the_fill_closes_the_connection(stand_in: StandIn) -> None:
    stand_in.is_endless = True
    with connect(stand_in) as client:
        events = client.infill(InfillRequest.model_validate({"segments": [{"text": "x"}, {"hole": {"indent": ""}}]}))
        assert isinstance(next(events), StepEvent)
        events.close()
    assert stand_in.was_closed.wait(60), "the server notices that nobody listens"


@pytest.mark.parametrize("is_chunked", [True, False])
def test_an_answer_without_its_end_is_no_fill(stand_in: StandIn, is_chunked: bool) -> None:
    stand_in.is_chunked, stand_in.cut_at = is_chunked, 1
    with pytest.raises(MidfillError, match="ended in the middle of the fill") as error:
        ask(stand_in, segments=[{"text": "x"}, {"hole": {}}, {"text": "y"}])
    assert error.value.code == "engine_unreachable"


@pytest.mark.parametrize(("is_chunked", "cut_at"), [(True, None), (False, 99)])
def test_an_answer_with_its_end_is_whole_however_the_connection_ends(
    stand_in: StandIn, is_chunked: bool, cut_at: int | None
) -> None:
    stand_in.is_chunked, stand_in.cut_at = is_chunked, cut_at
    (hole,) = ask(stand_in, segments=[{"text": "x"}, {"hole": {}}, {"text": "y"}]).holes
    assert hole.text == "<1>"


def ask_for_lines(protocol: str, lines: list[str], *, is_chunked: bool) -> str:
    """The text of a hole that a server fills with these lines. It closes the connection behind them."""
    with serve(protocol) as server, connect(server) as client:
        server.form, server.is_chunked = lambda _: lines, is_chunked
        server.cut_at = None if is_chunked else len(lines)
        *_, answer = client.infill(InfillRequest.model_validate({"segments": [{"text": "x"}, {"hole": {}}]}))
    assert isinstance(answer, InfillResponse)
    return answer.holes[0].text


def test_a_stream_without_a_last_event_is_whole_where_its_body_ends_well_or_the_reason_is_told() -> None:
    *events, _, _ = FORMS["openai"](["<1>"])
    last = {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}
    assert ask_for_lines("openai", events, is_chunked=True) == "<1>"
    assert ask_for_lines("openai", [*events, f"data: {json.dumps(last)}"], is_chunked=False) == "<1>"
    with pytest.raises(MidfillError, match="ended in the middle of the fill"):
        ask_for_lines("openai", events, is_chunked=False)


@pytest.mark.parametrize("protocol", ["openai", "fim", "chat"])
def test_a_message_that_only_says_that_a_server_lives_is_skipped(protocol: str) -> None:
    assert ask_for_lines(protocol, ['data: {"type": "ping"}', *FORMS[protocol](["<1>"])], is_chunked=True) == "<1>"


def test_a_torn_line_is_a_lost_connection() -> None:
    with pytest.raises(MidfillError, match="ended in the middle of the fill"):
        ask_for_lines("ollama", ['{"model": "m", "respo'], is_chunked=False)


def test_an_answer_that_its_limit_of_tokens_cuts_is_a_suggestion_and_not_asked_for_again(stand_in: StandIn) -> None:
    stand_in.is_short = True
    stand_in.parts = ["c = a\n", "    return add(c, b"]
    filled, _ = fill_in(stand_in, max_tokens=9)
    assert filled.new_errors and len(stand_in.asked) == 1
    stand_in.parts = ["c = a\n", "    return c"]
    filled, _ = fill_in(stand_in, max_tokens=9)
    (cut,) = filled.fills
    assert cut.is_suggestion and cut.certainty is None and len(stand_in.asked) == 2
    assert describe_fill(cut) == "a suggestion, cut by the limit of 9 tokens"
    assert advise_on_cut(cut) == "the model's answer was cut by the limit of 9 tokens; give a larger --max-tokens"
    stand_in.parts.append("\n\n\ndef later():\n    return (")
    filled, _ = fill_in(stand_in, max_tokens=9)
    assert not filled.fills[0].is_suggestion, "the body was over before"


@pytest.mark.parametrize("reason", ["length", "model_length", "max_tokens", "stop"])
def test_a_limit_of_tokens_has_several_names(reason: str) -> None:
    piece = PROTOCOLS["fim"].read_message({"choices": [{"delta": {"content": ""}, "finish_reason": reason}]})
    assert piece is not None and (piece.ending == CUT) == (reason != "stop")


def test_a_server_that_exceeds_the_limit_is_cut_there_and_one_that_meets_it_is_not(stand_in: StandIn) -> None:
    stand_in.parts = ["c = a\n", "    return c"]
    filled, _ = fill_in(stand_in, max_tokens=2)
    assert filled.fills[0].text == "c = a\n    return c" and not filled.fills[0].is_suggestion
    filled, _ = fill_in(stand_in, max_tokens=1)
    assert filled.fills[0].text == "c = a" and filled.fills[0].cut_at == 1


def test_the_command_does_not_write_an_answer_that_was_cut(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.is_short, stand_in.parts = True, ["c = a\n", "    return c"]
    monkeypatch.setenv("MIDFILL_ENGINE", f"{name_of(stand_in)}:m@{stand_in.url}")
    file = Path("t.py")
    file.write_bytes(ADD)
    result = CliRunner().invoke(build_app(), ["fill", "t.py", "--stubs", "--write"])
    assert result.exit_code == 6 and file.read_bytes() == ADD
    assert "cut by the limit of 1024 tokens" in result.stderr and "--max-tokens" in result.stderr
    result = CliRunner().invoke(build_app(), ["fill", "t.py", "--stubs", "--write", "--min-certainty", "0"])
    assert result.exit_code == 0 and file.read_bytes().endswith(b"return c\n")
    assert "cut by the limit of 1024 tokens" in result.stderr


def test_a_fill_that_is_over_stops_the_server(stand_in: StandIn) -> None:
    stand_in.is_endless = True
    with connect(stand_in) as client:
        (*_, answer) = client.infill(
            InfillRequest.model_validate({"segments": [{"text": "x"}, {"hole": {"indent": "", "max_tokens": 1}}]})
        )
    assert isinstance(answer, InfillResponse) and stand_in.was_closed.wait(60)


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (401, {"error": "no"}, "engine_refused"),
        (429, {"error": {"message": "slow down"}}, "engine_busy"),
        (500, {"detail": "oh"}, "engine_error"),
        (404, {"error": "model 'm' not found"}, "unknown_model"),
        (400, {"error": {"message": "bad"}}, "engine_error"),
    ],
)
def test_refusals_of_a_server_become_errors_of_midfill(stand_in: StandIn, status: int, body: Any, code: str) -> None:
    stand_in.refuse = lambda _: (status, body)
    with pytest.raises(MidfillError) as error:
        ask(stand_in, segments=[{"text": "x"}, {"hole": {}}, {"text": "y"}])
    assert error.value.code == code and error.value.sentence.endswith(".") and "\n" not in error.value.sentence


def test_a_refusal_of_the_request_points_to_the_setting_and_to_no_log_of_ours(stand_in: StandIn) -> None:
    stand_in.refuse = lambda _: (404, {"detail": "Not Found"})
    with pytest.raises(MidfillError, match="Not Found; check the protocol, the model and the address"):
        ask(stand_in, segments=[{"text": "x"}, {"hole": {}}])


@pytest.mark.parametrize("words", ["maximum context length is 9 tokens", "the document is too large"])
def test_a_query_that_is_too_long_costs_later_ones_nothing(stand_in: StandIn, words: str) -> None:
    segments = [{"text": "x"}, {"hole": {}}, {"text": ")\n"}]
    with connect(stand_in) as client:
        stand_in.refuse = lambda _: (400, {"error": {"message": words}})
        with pytest.raises(MidfillError, match=f"{words}; .*config (context|engine)`"):
            list(client.infill(InfillRequest.model_validate({"segments": segments})))
        assert len(stand_in.asked) == 1 or "context" not in words
        stand_in.refuse = lambda _: None
        list(client.infill(InfillRequest.model_validate({"segments": segments})))
    first, *_, last = stand_in.asked
    assert first == last


def test_what_a_server_says_of_an_account_is_told_and_of_a_key_is_not(stand_in: StandIn) -> None:
    for status, told in (
        (401, "refused the key"),
        (402, "says: no credit for sk-1"),
        (403, "says: no credit for sk-1"),
    ):
        stand_in.refuse = lambda _, status=status: (status, {"error": {"message": "no credit for sk-1"}})
        with pytest.raises(MidfillError, match=f"{told}; check "):
            ask(stand_in, segments=[{"text": "x"}, {"hole": {}}])


def test_an_address_that_has_moved_is_told(stand_in: StandIn) -> None:
    stand_in.headers["location"] = "https://h/v1"
    stand_in.refuse = lambda _: (308, {})
    with pytest.raises(MidfillError, match=r"has moved to https://h/v1; name that address by `midfill config engine`"):
        ask(stand_in, segments=[{"text": "x"}, {"hole": {}}])


def test_a_busy_server_that_says_for_how_long_is_asked_once_more(stand_in: StandIn) -> None:
    stand_in.headers["retry-after"] = "0"
    stand_in.refuse = lambda _: (429, {"error": "slow down"}) if len(stand_in.asked) == 1 else None
    (hole,) = ask(stand_in, segments=[{"text": "x"}, {"hole": {}}]).holes
    assert hole.text == "<2>"


def test_a_certificate_that_is_not_trusted_points_to_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect_untrusted(_: HTTPSConnection) -> None:
        raise ssl.SSLCertVerificationError("self-signed certificate")

    monkeypatch.setattr(HTTPSConnection, "connect", connect_untrusted)
    with EngineClient(parse_engine("openai:m@https://127.0.0.1:9")) as client:
        with pytest.raises(MidfillError, match="speaks no TLS that is trusted .*; set SSL_CERT_FILE "):
            client.connect()


@pytest.mark.parametrize(
    ("lines", "encoding", "told"),
    [
        (['{"strange": 1}'], "utf-8", "in a form that is not known"),
        ([], "utf-8", "in a form that is not known"),
        (["<html><body>Sign in</body></html>"], "utf-8", "in a form that is not known"),
        (['{"choices": [{"text": "\xe9"}]}'], "latin-1", "what this version does not understand"),
    ],
)
def test_an_answer_in_an_unknown_form_is_an_error(
    stand_in: StandIn, lines: list[str], encoding: str, told: str
) -> None:
    with connect(stand_in) as client, pytest.raises(MidfillError, match=f"{told}; check the protocol and the address"):
        stand_in.form, stand_in.encoding = lambda _: lines, encoding
        list(client.infill(InfillRequest.model_validate({"segments": [{"text": "x"}, {"hole": {}}]})))


def connect_as(server: StandIn, protocol: str) -> EngineClient:
    return EngineClient(Endpoint(url=server.url, protocol=protocol, model="m"))


def test_a_server_that_does_not_run_is_unreachable() -> None:
    with (
        EngineClient(Endpoint(url="http://127.0.0.1:9", protocol="llamacpp")) as client,
        pytest.raises(MidfillError) as error,
    ):
        list(client.infill(InfillRequest.model_validate({"segments": [{"hole": {}}]})))
    assert error.value.code == "engine_unreachable" and "midfill config engine --unset" in error.value.sentence


def test_a_model_of_ollama_that_cannot_insert_is_asked_from_the_left_and_not_asked_twice() -> None:
    with serve("ollama") as server:
        refusal = (400, {"error": "registry.ollama.ai/library/llama3.2:1b does not support insert"})
        server.refuse = lambda body: refusal if "suffix" in body else None
        segments = [{"text": "a("}, {"hole": {}}, {"text": ", "}, {"hole": {}}, {"text": ")\n"}]
        assert [hole.text for hole in ask(server, segments=segments).holes] == ["<2>", "<3>"]
        assert [("suffix" in body, body.get("raw")) for body in server.asked] == [
            (True, None),
            (False, True),
            (False, True),
        ]


def test_a_model_of_llamacpp_without_tokens_for_it_is_asked_from_the_left() -> None:
    with serve("llamacpp") as server:
        refusal = (
            501,
            {"error": {"code": 501, "message": "Infill is not supported by this model: prefix token is missing"}},
        )
        server.refuse = lambda body: refusal if body["path"] == "/infill" else None
        assert ask(server, segments=[{"text": "a("}, {"hole": {}}, {"text": ")\n"}]).holes[0].text == "<2>"
        assert (server.asked[1]["path"], server.asked[1]["prompt"]) == ("/completion", "a(")


def test_a_model_that_only_goes_on_says_the_space_itself() -> None:
    with serve("llamacpp") as server:
        server.refuse = lambda body: (501, {"error": {"message": "no"}}) if body["path"] == "/infill" else None
        server.parts = [" return", " a", " + b\n"]
        filled, previews = fill_in(server)
        assert server.asked[-1]["prompt"] == "def add(a, b):\n   "
        assert filled.patch.apply(ADD) == b"def add(a, b):\n    return a + b\n"
        assert filled.fills[0].confidence == pytest.approx([0.6065] * 3, abs=1e-4)
        assert [preview.holes[0].text for preview in previews][:3] == ["return", "return a", "return a + b\n"]


def test_a_server_that_takes_no_suffix_is_asked_without() -> None:
    with serve("openai") as server:
        refusal = (
            400,
            {"error": {"message": "suffix is not currently supported", "type": "BadRequestError", "code": 400}},
        )
        server.refuse = lambda body: refusal if "suffix" in body else None
        assert ask(server, segments=[{"text": "a("}, {"hole": {}}, {"text": ")\n"}]).holes[0].text == "<3>"
        assert around(server.asked[-1]) == ("a(", None)


def test_a_model_whose_own_tokens_are_known_gets_them() -> None:
    names = {
        "Qwen/Qwen2.5-Coder-7B": "<|fim_prefix|>B<|fim_suffix|>A<|fim_middle|>",
        "google/codegemma-2b": "<|fim_prefix|>B<|fim_suffix|>A<|fim_middle|>",
        "granite-code-fim": "<|fim_prefix|>B<|fim_suffix|>A<|fim_middle|>",
        "ByteDance-Seed/Seed-Coder-8B-Base": "<[fim-suffix]>A<[fim-prefix]>B<[fim-middle]>",
        "bigcode/santacoder": "<fim-prefix>B<fim-suffix>A<fim-middle>",
        "bigcode/starcoder2-3b": "<fim_prefix>B<fim_suffix>A<fim_middle>",
        "bigcode/starcoderbase": "<fim_prefix>B<fim_suffix>A<fim_middle>",
        "codellama/CodeLlama-7b-hf": "<PRE> B <SUF>A <MID>",
        "deepseek-ai/deepseek-coder-1.3b-base": "<｜fim▁begin｜>B<｜fim▁hole｜>A<｜fim▁end｜>",
        "mistralai/Codestral-22B-v0.1": "[SUFFIX]A[PREFIX]B",
    }
    for name, prompt in names.items():
        first = next(OpenAI().calls(HoleQuery("B", "A", 9, ("\n",), model=name)))
        assert first.body["prompt"] == prompt and "suffix" not in first.body and first.body["stop"][0] == "\n"
        assert len(first.body["stop"]) <= 4, "more are refused"
        assert set(first.body["stop"][1:]) <= set(find_dialect(name).ends)
    assert next(OpenAI().calls(HoleQuery("B", "A", 9, model="gpt"))).body["suffix"] == "A"
    first = next(OpenAI().calls(HoleQuery("{behind}", "{before}", 9, model="starcoder")))
    assert first.body["prompt"] == "<fim_prefix>{behind}<fim_suffix>{before}<fim_middle>", "code is no template"
    assert len([dialect for dialect in DIALECTS if dialect.template]) == len(names)


@pytest.mark.parametrize("protocol", ["ollama", "llamacpp", "openai"])
def test_markers_in_the_code_are_text(protocol: str) -> None:
    before, behind = "a = '<|fim_suffix|>' ", "\nb = '<|endoftext|>'\n<s>c</s>\n"
    broken = "a = '<\u2060|fim_suffix|>' ", "\nb = '<\u2060|endoftext|>'\n<s>c</s>\n"
    for model in ("m", "qwen2.5-coder"):
        *others, last = PROTOCOLS[protocol].calls(HoleQuery(before, behind, 9, model=model))
        assert last.body["prompt"] == broken[0].removesuffix(" ")
        for call in others:
            if call.path == "/infill":  # its texts are read without special tokens
                assert around(call.body) == (before, behind)
            elif model == "m" or protocol == "ollama":
                assert around(call.body) == broken
            else:
                assert call.body["prompt"] == f"<|fim_prefix|>{broken[0]}<|fim_suffix|>{broken[1]}<|fim_middle|>"


def test_a_marker_that_the_model_copies_is_the_users_own(stand_in: StandIn) -> None:
    """Prompts of our own hold it with a character that nobody sees, which a model copies."""
    stand_in.parts = ["return '<", "\u2060|fim_", "suffix|>' +", " b\n"]
    filled, previews = fill_in(stand_in, b"a = '<|fim_suffix|>'\n" + ADD)
    assert filled.fills[0].text == "return '<|fim_suffix|>' + b"
    assert all("\u2060" not in preview.holes[0].text for preview in previews)
    own = filled.fills[0]
    assert [own.text[start:end] for start, end in own.tokens][1:3] in ([], ["|fim_", "suffix|>' +"])


def test_the_model_of_a_server_is_asked_for_where_it_was_not_named() -> None:
    with serve("openai") as server:
        server.pages["/v1/models"] = {"data": [{"id": "served/model"}]}
        with EngineClient(parse_engine(f"openai:{server.url}/v1")) as client:
            list(client.infill(InfillRequest.model_validate({"segments": [{"text": "x"}, {"hole": {}}]})))
            server.pages["/v1/models"] = {"data": [{"id": "other"}]}
            server.refuse = lambda body: (404, {"error": "no such model"}) if body["model"] != "other" else None
            with pytest.raises(MidfillError, match="no such model"):
                list(client.infill(InfillRequest.model_validate({"segments": [{"text": "x"}, {"hole": {}}]})))
            list(client.infill(InfillRequest.model_validate({"segments": [{"text": "x"}, {"hole": {}}]})))
        assert server.asked[0]["model"] == "served/model" and server.asked[0]["path"] == "/v1/completions"


@pytest.mark.parametrize(
    ("protocol", "base", "called"),
    [
        ("openai", "", "/v1/completions"),
        ("openai", "/openai/v1", "/openai/v1/completions"),
        ("fim", "/v1", "/v1/fim/completions"),
        ("fim", "/beta/", "/beta/fim/completions"),
        ("chat", "/v1/", "/v1/chat/completions"),
        ("chat", "/v1beta/openai/", "/v1beta/openai/chat/completions"),  # Gemini
        ("chat", "/api/paas/v4", "/api/paas/v4/chat/completions"),  # Zhipu
        ("ollama", "/proxied/v1", "/proxied/api/generate"),
        ("llamacpp", "/proxied", "/proxied/infill"),
    ],
)
def test_the_address_of_a_service_is_what_its_own_example_calls_the_base(protocol: str, base: str, called: str) -> None:
    with serve(protocol) as server, EngineClient(parse_engine(f"{protocol}:m@{server.url}{base}")) as client:
        list(client.infill(InfillRequest.model_validate({"segments": [{"text": "x"}, {"hole": {}}, {"text": "y"}]})))
        assert server.asked[-1]["path"] == called


@pytest.mark.parametrize("page", [None, {"data": []}, [], {"data": [{"name": "m"}]}, "no"])
def test_a_server_that_lists_no_model_is_an_error_with_a_next_step(page: Any) -> None:
    with serve("openai") as server:
        if page is not None:
            server.pages["/v1/models"] = page
        with EngineClient(parse_engine(f"openai:{server.url}/v1")) as client, pytest.raises(MidfillError) as error:
            list(client.infill(InfillRequest.model_validate({"segments": [{"text": "x"}, {"hole": {}}]})))
    assert error.value.code == "unknown_model"
    assert error.value.sentence == (
        f"{server.url} lists no model; name one: `midfill config engine openai:MODEL@{server.url}`."
    )


def test_an_answer_in_one_piece_is_read_too() -> None:
    with serve("fim") as server:
        server.form = lambda parts: [json.dumps({"model": "m", "choices": [{"index": 0, "text": "".join(parts)}]})]
        with connect_as(server, "fim") as client:
            *_, answer = client.infill(InfillRequest.model_validate({"segments": [{"text": "x"}, {"hole": {}}]}))
        assert isinstance(answer, InfillResponse) and answer.holes[0].text == "<1>"


@pytest.mark.parametrize("opening", ["", "```python\n"])
def test_a_piece_of_a_line_is_judged_without_the_lines_before_it(opening: str) -> None:
    def count_calls(num_lines: int) -> int:
        text = opening + "".join(f"    value_{letter * number} = 1\n" for number in range(num_lines) for letter in "ab")
        finder = EndFinder("block", "    ", "def f():\n    ", "\n", knows_end=True)
        calls = Counter[str]()
        finder.find(text, is_continuation=False)
        sys.setprofile(lambda _frame, event, _argument: calls.update([event]))
        for size in range(1, 40):
            finder.find(text + "x" * size, is_continuation=False)
        sys.setprofile(None)
        return calls["call"] + calls["c_call"]

    assert count_calls(40) <= count_calls(4) + 1


LEFT = "x = 1\n    y = 2\n" + "".join(f"b({number * number})\n" for number in range(12))


def find_end(text: str, extent: Extent, indent: str, behind: str, *, is_continuation: bool) -> int | None:
    """Where an answer ends, for sure or likely."""
    finder = EndFinder(extent, indent, "", behind, knows_end=False)
    end = finder.find(text, is_continuation=is_continuation)
    return finder.likely_end if end is None else end


@pytest.mark.parametrize(
    ("text", "extent", "behind", "is_continuation", "end"),
    [
        ("x = 1", "rest", ")\n", False, None),
        ("x = 1\ny", "rest", ")\n", False, 5),
        ("```python\nx = 1\ny = 2\n", "rest", ")\n", False, 15),
        ("Here is the code:\n\nx", "rest", ")\n", False, None),
        ("<answer>\nx = 1\n", "rest", ")\n", False, 14),
        ("<think>\nx = 1\n", "rest", ")\n", False, None),
        ("x = 1<|endoftext|>", "block", "\n", False, 18),
        ("```\nx = 1\n```\n", "block", "\n", False, 14),
        ("if x:\n    y()\nz()\n", "statement", "\n", False, None),
        ("if x:\n    y()\nz()\n", "statement", "\n", True, 14),
        ("if x:\n    y()\nelse:\n    z()\n", "statement", "\n", True, None),
        ("if (x)\n{\n    y();\n}\nz();\n", "statement", "\n", True, 20),
        ("```c\nif (x)\n    y();\nz();\n", "statement", "\n", True, None),
        ("a()\nb()\nc()\nd()\ne()\n", "statement", "\n", False, 20),
        (LEFT, "block", "\n", False, None),
        (LEFT + "c()\n", "block", "\n", False, len(LEFT) + 4),
        ("x = 1\n    y = 2\na()\nb()\nc()\nd()\n", "block", "\n", True, 32),
        ("x = 1\ny = 2\n\nif y:\n    return x\nreturn y\n", "block", "\n", False, None),
        ("x = 1\n    a()\n    b()\n    c()\n", "block", "\n    a()\n\n    b()\n    c()\n", False, 30),
        ("x = 1\n    more(a)\n    }\n", "block", "\n    more(a)\n\n    }\n", False, 24),
        ("x = 1\n    a()\n    }\n", "block", "\n    a()\n    }\n", False, None),
        ("x = 1\n    more(a)\n", "block", "\n    more(a)\n", False, None),
    ],
)
def test_where_an_answer_may_be_cut(
    text: str, extent: Extent, behind: str, is_continuation: bool, end: int | None
) -> None:
    indent = "    " if extent == "block" else ""
    assert find_end(text, extent, indent, behind, is_continuation=is_continuation) == end


def test_an_answer_that_repeats_the_text_behind_ends_with_a_whole_line() -> None:
    text = "x = 1\n    one()\n    two()\n    three()\n<|endo"
    behind = "\n    one()\n    two()\n    three()\n"
    assert find_end(text, "block", "    ", behind, is_continuation=False) == text.index("<")


OTHER = "    def other(self):\n        for x in self:\n            self.add(x)\n        return self\n\n"
CLOSED = "    }\n\n    int other(int a) {\n        if (a) {\n            add(a);\n        }\n        return a;\n"
ROWS = "    a,\n" * 9
TEMPLATE = f'q = f("""\nSELECT\n{ROWS}""")\n        t = """\n' + "}\nFROM\n" * 9 + '"""\n        return q\n'
BODY = "class A:\n    def f(self):\n        @\n\n    def g(self):\n        return 1\n"
STATED = "class A:\n    def f(self):\n        x = 1\n        @\n        z()\n"


@pytest.mark.parametrize(
    ("source", "answer", "is_cut"),
    [
        (BODY, f"x = 1\n        return 1\n\n{OTHER * 20}", True),
        (BODY, "x = 1\n" + "\tx += 1\n\tx -= 1\n" * 15, False),
        (BODY, "x = 1\n" + "    if x:\n      g(x)\n" * 15, False),
        ('class A:\n    def f(self):\n        """F."""\n        @\n', f"x = 1\n        return 1\n\n{OTHER * 20}", True),
        ("class A {\n    int f(int a) {\n        @\n    }\n}\n", f"return a;\n{CLOSED * 20}", True),
        (STATED.replace("        @", "@"), f"        y = 2\n\n{OTHER * 20}", True),
        (BODY, TEMPLATE, False),
        (STATED, f"if x:\n            y()\n{OTHER * 2}", False),
    ],
)
def test_an_answer_that_has_left_its_block_is_not_listened_to_for_long(source: str, answer: str, is_cut: bool) -> None:
    before, _, behind = source.partition("@")
    extent: Extent = "statement" if "x = 1" in before else "block"
    finder = EndFinder(extent, before.rpartition("\n")[2], before, behind, knows_end=False)
    lines = answer.splitlines(keepends=True)
    texts = ("".join(lines[:number]) for number in range(1, len(lines) + 1))
    ends = (number for number, text in enumerate(texts, 1) if finder.find(text, is_continuation=False) is not None)
    assert (next(ends, 99) <= 25) == is_cut
    tuned = EndFinder(extent, before.rpartition("\n")[2], before, behind, knows_end=True)
    assert tuned.find("".join(lines[:30]), is_continuation=False) is None


LISTED = "from m import (\n    first_name,\n    «TODO»,\n)\n"


@pytest.mark.parametrize(
    "answer", ["first_name,\n    second,\n)\n", "    first_name,\nsecond", "second,\nfirst_name,\n"]
)
def test_a_chat_that_repeats_the_line_above_a_part_of_a_line_goes_on(answer: str) -> None:
    with serve("chat") as server:
        server.parts = [answer[at : at + 7] for at in range(0, len(answer), 7)]
        start, end = LISTED.index("«"), LISTED.index("»") - 1
        document = Document(LISTED.replace("«", "").replace("»", "").encode(), "python")
        with connect(server) as client:
            *_, filled = fill(document, [hole_at_range(document, start, end)], Options(repair=False), client)
        assert isinstance(filled, Filled)
        assert filled.patch.apply(document.data).decode() == LISTED.replace("«TODO»", "second")


@pytest.mark.parametrize(
    "line", ["ERROR = 5", "for row in rows:", "String name = x;", "True if x else y", "if a in b:"]
)
@pytest.mark.parametrize("extent", ["rest", "statement"])
def test_a_line_of_code_is_no_sentence_before_code(line: str, extent: Extent) -> None:
    text = f"{line}\n    more = 1\n    more = 2\n"
    cut = len(line) if extent == "rest" else len(line) + 1
    assert find_end(text, extent, "    ", "\n", is_continuation=True) == cut
    assert not is_wrapping(line)
    assert extent == "statement" or find_end(text, extent, "    ", "\n", is_continuation=False) == cut


@pytest.mark.parametrize("line", ["Here is the code:", "Sure! Here's what is missing.", "the missing line is this:"])
def test_a_sentence_before_code_ends_no_hole(line: str) -> None:
    assert is_wrapping(line) and find_end(f"{line}\nx = 1", "rest", "", "\n", is_continuation=False) is None


@pytest.mark.parametrize("obeys", [True, False])
def test_a_hole_that_takes_no_line_break_is_asked_for_once_and_gets_none(stand_in: StandIn, obeys: bool) -> None:
    stand_in.parts = ["{"] if obeys else ["{", "\n  a: 1,\n", "}"]
    segments = [{"text": "const a = "}, {"hole": {"forbid": ["\n"]}}, {"text": ";\n"}]
    assert ask(stand_in, segments=segments).holes[0].text == "{" and len(stand_in.asked) == 1


@pytest.mark.parametrize("obeys", [True, False])
def test_an_answer_that_begins_a_block_between_brackets_goes_on_until_it_closes_them(
    stand_in: StandIn, obeys: bool
) -> None:
    block = "\n  const y = x;\n  return y;\n"

    def obey(body: dict[str, Any]) -> None:
        stops = body.get("stop") or body.get("options", {}).get("stop")
        stand_in.parts = [""] if obeys and stops else [block, "})\n", "more();\n"]

    stand_in.refuse = obey
    segments = [{"text": "xs.map((x) => {"}, {"hole": {}}, {"text": "})\n"}]
    assert ask(stand_in, segments=segments).holes[0].text == block + "})"
    assert len(stand_in.asked) == 1 + (obeys and name_of(stand_in) != "chat")


def test_an_answer_that_repeats_itself_ends() -> None:
    round_ = "if not callable(method):\n        raise TypeError(method)\n    "
    assert find_loop_end(f"x = 1\n    {round_ * 2}") is None
    text = f"x = 1\n    {round_ * 3}".rstrip(" ")
    assert find_loop_end(text) == len(f"x = 1\n    {round_}".rstrip(" "))
    assert find_loop_end("def f(a: " + "int, " * 4) is None
    assert find_loop_end("def f(a: " + "int, " * 40) == len("def f(a: " + "int, " * 40)


def test_a_chat_sees_the_file_with_its_hole_and_says_more_than_the_code() -> None:
    told = ["Sure! Here", "'s the code:\n\n```python\n", "return a ", "+ b\n", "```\n\nLet me know if you need more."]
    source = b"# <GAP_1> and '<|fim_middle|>'\n" + ADD
    with serve("chat") as server:
        server.parts = told
        filled, _ = fill_in(server, source, temperature=0.0)
        server.refuse = lambda body: (400, {"error": {"message": "no seed"}}) if "seed" in body else None
        again, _ = fill_in(server, source)
        server.refuse = lambda body: (400, {"error": {"message": "not 0"}}) if "temperature" in body else None
        fill_in(server, source)
    assert filled.fills[0].text == again.fills[0].text == "return a + b"
    first, refused, seedless, _, also_refused, last = server.asked
    assert "temperature" in seedless and "seed" not in also_refused
    system, user = first["messages"]
    assert (system["role"], user["role"]) == ("system", "user") and "<GAP_2>" in system["content"]
    shown = source.decode().replace("<|fim", "<\u2060|fim").replace("...", "<GAP_2>")
    assert user["content"].endswith(f"```\n{shown}\n```") and "one or more lines" in user["content"]
    assert "seed" in refused and not {"seed", "temperature", "stop"} & {*last}


def test_a_chat_that_wants_the_limit_under_its_newer_name_is_asked_so_from_then_on() -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    with serve("chat") as server, connect(server) as client:
        server.refuse = lambda body: (400, {"error": {"message": words}}) if "max_tokens" in body else None
        for _ in range(2):
            request = {"segments": [{"text": "x"}, {"hole": {"max_tokens": 9}}]}
            *_, answer = client.infill(InfillRequest.model_validate(request))
        assert isinstance(answer, InfillResponse) and answer.holes[0].text == "<3>"
        limits = [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in server.asked]
        assert limits == [(2057, None), (None, 2057), (None, 2057)] and "seed" in server.asked[2]


def test_a_chat_that_refuses_both_the_name_of_the_limit_and_a_seed_is_asked_without_them() -> None:
    def refuse(body: dict[str, Any]) -> tuple[int, Any] | None:
        if "max_tokens" in body:
            return 400, {"error": {"message": "Use 'max_completion_tokens' instead."}}
        return (400, {"error": {"message": "no temperature"}}) if "temperature" in body else None

    with serve("chat") as server:
        server.refuse = refuse
        (hole,) = ask(server, segments=[{"text": "x"}, {"hole": {}}]).holes
    assert hole.text == "<4>"


SQL = "SELECT a\n    FROM b"
README = "Install it:\n\n```\npip install midfill\n```\n\nThen run it."


@pytest.mark.parametrize(
    ("name", "source", "told", "expected"),
    [
        ("R.md", "# A\n\nTODO\n", "```markdown\nInstall it with pip.\n```", "Install it with pip."),
        ("R.md", "# A\n\nTODO\n", "<think>\nHm.\n</think>\n\nInstall it with pip.", "Install it with pip."),
        ("R.md", "# A\n\nTODO\n", f"```markdown\n{README}\n```", README),
        ("R.md", "# A\n\nTODO\n", f"````\n{README}\n````\n", README),
        ("R.md", "# A\n\nTODO\n", README, README),
        ("s.py", 'q = """\n    TODO\n    """\n', f"Here is the query:\n\n```sql\n{SQL}\n```\n\nIt selects `a`.", SQL),
        ("s.py", 'q = """TODO"""\n', "```\nSELECT a\n```", "SELECT a"),
        ("s.py", "# TODO\nx = 1\n", "```\nread the file\n```", "read the file"),
        ("s.py", 'q = """TODO"""\n', "```\r\nSELECT a\r\n```\r\n", "SELECT a"),
    ],
)
def test_the_fence_that_a_chat_was_asked_for_is_no_part_of_a_text(
    name: str, source: str, told: str, expected: str
) -> None:
    """A file's own text may have fences, which stay."""
    document = Document(source.encode(), "python" if name.endswith(".py") else None, Path(name))
    hole = hole_at_range(document, source.index("TODO"), source.index("TODO") + 4)
    with serve("chat") as server, connect(server) as client:
        server.parts = re.findall(r"[^\n]+|\n", told)
        *_, filled = fill(document, [hole], Options(), client)
    assert isinstance(filled, Filled)
    assert filled.patch.apply(document.data).decode() == source.replace("TODO", expected)


def test_the_fence_of_a_chat_comes_off_between_kept_texts() -> None:
    hole = {"draft": "return x + y", "keep": [[0, 7], [11, 12]]}
    with serve("chat") as server:
        server.parts = ["```python\n", "a - ", "\n```"]
        (filled,) = ask(server, segments=[{"text": "def f():\n    "}, {"hole": hole}, {"text": "\n"}]).holes
    assert filled.text == "return a - y" and filled.anchors == [(0, 7), (11, 12)]


def test_a_chat_that_its_limit_of_tokens_cuts_in_its_fence_gives_a_suggestion() -> None:
    with serve("chat") as server:
        server.is_short, server.parts = True, ["```python\n", "c = a\n", "    return c"]
        filled, _ = fill_in(server, max_tokens=9)
    assert filled.fills[0].text == "c = a\n    return c" and filled.fills[0].cut_at == 9


THOUGHTS = """Okay, the gap is the text behind c
So maybe

```python
a - b
```

but `add` says otherwise
</think>

"""


@pytest.mark.parametrize("thoughts", [f"<think>\n{'hm ' * 600}\n</think>\n\n", THOUGHTS, THOUGHTS.replace("```", "``")])
@pytest.mark.parametrize("form", ["```python\n{}\n```", "{}"])
@pytest.mark.parametrize(("is_body", "piece"), [(True, r"\S+|\s+"), (False, r"\S+|\s+"), (False, r"(?s).+")])
def test_what_a_chat_thinks_aloud_is_neither_its_answer_nor_counted(
    thoughts: str, form: str, is_body: bool, piece: str
) -> None:
    answer = "return a + b" if is_body else "a + b"
    with serve("chat") as server:
        server.parts = re.findall(piece, thoughts + form.format(answer))
        if is_body:
            filled, previews = fill_in(server, repair=False)
            assert filled.fills[0].text == answer
            assert not any(re.search("hm|maybe", preview.holes[0].text) for preview in previews)
        else:
            assert fill_place(server, "def f(a, b):\n    c = @\n    return c\n").splitlines()[1] == f"    c = {answer}"


@pytest.mark.parametrize("ends", [True, False])
def test_thoughts_without_any_mark_before_a_part_of_a_line_are_not_its_text(*, ends: bool) -> None:
    thoughts = "Okay, the gap is the value of c.\nThe name says add; maybe c = a - b?\nBut wait, no.\n\nFinal answer:\n"
    with serve("chat") as server:
        server.parts = re.findall(r"\S+|\s+", f"{thoughts}```python\na + b\n```")
        server.is_short = ends  # so that the answer tells why it ends
        assert fill_place(server, "def f(a, b):\n    c = @\n    return c\n").splitlines()[1] == "    c = a + b"


@pytest.mark.parametrize("form", ["{}", "```\n{}\n```"])
def test_tags_of_thoughts_in_code_are_code(stand_in: StandIn, form: str) -> None:
    for code in (
        'END = "</think>"\n    return END',
        'return x.split("</think>")[-1]',
        'return f"""\n<think>\n{x}\n</think>\n"""',
    ):
        stand_in.parts = re.findall(r"[^\n]+|\n", form.format(code))
        filled, _ = fill_in(stand_in, repair=False)
        assert filled.fills[0].text == code


@pytest.mark.parametrize("opening", ["", "Here is the code:\n", "Sure, I can help!\n\nHere it is:\n\n"])
def test_a_chat_is_not_listened_to_behind_its_fence(opening: str) -> None:
    with serve("chat") as server, connect(server) as client:
        server.parts = [*opening.splitlines(keepends=True), "```python\n", "a + b\n", "```\n", *["More words. "] * 30]
        request = {"segments": [{"text": "x = "}, {"hole": {"indent": ""}}, {"text": "\n"}]}
        *steps, _ = client.infill(InfillRequest.model_validate(request))
    assert len(steps) <= 7


def test_a_chat_that_begins_as_thoughts_do_has_answered_when_it_ends() -> None:
    with serve("chat") as server:
        server.parts = ["Total of rows + more\n", "    Other of rows\n"]
        assert (
            ask(server, segments=[{"text": "a = "}, {"hole": {}}, {"text": "\n"}]).holes[0].text
            == "Total of rows + more"
        )


def test_parts_of_an_answer_that_hold_thoughts_have_no_text() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    contents = [[thought], [{"type": "text", "text": "```\na"}], " + b\n```"]
    lines = [f"data: {json.dumps({'choices': [{'delta': {'content': content}}]})}" for content in contents]
    assert ask_for_lines("chat", lines, is_chunked=True) == "a + b"


WORDS = "which may then have some more words about files and gaps that models fill where they read the text".split()
LIST = "\n".join(f"- {' '.join(WORDS[n % 7 : n % 11 + 7])} {WORDS[-n % 19]} {WORDS[n * n % 17]}." for n in range(60))
BLOCK = "```sh\npip install midfill\n```"
SHOWN = '''text = f"""Run it like this:

    ```sh
    pip install midfill
    ```
    """
    return text'''


@pytest.mark.parametrize(
    "form",
    [
        "```python\n{}\n```\n",
        "```py:a/b.py\n{}\n```",
        '```py title="b"\n{}\n```',
        "````\n{}\n````",
        "~~~\n{}\n~~~",
        "Here it is:\n```\n{}\n```\n\nOk.",
    ],
)
@pytest.mark.parametrize("protocol", ["chat", "openai"])
def test_code_that_has_a_fence_in_it_comes_whole(protocol: str, form: str) -> None:
    with serve(protocol) as server:
        server.parts = form.format(SHOWN).splitlines(keepends=True)
        filled, _ = fill_in(server)
    assert filled.fills[0].text == SHOWN


@pytest.mark.parametrize("block", [BLOCK, BLOCK.replace("sh", "python")])
def test_prose_that_begins_with_a_fence_comes_whole(block: str) -> None:
    told = f"{block}\n\nThen run `midfill`.\n\n{LIST}"
    document = Document(b"# A\n\n\n\n# B\n", None, Path("README.md"))
    with serve("fim") as server, connect(server) as client:
        server.parts = told.splitlines(keepends=True)
        *_, filled = fill(document, [hole_at_range(document, 5, 5)], Options(), client)
    assert isinstance(filled, Filled) and filled.fills[0].text == told


def test_an_engine_is_named_by_protocol_model_and_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_engine("ollama:qwen2.5-coder:1.5b") == Endpoint(
        url="http://127.0.0.1:11434", protocol="ollama", model="qwen2.5-coder:1.5b"
    )
    named = parse_engine("ollama:a:1b@http://box:11434/")
    assert (named.url, named.model, named.remote_host) == ("http://box:11434", "a:1b", "box")
    for host, url in {
        "0.0.0.0": "http://127.0.0.1:11434", "[::]:9": "http://127.0.0.1:9", ":9": "http://127.0.0.1:9",
        "::1": "http://[::1]:11434", "[::1]": "http://[::1]:11434", "[fe80::1]:9": "http://[fe80::1]:9",
        "https://ollama.com": "https://ollama.com", "http://h/ollama/": "http://h/ollama", "gpu:9": "http://gpu:9",
    }.items():  # fmt: skip
        monkeypatch.setenv("OLLAMA_HOST", host)
        assert parse_engine("ollama:a").url == url
    assert parse_engine("llamacpp:http://127.0.0.1:8012") == Endpoint(url="http://127.0.0.1:8012", protocol="llamacpp")
    assert parse_engine("openai:x/y@https://h/v1").url == "https://h"
    assert parse_engine("ollama:m@https://h/x/v1").url == "https://h/x"
    for text, url, model in (
        ("ollama:m@127.0.0.1:8411", "http://127.0.0.1:8411", "m"), ("ollama:a:1b@gpu:9", "http://gpu:9", "a:1b"),
        ("ollama:m@localhost", "http://localhost:11434", "m"), ("ollama:m@[::1]:9/", "http://[::1]:9", "m"),
        ("llamacpp:127.0.0.1", "http://127.0.0.1:8080", ""), ("llamacpp:gpu.lan:8012", "http://gpu.lan:8012", ""),
        ("openai:x/y@box:8000/v1", "http://box:8000", "x/y"), ("fim:c@10.0.0.2:99", "http://10.0.0.2:99", "c"),
        ("ollama:m@sha256:00ff", "http://gpu:9", "m@sha256:00ff"), ("ollama:qwen2.5:7", "http://gpu:9", "qwen2.5:7"),
    ):  # fmt: skip
        assert (parse_engine(text).url, parse_engine(text).model) == (url, model)
    for wrong in ("ollama:m@nowhere", "openai:m@", "ollama:127.0.0.1:11434"):
        with pytest.raises(MidfillError, match="names no (address of an engine|model); write "):
            parse_engine(wrong)
    for wrong in (
        "nosuch:x", "ollama:", "fim:http://h", "fim:model", "llamacpp:ftp://h", "openai:m@http://", "plain",
        "openai:m@http://[::1", "openai:m@http://h:port", "openai:m@http://h:99999",
    ):  # fmt: skip
        with pytest.raises(MidfillError) as error:
            parse_engine(wrong)
        assert error.value.code == "bad_config" and "write " in error.value.sentence


@pytest.mark.parametrize("address", ["https://user:pa55@h/v1", "http://pa55@127.0.0.1:8000"])
def test_an_address_with_a_password_is_neither_stored_nor_shown(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(build_app(), ["config", "engine", f"openai:m@{address}"])
    assert result.exit_code == 2 and "pa55" not in result.output and "MIDFILL_TOKEN" in result.stderr
    assert not config.user_file().exists()
    monkeypatch.setenv("MIDFILL_ENGINE_URL", address)
    with pytest.raises(MidfillError, match="no password") as error:
        named_endpoint()
    assert "pa55" not in error.value.sentence
    monkeypatch.setenv("MIDFILL_ENGINE_URL", address.replace("http", "ftp"))
    with pytest.raises(MidfillError, match="not an http") as error:
        named_endpoint()
    assert "pa55" not in error.value.sentence
    for setting in (f"openai:m@{address}", f"opneai:m@{address}", address, "user:pa55@h"):
        monkeypatch.setenv("MIDFILL_ENGINE", setting)
        for words in (["config"], ["config", "engine"], ["config", "--json"]):
            result = CliRunner().invoke(build_app(), words)
            assert result.exit_code == 0 and "pa55" not in result.output and "***@" in result.output
    with pytest.raises(MidfillError, match="no password"):
        parse_engine("openai:m@user:pa55@127.0.0.1:8000")
    for wrong in ("openai:user:pa55@h", "chat:http://user:pa/55@h", "chat:http://u@pa/55@h"):
        with pytest.raises(MidfillError, match=r"^'(http://)?\*\*\*@h' names no address|no password"):
            parse_engine(wrong)
    assert hide_password("chat:m@http://user:p@ 55@h") == "chat:m@http://***@h"


def test_a_key_goes_to_its_own_service_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", "secret")
    assert parse_engine("fim:c@https://api.mistral.ai").token == "secret"
    assert parse_engine("fim:c@https://mistral.ai.example.org").token is None
    assert parse_engine("fim:c@https://api.example.org").token is None
    assert parse_engine("fim:c@http://api.mistral.ai").token is None, "all on the way could read it"
    assert "secret" not in repr(parse_engine("fim:c@https://api.mistral.ai"))
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    assert parse_engine("openai:c@http://127.0.0.1:8000").token is None


def test_another_engine_is_used_only_where_its_user_named_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named_endpoint() is None
    Path(config.PROJECT_FILE).write_text('engine = "openai:m@https://far.example"\n')
    assert named_endpoint() is None, "a repository does not say where code goes"
    result = CliRunner().invoke(build_app(), ["config"])
    assert result.exit_code == 2 and "which a project may not choose" in result.stderr
    Path(config.PROJECT_FILE).unlink()
    said = CliRunner().invoke(build_app(), ["config", "engine", "openai:m@https://far.example", "--json"])
    assert said.exit_code == 0 and json.loads(said.stdout)["engine"]["value"] == "openai:m@https://far.example"
    assert (
        "code around each hole and parts of related files are sent to far.example; `midfill config context off`"
        in said.stderr
    )
    assert named_endpoint() == Endpoint(url="https://far.example", protocol="openai", model="m")
    assert tell_where("far.example") is None, "it was told"
    assert tell_where("other.example") and not tell_where("other.example") and tell_where("") is None
    assert CliRunner().invoke(build_app(), ["config", "engine", "nosuch:x"]).exit_code == 2
    monkeypatch.setenv("MIDFILL_ENGINE", "llamacpp:http://127.0.0.1:1")
    assert named_endpoint() == Endpoint(url="http://127.0.0.1:1", protocol="llamacpp")


def test_the_doctor_says_that_it_was_not_asked(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDFILL_ENGINE", f"{name_of(stand_in)}:m@{stand_in.url}")
    (finding,) = examine_engine(EngineSettings())
    assert "not asked" in finding.value and "answers" not in finding.value and not stand_in.asked
    said = CliRunner().invoke(build_app(), ["models"]).stdout
    assert said.startswith(f"{name_of(stand_in)} at {stand_in.url} with m fills; `midfill config engine --unset`")


def test_the_doctor_says_that_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDFILL_ENGINE", "llamacpp:http://127.0.0.1:9")
    (finding,) = examine_engine(EngineSettings())
    assert finding.problem.startswith("the engine at http://127.0.0.1:9 is not running; start it")
    monkeypatch.setenv("MIDFILL_ENGINE", "llamacpp:http://engine.invalid:9")
    (finding,) = examine_engine(EngineSettings())
    assert "not asked" in finding.value and not finding.problem, "no other machine is contacted before a fill"


def test_the_doctor_finds_servers_of_this_machine_and_offers_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve("ollama") as server:
        ports = (server.server_port,), {server.server_port: "LM Studio"}
        monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{server.server_port}")
        server.pages["/api/tags"] = {"models": [{"name": "qwen2.5-coder:1.5b", "model": "qwen2.5-coder:1.5b"}]}
        server.pages["/props"] = {"default_generation_settings": {}, "model_path": "/m/smol.gguf"}
        server.pages["/v1/models"] = {"data": [{"id": "a/b"}, {"id": "midfill-embedded", "owned_by": "midfill"}]}
        told = [finding.value for finding in find_others(find_servers(*ports))]
        assert not any(finding.problem for finding in find_others(find_servers(*ports)))
        assert [value.partition(";")[2] for value in told] == [
            " to fill with it: `midfill config engine ollama:qwen2.5-coder:1.5b`",
            f" to fill with it: `midfill config engine llamacpp:{server.url}`",
            f" to fill with it: `midfill config engine openai:a/b@{server.url}`",
        ]
        assert "llama.cpp with smol.gguf" in told[1]
        assert config.load()["engine"].value is None and not server.asked, "nothing is used unasked"
        for line in told:
            assert parse_engine(line.split("`")[1].removeprefix("midfill config engine ")).protocol in PROTOCOLS
        server.pages.clear()
        assert list(find_others(find_servers(*ports))) == []
        server.pages |= {"/api/tags": {"models": True}, "/v1/models": {"data": 3}, "/props": []}
        assert list(find_others(find_servers(*ports))) == []
        for wrong in ("127.0.0.1:port", "http://[::1", "[::1]:9"):
            monkeypatch.setenv("OLLAMA_HOST", wrong)
            assert list(find_others(find_servers((), {}))) == []


def test_the_command_fills_with_it(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.parts = ["return a", " + b\n"]
    Path("t.py").write_bytes(ADD)
    monkeypatch.setenv("MIDFILL_ENGINE", f"{name_of(stand_in)}:m@{stand_in.url}")
    result = CliRunner().invoke(build_app(), ["fill", "t.py", "--json"])
    report = json.loads(result.stdout)
    assert (report["model"], report["holes"][0]["text"]) == (f"{name_of(stand_in)}:m", "return a + b")
    written = CliRunner().invoke(build_app(), ["fill", "t.py", "--write", "-n", "2"])
    assert written.exit_code == 0 and Path("t.py").read_bytes() == b"def add(a, b):\n    return a + b\n"


SHOP = {
    "shop/invoice.py": "def parse_invoice(path):\n    return Invoice.read(path)\n",
    "shop/__init__.py": "",
    "shop/total.py": "from shop.invoice import parse_invoice\n\n\ndef total(path):\n    ...\n\n\nlater()\n",
}
INVOICE = "def parse_invoice(path):\n    return Invoice.read(path)"
COMMENTS = "# shop/invoice.py\n# def parse_invoice(path):\n#     return Invoice.read(path)\n\n"


def lay_out(files: dict[str, str], name: str = "tills") -> Path:
    """A repository of that name with these files, beside the others of the test."""
    root = Path.cwd().parent / name
    (root / ".git").mkdir(parents=True)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def fill_file(
    server: StandIn, path: Path, model: str = "m", context_tokens: int | None = None, **options: Any
) -> dict[str, Any]:
    """What the server is asked first for the stubs or the last line of a file."""
    document = Document.read(path)
    stubs = find_stubs(document) if document.syntax else []
    holes = stubs or [hole_at_range(document, len(document.data), len(document.data))]
    endpoint = Endpoint(url=server.url, protocol=name_of(server), model=model, context_tokens=context_tokens)
    with EngineClient(endpoint) as client:
        options = {"references": find_references(document, document.path), **options}
        list(fill(document, holes, Options(repair=False, **options), client))
    return server.asked[0]


BEFORE_BODY = SHOP["shop/total.py"].partition("...")[0]
BEHIND_BODY = SHOP["shop/total.py"].partition("...")[2]
QWEN = (
    f"<|repo_name|>tills\n<|file_sep|>shop/invoice.py\n{INVOICE}\n<|file_sep|>shop/total.py\n"
    f"<|fim_prefix|>{BEFORE_BODY}<|fim_suffix|>{BEHIND_BODY}<|fim_middle|>"
)
STARCODER2 = (
    f"<repo_name>tills<file_sep>shop/invoice.py\n{INVOICE}\n<file_sep>"
    f"<fim_prefix>shop/total.py\n{BEFORE_BODY}<fim_suffix>{BEHIND_BODY}<fim_middle>"
)
CODESTRAL = f"+++++ shop/invoice.py\n{INVOICE}\n\n+++++ shop/total.py\n{BEFORE_BODY}"
DEEPSEEK = f"#shop/invoice.py\n{INVOICE}\n#shop/total.py\n{BEFORE_BODY}"


@pytest.mark.parametrize(
    ("protocol", "model", "sent"),
    [
        ("llamacpp", "", {"path": "/infill", "input_prefix": BEFORE_BODY, "input_suffix": BEHIND_BODY,
                          "input_extra": [{"filename": "shop/invoice.py", "text": INVOICE}]}),
        ("ollama", "qwen2.5-coder:1.5b", {"path": "/api/generate", "raw": True, "prompt": QWEN}),
        ("ollama", "starcoder2:3b", {"raw": True, "prompt": STARCODER2}),
        ("ollama", "codestral", {"prompt": CODESTRAL, "suffix": BEHIND_BODY}),
        ("ollama", "llama3.2", {"prompt": COMMENTS + BEFORE_BODY, "suffix": BEHIND_BODY}),
        ("openai", "Qwen/Qwen3-Coder-30B-A3B-Instruct", {"prompt": QWEN}),
        ("openai", "bigcode/starcoder2-7b", {"prompt": STARCODER2}),
        ("openai", "bigcode/starcoderbase",
         {"prompt": f"<fim_prefix>{COMMENTS}{BEFORE_BODY}<fim_suffix>{BEHIND_BODY}<fim_middle>"}),
        ("openai", "granite-8b-code-fim",
         {"prompt": f"<|fim_prefix|>{COMMENTS}{BEFORE_BODY}<|fim_suffix|>{BEHIND_BODY}<|fim_middle|>"}),
        ("openai", "ByteDance-Seed/Seed-Coder-8B-Base",
         {"prompt": f"<[fim-suffix]>{BEHIND_BODY}<[fim-prefix]>{COMMENTS}{BEFORE_BODY}<[fim-middle]>"}),
        ("openai", "mistralai/Codestral-22B-v0.1", {"prompt": f"[SUFFIX]{BEHIND_BODY}[PREFIX]{CODESTRAL}"}),
        ("openai", "deepseek-coder-6.7b",
         {"prompt": f"<｜fim▁begin｜>{DEEPSEEK}<｜fim▁hole｜>{BEHIND_BODY}<｜fim▁end｜>"}),
        ("openai", "m", {"prompt": COMMENTS + BEFORE_BODY, "suffix": BEHIND_BODY}),
        ("fim", "codestral-latest", {"prompt": CODESTRAL, "suffix": BEHIND_BODY}),
        ("fim", "mercury-coder", {"prompt": COMMENTS + BEFORE_BODY, "suffix": BEHIND_BODY}),
    ],
)  # fmt: skip
def test_parts_of_related_files_go_as_the_door_and_the_model_take_them(
    protocol: str, model: str, sent: dict[str, Any]
) -> None:
    root = lay_out(SHOP)
    with serve(protocol) as server:
        asked = fill_file(server, root / "shop/total.py", model)
    assert {key: asked.get(key) for key in sent} == sent
    assert ("suffix" in asked) == ("suffix" in sent) and str(root) not in str(asked)
    if protocol == "llamacpp":  # Midfill's own door takes the same shape
        extra = LlamaInfillRequest.model_validate(asked).input_extra
        assert [each.model_dump() for each in extra] == [{"filename": "shop/invoice.py", "text": INVOICE}]
    stops = asked.get("stop") or asked.get("options", {}).get("stop") or []
    if "<|file_sep|>" in str(sent):
        assert {"<|file_sep|>", "<|repo_name|>"} <= set(stops)


@pytest.mark.parametrize(
    ("own", "other", "shown"),
    [
        ("total.ts", "invoice.ts", "// invoice.ts\n// function parseInvoice(path) {\n//   return open(path);\n"),
        ("total.go", "invoice.go", "// invoice.go\n// package till\n//\n// func parseInvoice(path string) int\n"),
        ("total.txt", "invoice.txt", "# invoice.txt\n# parseInvoice opens the path\n"),
    ],
)  # fmt: skip
def test_comments_are_those_of_the_language(own: str, other: str, shown: str) -> None:
    mark = "#" if own.endswith("txt") else "//"
    bare = "".join(line.removeprefix(f"{mark} ").replace(mark, "") for line in shown.splitlines(True)[1:])
    root = lay_out({other: bare, own: "parseInvoice(path)\nopen(path)\n\n"})
    with serve("fim") as server:
        prompt = fill_file(server, root / own, references=(Reference("open", bare, root / other),))["prompt"]
    assert prompt.startswith(shown) and prompt.endswith("\n\nparseInvoice(path)\nopen(path)\n\n")


def test_a_model_that_only_continues_text_gets_related_files_as_comments() -> None:
    root = lay_out(SHOP)
    with serve("llamacpp") as server:
        server.refuse = lambda body: (501, {"error": {"message": "no"}}) if body["path"] == "/infill" else None
        fill_file(server, root / "shop/total.py", "")
        assert server.asked[1]["prompt"] == (COMMENTS + BEFORE_BODY).removesuffix(" ")


@pytest.mark.parametrize("protocol", [*PROTOCOLS])
def test_files_with_secrets_and_ignored_ones_never_go(protocol: str) -> None:
    hidden = {f"shop/{name}": "def parse_invoice(path): return 'hunter2'\n" for name in ("secret.py", "own.py")}
    root = lay_out(SHOP | hidden | {".gitignore": "own.py\n", "shop/.env": "parse_invoice = hunter2\n"})
    with serve(protocol) as server:
        fill_file(server, root / "shop/total.py")
        assert "Invoice.read" in str(server.asked) and "hunter2" not in str(server.asked)


@pytest.mark.parametrize("protocol", [*PROTOCOLS])
def test_context_off_sends_the_open_file_alone(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = lay_out(SHOP)
    with serve(protocol) as server:
        monkeypatch.setenv("MIDFILL_ENGINE", f"{protocol}:qwen2.5-coder@{server.url}")
        monkeypatch.chdir(root)
        for setting, is_sent in (("on", True), ("off", False)):
            assert CliRunner().invoke(build_app(), ["config", "context", setting]).exit_code == 0
            CliRunner().invoke(build_app(), ["fill", "shop/total.py", "--json"])
            assert server.asked and ("Invoice.read" in str(server.asked)) == is_sent
            assert is_sent or not any(mark in str(server.asked) for mark in ("invoice.py", "input_extra", "tills"))
            server.asked.clear()


@pytest.mark.parametrize("protocol", [*PROTOCOLS])
@pytest.mark.parametrize("model", ["m", "qwen2.5-coder", "starcoder2", "codestral"])
def test_markers_in_other_files_are_text(protocol: str, model: str) -> None:
    marks = "".join(f"# {mark}\n" for mark in find_dialect(model).markers or ("<|fim_prefix|>",))
    root = lay_out(SHOP | {"shop/invoice.py": f"def parse_invoice(path):\n{marks}    return path\n"})
    with serve(protocol) as server:
        asked = fill_file(server, root / "shop/total.py", model)
    prompt = asked["messages"][-1]["content"] if protocol == "chat" else str(asked.get("prompt"))
    lines = [line.lstrip("# ") for line in prompt.splitlines() if line.lstrip("# ")[1:2] == "\u2060"]
    if protocol in ("llamacpp", "fim"):  # their servers read these texts without special tokens
        assert "\u2060" not in json.dumps(asked, ensure_ascii=False)
    else:
        assert "".join(f"# {line}\n" for line in lines).replace("\u2060", "") == marks


def test_markers_in_names_are_text() -> None:
    root = lay_out(SHOP, "a<|file_sep|>b")
    with serve("openai") as server:
        prompt = fill_file(server, root / "shop/total.py", "qwen2.5-coder")["prompt"]
    assert prompt.startswith("<|repo_name|>a<\u2060|file_sep|>b\n") and prompt.count("<|file_sep|>") == 2


LIMITS: dict[str, Callable[[int], tuple[str, Any]]] = {
    "llamacpp": lambda limit: ("/props", {"default_generation_settings": {"n_ctx": limit}, "total_slots": 1}),
    "ollama": lambda limit: ("/api/show", {"model_info": {"general.type": "model", "qwen2.context_length": limit}}),
    "openai": lambda limit: ("/v1/models", {"data": [{"id": "other"}, {"id": "m", "max_model_len": limit}]}),
}  # fmt: skip


@pytest.mark.parametrize("protocol", [*LIMITS])
def test_no_more_goes_than_the_engine_takes_and_related_files_are_a_quarter_of_it(protocol: str) -> None:
    above = "".join(f"spoken_{number} = parse_invoice({number})\n" for number in range(2000, 3000))
    other = "".join(f"parse_invoice({number})\n" for number in range(200))
    root = lay_out({"a.py": f"{above}\ndef total(path):\n    ...\n", "b.py": other})
    related = (Reference("open", other, root / "b.py"),)

    def fill_with(limit: int | None, wanted: int | None = None) -> tuple[int, int, dict[str, Any]]:
        """The lines of the document and of the other file that are sent."""
        with serve(protocol) as server:
            if limit is not None:
                path, page = LIMITS[protocol](limit)
                server.pages[path] = page
            asked = fill_file(server, root / "a.py", references=related, context_tokens=wanted)
            own, named = (str(asked).count(word) for word in ("spoken_", "parse_invoice"))
            assert len(server.looked_up) == 1, "asked once"
            return own, named - own, asked

    unknown, small, large = fill_with(None), fill_with(1500), fill_with(32768)
    length, other_length = len("spoken_2000 = parse_invoice(2000)\n"), len("parse_invoice(1)\n")
    for (own, named, _), window in ((unknown, 3072), (small, 750)):
        assert 0.7 * window * 3 < own * length < window * 3 - named * other_length
        assert 0.1 * window * 3 < named * other_length < 0.25 * window * 3
    assert large[:2] == unknown[:2]
    wanted = fill_with(None, 6000), fill_with(1500, 6000), fill_with(32768, 6000), fill_with(32768, 12000)
    assert wanted[0][:2] == wanted[2][:2] and wanted[1][:2] == small[:2]
    for (own, named, _), window in ((wanted[0], 6000), (wanted[3], 12000)):
        assert 0.7 * window * 3 < own * length < window * 3 - named * other_length or own == 1000
        assert unknown[1] < named
    if protocol == "ollama":  # the same number for a setting: it loads a model anew for another
        asked = [each[2]["options"].get("num_ctx") for each in (unknown, small, large, *wanted)]
        assert asked == [None, 1500, 8192, None, 1500, 8192, 12000 + 1024]


@pytest.mark.parametrize("limit", [4096, 8192])
def test_a_chat_has_room_for_its_thoughts_and_its_answer(limit: int) -> None:
    root = lay_out({"a.py": f"{'x = 1  # and more words' * 9}\n" * 999 + "def total(path):\n    ...\n"})
    with serve("chat") as server:
        server.pages["/v1/models"] = {"data": [{"id": "m", "max_model_len": limit}]}
        asked = fill_file(server, root / "a.py")
    assert limit * 0.9 < len(asked["messages"][-1]["content"]) / 3 + asked["max_tokens"] <= limit


@pytest.mark.parametrize("protocol", [*LIMITS])
def test_a_character_of_several_bytes_counts_as_a_token(protocol: str) -> None:
    root = lay_out({"a.py": "# 每一行都是中文的注释\n" * 999 + "def total(path):\n    ...\n"})
    with serve(protocol) as server:
        path, server.pages[path] = LIMITS[protocol](4096)
        asked = fill_file(server, root / "a.py")
    assert 2000 < len(asked.get("prompt") or asked["input_prefix"]) <= 3072 * 1.4


@pytest.mark.parametrize("protocol", [*LIMITS])
@pytest.mark.parametrize("page", [{}, [], {"data": 3, "model_info": 3, "default_generation_settings": None}, "x"])
def test_a_limit_that_cannot_be_read_is_no_error(protocol: str, page: Any) -> None:
    root = lay_out(SHOP)
    with serve(protocol) as server:
        server.pages[LIMITS[protocol](1)[0]] = page
        assert "Invoice.read" in str(fill_file(server, root / "shop/total.py"))


def test_what_a_model_file_sets_stays() -> None:
    root = lay_out(SHOP)
    with serve("ollama") as server:
        server.pages["/api/show"] = {"parameters": 'stop   "<|x|>"\nnum_ctx    2048\n', "model_info": {}}
        assert fill_file(server, root / "shop/total.py")["options"]["num_ctx"] == 2048


def test_without_a_repository_no_folder_is_named() -> None:
    folder = Path.cwd().parent / "alice"
    folder.mkdir()
    for name, text in SHOP.items():
        (folder / Path(name).name).write_text(text)
    with serve("openai") as server:
        related = (Reference("open", SHOP["shop/invoice.py"]),)
        prompt = fill_file(server, folder / "total.py", "qwen2.5-coder", references=related)["prompt"]
    assert prompt.startswith(f"<|repo_name|>project\n<|file_sep|>untitled.py\n{INVOICE}\n<|file_sep|>total.py\n")
    assert "alice" not in prompt


def test_a_repair_asks_for_one_text_after_the_other_until_one_has_no_fault(stand_in: StandIn) -> None:
    texts = ["return ((", "return [", "return 1", "return 2"]

    def choose(_: dict[str, Any]) -> None:
        stand_in.parts = [texts[min(len(stand_in.asked), len(texts)) - 1]]

    stand_in.refuse = choose
    document = Document(b"def f():\n    ...\n", "python", Path("t.py"))
    with connect(stand_in) as client:
        *_, filled = fill(document, find_stubs(document), Options(proposers=()), client)
    assert isinstance(filled, Filled) and [each.text for each in filled.fills] == ["return 1"]
    assert len(stand_in.asked) == 3
    seeds = [str(body.get("seed", body.get("random_seed", body.get("options")))) for body in stand_in.asked]
    assert len(set(seeds)) == 3
