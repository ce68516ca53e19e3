"""docs/troubleshooting.md: the program says every sentence that the page quotes, and what `doctor` finds has a row."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from midfill_infill.cli import doctor
from midfill_infill.errors import ENGINE_TROUBLE, MODEL_TROUBLE, OF_REPOSITORIES, TABLE

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
PROGRAMS = ("infill/midfill_infill", "engine/midfill_engine", "lsp/midfill_lsp")
EDITORS = ("editors/install.py", "editors/install.json", "editors/vscode/src/server.ts")


def first_cells(heading: str) -> list[str]:
    """The first column of the tables whose first heading this is."""
    tables = re.findall(rf"^\| {heading} \|.*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [line.split(" | ")[0].removeprefix("| ") for table in tables for line in table.splitlines()]


SEEN = first_cells("you see")
QUOTES = [
    quote.strip() for cell in SEEN for pair in re.findall(r"``(.*?)``(?!`)|`([^`]+)`", cell) for quote in pair if quote
]


def sentences() -> Iterator[str]:
    """What the programs' sources hold as text, with `...` for each value that is put in."""
    for path in (path for room in PROGRAMS for path in (ROOT / room).rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        skipped = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                skipped.update(ast.walk(node))
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
                yield node.value
    for name in EDITORS:
        yield from (ROOT / name).read_text("utf-8").splitlines()


SENTENCES = list(sentences())


def test_the_page_quotes_more_than_forty_messages() -> None:
    assert len(QUOTES) > 40


@pytest.mark.parametrize("quote", QUOTES)
def test_a_quoted_sentence_is_one_of_the_programs(quote: str) -> None:
    words = re.compile(".*".join(map(re.escape, quote.strip(". ").split("..."))))
    assert len(words.pattern) > 12
    assert any(words.search(sentence) for sentence in SENTENCES)


def test_every_line_of_the_doctor_has_a_row() -> None:
    tree = ast.parse(Path(doctor.__file__).read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding"]
    names = {ast.unparse(call.args[0]).strip("'") for call in calls}
    assert {cell.strip("`") for cell in first_cells("line")} == names


def test_every_trouble_with_an_engine_or_a_model_has_a_row() -> None:
    told = [title for cell in SEEN for title in re.findall(r"\*\*(.+?)\*\*", cell)]
    own = [entry for code, entry in TABLE.items() if code not in OF_REPOSITORIES]
    assert set(told) <= {entry.title for entry in own}
    assert {entry.title for entry in own if entry.exit_code in (ENGINE_TROUBLE, MODEL_TROUBLE)} <= set(told)
