"""Over stdio: where the last change may be made again is told, shown and done, and forgotten when it must be."""

import asyncio
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from tests.lsp.editor import Buffer, Editor, Start, at, configure, describe_client, span

from midfill_lsp.next_edits import REST_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

LINES = [f"self.assertEquals(ß{n}, '😀')\n" for n in range(5)]
SOURCE = "import os\n\n\n" + "".join(LINES)


class Watched:
    """The places that an editor shows, and where its cursor was put."""

    def __init__(self, editor: Editor) -> None:
        self.places: list[Any] = []
        self.cursors: list[int] = []
        editor.client.feature("midfill/didChangeRepeats")(lambda params: self._see(params))
        editor.client.feature(types.WINDOW_SHOW_DOCUMENT)(lambda params: self._show(params))

    def _see(self, params: Any) -> None:
        self.places = list(params.places)

    def _show(self, params: types.ShowDocumentParams) -> types.ShowDocumentResult:
        assert params.selection is not None
        self.cursors.append(params.selection.start.line)
        return types.ShowDocumentResult(True)


async def begin(start: Start, source: str = SOURCE, **settings: object) -> tuple[Editor, Buffer, Watched]:
    client = describe_client()
    assert client.window
    client.window.show_document = types.ShowDocumentClientCapabilities(True)
    editor = await start(capabilities=client)
    watched = Watched(editor)
    configure(editor, **settings)
    return editor, editor.open(source), watched


def change(editor: Editor, buffer: Buffer, number: int) -> None:
    """As somebody who types: a few keys, one change each."""
    place = at(buffer, f"s(ß{number}")
    editor.edit(buffer, place, place + 1, "")


def here(buffer: Buffer, text: str) -> dict[str, Any]:
    return span(buffer, at(buffer, text))["start"]  # type: ignore[no-any-return]


async def test_one_key_goes_from_place_to_place_and_makes_the_change(start: Start) -> None:
    editor, buffer, watched = await begin(start)
    change(editor, buffer, 1)
    first = await editor.do("repeat", uri=buffer.uri, position=here(buffer, "ß1"))
    assert (first["applied"], first["left"], watched.cursors) == (0, 4, [5]) and not editor.seen.edits
    second = await editor.do("repeat", uri=buffer.uri, position=here(buffer, "ß2"))
    assert (second["applied"], second["left"], watched.cursors) == (1, 3, [5, 6])
    assert "assertEqual(ß2" in buffer.text.source and len(editor.seen.edits) == 1
    everywhere = await editor.do("repeat", uri=buffer.uri, action="all")
    assert (everywhere["applied"], everywhere["left"]) == (3, 0) and len(editor.seen.edits) == 2
    assert buffer.text.source == SOURCE.replace("Equals", "Equal")
    with pytest.raises(JsonRpcException, match="fits nowhere else"):
        await editor.do("repeat", uri=buffer.uri)


async def test_what_was_done_twice_is_shown_unasked_where_that_is_wanted(start: Start) -> None:
    editor, buffer, watched = await begin(start)
    change(editor, buffer, 0)
    await editor.do("repeat", uri=buffer.uri, action="next")
    change(editor, buffer, 1)
    await editor.wait_for(lambda: len(watched.places) == 3)
    lines = [place.range.start.line for place in watched.places]
    assert lines == [5, 6, 7] and {place.text for place in watched.places} == {"assertEqual"}
    editor.edit(buffer, 0, 0, "# typed elsewhere\n")
    await editor.wait_for(lambda: not watched.places)
    configure(editor, nextEdits=False)
    change(editor, buffer, 2)
    change(editor, buffer, 3)
    assert (await editor.do("repeat", uri=buffer.uri))["left"] == 1
    assert len(watched.places) == 1, "what was asked for is shown"


async def test_a_change_that_is_dismissed_undone_or_closed_is_forgotten(start: Start) -> None:
    editor, buffer, _ = await begin(start)
    change(editor, buffer, 0)
    await editor.do("repeat", uri=buffer.uri, action="dismiss")
    with pytest.raises(JsonRpcException, match="fits nowhere else"):
        await editor.do("repeat", uri=buffer.uri)
    change(editor, buffer, 1)
    place = at(buffer, "(ß1")
    editor.edit(buffer, place, place, "s")
    with pytest.raises(JsonRpcException, match="fits nowhere else"):
        await editor.do("repeat", uri=buffer.uri)
    editor.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(buffer.uri)))
    buffer = editor.open(buffer.text.source)
    with pytest.raises(JsonRpcException, match="fits nowhere else"):
        await editor.do("repeat", uri=buffer.uri)


@pytest.mark.parametrize("answer_s", [0.0, 2 * REST_S])
async def test_two_fills_are_no_change_that_somebody_made_twice(start: Start, answer_s: float) -> None:
    stub = "def {}(ä):\n    pass\n\n\n"
    editor, buffer, watched = await begin(start, "".join(map(stub.format, "abcd")))
    editor.answer_s = answer_s
    for name in "ab":
        place = here(buffer, f"def {name}")
        await editor.do("fill", uri=buffer.uri, what="body", ranges=[{"start": place, "end": place}])
    await asyncio.sleep(2 * REST_S)
    await editor.settle()
    assert not watched.places
    assert (await editor.do("repeat", uri=buffer.uri))["left"] == 2, "it is one for who asks"


async def test_code_actions_offer_it_to_editors_without_a_plugin(start: Start) -> None:
    editor, buffer, _ = await begin(start)
    change(editor, buffer, 0)
    cursor = buffer.text.range((at(buffer, "ß0"),) * 2)
    asked = types.CodeActionParams(
        types.TextDocumentIdentifier(buffer.uri), cursor, types.CodeActionContext([], ["refactor.rewrite.repeat"])
    )
    asked.context.trigger_kind = types.CodeActionTriggerKind.Automatic
    assert not await editor.client.text_document_code_action_async(asked), "a cursor that moves starts no search"
    asked.context.trigger_kind = types.CodeActionTriggerKind.Invoked
    found = await editor.client.text_document_code_action_async(asked)
    asked.context.trigger_kind = types.CodeActionTriggerKind.Automatic
    assert await editor.client.text_document_code_action_async(asked) == found, "what is known is offered"
    titles = [action.title for action in found or ()]
    assert titles == ["Make the last change again, or go there: line 5", "Make the last change in 4 more places"]
    asked.range = buffer.text.range((at(buffer, "😀')\nself.assertEquals(ß3"),) * 2)
    first, *_ = await editor.client.text_document_code_action_async(asked) or ()
    assert first.title.endswith("line 6"), "a place on the cursor's line is made where the cursor is behind it"
    assert found and isinstance(found[1], types.CodeAction) and found[1].command
    assert (await editor.run(found[1].command))["applied"] == 4
    assert buffer.text.source == SOURCE.replace("Equals", "Equal")


async def test_words_of_an_edit_without_a_counterpart_are_filled_by_the_model(start: Start) -> None:
    source = "set(user_name, 1)\nset(2, 3, 4)\n"
    editor, buffer, _ = await begin(start, source)
    place = at(buffer, ", 1")
    editor.edit(buffer, place, place + 3, ", old_name, 1")
    done = await editor.do("repeat", uri=buffer.uri, position=here(buffer, "set(2"))
    (pending,) = editor.seen.pending[buffer.uri]
    assert done["applied"] == 1 and "+ new" in buffer.text.source and len(pending.holes) == 1
