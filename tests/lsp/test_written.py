"""Over the real server: text that Midfill wrote is doubted elsewhere until it is kept; the last preview is the fill."""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.fake_engine import Plan
from tests.lsp.editor import Editor, Start, body, span
from tests.lsp.soak import kill_engine

from midfill_infill.filling.doubts import DOUBTFUL
from midfill_infill.filling.written import Written

pytestmark = pytest.mark.asyncio(loop_scope="module")

TESTS = Path(__file__).parents[1]
SERVER = (sys.executable, str(TESTS / "lsp" / "fake_engine_server.py"))
SURE = 0.9


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Of a server whose engine answers every hole alike, and is sure of it."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    yield {
        "MIDFILL_RUNTIME_DIR": str(folder),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "TEST_ENGINE": str(TESTS / "cli" / "fake_engine.py"),
        "FAKE_ENGINE_PLAN": Plan(rows=[["return a + b"]], certainty=SURE).to_json(),
    }
    kill_engine(folder)


async def fill(editor: Editor, number: int) -> tuple[int, float]:
    """The id of a pending fill in a document of its own, and how sure it claims to be."""
    buffer = editor.open("def add(a, b):\n    ...\n", uri=f"untitled:{number}")
    result = await editor.do("fill", **body(buffer, "..."))
    return result["id"], result["holes"][0]["certainty"]


async def test_a_fill_is_no_evidence_elsewhere_until_it_is_kept(start: Start, environment: dict[str, str]) -> None:
    editor = await start(SERVER, **environment)
    first, certainty = await fill(editor, 1)
    assert certainty == SURE
    second, certainty = await fill(editor, 2)
    assert certainty == DOUBTFUL, "the first is pending"
    await editor.do("accept", id=first)
    third, certainty = await fill(editor, 3)
    assert certainty == DOUBTFUL, "the second still is"
    await editor.do("accept", id=second)
    await editor.do("discard", id=third)
    assert (await fill(editor, 4))[1] == SURE


async def test_what_the_command_wrote_is_doubted_in_the_editor(start: Start, environment: dict[str, str]) -> None:
    editor = await start(SERVER, **environment)
    state = Path(environment["XDG_STATE_HOME"]) / "midfill" / "written"
    state.parent.mkdir(parents=True)
    first, _ = await fill(editor, 1)
    await editor.do("discard", id=first)
    _write_down(state, "return a + b")
    second, certainty = await fill(editor, 2)
    assert certainty == DOUBTFUL
    await editor.do("accept", id=second)
    assert (await fill(editor, 3))[1] == SURE and state.read_text() == "", "accepted is kept"


async def test_a_hunk_that_is_accepted_is_kept(start: Start, environment: dict[str, str]) -> None:
    editor = await start(SERVER, **environment)
    state = Path(environment["XDG_STATE_HOME"]) / "midfill" / "written"
    state.parent.mkdir(parents=True)
    buffer = editor.open("def add(a, b):\n    ...\n", uri="untitled:1")
    result = await editor.do("fill", **body(buffer, "..."))
    _write_down(state, "return a + b")
    cursor = span(buffer, buffer.text.source.index("return"))["start"]
    await editor.do("accept", id=result["id"], uri=buffer.uri, position=cursor, part="hunk")
    assert (await fill(editor, 2))[1] == SURE and state.read_text() == ""


async def test_fills_that_are_accepted_at_once_are_all_kept(start: Start, environment: dict[str, str]) -> None:
    editor = await start(SERVER, **environment)
    state = Path(environment["XDG_STATE_HOME"]) / "midfill" / "written"
    state.parent.mkdir(parents=True)
    ids, lines = [], [f"return a{number} + b" for number in range(6)]
    for number in range(len(lines)):
        buffer = editor.open("def add(a, b):\n    ...\n", uri=f"untitled:{number}")
        ids.append((await editor.do("fill", **body(buffer, "...")))["id"])
        end = buffer.text.source.index(" + b")
        editor.edit(buffer, end, end, str(number))
    _write_down(state, *lines)
    await asyncio.gather(*(editor.do("accept", id=each) for each in ids))
    assert (await fill(editor, len(lines)))[1] == SURE and state.read_text() == ""


def _write_down(state: Path, *lines: str) -> None:
    state.write_text("".join(f"{int(time.time())} {digest}\n" for digest in Written.of(lines)))


async def test_the_last_preview_shows_the_text_of_the_edit(start: Start, environment: dict[str, str]) -> None:
    plan = Plan(rows=[["return )"]], compared=[[("return )", 0.5), ("return a + b", 0.4)]])
    editor = await start(SERVER, **environment | {"FAKE_ENGINE_PLAN": plan.to_json()})
    buffer = editor.open("def add(a, b):\n    ...\n")
    await editor.ask("midfill/fill", body(buffer, "...", previewToken="p"))
    assert editor.seen.previews[-1].holes[0].text == "return a + b" != editor.seen.previews[0].holes[0].text
