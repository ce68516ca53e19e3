"""The order of trust: no new syntax error, then neither blank nor idle, then the engine's own order."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.fake_engine import Plan, read_record

from midfill_infill.engines.client import EngineClient
from midfill_infill.filling import candidates
from midfill_infill.filling.candidates import MAX_TRIED, MIN_WHOLE
from midfill_infill.filling.fill import Filled, Options, Preview, fill, propose_fill
from midfill_infill.filling.written import Written
from midfill_infill.proposals import Proposal
from midfill_infill.splicing.splice import Sieve, Splicer
from midfill_infill.syntax.holes import body_named, find_stubs, hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

ALONE = Options(proposers=())
Start = Callable[[Plan], EngineClient]
SOURCE = "import os\n\n\ndef load(path, rows):\n    <1>\n    for row in rows:\n        <2>\n    return path\n"


def make(source: str = SOURCE, language: str = "python") -> tuple[Document, list[Hole]]:
    """A document whose lines of `<`, a digit and `>` are holes."""
    document = Document(source.encode(), language)
    starts = [source.index(mark) for mark in ("<1>", "<2>") if mark in source]
    return document, [hole_at_range(document, start, start + 3) for start in starts]


def settle(client: EngineClient, case: tuple[Document, Sequence[Hole]], options: Options | None = None) -> Filled:
    *_, filled = fill(case[0], case[1], options or ALONE, client)
    assert not isinstance(filled, Preview)
    return filled


def one(source: str = SOURCE) -> tuple[Document, list[Hole]]:
    return make(source.replace("<2>", "print(row)"))


def test_the_likeliest_text_wins_where_it_is_sound(engine_client: Start) -> None:
    plan = Plan(rows=[["rows = list(rows)"]], compared=[[("path = os.path.join(path)", 0.99)]], certainty=0.2)
    filled = settle(engine_client(plan), one())
    assert [hole.text for hole in filled.fills] == ["rows = list(rows)"]
    assert filled.best.certainty == 0.2 and filled.fills[0].certainty == 0.2


def test_the_next_likely_text_that_parses_comes_before_a_repair(engine_client: Start, tmp_path: Path) -> None:
    record = tmp_path / "record"
    others = [("path = (rows", 0.3), ("rows = list(path)", 0.5), ("path = len(rows)", 0.6)]
    filled = settle(
        engine_client(Plan(rows=[["rows = ("]], compared=[others], certainty=0.7, record=str(record))), one()
    )
    assert filled.fills[0].text == "rows = list(path)" and filled.new_errors == 0
    assert filled.fills[0].certainty == filled.best.certainty == 0.5
    assert "".join(filled.fills[0].text[slice(*token)] for token in filled.fills[0].tokens) == "rows = list(path)"
    assert len(read_record(record)) == 1, "nothing had to be repaired"


def test_a_blank_fill_gives_way(engine_client: Start) -> None:
    plan = Plan(rows=[["  "]], compared=[[("", 0.9), ("path = rows", 0.2)]], certainty=0.8)
    filled = settle(engine_client(plan), one())
    assert filled.fills[0].text == "path = rows" and filled.best.certainty == 0.2
    assert settle(engine_client(Plan(rows=[[""]], compared=[[("(", 0.9)]])), one()).fills[0].text == ""


def test_where_nothing_parses_it_is_repaired_as_ever(engine_client: Start, tmp_path: Path) -> None:
    record = tmp_path / "record"
    plan = Plan(rows=[["rows = ("]], compared=[[("path = (", 0.6)]], repaired=[["rows = path"]], record=str(record))
    filled = settle(engine_client(plan), one())
    assert filled.fills[0].text == "rows = path" and filled.new_errors == 0 and len(read_record(record)) == 2


SIBLINGS = "import os\n\n\ndef ends(path):\n    return path.endswith('a')\n\n\ndef other(path):\n    ...\n"


@pytest.mark.parametrize("text", [
    "return os.path.isfile(path)", "return os.stat(path).st_size", "return nowhere(path).unknown",
    "from pathlib import Path\n    return Path(path).read_text().splitlines()",
])  # fmt: skip
@pytest.mark.parametrize("certainty", [None, 0.01])
def test_a_fill_is_not_replaced_because_of_its_names(engine_client: Start, text: str, certainty: float | None) -> None:
    document = Document(SIBLINGS.encode(), "python")
    compared = [[("return path.endswith('a')", 0.9)]] if certainty else []
    client = engine_client(Plan(rows=[[text]], compared=compared, certainty=certainty))
    filled = settle(client, (document, list(find_stubs(document))), Options())
    assert (filled.fills[0].text, filled.fills[0].origin) == (text, "drafted")


def test_a_body_may_stay_as_it_is(engine_client: Start) -> None:
    document = Document(SIBLINGS.encode(), "python")
    hole = body_named(document, "ends")
    filled = settle(engine_client(Plan(rows=[["return path.endswith('a')"]])), (document, [hole]), Options())
    assert filled.patch.apply(document.data) == document.data and not any(filled.best.faults)


def test_several_holes_are_settled_in_turn(engine_client: Start) -> None:
    good = [("path = rows", 0.9)], [("print(", 0.8), ("print(row)", 0.7)]
    filled = settle(
        engine_client(Plan(rows=[["rows = (", "print(row"]], compared=[list(some) for some in good])), make()
    )
    assert [hole.text for hole in filled.fills] == ["path = rows", "print(row)"] and filled.new_errors == 0
    plan = Plan(rows=[["rows = path", "print(row"]], compared=[list(some) for some in good])
    assert [hole.text for hole in settle(engine_client(plan), make()).fills] == ["rows = path", "print(row)"]


@pytest.mark.parametrize("num_holes", [1, 2])
def test_the_number_of_texts_that_are_tried_is_bounded(
    engine_client: Start, record_calls: Callable[..., list[Any]], num_holes: int
) -> None:
    bad = [[(f"rows = ({number}", 1 - number / 1000) for number in range(200)]] * num_holes
    tried, judged = record_calls(candidates.CandidateSelector, "splice"), record_calls(Sieve, "count_errors")
    case = one() if num_holes == 1 else make()
    filled = settle(
        engine_client(Plan(rows=[["rows = ("] * num_holes], compared=bad)), case, replace(ALONE, repair=False)
    )
    assert filled.new_errors and 1 < len(tried) <= MIN_WHOLE * num_holes + 1
    assert len(judged) <= MAX_TRIED


@pytest.fixture
def propose_only(set_proposals: Callable[..., None]) -> Callable[..., None]:
    return lambda *proposals: set_proposals(*(Proposal(text, certainty, "somebody's") for text, certainty in proposals))


def test_what_proposers_say_is_sent_and_named_in_the_answer(
    engine_client: Start, tmp_path: Path, propose_only: Callable[..., None]
) -> None:
    propose_only(("rows = list(path)", 0.4), ("x" * 20_000, 0.3))
    record = tmp_path / "record"
    compared = [[("rows = path", 0.6), ("rows = list(path)", 0.5)]]
    client = engine_client(Plan(rows=[["rows = ("]], compared=compared, record=str(record)))
    filled = settle(client, one(), Options(n=3))
    best, other = filled.best.fills[0], filled.alternatives[0].fills[0]
    assert (best.text, best.origin, best.certainty) == ("rows = path", "drafted", 0.6)
    assert (other.text, other.origin, other.certainty) == ("rows = list(path)", "somebody's", 0.5)
    (sent,) = [segment["hole"] for segment in read_record(record)[0]["request"]["segments"] if "hole" in segment]
    assert sent["candidates"] == [{"text": "rows = list(path)", "certainty": 0.4}]


def test_where_tokens_are_counted_the_engine_alone_says_which_proposals_fit(
    engine_client: Start, tmp_path: Path, propose_only: Callable[..., None]
) -> None:
    propose_only(("rows = list(path)", 0.9), ("rows = sorted(path)", 0.8))
    record = tmp_path / "record"
    compared = [[("rows = path", 0.6), ("rows = list(path)", 0.5)]]
    client = engine_client(Plan(rows=[["rows = path"]], compared=compared, record=str(record)))
    filled = settle(client, one(), Options(n=4, max_tokens=9))
    texts = [each.fills[0].text for each in (filled.best, *filled.alternatives)]
    assert texts == ["rows = path", "rows = list(path)"], "the longer one was left out"
    (sent,) = [segment["hole"] for segment in read_record(record)[0]["request"]["segments"] if "hole" in segment]
    assert [each["text"] for each in sent["candidates"]] == ["rows = list(path)", "rows = sorted(path)"]


def test_the_first_sound_proposal_is_there_before_an_engine(
    monkeypatch: pytest.MonkeyPatch, propose_only: Callable[..., None]
) -> None:
    propose_only(("rows = (", 0.9), ("rows = list(path)", 0.4))
    found = propose_fill(*make(), Options())
    assert found and [(each.text, each.certainty) for each in found.fills] == [("rows = list(path)", 0.4)] * 2
    shown = Preview.of(found, 0, None)
    assert [each.text for each in shown.holes] == ["rows = list(path)"] * 2 and not shown.is_chosen
    assert propose_fill(*make(), Options(max_tokens=99)) is None, "only an engine counts tokens"
    monkeypatch.setattr("midfill_infill.filling.fill.MAX_PROPOSED", 1)
    assert propose_fill(*make(), Options()) is None and propose_fill(*one(), Options())
    propose_only(("rows = (", 0.9))
    assert propose_fill(*one(), Options()) is None, "a fault is not shown"
    propose_only()
    assert propose_fill(*one(), Options()) is None


def test_a_proposal_that_only_a_fill_of_midfill_supports_comes_behind_others(propose_only: Callable[..., None]) -> None:
    propose_only(("rows = list(path)", 0.9), ("rows = sorted(path)", 0.4))
    found = propose_fill(*one(), Options(written=Written.of(["rows = list(path)"])))
    assert found and [(each.text, each.certainty) for each in found.fills] == [("rows = sorted(path)", 0.4)]


def test_a_proposal_that_the_engine_ranks_first_wins(engine_client: Start, propose_only: Callable[..., None]) -> None:
    propose_only(("rows = list(path)", 0.4))
    compared = [[("rows = list(path)", 0.9), ("rows = path", 0.1)]]
    filled = settle(engine_client(Plan(rows=[["rows = list(path)"]], compared=compared)), one(), Options(n=2))
    texts = [each.fills[0].text for each in (filled.best, *filled.alternatives)]
    assert texts == ["rows = list(path)", "rows = path"]


@pytest.mark.parametrize("certainty", [None, 0.5, 0.01])
def test_a_proposal_never_replaces_a_sound_text(
    engine_client: Start, propose_only: Callable[..., None], certainty: float | None
) -> None:
    propose_only(("rows = list(path)", 0.9))
    client = engine_client(Plan(rows=[["rows = path"]], certainty=certainty))
    filled = settle(client, one(), Options(n=2))
    assert [each.fills[0].text for each in (filled.best, *filled.alternatives)] == ["rows = path", "rows = list(path)"]


def test_an_engine_gets_a_second_try_before_a_proposal(
    engine_client: Start, propose_only: Callable[..., None], tmp_path: Path
) -> None:
    propose_only(("rows = list(path)", 0.9))
    record = tmp_path / "record"
    plan = Plan(rows=[["rows = ("]], repaired=[["rows = sorted(rows)"]], record=str(record))
    filled = settle(engine_client(plan), one(), Options())
    assert (filled.fills[0].text, filled.fills[0].origin) == ("rows = sorted(rows)", "drafted")
    assert len(read_record(record)) == 2
    filled = settle(engine_client(Plan(rows=[["rows = ("]], repaired=[["rows = ["]])), one(), Options())
    assert filled.fills[0].text == "rows = list(path)" and filled.fills[0].origin != "drafted"
    filled = settle(engine_client(Plan(rows=[["rows = list(rows)"]])), one(), Options())
    assert (filled.fills[0].text, filled.fills[0].origin) == ("rows = list(rows)", "drafted")


def test_of_texts_with_equal_faults_the_likeliest_stays(engine_client: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Splicer, "find_sieve", lambda *_: None)  # where no function tells them apart
    compared = [[("rows = [", 0.1), ("rows = {", 0.2)]]
    filled = settle(engine_client(Plan(rows=[["rows = ("]], compared=compared)), one(), replace(ALONE, repair=False))
    assert filled.fills[0].text == "rows = (" and filled.best.new_errors


def test_a_placeholder_of_the_engine_gives_way_to_a_likely_proposal_alone(
    engine_client: Start, propose_only: Callable[..., None]
) -> None:
    document = Document(SIBLINGS.encode(), "python")
    for certainty, expected in ((0.4, "raise NotImplementedError"), (0.6, "return len(path)")):
        propose_only(("return len(path)", certainty))
        client = engine_client(Plan(rows=[["raise NotImplementedError"]]))
        filled = settle(client, (document, list(find_stubs(document))), Options())
        assert filled.fills[0].text == expected


def test_a_single_line_takes_no_proposal_of_two(engine_client: Start, propose_only: Callable[..., None]) -> None:
    propose_only(("path = rows\n    rows = path", 0.9), ("rows = path", 0.5))
    assert (
        settle(engine_client(Plan(rows=[["rows = ("]])), one(), Options(single_line=True)).fills[0].text
        == "rows = path"
    )


BODY = "class A:\n    def total(self, rows):\n        pass\n\n    def count(self, rows):\n        return len(rows)\n"


def test_idle_and_repeated_fills_are_no_alternatives(engine_client: Start) -> None:
    document = Document(BODY.encode(), "python")
    holes = list(find_stubs(document))
    rows = [["return self.total(rows)"], ["raise NotImplementedError"], ["return sum(rows)"], ["return sum(rows)"]]
    filled = settle(engine_client(Plan(rows=rows)), (document, holes), replace(ALONE, n=4))
    assert [each.fills[0].text for each in (filled.best, *filled.alternatives)] == ["return sum(rows)"]
    compared = [[("return len(rows)", 0.4)]]
    filled = settle(engine_client(Plan(rows=rows[:2], compared=compared)), (document, holes), replace(ALONE, n=2))
    assert [each.fills[0].text for each in (filled.best, *filled.alternatives)] == ["return len(rows)"]
    alone = Document(BODY.partition("    def count")[0].encode(), "python")
    filled = settle(
        engine_client(Plan(rows=rows[:2], alone=rows[:2])), (alone, list(find_stubs(alone))), replace(ALONE, n=2)
    )
    assert filled.best.is_idle and not filled.alternatives
