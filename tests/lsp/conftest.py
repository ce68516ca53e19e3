"""Starts editors and leaves no server behind."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.lsp.editor import Editor
from tests.lsp.scripted_server import GATE

Start = Callable[..., Awaitable[Editor]]


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


class Gate:
    """Holds the fills of the scripted model `model` before each step but the first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.model = f"{GATE}{folder}"

    def let(self, step: int) -> None:
        (self._folder / str(step)).touch()

    def open(self) -> None:
        (self._folder / "open").touch()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.open()
