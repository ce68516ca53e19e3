"""Which fills are doubtful: what Midfill wrote and nobody has kept, parameters that come back as they went in."""

import os
from pathlib import Path

import pytest

from midfill_infill.filling import written
from midfill_infill.filling.doubts import DOUBTFUL, Doubts
from midfill_infill.filling.written import Written
from midfill_infill.proposals import Surroundings, propose
from midfill_infill.syntax.holes import body_named, hole_at_cursor
from midfill_infill.text.document import Document

INVENTORY = '''
def clean(name):
    """The name without white space around it, in small letters."""
    return name.strip().lower()


def shorten(name):
    """The first word of a name."""
    words = name.split()
    return words[0]


def reverse(name):
    """The name from its end."""
    raise NotImplementedError


def echo(text):
    """The text."""
    raise NotImplementedError
'''


@pytest.mark.parametrize(
    ("function", "text", "is_doubtful"),
    [
        ("reverse", "return name", True),
        ("reverse", "return name[::-1]", False),
        ("echo", "return text", False),  # no other function takes a text
        ("reverse", "return reverse", False),
    ],
)
def test_a_parameter_that_comes_back_unchanged_is_doubtful(function: str, text: str, is_doubtful: bool) -> None:
    document = Document(INVENTORY.encode(), "python")
    certainty = Doubts(document).temper(body_named(document, function), text, 0.9)
    assert certainty == (DOUBTFUL if is_doubtful else 0.9)


def test_a_parameter_that_other_functions_return_too_is_not_doubtful() -> None:
    source = INVENTORY + "\ndef same(name):\n    return name\n"
    document = Document(source.encode(), "python")
    assert Doubts(document).temper(body_named(document, "reverse"), "return name", 0.9) == 0.9


def test_a_line_that_midfill_wrote_makes_no_copy_of_it_more_certain() -> None:
    """A wrong line in one copy of a function after the other, as the command would put it there."""
    wrong, before, after = (
        "total = count(items)",
        "def f(self, items):\n    start(items)\n    ",
        "\n    stop(items)\n\n\n",
    )

    def certainty(num_filled: int, own: Written) -> float:
        text = (before + wrong + after) * num_filled + before
        document = Document((text + after).encode(), "python")
        hole = hole_at_cursor(document, len(text))
        found = propose(("lines",), Surroundings(document, (hole,)), 0)
        doubts = Doubts(document, own)
        return max((doubts.weaken(each.text, each.certainty) for each in found if each.text == wrong), default=0.0)

    believed = [certainty(number, Written()) for number in range(5)]
    assert believed == sorted(set(believed)) and believed[0] == 0.0 and believed[4] > 0.5
    doubted = [certainty(number, Written.of([wrong])) for number in range(5)]
    assert max(doubted) <= 0.1
    document = Document(b"def f():\n    ...\n", "python")
    assert Doubts(document, Written.of([wrong])).temper(body_named(document, "f"), wrong, 0.85) == DOUBTFUL


def test_what_is_kept_is_no_longer_doubted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert not written.load().has("value = compute(x)")
    written.remember(["value = compute(x)\nreturn value", "other = 1\n)"])
    assert written.load().has("    value = compute(x)\n    return value") and written.load().has("other = 1\n}")
    assert not written.load().has("value = compute(y)") and not written.load().has(")")
    assert b"compute" not in (tmp_path / "midfill/written").read_bytes()
    written.forget(["return value"])
    assert not written.load().has("value = compute(x)\nreturn value") and written.load().has("value = compute(x)")
    monkeypatch.setattr(written, "MAX_AGE_S", -1)
    assert written.load() == Written()


def test_no_folder_and_no_file_of_ours_are_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "midfill").mkdir()
    (tmp_path / "midfill/written").write_bytes(b"\xff no number\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert written.load() == Written()
    written.remember(["value = compute(x)"])
    assert written.load().has("value = compute(x)"), "a damaged file is written anew"
    monkeypatch.setenv("XDG_STATE_HOME", os.devnull)
    written.remember(["value = compute(x)"])
    assert written.load() == Written()
