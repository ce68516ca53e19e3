"""Fills until a user's command passes, and asks for that command once per workspace. `infill` runs it."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from lsprotocol import types

from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Options, Preview
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_lsp.engine import Events, Filler, Say
from midfill_lsp.host import Host
from midfill_lsp.settings import Settings
from midfill_lsp.text import SyncedDocument, SyncedWorkspace
from midfill_lsp.views import find_innermost, find_path

RUN = "Run "


def find_folder(workspace: SyncedWorkspace, uri: str) -> Path | None:
    """The workspace folder of a document, otherwise its own folder; None for an unsaved document."""
    if folder := find_innermost(workspace.folders, uri):
        return find_path(folder)
    path = find_path(uri)
    return path.parent if path else None


def until_passes(
    workspace: SyncedWorkspace, document: SyncedDocument, line: str, num_tries: int,
    is_cancelled: Callable[[], bool], filler: Filler,
) -> Filler:  # fmt: skip
    """A filler for worker threads whose fills pass the command `line`; it raises MidfillError `until_failed` if none
    does. The command sees the editor's texts of open files.

    Call this on the event loop. Raises MidfillError for documents that no command can test.
    """
    path, folder = find_path(document.uri), find_folder(workspace, document.uri)
    if path is None or folder is None or path.suffix == ".ipynb":
        raise MidfillError("bad_request", "a command tests files of a folder alone", "save this as one")
    held: dict[Path, bytes] = {}
    for other in workspace.text_documents.values():
        open_path = find_path(other.uri)
        is_cell = workspace.get_notebook_document(cell_uri=other.uri)  # its text is not that of its file
        if open_path and open_path != path and not is_cell and open_path.is_file():
            held[open_path] = other.source.encode("utf-8", "surrogatepass")

    def fill(document: Document, holes: Sequence[Hole], options: Options, settings: Settings, say: Say) -> Events:
        from midfill_infill.sandbox.command import read_command
        from midfill_infill.until.choosing import place_tests
        from midfill_infill.until.lab import FIRST_S, open_lab
        from midfill_infill.until.trying import Tried, Try

        placed = place_tests(line, path, [hole.name for hole in holes], folder)
        command = replace(read_command(placed, FIRST_S), is_cancelled=is_cancelled)
        with open_lab(document, path, command, folder, held) as lab:
            say(f"{placed} on the text as it is")

            def make(document: Document, holes: Sequence[Hole], options: Options) -> Events:
                return filler(document, holes, options, settings, say)

            with closing(lab.fill(lab.find_examples(holes), options, make, num_tries, say)) as events:
                for event in events:
                    if isinstance(event, Try):
                        say(f"try {event.number} of {num_tries} {event.ran.verdict}")
                        yield Preview(0, 1, ())
                    elif not isinstance(event, Tried):
                        yield event
                    elif event.passed:
                        yield replace(event.filled, alternatives=(), passed_command=placed)
                    else:
                        raise MidfillError("until_failed", f"{event.sentence}: `{placed}`")

    return fill


async def ask_for_command(server: Host, uri: str) -> str:
    """The command that a fill of the document must pass. Raises MidfillError if the user chooses none."""
    guesses = await asyncio.to_thread(guess, server.workspace, uri)
    if not guesses:
        raise MidfillError("bad_request", "no tests of this file were found", "write some beside it")
    sentence = "Midfill: fill until a command passes? It runs in a sandbox, on a copy of this folder."
    answer = await server.ask(sentence, *(f"{RUN}{line}" for line in guesses[:3]), kind=types.MessageType.Info)
    if answer is None or not answer.startswith(RUN):
        raise MidfillError("cancelled", "no command was chosen, nothing was filled")
    return answer.removeprefix(RUN)


def guess(workspace: SyncedWorkspace, uri: str) -> list[str]:
    """Commands that probably test a document, the likeliest first. Reads files, so run it in a worker thread."""
    from midfill_infill.until.choosing import guess_commands

    path, folder = find_path(uri), find_folder(workspace, uri)
    return guess_commands(path, folder) if path is not None and folder is not None else []
