"""The core generator against a scripted engine: previews, the repair round, ranking, tokens."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.fake_engine import Plan, read_record, wait_for

from midfill_infill.engines.client import EngineClient
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Filled, Options, Preview, fill
from midfill_infill.proposals import Proposal
from midfill_infill.syntax import holes
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Anchor, Hole

Start = Callable[[Plan], EngineClient]
SOURCE = b'def add(a, b):\r\n    """Sum."""\r\n    ...\r\n\r\nx = 1'


def document() -> Document:
    return Document(SOURCE, "python", Path("t.py"))


def run(client: EngineClient, doc: Document, options: Options | None = None) -> tuple[list[Preview], Filled]:
    events = list(fill(doc, holes.find_stubs(doc), options or Options(), client))
    filled = events.pop()
    assert isinstance(filled, Filled)
    return [event for event in events if isinstance(event, Preview)], filled


def test_previews_then_a_patch_that_changes_only_the_hole(engine_client: Start) -> None:
    previews, filled = run(engine_client(Plan(rows=[["c = a + b\n    return c"]])), document())
    assert [(preview.step, preview.is_chosen) for preview in previews] == [
        (0, False),
        (1, False),
        (2, False),
        (3, False),
        (3, True),
    ]
    assert previews[-1].holes[0].masked == 0
    assert filled.patch.apply(SOURCE) == SOURCE.replace(b"...", b"c = a + b\r\n    return c")
    assert filled.new_errors == 0


def test_every_token_keeps_its_confidence(engine_client: Start) -> None:
    _, filled = run(engine_client(Plan(rows=[["return a + b"]])), document())
    (hole,) = filled.fills
    assert "".join(hole.text[start:end] for start, end in hole.tokens) == hole.text
    assert len(hole.confidence) == len(hole.tokens)


def test_what_the_model_does_not_see_is_proposed(engine_client: Start, tmp_path: Path) -> None:
    record = tmp_path / "record"
    far, noise = "def far(left, right):\n    return right + left\n\n\n", "x = 0\n" * 2000
    source = f"{far}{noise}def add(left, right):\n    ...\n"
    filler = Document(source.encode(), "python")
    list(fill(filler, holes.find_stubs(filler), Options(), engine_client(Plan(record=str(record)))))
    before, hole, *_ = read_record(record)[0]["request"]["segments"]
    assert "far" not in before["text"]
    assert "return right + left" in [each["text"] for each in hole["hole"]["candidates"]]


def test_request_says_what_was_asked(engine_client: Start, tmp_path: Path) -> None:
    record = tmp_path / "record"
    client = engine_client(Plan(record=str(record)))
    run(client, document(), Options(seed=7, steps=5, quality=0.5, n=2, max_tokens=9))
    (entry,) = read_record(record)
    request = entry["request"]
    assert (request["tag"], request["seed"], request["steps"], request["quality"]) == ("python", 7, 5, 0.5)
    assert request["n"] == 2
    texts = [segment["text"] for segment in request["segments"] if "text" in segment]
    assert [segment["hole"]["max_tokens"] for segment in request["segments"] if "hole" in segment] == [9]
    assert texts == ['def add(a, b):\n    """Sum."""\n    ', "\n\nx = 1"]


def test_the_last_preview_shows_the_text_of_the_patch_whatever_the_engine_shows(engine_client: Start) -> None:
    plan = Plan(rows=[["return ("]], compared=[[("return (", 0.5), ("return a + b", 0.4)]])
    previews, filled = run(engine_client(plan), document())
    *drafts, last = previews
    assert drafts[-1].holes[0].text == "return (" and not any(draft.is_chosen for draft in drafts)
    assert last.is_chosen and [look.text for look in last.holes] == [each.text for each in filled.fills]
    assert last.holes[0].text == "return a + b" and b"return a + b" in filled.patch.apply(SOURCE)


def test_syntax_error_is_masked_again_and_the_rest_kept(engine_client: Start, tmp_path: Path) -> None:
    record = tmp_path / "record"
    broken = "c = a + b\n    d = = 1\n    return c"
    plan = Plan(rows=[[broken]], repaired=[[broken.replace("= = 1", "= 1")]], record=str(record))
    previews, filled = run(engine_client(plan), document())
    assert filled.new_errors == 0
    assert b"d = 1" in filled.patch.apply(SOURCE)
    assert [preview.is_repair for preview in previews] == [False] * 4 + [True] * 4 + [False]
    assert filled.stats.steps == 6
    request = read_record(record)[1]["request"]
    (hole,) = (segment["hole"] for segment in request["segments"] if "hole" in segment)
    assert hole["draft"] == broken
    kept = [broken[start:end] for start, end in hole["keep"]]
    assert kept == ["c = a + b\n    ", "\n    return c"]
    assert set(filled.fills[0].confidence) == {0.9}, "what was kept has its first confidence, not an anchor's"


def test_what_cannot_be_repaired_is_marked(engine_client: Start) -> None:
    _, filled = run(engine_client(Plan(rows=[["return (a +"]])), document())
    assert filled.new_errors > 0
    assert filled.patch.apply(SOURCE) != SOURCE


def test_repair_that_is_worse_is_dropped(engine_client: Start) -> None:
    plan = Plan(rows=[["c = = 1"]], repaired=[["c = = 1\n    d = = 2\n    e = = 3"]])
    _, filled = run(engine_client(plan), document())
    assert filled.fills[0].text == "c = = 1"


@pytest.mark.parametrize("reason", ["busy", "out_of_memory", "bad_request"])
def test_first_fill_outlives_a_repair_that_fails(engine_client: Start, reason: str) -> None:
    plan = Plan(rows=[["c = = 1"], ["d = = 2\n    e = = 3"]], repair_refused_as=reason)
    _, filled = run(engine_client(plan), document(), Options(n=2))
    assert [candidate.fills[0].text for candidate in (filled.best, *filled.alternatives)] == [
        row[0] for row in plan.rows
    ]
    assert filled.new_errors > 0
    assert filled.stats.steps == 3


def test_alternatives_that_lose_an_anchor_are_left_out(engine_client: Start) -> None:
    doc = Document(b"def f(n):\n    total = 0\n    return n\n", "python")
    hole = replace(holes.body_named(doc, "f"), anchors=(Anchor(14, 23),))
    rows = [["total = 1\n    return n"], ["total = 0\n    return total"]]
    *_, filled = fill(doc, [hole], Options(n=2), engine_client(Plan(rows=rows)))
    assert isinstance(filled, Filled)
    assert (filled.fills[0].text, filled.alternatives) == (rows[1][0], ())
    with pytest.raises(MidfillError) as error:
        list(fill(doc, [hole], Options(), engine_client(Plan(rows=rows[:1]))))
    assert error.value.code == "engine_error"


def test_cancelled_repair_is_cancelled(engine_client: Start) -> None:
    with pytest.raises(MidfillError) as error:
        run(engine_client(Plan(rows=[["c = = 1"]], repair_refused_as="cancelled")), document())
    assert error.value.code == "cancelled"


def test_every_seed_but_the_first_draws(engine_client: Start, tmp_path: Path) -> None:
    record = tmp_path / "record"
    client = engine_client(Plan(record=str(record)))
    for options in (Options(), Options(seed=1), Options(seed=1, temperature=0.0)):
        run(client, document(), options)
    temperatures = [entry["request"].get("temperature", 0.0) for entry in read_record(record)]
    assert temperatures == [0.0, 0.8, 0.0]


def test_alternative_without_errors_goes_first(engine_client: Start) -> None:
    plan = Plan(rows=[["return = a"], ["return a"], ["return (b"]])
    previews, filled = run(engine_client(plan), document(), Options(n=3))
    assert filled.fills[0].text == "return a"
    assert [candidate.new_errors > 0 for candidate in filled.alternatives] == [True, True]
    assert not any(preview.is_repair for preview in previews)


def test_an_empty_body_is_no_alternative_to_sound_text(engine_client: Start) -> None:
    _, filled = run(engine_client(Plan(rows=[[""], ["return a"]])), document(), Options(n=2))
    assert filled.fills[0].text == "return a"
    assert not filled.best.is_empty and not filled.alternatives


@pytest.fixture
def idle_proposal(set_proposals: Callable[..., None]) -> None:
    set_proposals(Proposal("pass", 0.1, ""))


@pytest.mark.usefixtures("idle_proposal")
def test_what_a_body_held_goes_behind_what_the_model_says_by_itself(engine_client: Start, tmp_path: Path) -> None:
    record = tmp_path / "record"
    _, filled = run(engine_client(Plan(rows=[["..."]], alone=[["return a"]], record=str(record))), document())
    assert filled.fills[0].text == "return a"
    first, second = (str(entry["request"]["segments"]) for entry in read_record(record))
    assert "candidates" in first and "candidates" not in second


@pytest.mark.usefixtures("idle_proposal")
def test_a_body_that_stays_as_it_was_says_so(engine_client: Start, tmp_path: Path) -> None:
    record = tmp_path / "record"
    _, filled = run(engine_client(Plan(rows=[["..."]], alone=[["..."]], record=str(record))), document())
    assert filled.best.is_idle and filled.patch.apply(SOURCE) == SOURCE
    assert len(read_record(record)) == 2
    _, line = run(engine_client(Plan(rows=[["..."], ["return b"]])), document(), Options(n=2))
    assert (line.fills[0].text, line.best.is_idle) == ("return b", False)


def test_closing_the_generator_ends_the_request(engine_client: Start, tmp_path: Path) -> None:
    record = tmp_path / "record"
    client = engine_client(Plan(endless=True, record=str(record)))
    events = fill(document(), holes.find_stubs(document()), Options(), client)
    next(events)
    events.close()
    wait_for(record, '{"closed": "step"}')


def test_wrong_number_of_holes_is_refused(engine_client: Start) -> None:
    with pytest.raises(MidfillError) as error:
        run(engine_client(Plan(rows=[["a", "b"]])), document())
    assert error.value.code == "engine_error"


@pytest.mark.parametrize(
    ("source", "hole", "wrong", "right"),
    [
        (b"from .a import x\n", (15, 16), "toolz.exceptions", "toolz"),
        (b"import json\n\n\nX = 1\n", (12, 12), "return json", "Y = 2"),
        (b"def f(a):\n    ...\n", (14, 17), "await a", "return a"),
    ],
)
def test_what_the_compiler_refuses_is_an_error(
    engine_client: Start, source: bytes, hole: tuple[int, int], wrong: str, right: str
) -> None:
    plan = Plan(rows=[[wrong], [right]], compared=[[(wrong, 0.9), (right, 0.5)]])
    *_, filled = fill(Document(source, "python"), [Hole(*hole)], Options(), engine_client(plan))
    assert isinstance(filled, Filled) and filled.new_errors == 0 and filled.fills[0].text == right


def test_more_holes_than_a_request_takes(engine_client: Start) -> None:
    many = Document(b"".join(b"def f%d():\n    ...\n\n" % number for number in range(600)), "python")
    with pytest.raises(MidfillError, match="600 holes .* 1201 stretches, at most 1024 are filled jointly") as error:
        run(engine_client(Plan()), many)
    assert error.value.code == "hole_too_large"
