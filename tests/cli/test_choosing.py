"""What the parser and names decide: the likeliest text unless it has a fault that another has not."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.fake_engine import Plan, read_record

from midfill_infill import candidates
from midfill_infill.candidates import MAX_TRIED, MIN_WHOLE
from midfill_infill.context.references import Reference
from midfill_infill.engines.client import EngineClient
from midfill_infill.fill import Filled, Options, Preview, fill, propose_fill
from midfill_infill.proposals import Proposal
from midfill_infill.splicing.splice import Sieve
from midfill_infill.syntax.holes import find_stubs, hole_at_range
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


@pytest.mark.parametrize("unseen", ["rows = zlib.open(path)", "rows = path.unknown", "nowhere(rows)", "rows = a + b"])
def test_a_name_that_is_nowhere_counts_against_a_fill(engine_client: Start, unseen: str) -> None:
    filled = settle(
        engine_client(Plan(rows=[[unseen]], compared=[[("rows = os.scandir", 0.5), ("path = rows", 0.4)]])), one()
    )
    assert filled.fills[0].text == "path = rows"
    filled = settle(engine_client(Plan(rows=[[unseen], ["path = rows"]])), one(), replace(ALONE, n=2))
    assert filled.fills[0].text == "path = rows"
    filled = settle(engine_client(Plan(rows=[[unseen]], compared=[[("rows = (", 0.9)]])), one())
    assert filled.fills[0].text == unseen, "an error is worse"


@pytest.mark.parametrize("seen", [
    "fresh = [each for each in rows if len(each)]", "def inner(new): return new", "with open(path) as f: rows = f",
    "from json import load as read", "rows = path.strip().split()", "print(rows, end='')", "rows = lambda x, *y: x",
    "try: fresh = 1\n    except OSError as error: print(error)",
])  # fmt: skip
def test_what_a_fill_binds_itself_and_what_is_built_in_is_in_sight(engine_client: Start, seen: str) -> None:
    assert settle(engine_client(Plan(rows=[[seen]])), one()).best.num_unseen == 0


def test_references_are_in_sight_and_what_a_hole_held_is_not(engine_client: Start) -> None:
    source = SOURCE.replace("<2>", "print(row)").replace("<1>", "old")
    document = Document(source.encode(), "python")
    start = source.index("old")
    case = document, [hole_at_range(document, start, start + 3)]
    plan = Plan(rows=[["rows = helper(old)"]], compared=[[("path = rows", 0.5)]])
    assert settle(engine_client(plan), case).fills[0].text == "path = rows"
    other = Reference(kind="open", text="def helper(): ...\nold = 1\n")
    assert settle(engine_client(plan), case, replace(ALONE, references=(other,))).fills[0].text == "rows = helper(old)"
    part = Reference(kind="open", text="def helpers(): ...\nmy_old = old_one = 1\n")
    assert settle(engine_client(plan), case, replace(ALONE, references=(part,))).fills[0].text == "path = rows"


def test_scripts_have_names_too_and_other_languages_no_list(engine_client: Start) -> None:
    source = "import { rows } from './x'\nfunction f(path) {\n  <1>\n  return path\n}\n"
    for text, expected in (
        ("rows.map((one) => one.trim())", 0),
        ("const a = { key: rows }; a.key", 0),
        ("zip(rows)", 1),
    ):
        assert settle(engine_client(Plan(rows=[[text]])), make(source, "javascript")).best.num_unseen == expected
    go = "package a\n\nfunc f() int {\n\t<1>\n}\n"
    assert settle(engine_client(Plan(rows=[["return nowhere()"]])), make(go, "go")).best.num_unseen == 0


def test_several_holes_are_settled_in_turn(engine_client: Start) -> None:
    good = [("path = rows", 0.9)], [("print(", 0.8), ("print(row)", 0.7)]
    filled = settle(
        engine_client(Plan(rows=[["rows = (", "print(row"]], compared=[list(some) for some in good])), make()
    )
    assert [hole.text for hole in filled.fills] == ["path = rows", "print(row)"] and filled.new_errors == 0
    plan = Plan(rows=[["rows = path", "print(row"]], compared=[list(some) for some in good])
    assert [hole.text for hole in settle(engine_client(plan), make()).fills] == ["rows = path", "print(row)"]


@pytest.mark.parametrize("num_holes", [1, 2])
def test_so_many_are_tried_at_most(engine_client: Start, monkeypatch: pytest.MonkeyPatch, num_holes: int) -> None:
    bad = [[(f"rows = ({number}", 1 - number / 1000) for number in range(200)]] * num_holes
    tried: list[object] = []
    row = candidates.Place.row
    monkeypatch.setattr(candidates.Place, "row", lambda *values: tried.append(values) or row(*values))
    judged: list[object] = []
    judge = Sieve.judge
    monkeypatch.setattr(Sieve, "judge", lambda *values: judged.append(values) or judge(*values))
    case = one() if num_holes == 1 else make()
    filled = settle(
        engine_client(Plan(rows=[["rows = ("] * num_holes], compared=bad)), case, replace(ALONE, repair=False)
    )
    assert filled.new_errors and 1 < len(tried) <= MIN_WHOLE * num_holes + 1
    assert len(judged) <= MAX_TRIED


def propose_only(monkeypatch: pytest.MonkeyPatch, *proposals: tuple[str, float]) -> None:
    listed = [Proposal(text, certainty, "somebody's") for text, certainty in proposals]
    monkeypatch.setattr("midfill_infill.fill.propose", lambda *_: listed)


def test_what_proposers_say_is_sent_and_named_in_the_answer(
    engine_client: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose_only(monkeypatch, ("rows = list(path)", 0.4), ("x" * 20_000, 0.3))
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
    engine_client: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose_only(monkeypatch, ("rows = list(path)", 0.9), ("rows = sorted(path)", 0.8))
    record = tmp_path / "record"
    compared = [[("rows = path", 0.6), ("rows = list(path)", 0.5)]]
    client = engine_client(Plan(rows=[["rows = path"]], compared=compared, record=str(record)))
    filled = settle(client, one(), Options(n=4, max_tokens=9))
    texts = [each.fills[0].text for each in (filled.best, *filled.alternatives)]
    assert texts == ["rows = path", "rows = list(path)"], "the longer one was left out"
    (sent,) = [segment["hole"] for segment in read_record(record)[0]["request"]["segments"] if "hole" in segment]
    assert [each["text"] for each in sent["candidates"]] == ["rows = list(path)", "rows = sorted(path)"]


def test_the_first_sound_proposal_is_there_before_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    propose_only(monkeypatch, ("rows = (", 0.9), ("rows = list(path)", 0.4))
    found = propose_fill(*make(), Options())
    assert found and [(each.text, each.certainty) for each in found.fills] == [("rows = list(path)", 0.4)] * 2
    shown = Preview.of(found, 0, is_proposed=True)
    assert [each.text for each in shown.holes] == ["rows = list(path)"] * 2 and not shown.is_chosen
    assert propose_fill(*make(), Options(max_tokens=99)) is None, "only an engine counts tokens"
    monkeypatch.setattr("midfill_infill.fill.MAX_PROPOSED", 1)
    assert propose_fill(*make(), Options()) is None and propose_fill(*one(), Options())
    propose_only(monkeypatch, ("rows = nowhere()", 0.9))
    assert propose_fill(*one(), Options()) is None, "a fault is not shown"
    propose_only(monkeypatch)
    assert propose_fill(*one(), Options()) is None


def test_a_proposal_that_the_engine_ranks_first_wins(engine_client: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    propose_only(monkeypatch, ("rows = list(path)", 0.4))
    compared = [[("rows = list(path)", 0.9), ("rows = path", 0.1)]]
    filled = settle(engine_client(Plan(rows=[["rows = list(path)"]], compared=compared)), one(), Options(n=2))
    texts = [each.fills[0].text for each in (filled.best, *filled.alternatives)]
    assert texts == ["rows = list(path)", "rows = path"]


@pytest.mark.parametrize(
    "certainty, expected", [(None, "rows = path"), (0.5, "rows = path"), (0.3, "rows = list(path)")]
)
def test_an_engine_that_compares_nothing_is_ranked_by_certainty(
    engine_client: Start, monkeypatch: pytest.MonkeyPatch, certainty: float | None, expected: str
) -> None:
    propose_only(monkeypatch, ("rows = list(path)", 0.4))
    client = engine_client(Plan(rows=[["rows = path"]], certainty=certainty))
    assert settle(client, one(), Options()).fills[0].text == expected
    limited = settle(client, one(), Options(max_tokens=9))
    assert limited.fills[0].text == "rows = path", "only an engine can count tokens"


def test_an_engine_that_is_not_sure_gets_a_second_try_before_a_proposal(
    engine_client: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    propose_only(monkeypatch, ("rows = list(path)", 0.9))
    record = tmp_path / "record"
    plan = Plan(rows=[["rows = ("]], repaired=[["rows = sorted(rows)"]], record=str(record))
    filled = settle(engine_client(plan), one(), Options())
    assert (filled.fills[0].text, filled.fills[0].origin) == ("rows = sorted(rows)", "drafted")
    assert len(read_record(record)) == 2
    filled = settle(engine_client(Plan(rows=[["rows = nowhere()"]])), one(), Options())
    assert filled.fills[0].text == "rows = list(path)" and filled.fills[0].origin != "drafted"
    filled = settle(engine_client(Plan(rows=[["rows = list(rows)"]])), one(), Options())
    assert (filled.fills[0].text, filled.fills[0].origin) == ("rows = list(rows)", "drafted")


def test_of_texts_with_equal_faults_the_likeliest_stays(engine_client: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "find_sieve", lambda *_: None)  # where no function tells them apart
    compared = [[("rows = unseen", 0.1), ("rows = strange", 0.2)]]
    filled = settle(engine_client(Plan(rows=[["rows = nobody(strange)"]], compared=compared)), one())
    assert filled.fills[0].text == "rows = unseen" and filled.best.num_unseen == 1


def test_a_single_line_takes_no_proposal_of_two(engine_client: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    propose_only(monkeypatch, ("path = rows\n    rows = path", 0.9), ("rows = path", 0.5))
    assert (
        settle(engine_client(Plan(rows=[["rows = ("]])), one(), Options(single_line=True)).fills[0].text
        == "rows = path"
    )


BODY = "class A:\n    def total(self, rows):\n        pass\n\n    def count(self, rows):\n        return len(rows)\n"


def test_what_does_nothing_and_what_is_said_twice_is_no_alternative(engine_client: Start) -> None:
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
