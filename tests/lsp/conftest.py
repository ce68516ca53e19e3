"""Starts editors and leaves no server behind."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.lsp.editor import Editor, Start
from tests.lsp.gate import Gate


@pytest_asyncio.fixture(loop_scope="module")
async def start() -> AsyncIterator[Start]:
    """`await start(...)` takes the arguments of `Editor.start`."""
    editors: list[Editor] = []

    async def start_editor(*arguments: object, **options: object) -> Editor:
        editors.append(Editor())
        return await editors[-1].start(*arguments, **options)  # type: ignore[arg-type]

    yield start_editor
    for editor in editors:
        await editor.kill()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Editor]:
    """One editor and server for the module: a server takes a second to start."""
    editor = await Editor().start()
    yield editor
    await editor.kill()


@pytest_asyncio.fixture(loop_scope="module")
async def editor(shared: Editor) -> Editor:
    shared.reset()
    return shared


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.open()
