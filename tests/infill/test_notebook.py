"""Notebooks: their code as one document, and edits put back so that all other bytes of the file stay."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midfill_infill.errors import MidfillError
from midfill_infill.syntax.holes import body_at, body_named, find_stubs, hole_at_range
from midfill_infill.text.notebook import Notebook
from midfill_infill.text.spans import Edit, Patch

TEXTS = st.text('aé\u2028😀"\\\n\r\t[]{}%', max_size=12)
DUMPS: dict[str, Any] = {
    "as Jupyter does": {"indent": 1, "ensure_ascii": False},
    "tabs": {"indent": "\t"},
    "one line": {},
    "tight": {"separators": (",", ":"), "ensure_ascii": False},
}


def cell(source: str | list[str], kind: str = "code", **more: Any) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {"source": "no"}, **more, "source": source}


def read(*cells: dict[str, Any], language: str | None = "python", **how: Any) -> Notebook:
    about = {"language_info": {"name": language}} if language else {}
    text = json.dumps({"cells": list(cells), "metadata": about, "nbformat": 4}, **how)
    return Notebook.from_bytes(text.encode("utf-8", "surrogatepass"), Path("x.ipynb"))


CELLS = (
    cell(["# Title\n"], "markdown"),
    cell(["%matplotlib inline\n", "import math"], outputs=[{"text": ["def no():\n", "    ...\n"]}]),
    cell(["def area(r):\n", "    ...\n", "\n", "def twice(x):\n", "    return 2 * x"]),
    cell("%%bash\necho hi"),
    cell([]),
    cell("%%time\ndef last():\n    ...\n"),
)


def test_code_cells_are_one_document_and_places_are_those_of_a_cell() -> None:
    notebook = read(*CELLS, indent=1)
    assert b"Title" not in notebook.data and b"echo" not in notebook.data and b"no()" not in notebook.data
    stubs = find_stubs(notebook)
    assert [notebook.where(hole.start_byte) for hole in stubs] == ["x.ipynb:3:2", "x.ipynb:6:3"]
    assert [notebook.cell_at(hole.start_byte)[0] for hole in stubs] == [3, 6]
    hole = body_at(notebook, notebook.offset_at(notebook.line_of(3, 5), 5))
    assert (hole.name, notebook.position_at(hole.start_byte)) == ("twice", (5, 5))


@pytest.mark.parametrize("how", DUMPS.values(), ids=list(DUMPS))
def test_a_patch_changes_the_sources_of_its_cells_alone(how: dict[str, Any]) -> None:
    notebook = read(*CELLS, **how)
    names = ("area", "last")
    holes = [notebook.fit_to_cell(body_named(notebook, name)) for name in names]
    after = notebook.apply(Patch.of(Edit(hole.start_byte, hole.end_byte, "π = 'é'".encode()) for hole in holes))
    wanted = json.loads(notebook.original)
    wanted["cells"][2]["source"][1] = "    π = 'é'\n"
    wanted["cells"][5]["source"] = "%%time\ndef last():\n    π = 'é'\n"
    assert json.loads(after) == wanted
    old, new = notebook.original.splitlines(), after.splitlines()
    assert how.get("indent") is None or sum(a != b for a, b in zip(old, new, strict=True)) == 2


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["code", "markdown", "raw"]), TEXTS, st.booleans()), min_size=1, max_size=4),
    st.sampled_from(list(DUMPS.values())),
    st.sampled_from(["", "\ufeff"]),
    st.data(),
)
def test_a_random_edit_changes_only_its_cell(
    parts: list[Any], how: dict[str, Any], mark: str, data: st.DataObject
) -> None:
    cells = [cell(text.splitlines(keepends=True) if is_list else text, kind) for kind, text, is_list in parts]
    raw = mark + json.dumps({"nbformat": 4, "cells": cells, "metadata": {}}, **how)
    notebook = Notebook.from_bytes(raw.encode(), Path("x.ipynb"), "python")
    assert notebook.apply(Patch.of([])) == notebook.original == raw.encode()
    code = [number for number, part in enumerate(notebook.cells) if part.start_byte is not None]
    if not code:
        return
    chosen = data.draw(st.sampled_from(code))
    part, new = notebook.cells[chosen], data.draw(TEXTS)
    start, end = sorted(data.draw(st.integers(0, len(part.text))) for _ in range(2))
    first = (part.start_byte or 0) + len(part.text[:start].encode())
    edit = Edit(first, first + len(part.text[start:end].encode()), new.encode())
    after = notebook.apply(Patch((edit,))).decode()
    wanted = json.loads(raw.removeprefix(mark))
    got = json.loads(after.removeprefix(mark))
    source = got["cells"][chosen]["source"]
    assert type(source) is type(wanted["cells"][chosen]["source"])
    assert "".join(source) == part.text[:start] + new + part.text[end:]
    wanted["cells"][chosen]["source"] = source
    assert got == wanted
    left, right = part.value[0], len(raw) - part.value[1]
    assert after[:left] == raw[:left] and after[len(after) - right :] == raw[len(raw) - right :]


@pytest.mark.parametrize(
    ("number", "line", "said"),
    [
        (1, 1, "cell 1 of x.ipynb is markdown"),
        (4, 1, "cell 4 of x.ipynb is in another language"),
        (9, 1, "x.ipynb has 6 cells, not 9"),
        (0, 1, "x.ipynb has 6 cells, not 0"),
        (3, 6, "cell 3 of x.ipynb has 5 lines, not 6"),
    ],
)
def test_places_outside_of_cells_are_refused(number: int, line: int, said: str) -> None:
    with pytest.raises(MidfillError) as error:
        read(*CELLS).line_of(number, line)
    assert error.value.message == said


def test_a_lone_carriage_return_ends_a_line() -> None:
    notebook = read(cell("a = 1\rb = 2"), cell("c = 3\r"), cell("d = 4"))
    for number, line, text in ((1, 2, b"b = 2"), (2, 1, b"c = 3"), (3, 1, b"d = 4")):
        start = notebook.offset_at(notebook.line_of(number, line), 1)
        assert notebook.data[start:].startswith(text)
        assert notebook.where(start) == f"x.ipynb:{number}:{line}" and notebook.position_at(start) == (line, 1)


def test_a_backslash_in_code_is_no_escape_of_the_file() -> None:
    notebook = read(cell("a = '\\u2014'\nb = 1"), ensure_ascii=False)
    end = len(notebook.data)
    assert "b = é" in notebook.apply(Patch.of([Edit(end - 1, end, "é".encode())])).decode()


def test_a_hole_stays_in_its_cell() -> None:
    notebook = read(cell("x = 1"), cell("y = 2"))
    with pytest.raises(MidfillError) as error:
        notebook.fit_to_cell(hole_at_range(notebook, 0, len(notebook.data)))
    assert error.value.message == "what was chosen of x.ipynb is in two cells"


def test_an_empty_cell_is_not_indented_as_the_one_before() -> None:
    notebook = read(cell("def f():\n    return 1"), cell([]), indent=1)
    hole = notebook.fit_to_cell(body_at(notebook, notebook.offset_at(notebook.line_of(2, 1), 1)))
    assert (hole.kind, hole.lead, hole.indent) == ("line", "", "")
    after = notebook.apply(Patch((Edit(hole.start_byte, hole.end_byte, b"f()\nf()"),)))
    assert json.loads(after)["cells"][1]["source"] == ["f()\n", "f()"]
    assert b'"source": [\n    "f()\\n",\n    "f()"\n   ]' in after


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"{", b"null", b'{"cells": 1}', b'{"worksheets": []}', b'{"cells": [{}]}', b"\xff"]
)
def test_what_is_no_notebook_is_one_sentence(data: bytes) -> None:
    with pytest.raises(MidfillError) as error:
        Notebook.from_bytes(data, Path("x.ipynb"))
    assert error.value.code == "file_unreadable" and "not a notebook of version 4" in error.value.sentence


@pytest.mark.parametrize(
    ("said", "language"),
    [("python", "python"), ("R", None), ("C++14", "cpp"), (None, "python"), ("typescript", "typescript")],
)
def test_its_metadata_tell_the_language(said: str | None, language: str | None) -> None:
    assert read(cell("x"), language=said).language == language


def test_a_patched_notebook_is_code_without_cells() -> None:
    notebook = read(*CELLS)
    (area, last) = find_stubs(notebook)
    edit = Edit(area.start_byte, area.end_byte, b"return r\n    # new\n    # lines")
    patched = notebook.with_patch(Patch((edit,)))
    (left,) = find_stubs(patched)
    assert patched.where(left.start_byte) == "x.ipynb:16"
    assert patched.data[left.start_byte :] == notebook.data[last.start_byte :]


def test_a_notebook_without_cells_of_code_has_no_place() -> None:
    with pytest.raises(MidfillError, match="no cell of code"):
        read(cell("# Title", "markdown")).where(0)
