"""A right answer arrives as it was: a sample of the bench `oracle` on the sources of this repository."""

import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain, cycle, islice, zip_longest
from pathlib import Path
from typing import Final

import pytest
from tests.infill.marks import read_goldens, read_marks

from bench.oracle.__main__ import Case, Wanted, Writing, ask, ask_some, draw, list_writings, show
from bench.oracle.corpus import LANGUAGES, read_source
from bench.oracle.doors import DOORS, STREAMS, Answers, stream
from bench.oracle.forms import FORMS, write
from bench.oracle.places import KINDS, Place, draw_places
from bench.oracle.through import WAYS, Outcome
from midfill_infill.engines.outside import PROTOCOLS
from midfill_infill.languages import get_language

ROOT: Final = Path(__file__).parents[2]
# The least share of answers that arrive, in percent, by the form in which they are written. A file of a few lines says
# nothing of its own unit, and an answer may run over the next hole, or repeat what follows by a sign or two.
FLOORS: Final = dict.fromkeys(FORMS, 100) | {"unit": 85, "tabs": 90, "overrun": 85}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources in nine languages: our own Python and TypeScript, and the golden files of the others."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "python/.git").mkdir(parents=True)
    for room in ("splicing", "syntax", "text"):
        shutil.copytree(ROOT / "infill/midfill_infill" / room, folder / "python" / room)
    shutil.copytree(ROOT / "editors/vscode/src", folder / "typescript")
    for number, (language, _, marked) in enumerate(read_goldens()):
        if language in ("python", "typescript"):
            continue
        source, _ = read_marks(marked)
        name = f"golden{number}{get_language(language).extensions[0]}"
        (folder / language).mkdir(exist_ok=True)
        (folder / language / name).write_bytes(source)
    return folder


def ask_for(languages: list[str] | None = None, **wanted: object) -> Wanted:
    asked = {"holes": list(KINDS), "doors": DOORS, "forms": list(FORMS), "limit": 1, "seed": 0, **wanted}
    return Wanted(languages or LANGUAGES, **asked)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def writings(sources: Path) -> list[Writing]:
    wanted = ask_for()
    return list(list_writings(draw([sources], wanted), wanted))


def run(asked: list[tuple[str, Writing]]) -> Iterator[Case]:
    """The outcome of each writing through a door."""
    with ExitStack() as stack:
        fills = {door: stack.enter_context(WAYS["fill"](door)) for door in DOORS}
        for door, writing in asked:
            yield ask(fills[door], door, writing)


def choose(writings: list[Writing], most: int) -> list[Writing]:
    """Up to `most` writings of each form, of every kind of hole in turn."""
    cells: dict[str, dict[str, list[Writing]]] = {}
    for writing in random.Random(0).sample(writings, len(writings)):
        cells.setdefault(writing[1], {}).setdefault(writing[0].kind, []).append(writing)
    rows = {form: chain.from_iterable(zip_longest(*kinds.values())) for form, kinds in cells.items()}
    return [each for row in rows.values() for each in islice(filter(None, row), most)]


def test_right_answers_arrive_in_every_form_of_every_hole(writings: list[Writing]) -> None:
    exact = [(door, writing) for writing in writings if writing[1] == "exact" for door in DOORS]
    others = [writing for writing in writings if writing[1] != "exact"]
    kept, asked, losses = Counter[str](), Counter[str](), dict[str, list[str]]()
    for case in run([*exact, *zip(cycle(DOORS), choose(others, 14), strict=False)]):
        asked[case.form] += 1
        kept[case.form] += case.verdict == "kept"
        if case.verdict != "kept":
            losses.setdefault(case.form, []).append(show(case))
    assert set(asked) == set(FORMS)
    low = {form: losses[form] for form in FORMS if 100 * kept[form] < FLOORS[form] * asked[form]}
    counts = {form: f"{kept[form]} of {asked[form]}" for form in low}
    assert not low, "\n".join([str(counts), *chain.from_iterable(low.values())])


def test_places_of_every_kind_and_language_are_the_file_again(writings: list[Writing]) -> None:
    seen = set()
    for place, form, texts in writings:
        if form == "exact":
            seen |= {place.kind, place.file.language}
            data = place.document.data
            for gap, text in reversed(list(zip(place.gaps, texts, strict=True))):
                hole = gap.hole
                put = (hole.lead + text + hole.tail).encode()
                data = data[: hole.start_byte] + put + data[hole.end_byte :]
            assert data == place.file.data
            assert place.kind not in ("body", "stub", "blank") or place.document.data != data
    assert seen == {*KINDS, *LANGUAGES}


@pytest.mark.parametrize("way", ["command", "server"])
def test_a_line_arrives_through_commands_and_editors(sources: Path, way: str) -> None:
    wanted = ask_for(["python"], holes=["line", "body"], doors=["llamacpp", "wire"], forms=["exact"], limit=1)
    cases = list(ask_some([sources], wanted, way))
    assert [case.verdict for case in cases] == ["kept", "kept"], [show(case) for case in cases]


METHOD = b"""class Shelf:
    def name(self, books):
        '''Names them.'''
        text = \"\"\"
    all
\"\"\"
        if books:
            text += ", ".join(books)
        return text

    def size(self):
        return 1
"""


def find_place(tmp_path: Path, kind: str, first: bytes) -> Place:
    """The place of a kind in METHOD whose true text begins with `first`."""
    (path := tmp_path / "shelf.py").write_bytes(METHOD)
    source = read_source(path)
    assert source is not None
    return next(each for each in draw_places(source, kind, 99, 0) if each.gaps[0].truth.startswith(first.decode()))


HELD = 'text = """\n    all\n"""\n'


@pytest.mark.parametrize("form, wanted", [
    ("exact", HELD + '        if books:\n            text += ", ".join(books)\n        return text'),
    ("indented", "        " + HELD + '        if books:\n            text += ", ".join(books)\n        return text'),
    ("column0", HELD + 'if books:\n    text += ", ".join(books)\nreturn text'),
    ("unit", HELD + '    if books:\n      text += ", ".join(books)\n    return text'),
    ("tabs", HELD + '\t\tif books:\n\t\t\ttext += ", ".join(books)\n\t\treturn text'),
])  # fmt: skip
def test_forms_move_code_and_no_text_in_strings(tmp_path: Path, form: str, wanted: str) -> None:
    assert write(form, find_place(tmp_path, "body", b"text").gaps, 0) == [wanted]


def test_forms_around_a_text_hold_it(tmp_path: Path) -> None:
    gaps = find_place(tmp_path, "body", b"return 1").gaps
    texts = {form: (write(form, gaps, 3) or [""])[0] for form in FORMS}
    assert all("return 1" in texts[form] for form in FORMS if texts[form])
    assert texts["signature"].replace("    ", "") == "def size(self):\nreturn 1"
    assert re.fullmatch(r"return 1\n\n    def helper\(self, value\):\n        return value", texts["next"])
    assert re.search(r"^```(python)?\n *return 1\n```$", texts["fenced"], re.MULTILINE)
    assert texts["crlf"] == "return 1\r\n" and texts["think"].startswith("<think>") and not texts["unit"]
    (behind,) = write("overrun", find_place(tmp_path, "line", b"if books").gaps, 0) or [""]
    assert behind.startswith('if books:\n            text += ", ".join(books)')
    (again,) = write("signature", find_place(tmp_path, "line", b"text +=").gaps, 0) or [""]
    assert again == 'if books:\n            text += ", ".join(books)'


def test_servers_honor_stop_strings_and_limits(tmp_path: Path) -> None:
    assert set(STREAMS) == set(PROTOCOLS), "a protocol without a door"
    place = find_place(tmp_path, "body", b"text")
    for protocol in STREAMS:
        known = Answers(place, ["one = 1\ntwo = 2"])
        body = {"stop": ["\n"], "prompt": "x", "n_predict": 99, "options": {"stop": ["\n"]}}
        pieces = [PROTOCOLS[protocol].read(line) for line in stream(protocol, body, known)]
        assert "".join(piece.text for piece in pieces if piece) == "one = 1"
        assert known.cuts == ["stopped at '\\n'"]
        known = Answers(place, ["one = 1\ntwo = 2"])
        body = {"prompt": "x", "max_tokens": 4, "options": {"num_predict": 4}}
        pieces = [PROTOCOLS[protocol].read(line) for line in stream(protocol, body, known)]
        assert "".join(piece.text for piece in pieces if piece) == "one = 1"
        assert known.cuts == ["stopped after 4 tokens"]


def test_a_prompt_tells_which_hole_is_asked_for(writings: list[Writing]) -> None:
    place = next(place for place, _, _ in writings if place.kind == "joint")
    known = Answers(place, [gap.truth for gap in place.gaps])
    for number in (1, 0, 1):
        hole, document = place.holes[number], place.document
        before, behind = (
            document.visible_text(0, hole.start_byte),
            document.visible_text(hole.end_byte, len(document.data)),
        )
        assert known.find_hole(before + hole.lead, hole.tail + behind) == number


def test_outcomes_are_judged_kept_white_space_another_text_or_error(writings: list[Writing]) -> None:
    place = writings[0][0]
    data = place.file.data
    outcomes = [Outcome(data), Outcome(data + b"\n"), Outcome(data + b"x"), Outcome(error="no")]
    assert [each.judge(place) for each in outcomes] == ["kept", "white space", "another text", "error"]
