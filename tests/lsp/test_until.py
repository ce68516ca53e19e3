"""Over stdio with a scripted filler: a fill that a command must pass, and who is asked for the command."""

import asyncio
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from tests.lsp.editor import Buffer, Editor, at, body, configure, span
from tests.until.shops import SHOP, TESTS, is_running, needs_bubblewrap

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_bubblewrap]

PYTEST = f"env PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -p no:cacheprovider -q"
RIGHT, WRONG = "writes:return price - rate", "writes:return price * rate"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "shop.py").write_text(SHOP.replace("...", "return 0  # on the disk"))
    (tmp_path / "tests/test_shop.py").write_text(TESTS)
    return tmp_path


def open_shop(editor: Editor, folder: Path, source: str = SHOP) -> Buffer:
    return editor.open(source, uri=(folder / "shop.py").as_uri())


async def test_the_fill_is_pending_and_says_what_it_passes(editor: Editor, folder: Path) -> None:
    configure(editor, model=RIGHT)
    buffer = open_shop(editor, folder)
    result = await editor.do("fill", **body(buffer, "..."), until=f"{PYTEST} {{tests}}")
    line = f"{PYTEST} tests/test_shop.py"
    assert result["passes"] == line and buffer.text.source == SHOP.replace("...", "return price - rate")
    await editor.settle()
    (pending,) = editor.seen.pending[buffer.uri]
    assert pending.passes == line and f"passes `{line}`" in await editor.lenses(buffer)
    said = [value.get("message") for value in editor.seen.progress]
    assert "try 1 of 20 passed" in said
    assert "on the disk" in (folder / "shop.py").read_text(), "nothing but the buffer has changed"
    await editor.do("discard", id=result["id"])
    assert buffer.text.source == SHOP


async def test_what_does_not_pass_is_not_put_in(editor: Editor, folder: Path) -> None:
    configure(editor, model=WRONG)
    buffer = open_shop(editor, folder)
    with pytest.raises(JsonRpcException, match="none of 3 tries passes"):
        await editor.do("fill", **body(buffer, "..."), until=PYTEST, tries=3)
    assert buffer.text.source == SHOP
    with pytest.raises(JsonRpcException, match="passes already, without a fill"):
        await editor.do("fill", **body(buffer, "..."), until="true")


async def test_other_files_are_tested_as_the_editor_holds_them(editor: Editor, folder: Path) -> None:
    configure(editor, model=WRONG)
    editor.open(TESTS.replace("== 90", "== 1000"), uri=(folder / "tests/test_shop.py").as_uri())
    buffer = open_shop(editor, folder)
    result = await editor.do("fill", **body(buffer, "..."), until=PYTEST)
    assert result["passes"] == PYTEST


async def test_a_notebook_is_tested_as_it_is_stored(editor: Editor, folder: Path) -> None:
    configure(editor, model=RIGHT)
    (folder / "n.ipynb").write_text("{}")
    cell = f"vscode-notebook-cell:{folder / 'n.ipynb'}#1"
    notebook = types.NotebookDocument(
        (folder / "n.ipynb").as_uri(), "jupyter-notebook", 1, [types.NotebookCell(types.NotebookCellKind.Code, cell)]
    )
    items = [types.TextDocumentItem(cell, "python", 1, "a = 'cell'")]
    editor.client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, items))
    buffer = open_shop(editor, folder)
    (folder / "check.py").write_text("import shop; assert open('n.ipynb').read() == '{}' and shop.discount(5, 2) == 3")
    result = await editor.do("fill", **body(buffer, "..."), until=f"{sys.executable} check.py")
    assert result["passes"]
    closed = types.NotebookDocumentIdentifier(notebook.uri), [types.TextDocumentIdentifier(cell)]
    editor.client.notebook_document_did_close(types.DidCloseNotebookDocumentParams(*closed))


async def test_commands_are_guessed(editor: Editor, folder: Path) -> None:
    buffer = open_shop(editor, folder)
    found = await editor.ask("midfill/tests", {"uri": buffer.uri})
    assert found.commands == ["pytest -q {tests}", "pytest -q"]


async def test_an_action_asks_once_a_workspace(editor: Editor, folder: Path) -> None:
    (folder / ".venv/bin").mkdir(parents=True)
    runs = folder / ".venv/bin/pytest"
    runs.write_text(f'#!/bin/sh\nexec {PYTEST.removesuffix(" -q")} "$@"\n')
    runs.chmod(0o755)
    configure(editor, model=RIGHT)
    buffer = open_shop(editor, folder)
    action = (await editor.actions(buffer, at(buffer, "...")))["until"]
    assert action.title == "Fill until tests pass"
    with pytest.raises(JsonRpcException, match="no command was chosen"):
        await editor.run(action.command)
    assert buffer.text.source == SHOP
    editor.answer = "Run .venv/bin/pytest -q {tests}"
    result = await editor.run(action.command)
    assert result["passes"] == ".venv/bin/pytest -q tests/test_shop.py"
    (*_, question) = editor.seen.questions
    assert [each.title for each in question.actions] == [editor.answer, "Run .venv/bin/pytest -q"]
    assert "in a sandbox, on a copy of this folder" in question.message
    editor.answer, number = None, len(editor.seen.questions)
    await editor.do("discard", id=result["id"])
    await editor.run((await editor.actions(buffer, at(buffer, "...")))["until"].command)
    assert len(editor.seen.questions) == number


async def test_a_buffer_in_no_folder_has_nothing_to_test(editor: Editor) -> None:
    buffer = editor.open(SHOP)
    with pytest.raises(JsonRpcException, match="save this as one"):
        await editor.do("fill", **body(buffer, "..."), until="pytest")
    ranges = [span(buffer, at(buffer, "..."))]
    with pytest.raises(JsonRpcException, match="takes one object"):
        await editor.do("fill", uri=buffer.uri, what="body", ranges=ranges, until="x", tries=0)


async def test_it_can_be_cancelled(editor: Editor, folder: Path) -> None:
    configure(editor, model=RIGHT)
    (folder / "tests/test_shop.py").write_text(TESTS.replace("import shop", "import shop, time\ntime.sleep(120)"))
    buffer = open_shop(editor, folder)
    named = f"junit_suite_name={uuid4()}"
    until = f"{PYTEST} -o {named}"
    asked = asyncio.create_task(editor.do("fill", msg_id="slow", **body(buffer, "..."), until=until))
    await editor.wait_for(lambda: is_running(named))
    await editor.do("discard", uri=buffer.uri)
    with pytest.raises(JsonRpcException):
        await asked
    await editor.wait_for(lambda: not is_running(named))
    assert buffer.text.source == SHOP


async def test_an_open_secret_stays_out_of_the_copy(editor: Editor, folder: Path) -> None:
    (folder / ".env").write_text("PASSWORD=stored\n")
    configure(editor, model=RIGHT)
    buffer = open_shop(editor, folder)
    editor.open("PASSWORD=hunter2\n", "plaintext", (folder / ".env").as_uri())
    check = "import os, shop; assert not os.path.exists('.env') and shop.discount(5, 2) == 3"
    (folder / "check.py").write_text(check)
    result = await editor.do("fill", **body(buffer, "..."), until=f"{sys.executable} check.py")
    assert result["passes"]
