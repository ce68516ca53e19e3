"""Over stdio with a scripted filler: which fill a command means, and what is pending where, whatever the user does."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from tests.lsp.editor import BODY, SOURCE, Buffer, Editor, at, body, configure, span
from tests.lsp.gate import Gate
from tests.lsp.scripted_server import FILL, GUESS

from midfill_engine.wire import FilledHole, Stats
from midfill_infill.filling.candidates import Alternative, place_fill
from midfill_infill.filling.fill import Filled
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import body_named
from midfill_infill.text.diffs import common_prefix
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Patch
from midfill_lsp.fills import Fills
from midfill_lsp.pending import Pending, place_holes
from midfill_lsp.text import SyncedDocument, Text

pytestmark = pytest.mark.asyncio(loop_scope="module")

TWO = "def first(a):\n    return a\n\n\ndef second(b):\n    return b\n"


def here(buffer: Buffer, text: str) -> dict[str, Any]:
    """The cursor at a text, as a plugin names it."""
    return {"uri": buffer.uri, "position": span(buffer, at(buffer, text))["start"]}


def ids(editor: Editor, buffer: Buffer) -> list[int]:
    return [fill.id for fill in editor.seen.pending.get(buffer.uri, [])]


async def fill_both(editor: Editor, buffer: Buffer) -> tuple[int, int]:
    first = await editor.do("fill", **body(buffer, "return a"))
    second = await editor.do("fill", **body(buffer, "return b"))
    return first["id"], second["id"]


async def test_a_command_acts_on_the_fill_under_the_cursor(editor: Editor) -> None:
    buffer = editor.open(TWO)
    first, second = await fill_both(editor, buffer)
    assert ids(editor, buffer) == [first, second]
    assert (await editor.do("accept", **here(buffer, "def first")))["id"] == second, "else the latest"
    await fill_both(editor, buffer := editor.open(TWO, uri="untitled:2"))
    done = await editor.do("discard", **here(buffer, FILL))
    assert buffer.text.source == TWO.replace("return b", FILL) and done["uri"] == buffer.uri
    assert len(ids(editor, buffer)) == 1
    with pytest.raises(JsonRpcException, match="nothing is pending here"):
        await editor.do("discard", **here(editor.open(TWO, uri="untitled:3"), "return a"))


@pytest.mark.parametrize("command, old", [("next", "return 1"), ("reroll", "return + new")])
async def test_a_fill_whose_successor_is_what_stood_there_is_pending_throughout(
    editor: Editor, command: str, old: str
) -> None:
    """The editor tells of the edit before it answers that it took it: until then it looks like an undo."""
    source = TWO.replace("return a", old)
    buffer = editor.open(source)
    first = (await editor.do("fill", **body(buffer, old, alternatives=3)))["id"]
    second = (await editor.do("fill", **body(buffer, "return b")))["id"]
    await editor.settle()
    editor.seen.told.clear()
    done = await editor.do(command, id=first)
    await editor.settle()
    assert buffer.text.source == source.replace("return b", FILL)
    assert editor.seen.told == [(buffer.uri, [second, done["id"]])]


@pytest.mark.parametrize("command", ["accept", "discard"])
async def test_a_fill_of_what_stood_there_is_its_own_only_hunk(editor: Editor, command: str) -> None:
    buffer = editor.open(TWO.replace("return a", "return 1"))
    await editor.do("fill", **body(buffer, "return 1", alternatives=2))
    await editor.do("next")
    await editor.do(command, **here(buffer, "return 1"), part="hunk")
    assert ids(editor, buffer) == [] and "return 1" in buffer.text.source


async def test_a_fill_that_newer_ones_drive_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midfill_lsp.pending.MAX_PENDING", 1)
    told: list[tuple[str, int]] = []
    server = SimpleNamespace(
        freeze_settings=dict,
        client_capabilities=types.ClientCapabilities(),
        tell=lambda method, message, uri, is_empty: told.append((uri, len(message.fills))),
    )
    fills = Fills(cast(Any, server), cast(Any, None), cast(Any, None))
    filled = Filled(Alternative(Patch(()), (), 0), (), Stats(steps=1, forwards=1, tokens=1, ms=1.0), "model")
    for number in (1, 2):
        document = SyncedDocument(f"untitled:{number}", Text(""), 1, "python")
        fills._pending.add(Pending(number, document, filled, 0, "\n"))
        fills._tell_pending(document)
    assert told == [("untitled:1", 1), ("untitled:1", 0), ("untitled:2", 1)]


async def test_a_command_anywhere_on_the_line_acts_on_its_fill(editor: Editor) -> None:
    buffer = editor.open("x = f(1)  # 😀\ny = f(2)\n")
    for text in ("1", "2"):
        await editor.do(
            "fill", uri=buffer.uri, what="selection", ranges=[span(buffer, at(buffer, text), at(buffer, text) + 1)]
        )
    await editor.do("discard", **here(buffer, "😀"))
    assert buffer.text.source == f"x = f(1)  # 😀\ny = f({FILL})\n"


async def test_commands_act_on_running_fills_by_place_and_by_id(editor: Editor, gate: Gate) -> None:
    one, other = editor.open(TWO), editor.open(TWO, uri="untitled:2")
    configure(editor, model=gate.model, steps=200)
    asked = [(one, "return a"), (one, "return b"), (other, "return a"), (other, "return b")]
    fills = [
        asyncio.ensure_future(editor.do("fill", **body(buffer, text, previewToken=token)))
        for token, (buffer, text) in enumerate(asked)
    ]
    await editor.wait_for(lambda: {preview.token for preview in editor.seen.previews} == {0, 1, 2, 3})
    running = {preview.token: preview.id for preview in editor.seen.previews}
    assert (await editor.do("discard", **here(one, "return b")))["id"] == running[1]
    assert (await editor.do("finish", id=running[3]))["uri"] == other.uri
    with pytest.raises(JsonRpcException, match="no fill is running here"):
        await editor.do("finish", uri="untitled:3")
    with pytest.raises(JsonRpcException, match="no fill is running here"):
        await editor.do("finish", id=10_000)
    assert (await editor.do("accept", **here(one, "return a")))["id"] == running[0]
    gate.let(1)
    assert (await fills[3])["id"] == running[3] and (await fills[0])["id"] == running[0]
    with pytest.raises(JsonRpcException) as error:
        await fills[1]
    assert error.value.code == types.LSPErrorCodes.RequestCancelled
    assert one.text.source == TWO.replace("return a", GUESS) and other.text.source == TWO.replace("return b", GUESS)
    await editor.do("discard", uri=one.uri)
    assert one.text.source == TWO and ids(editor, other) == [running[3]]
    gate.open()
    await fills[2]
    assert ids(editor, other) == [running[2], running[3]]


@pytest.mark.parametrize(
    "command, kept", [("accept", FILL), ("discard", BODY), ("next", "return 1"), ("reroll", "return + new")]
)
async def test_a_command_for_a_fill_by_its_id_ends_its_reroll(
    editor: Editor, gate: Gate, command: str, kept: str
) -> None:
    """A lens names the fill; a position would name the reroll."""
    buffer = editor.open(SOURCE)
    fill = await editor.do("fill", **body(buffer, alternatives=2))
    configure(editor, model=gate.model)
    reroll = asyncio.ensure_future(editor.do("reroll", id=fill["id"], previewToken=1))
    await editor.wait_for(lambda: editor.seen.previews)
    asked = asyncio.ensure_future(editor.do(command, id=fill["id"]))
    with pytest.raises(JsonRpcException) as error:
        await reroll
    assert error.value.code == types.LSPErrorCodes.RequestCancelled
    gate.open()
    await asked
    assert buffer.text.source == SOURCE.replace(BODY, kept)


UNDO = [
    ("return b + 1", "the whole hole"),
    ("", "nothing"),
    ("retry", "what begins as the fill"),
    (FILL * 2, "itself twice"),
]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("held", [held for held, _ in UNDO])
async def test_an_undone_fill_is_dropped_and_redo_makes_plain_text(editor: Editor, held: str, whole: bool) -> None:
    buffer = editor.open(f"x = [{held}]\n")
    before = buffer.text.source
    start = before.index("[") + 1
    await editor.do("fill", uri=buffer.uri, what="selection", ranges=[span(buffer, start, start + len(held))])
    filled = buffer.text.source
    assert len(await editor.lenses(buffer)) == 3
    put(editor, buffer, before, whole=whole)
    assert await editor.lenses(buffer) == [] and ids(editor, buffer) == []
    put(editor, buffer, filled, whole=whole)
    assert await editor.lenses(buffer) == []
    with pytest.raises(JsonRpcException, match="nothing is pending here"):
        await editor.do("discard", uri=buffer.uri)


def put(editor: Editor, buffer: Buffer, text: str, *, whole: bool) -> None:
    """As an undo may come: the changed lines from their first difference to their last, or all of the text."""
    source = buffer.text.source
    if whole:
        editor.edit(buffer, 0, len(source), text)
        return
    start = common_prefix(source, text)
    tail = 0
    while tail < min(len(source), len(text)) - start and source[-1 - tail] == text[-1 - tail]:
        tail += 1
    editor.edit(buffer, start, len(source) - tail, text[start : len(text) - tail])


async def test_an_undone_fill_is_dropped_after_other_edits_too(editor: Editor) -> None:
    buffer = editor.open(TWO)
    first, second = await fill_both(editor, buffer)
    editor.edit(buffer, 0, 0, "# typed\n")
    place = at(buffer, FILL)
    editor.edit(buffer, place + 2, place + 2, "typed")
    editor.edit(buffer, place, place + len(FILL) + 5, "return a")
    await editor.settle()
    assert ids(editor, buffer) == [second] != [first]
    await editor.do("discard", uri=buffer.uri)
    assert buffer.text.source == "# typed\n" + TWO


async def test_stubs_are_undone_hole_by_hole_and_typing_beside_drops_nothing(editor: Editor) -> None:
    source = "def f():\n    ...\n\n\ndef g():\n    ...\n"
    buffer = editor.open(source)
    await editor.do("fill", uri=buffer.uri, what="stubs")
    editor.edit(buffer, at(buffer, "def g"), at(buffer, "def g"), "# beside\n")
    assert len(await editor.lenses(buffer)) == 3
    for _ in range(2):
        editor.edit(buffer, at(buffer, FILL), at(buffer, FILL) + len(FILL), "...")
    assert await editor.lenses(buffer) == []
    assert buffer.text.source == source.replace("def g", "# beside\ndef g")


async def test_a_reroll_that_is_undone_is_dropped(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    await editor.do("fill", **body(buffer))
    filled = buffer.text.source
    await editor.do("reroll")
    put(editor, buffer, filled, whole=False)
    assert await editor.lenses(buffer) == []


@pytest.mark.parametrize("source, hole", [
    ("x = 1   \ny\n", "1   "), ("a\rhole\nb\n", "hole"), ("a\r\nhole\r\nb", "hole\r\n"),
    ("    call  \n\n", "    call  "), ("a\rhole\rb\n", "\rhole"), ("if x:\n    one  \n    two\t\n", "one  \n    two\t"),
])  # fmt: skip
@pytest.mark.parametrize("num_rerolls", [0, 1, 2])
async def test_discard_puts_back_every_byte_after_an_empty_fill(
    editor: Editor, source: str, hole: str, num_rerolls: int
) -> None:
    buffer = editor.open(source)
    configure(editor, model="empty")
    start = source.index(hole)
    await editor.do("fill", uri=buffer.uri, what="selection", ranges=[span(buffer, start, start + len(hole))])
    for number in range(num_rerolls):
        configure(editor, model="empty" if number else None)
        await editor.do("reroll")
    await editor.do("discard")
    assert buffer.text.source == source


async def test_what_is_pending_is_told_with_its_places(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    await editor.do("fill", **body(buffer, alternatives=3))
    await editor.settle()
    (fill,) = editor.seen.pending[buffer.uri]
    assert (fill.holes[0].original, fill.alternatives, fill.newErrors, fill.stats.steps) == (BODY, 2, 0, 3)
    assert texts(buffer, [fill.holes[0].range]) == [FILL] and texts(buffer, fill.weak) == ["'ß😀'"]
    editor.edit(buffer, 0, 0, "# 😀\n")
    editor.edit(buffer, at(buffer, FILL) + 1, at(buffer, FILL) + 1, "xx")
    await editor.wait_for(lambda: editor.seen.pending[buffer.uri][0].holes[0].range.start.line == 11)
    (fill,) = editor.seen.pending[buffer.uri]
    assert texts(buffer, [fill.holes[0].range]) == ["rxx" + FILL[1:]] and texts(buffer, fill.weak) == ["'ß😀'"]
    editor.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(buffer.uri)))
    await editor.settle()
    assert ids(editor, buffer) == []


def texts(buffer: Buffer, ranges: Any) -> list[str]:
    places = [[types.Position(end.line, end.character) for end in (range.start, range.end)] for range in ranges]
    return [buffer.text.source[slice(*buffer.text.span(types.Range(*ends)))] for ends in places]


async def test_new_syntax_errors_are_diagnostics_until_they_are_gone(editor: Editor) -> None:
    buffer = editor.open("x = f(1)\n")
    place = at(buffer, "1")
    asked = {"uri": buffer.uri, "what": "selection", "ranges": [span(buffer, place, place + 1)]}
    result = await editor.do("fill", **asked)
    assert result["newErrors"] == 1
    await editor.settle()
    (found,) = editor.seen.diagnostics[buffer.uri]
    assert found.severity is types.DiagnosticSeverity.Warning and buffer.text.span(found.range)[0] == place
    await editor.do("accept")
    await editor.settle()
    assert editor.seen.diagnostics[buffer.uri] == []


@pytest.mark.parametrize("change", [
    {"range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 2**31}}, "text": "x"},
    {"range": {"start": {"line": 0, "character": 0}, "end": {"line": -1, "character": 0}}, "text": "x"},
    {"range": 7, "text": "x"},
])  # fmt: skip
async def test_a_refused_change_puts_the_document_out_of_step(editor: Editor, change: dict[str, Any]) -> None:
    buffer = editor.open(SOURCE)
    identifier = {"uri": buffer.uri, "version": 2}
    params = {"textDocument": identifier, "contentChanges": [change]}
    editor.client.protocol._send_data({"jsonrpc": "2.0", "method": "textDocument/didChange", "params": params})
    buffer.version = 2
    with pytest.raises(JsonRpcException, match="lost track"):
        await editor.do("fill", **body(buffer))
    whole = types.TextDocumentContentChangeWholeDocument(SOURCE)
    versioned = types.VersionedTextDocumentIdentifier(3, buffer.uri)
    buffer.version = 3
    editor.client.text_document_did_change(types.DidChangeTextDocumentParams(versioned, [whole]))
    await editor.do("fill", **body(buffer))
    assert buffer.text.source == SOURCE.replace(BODY, FILL)


LINES = "def f(a):\n    first = 1\n    second = 2\n    third = 3\n\n\n"
WRITTEN = "first = one\n    second = 2\n    third = three\n    fourth = 4"


async def fill_lines(editor: Editor, buffer: Buffer) -> str:
    configure(editor, model=f"writes:{WRITTEN}")
    await editor.do("fill", **body(buffer, "second"))
    await editor.settle()
    return buffer.text.source


def hunks(editor: Editor, buffer: Buffer) -> list[tuple[str, str]]:
    """What stands there now, and what stood there."""
    found = [hunk for fill in editor.seen.pending.get(buffer.uri, []) for hole in fill.holes for hunk in hole.hunks]
    return [(new, hunk.text) for hunk, new in zip(found, texts(buffer, [hunk.range for hunk in found]), strict=True)]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
async def test_hunks_are_kept_and_put_back_one_by_one(editor: Editor, newline: str) -> None:
    buffer = editor.open("# 😀\n" + LINES if newline == "\n" else ("# 😀\n" + LINES).replace("\n", newline))
    filled = await fill_lines(editor, buffer)
    last = f"    third = three{newline}    fourth = 4"
    assert hunks(editor, buffer) == [("first = one", "first = 1"), (last, "    third = 3")]
    (first,) = ids(editor, buffer)
    done = await editor.do("discard", **here(buffer, "fourth"), part="hunk")
    assert done["id"] == first and ids(editor, buffer) == [first]
    assert buffer.text.source == filled.replace(last, "    third = 3")
    await editor.settle()
    assert hunks(editor, buffer) == [("first = one", "first = 1")]
    with pytest.raises(JsonRpcException, match="has no alternatives"):
        await editor.do("next", **here(buffer, "fourth" if "fourth" in buffer.text.source else "second"))
    await editor.do("accept", **here(buffer, "one"), part="hunk")
    assert ids(editor, buffer) == [] and await editor.lenses(buffer) == []
    assert buffer.text.source == filled.replace(last, "    third = 3")


async def test_what_was_decided_stays_in_a_reroll_and_goes_with_a_discard(editor: Editor) -> None:
    buffer = editor.open(LINES)
    filled = await fill_lines(editor, buffer)
    await editor.do("accept", **here(buffer, "one"), part="hunk")
    await editor.do("reroll", **here(buffer, "second"), keep=0.0)
    assert "first = one\n    second = 2" in buffer.text.source and "third = three" not in buffer.text.source
    await editor.do("discard", **here(buffer, "one"))
    assert buffer.text.source == LINES.replace("first = 1", "first = one") != filled


async def test_holes_are_kept_and_put_back_one_by_one(editor: Editor) -> None:
    source = "def f():\n    ...\n\n\ndef g():\n    ...\n\n\ndef h():\n    ...\n"
    buffer = editor.open(source)
    await editor.do("fill", uri=buffer.uri, what="stubs")
    (only,) = ids(editor, buffer)
    with pytest.raises(JsonRpcException, match="no hole of a fill is here"):
        await editor.do("discard", uri=buffer.uri, part="hole")
    await editor.do("discard", uri=buffer.uri, position={"line": 5, "character": 0}, part="hole")
    assert buffer.text.source.split("def g")[1].startswith("():\n    ...\n")
    await editor.settle()
    assert [len(fill.holes) for fill in editor.seen.pending[buffer.uri]] == [2] and ids(editor, buffer) == [only]
    await editor.do("accept", uri=buffer.uri, position={"line": 1, "character": 8}, part="hole")
    await editor.do("reroll", uri=buffer.uri)
    assert buffer.text.source.startswith(f"def f():\n    {FILL}\n") and "+ new" in buffer.text.source.split("def h")[1]
    await editor.do("discard", uri=buffer.uri, part="hole")
    assert buffer.text.source == source.replace("...", FILL, 1) and ids(editor, buffer) == []


async def test_a_hole_that_is_undone_by_hand_is_let_go_alone(editor: Editor) -> None:
    buffer = editor.open("def f():\n    ...\n\n\ndef g():\n    ...\n")
    await editor.do("fill", uri=buffer.uri, what="stubs")
    place = at(buffer, FILL)
    editor.edit(buffer, place, place + len(FILL), "...")
    await editor.wait_for(lambda: [len(fill.holes) for fill in editor.seen.pending[buffer.uri]] == [1])


async def test_the_errors_of_a_hole_that_was_let_go_go_with_it() -> None:
    document = Document.from_text(TWO, "python")
    holes = [body_named(document, name) for name in ("first", "second")]
    texts = ["return (", "return 1"]
    spliced = splice(document, holes, texts)
    filled = [FilledHole(text=text, tokens=[], confidence=[]) for text in texts]
    fills = tuple(place_fill(*parts) for parts in zip(holes, filled, spliced.fills, strict=True))
    best = Alternative(spliced.patch, fills, spliced.new_errors)
    after = spliced.patch.apply(document.data).decode()
    spans = [(hole.start_byte, hole.end_byte) for hole in holes]
    placed = place_holes(best, spans, [TWO[slice(*span)] for span in spans], "\n")
    synced = SyncedDocument("untitled:1", Text(after), 1, "python")
    stats = Stats(steps=1, forwards=1, tokens=1, ms=1.0)
    pending = Pending(1, synced, Filled(best, (), stats, "m"), 0, "\n", placed)
    pending.mark()
    assert best.new_errors and pending.errors and best.fills[0].errors
    pending.narrow(placed[1:])
    pending.mark()
    assert pending.filled.new_errors == 0 and pending.errors == []


async def test_what_is_around_a_place_and_a_document_that_is_in_no_language(editor: Editor) -> None:
    buffer = editor.open("# 😀\ndef f(a):\n    if a:\n        x = '😀' + a\n    return x\n")
    place = at(buffer, "+ a")
    answer = await editor.ask("midfill/holes", {"uri": buffer.uri, "range": span(buffer, place, place)})
    found = texts(buffer, answer.ranges)
    assert found[:3] == ["x = '😀' + a", "if a:\n        x = '😀' + a", "if a:\n        x = '😀' + a\n    return x"]
    await editor.do("fill", uri=buffer.uri, what="selection", ranges=[span(buffer, at(buffer, "x ="), place + 3)])
    assert f"if a:\n        {FILL}\n    return x" in buffer.text.source
    other = editor.open("plain words\n", uri="untitled:plain", language="plaintext")
    assert (await editor.ask("midfill/holes", {"uri": other.uri, "range": span(other, 2, 2)})).ranges == []


async def test_ghost_text_is_snoozed_and_off_by_language(editor: Editor) -> None:
    buffer = editor.open("def f():\n    \n")
    place = len("def f():\n    ")
    assert (await editor.do("snooze", minutes=5))["snoozing"]
    assert await editor.suggest(buffer, place) == [] and len(await editor.suggest(buffer, place, invoked=True)) == 3
    assert not (await editor.do("snooze", minutes=0)).get("snoozing")
    configure(editor, languages={"python": False}, debounceMs=0)
    assert await editor.suggest(buffer, place) == []
    configure(editor, languages={"*": False, "python": True}, debounceMs=0)
    assert await editor.suggest(buffer, place) == [FILL]
    assert (await editor.do("snooze", minutes=0.001))["snoozing"]
    await editor.wait_for(lambda: not editor.seen.status[-1].snoozing)
