"""The real server over stdio with a scripted filler: actions, edits, progress, cancel, moved documents, bad input."""

import asyncio
import re
import sys
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from tests.lsp.editor import REAL, SCRIPTED, TIMEOUT_S, Buffer, Editor, Start, body, describe_client
from tests.lsp.gate import Gate
from tests.lsp.scripted_server import FILL

from midfill_lsp.progress import MIN_INTERVAL_S, FillProgress, show_progress
from midfill_lsp.protocol import PARENT_POLL_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOURCE = "# 😀 ünï\x0c\nimport os\n\n\ndef first(a):\n    '''Doc.'''\n    ...\n\n\ndef second(b):\n    return b + 1\n"
BODY = "return b + 1"


def at(buffer: Buffer, text: str) -> int:
    return buffer.text.source.index(text)


async def body_command(editor: Editor, buffer: Buffer, inside: str = BODY) -> types.Command:
    command = (await editor.actions(buffer, at(buffer, inside)))["body"].command
    assert isinstance(command, types.Command)
    return command


def fill_command(arguments: list[object] | None) -> types.Command:
    return types.Command("", "midfill.fill", arguments=arguments)


async def wait_for_step(editor: Editor, step: int = 0) -> None:
    await editor.wait_for(lambda: any(f"step {step}/" in value.get("message", "") for value in editor.seen.progress))


async def test_the_server_announces_its_commands_and_actions(editor: Editor) -> None:
    provider = editor.capabilities.code_action_provider
    assert isinstance(provider, types.CodeActionOptions)
    kinds = ("fill.body", "fill.selection", "fill.stubs", "fill.hole", "fill.until", "repeat")
    assert provider.code_action_kinds == tuple(f"refactor.rewrite.{kind}" for kind in kinds)
    names = ("fill", "until", "finish", "accept", "reroll", "next", "discard", "repeat", "snooze")
    assert editor.capabilities.execute_command_provider.commands == tuple(f"midfill.{name}" for name in names)
    assert editor.capabilities.inline_completion_provider and editor.capabilities.code_lens_provider
    assert editor.capabilities.text_document_sync.change == types.TextDocumentSyncKind.Incremental


async def test_actions_are_offered_where_they_apply(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    assert set(await editor.actions(buffer, at(buffer, "import"))) == {"stubs"}
    assert set(await editor.actions(buffer, at(buffer, BODY))) == {"body", "until", "stubs"}
    selected = await editor.actions(buffer, at(buffer, "import"), at(buffer, "import") + 6)
    assert set(selected) == {"selection", "stubs"}
    assert selected["selection"].title == "Fill selection"
    assert selected["selection"].tags == (types.CodeActionTag.LlmGenerated,)
    only = await editor.actions(buffer, at(buffer, BODY), only=["refactor.rewrite.fill.body"])
    assert set(only) == {"body"}
    assert await editor.actions(buffer, at(buffer, BODY), only=[types.CodeActionKind.QuickFix]) == {}
    assert "stubs" not in await editor.actions(editor.open("def f():\n    return 1\n", uri="untitled:2"), 10)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_a_body_is_filled_by_one_versioned_edit(start: Start, encoding: str) -> None:
    editor = await start(encodings=(encoding, "utf-16"))
    for newline in ("\n", "\r\n", "\r"):
        source = SOURCE.replace("\n", newline)
        buffer = editor.open(source, uri=f"untitled:{newline!r}")
        assert buffer.text.encoding == encoding
        result = await editor.run(await body_command(editor, buffer))
        assert editor.seen.edits.pop().label == "Midfill: fill function body" and not editor.seen.edits
        assert buffer.text.source == source.replace(BODY, FILL)
        assert result["holes"][0]["text"] == FILL and result["version"] == 1 and result["newErrors"] == 0
        assert result["stats"]["steps"] == 3


LARGE = "def long():\n" + "    x = 1\n" * 60 + "\n\ndef short():\n    ...\n"


@pytest.mark.parametrize("answer", [None, "Cancel", "Fill"])
async def test_a_large_body_goes_only_where_its_user_says_so(editor: Editor, answer: str | None) -> None:
    buffer, editor.answer = editor.open(LARGE), answer
    command = await body_command(editor, buffer, "x = 1")
    if answer == "Fill":
        await editor.run(command)
        assert buffer.text.source == LARGE.replace("    x = 1\n" * 60, f"    {FILL}\n")
    else:
        with pytest.raises(JsonRpcException, match="not confirmed, nothing was filled"):
            await editor.run(command)
        assert buffer.text.source == LARGE and not editor.seen.edits
    (question,) = editor.seen.questions
    assert question.message == "Midfill: this replaces 60 of 65 lines (long)."
    assert [action.title for action in question.actions or ()] == ["Fill", "Cancel"]


async def test_nobody_is_asked_twice_or_about_little(editor: Editor) -> None:
    buffer = editor.open(LARGE)
    await editor.run(await body_command(editor, buffer, "..."))
    command = await body_command(editor, buffer, "x = 1")
    assert command.arguments
    await editor.run(fill_command([{**command.arguments[0], "large": True}]))
    assert not editor.seen.questions and buffer.text.source.count(FILL) == 2


async def test_a_selection_and_all_stubs(editor: Editor) -> None:
    buffer = editor.open(SOURCE + "\n\ndef third(): pass\n")
    start = at(buffer, "b + 1")
    actions = await editor.actions(buffer, start, start + 5)
    await editor.run(actions["selection"].command)
    assert buffer.text.source.count(f"    {FILL}\n") == 1  # `return` stands before the hole already
    await editor.run((await editor.actions(buffer, 0))["stubs"].command)
    assert len(editor.seen.edits) == 2
    assert buffer.text.source.count(FILL) == 3 and "..." not in buffer.text.source


async def test_several_ranges_are_filled_jointly(editor: Editor) -> None:
    buffer = editor.open("first = 1\nsecond = 2\n")
    ranges = [buffer.text.range((8, 9)), buffer.text.range((19, 20))]
    arguments = {"uri": buffer.uri, "what": "selection", "ranges": [unstructure(editor, span) for span in ranges]}
    result = await editor.run(fill_command([arguments]))
    assert len(result["holes"]) == 2 and len(editor.seen.edits) == 1
    assert buffer.text.source == f"first = {FILL}\nsecond = {FILL}\n"


async def test_progress_begins_rises_and_ends(editor: Editor, gate: Gate) -> None:
    buffer = editor.open(SOURCE)
    await reconfigure(editor, steps=8, model=gate.model)
    fill = asyncio.ensure_future(editor.run(await body_command(editor, buffer), token="mine"))
    await wait_for_step(editor)
    await asyncio.sleep(MIN_INTERVAL_S)
    gate.let(1)
    await wait_for_step(editor, 1)
    gate.open()
    await fill
    begin, *reports, end = editor.seen.progress
    assert (begin["kind"], begin["title"], begin["cancellable"]) == ("begin", "Midfill: fill function body", True)
    assert (end["kind"], end["message"]) == ("end", "done")
    assert reports[0]["message"] == "starting the engine"
    steps = [report for report in reports if "percentage" in report]
    assert len(steps) >= 2 and all(re.fullmatch(r"step \d/8, \d+% settled", step["message"]) for step in steps)
    assert all(first["percentage"] < second["percentage"] for first, second in pairwise(steps))


@pytest.mark.parametrize(
    ("masked", "expected"),
    [
        ([[9, 3], [6, 3]], [("step 0/16, 0% settled", 0), ("step 1/16, 25% settled", 6)]),
        ([[1, 1, 1], [0, 1, 1]], [("step 0", None), ("step 1", None)]),  # a model that writes from the left
    ],
)
async def test_progress_counts_what_a_model_settles(
    monkeypatch: pytest.MonkeyPatch, masked: list[list[int]], expected: list[tuple[str, int | None]]
) -> None:
    reports: list[tuple[str, int | None]] = []
    work = SimpleNamespace(
        tokens={"t": asyncio.Future()},
        begin=lambda token, begin: None,
        report=lambda token, report: reports.append((report.message, report.percentage)),
    )
    monkeypatch.setattr("midfill_lsp.progress.MIN_INTERVAL_S", 0)
    progress = FillProgress(cast(Any, SimpleNamespace(work_done_progress=work)), "fill")
    task = asyncio.current_task()
    assert task is not None
    progress.begin("t", task)
    for step, counts in enumerate(masked):
        progress.step(step, 16, counts)
    assert reports == expected


async def test_progress_that_is_granted_when_the_fill_ends_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midfill_lsp.progress.CREATE_DELAY_S", 0)
    asked, granted, sent = asyncio.Event(), asyncio.Event(), list[str]()

    async def grant(token: str) -> None:
        asked.set()
        await granted.wait()

    work = SimpleNamespace(
        tokens=defaultdict(asyncio.Future),
        create_async=grant,
        begin=lambda token, begin: sent.append("begin"),
        end=lambda token, end: sent.append("end"),
    )
    window = types.WindowClientCapabilities(work_done_progress=True)
    server = SimpleNamespace(work_done_progress=work, client_capabilities=types.ClientCapabilities(window=window))
    async with show_progress(cast(Any, server), None, "fill"):
        await asked.wait()
        granted.set()
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    assert sent in ([], ["begin", "end"])


@pytest.mark.parametrize("how", ["request", "progress"])
async def test_cancel_stops_the_fill_and_the_next_one_works(editor: Editor, gate: Gate, how: str) -> None:
    buffer = editor.open(SOURCE)
    await reconfigure(editor, model=gate.model)
    fill = asyncio.ensure_future(editor.run(await body_command(editor, buffer), token="mine", msg_id="fill"))
    await wait_for_step(editor)
    if how == "request":
        editor.client.cancel_request(types.CancelParams("fill"))
    else:
        editor.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams("mine"))
    with pytest.raises(JsonRpcException) as error:
        await fill
    assert error.value.code == types.LSPErrorCodes.RequestCancelled
    await reconfigure(editor, steps=2)
    assert not editor.seen.edits and editor.seen.progress[-1]["message"] == "cancelled"
    await editor.run(await body_command(editor, buffer))
    assert buffer.text.source == SOURCE.replace(BODY, FILL)


@pytest.mark.parametrize("how", ["request", "progress", "discard", "request, and the change is told late"])
async def test_a_cancel_while_the_editor_applies_puts_the_old_text_back(editor: Editor, how: str) -> None:
    buffer = editor.open(SOURCE)
    editor.tell_s = 0.05 if "late" in how else 0.0

    def cancel() -> None:
        editor.before_apply.clear()
        if how.startswith("request"):
            editor.client.cancel_request(types.CancelParams("fill"))
        elif how == "progress":
            editor.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams("mine"))
        else:
            discard = types.ExecuteCommandParams("midfill.discard", [{"uri": buffer.uri}])
            editor.client.protocol.send_request(types.WORKSPACE_EXECUTE_COMMAND, discard)

    editor.before_apply.append(cancel)
    with pytest.raises(JsonRpcException) as error:
        await editor.run(await body_command(editor, buffer), token="mine", msg_id="fill")
    assert error.value.code == types.LSPErrorCodes.RequestCancelled
    assert buffer.text.source == SOURCE and editor.seen.pending[buffer.uri] == []
    await editor.run(await body_command(editor, buffer, "Doc."))
    assert buffer.text.source == SOURCE.replace("...", FILL)


async def test_a_document_that_is_closed_while_the_editor_applies_has_nothing_pending(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    closed = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(buffer.uri))
    editor.before_apply.append(lambda: editor.client.text_document_did_close(closed))
    await editor.run(await body_command(editor, buffer))
    assert (await editor.ask("midfill/status", {})).pending == 0
    assert not any(editor.seen.pending.values())


async def test_an_edit_elsewhere_moves_the_fill(editor: Editor, gate: Gate) -> None:
    buffer = editor.open(SOURCE)
    await reconfigure(editor, model=gate.model)
    fill = asyncio.ensure_future(editor.run(await body_command(editor, buffer)))
    await editor.wait_for(lambda: editor.seen.progress)
    editor.edit(buffer, 0, 3, "# 😀😀\r\n\n\n#")
    editor.edit(buffer, len(buffer.text.source), len(buffer.text.source), "# end")
    before = buffer.text.source
    await editor.settle()
    gate.open()
    result = await fill
    assert result["version"] == 3 and buffer.text.source == before.replace(BODY, FILL)


@pytest.mark.parametrize("new", ["b", "", "x\n"])
async def test_an_edit_inside_the_hole_wins(editor: Editor, gate: Gate, new: str) -> None:
    buffer = editor.open(SOURCE)
    await reconfigure(editor, model=gate.model)
    fill = asyncio.ensure_future(editor.run(await body_command(editor, buffer), token="mine"))
    await wait_for_step(editor)
    place = at(buffer, BODY) + 6
    editor.edit(buffer, place, place + 1, new)
    before = buffer.text.source
    await editor.settle()
    gate.let(1)
    with pytest.raises(JsonRpcException) as error:
        await fill
    assert error.value.code == types.LSPErrorCodes.ContentModified
    assert buffer.text.source == before and not editor.seen.edits


async def test_an_editor_that_was_ahead_gets_the_edit_again(editor: Editor) -> None:
    buffer = editor.open(SOURCE)

    def type_ahead() -> None:
        editor.before_apply.clear()
        editor.edit(buffer, 0, 0, "# typed\n")

    editor.before_apply.append(type_ahead)
    await editor.run(await body_command(editor, buffer))
    assert len(editor.seen.edits) == 2
    assert buffer.text.source == "# typed\n" + SOURCE.replace(BODY, FILL)


async def test_a_reroll_that_is_cancelled_while_the_editor_refuses_it_is_not_applied_again(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    await editor.do("fill", **body(buffer))

    def cancel_and_type() -> None:
        editor.before_apply.clear()
        editor.client.cancel_request(types.CancelParams("reroll"))
        editor.edit(buffer, 0, 0, "# typed\n")

    editor.before_apply.append(cancel_and_type)
    with pytest.raises(JsonRpcException) as error:
        await editor.do("reroll", msg_id="reroll", uri=buffer.uri)
    assert error.value.code == types.LSPErrorCodes.RequestCancelled
    assert len(editor.seen.edits) == 2 and buffer.text.source == "# typed\n" + SOURCE.replace(BODY, FILL)


async def test_an_editor_that_refuses_for_no_reason_is_told(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    command = await body_command(editor, buffer)
    buffer.version = 5
    with pytest.raises(JsonRpcException, match="did not take the edit"):
        command.arguments[0]["version"] = None
        await editor.run(command)


@pytest.mark.parametrize("applies", [True, False])
async def test_a_document_that_was_closed_is_not_edited(editor: Editor, gate: Gate, applies: bool) -> None:
    buffer = editor.open(SOURCE)
    await reconfigure(editor, model=gate.model)
    request = body(buffer, apply=applies, workDoneToken="mine")
    fill = asyncio.ensure_future(editor.ask("midfill/fill", request))
    await wait_for_step(editor)
    identifier = types.TextDocumentIdentifier(buffer.uri)
    editor.client.text_document_did_close(types.DidCloseTextDocumentParams(identifier))
    editor.open("something = 'else'\n" * 20)
    await editor.settle()
    gate.open()
    with pytest.raises(JsonRpcException, match="closed"):
        await fill
    assert not editor.seen.edits


async def test_progress_is_claimed(editor: Editor) -> None:
    provider = editor.capabilities.execute_command_provider
    assert provider and provider.work_done_progress


async def test_an_offer_for_an_older_version_is_refused(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    command = await body_command(editor, buffer)
    editor.edit(buffer, 0, 0, "\n")
    with pytest.raises(JsonRpcException) as error:
        await editor.run(command)
    assert error.value.code == types.LSPErrorCodes.ContentModified


async def test_two_fills_of_one_document_at_once(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    first, second = await body_command(editor, buffer, "Doc."), await body_command(editor, buffer)
    await asyncio.gather(editor.run(first), editor.run(second))
    assert buffer.text.source == SOURCE.replace(BODY, FILL).replace("...", FILL)


async def test_a_dead_engine_is_one_sentence_and_the_next_fill_works(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    await reconfigure(editor, model="dies")
    with pytest.raises(JsonRpcException) as error:
        await editor.run(await body_command(editor, buffer))
    assert error.value.code == types.LSPErrorCodes.RequestFailed and error.value.data == {"shown": True}
    sentence = "Midfill: the engine ended in the middle of the fill; fill again: a new engine is started."
    assert [message.message for message in editor.seen.messages] == [sentence]
    assert buffer.text.source == SOURCE
    await reconfigure(editor, model="lives")
    await editor.run(await body_command(editor, buffer))
    assert buffer.text.source == SOURCE.replace(BODY, FILL)


@pytest.mark.parametrize("model, message", [("dies", "failed"), ("breaks", "failed"), (None, "done")])
async def test_progress_says_how_the_fill_ended(editor: Editor, model: str | None, message: str) -> None:
    buffer = editor.open(SOURCE)
    await reconfigure(editor, model=model)
    with suppress(JsonRpcException):
        await editor.run(await body_command(editor, buffer), token="mine")
    assert editor.seen.progress[-1]["message"] == message


async def test_bad_settings_are_named_and_the_defaults_used(start: Start) -> None:
    editor = await start(options={"steps": "many", "device": "tpu", "colour": 1, "model": None, "seed": True})
    buffer = editor.open(SOURCE)
    await editor.run(await body_command(editor, buffer))
    sentences = " ".join(message.message for message in editor.seen.messages)
    assert "midfill.steps must be a whole number from 1 to 1024, not 'many'" in sentences
    assert "midfill.device must be one of auto, cpu, cuda, mps, not 'tpu'" in sentences
    assert "midfill.colour is not a setting; known are model, device, steps, maxHoleTokens, seed" in sentences
    assert "midfill.seed" in sentences and len(editor.seen.messages) == 4
    assert buffer.text.source == SOURCE.replace(BODY, FILL)


async def test_settings_are_asked_for(start: Start) -> None:
    editor = await start(options={"model": "breaks"})
    editor.configuration = {"model": "dies", "exclude": ["left_out.py"]}
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(None))
    buffer = editor.open(SOURCE)
    await editor.wait_for_exclusion("file:///left_out.py")
    with pytest.raises(JsonRpcException, match="engine ended"):
        await editor.run(await body_command(editor, buffer))


async def test_settings_at_the_start_hold_where_later_ones_name_none(start: Start) -> None:
    editor = await start(options={"exclude": ["left_out.py"]})
    for settings in ({"midfill": None}, {"midfill": {}}):
        editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings))
        assert (await editor.ask("midfill/status", {"uri": "file:///left_out.py"})).kind == "Inactive"


@pytest.mark.parametrize("language", ["brainfuck", "plaintext", ""])
async def test_an_unknown_language_still_fills_selections(editor: Editor, language: str) -> None:
    buffer = editor.open("+++ [here] ---\n", language)
    start = at(buffer, "here")
    actions = await editor.actions(buffer, start, start + 4)
    assert set(actions) == {"selection"}
    await editor.run(actions["selection"].command)
    assert buffer.text.source == f"+++ [{FILL}] ---\n"
    arguments = {"uri": buffer.uri, "what": "body", "ranges": [unstructure(editor, buffer.text.range((0, 0)))]}
    with pytest.raises(JsonRpcException, match="select the text to fill"):
        await editor.run(fill_command([arguments]))


@pytest.mark.parametrize("arguments", [
    None, [], [1], [{}], [{"uri": "untitled:1"}], [{"uri": "untitled:1", "what": "poem"}], [{"uri": 3, "what": []}],
    [{"uri": "untitled:1", "what": "body"}], [{"uri": "untitled:1", "what": "body", "ranges": [{"start": 1}]}],
])  # fmt: skip
async def test_bad_arguments_say_what_is_expected(editor: Editor, arguments: list[object] | None) -> None:
    editor.open(SOURCE)
    with pytest.raises(JsonRpcException, match="takes one object") as error:
        await editor.run(fill_command(arguments))
    assert error.value.code == types.ErrorCodes.InvalidParams


async def test_what_cannot_be_filled_is_said_in_a_sentence(editor: Editor) -> None:
    buffer = editor.open("x = 1\n")
    for what, ranges, expected in (
        ("stubs", [], "this file has no stubs"),
        ("body", [buffer.text.range((0, 0))], "put the cursor into a function"),
    ):
        arguments = {"uri": buffer.uri, "what": what, "ranges": [unstructure(editor, span) for span in ranges]}
        with pytest.raises(JsonRpcException, match=expected) as error:
            await editor.run(fill_command([arguments]))
        assert error.value.code == types.LSPErrorCodes.RequestFailed
    with pytest.raises(JsonRpcException, match="not open"):
        await editor.run(fill_command([{"uri": "file:///no/such.py", "what": "stubs"}]))
    with pytest.raises(JsonRpcException, match="known are midfill.fill"):
        await editor.run(types.Command("", "midfill.dance"))


async def test_a_document_out_of_step_is_not_filled_until_it_comes_whole(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    command = await body_command(editor, buffer)
    identifier = types.VersionedTextDocumentIdentifier(2, buffer.uri)
    wrong = types.TextDocumentContentChangePartial(types.Range(types.Position(99, 0), types.Position(99, 1)), "x")
    editor.client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [wrong]))
    with pytest.raises(JsonRpcException, match="lost track"):
        await editor.run(command)
    whole = types.TextDocumentContentChangeWholeDocument(SOURCE)
    identifier = types.VersionedTextDocumentIdentifier(3, buffer.uri)
    editor.client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [whole]))
    buffer.version = 3
    await editor.run(await body_command(editor, buffer))
    assert buffer.text.source == SOURCE.replace(BODY, FILL)


async def test_a_refused_change_puts_its_document_out_of_step(editor: Editor) -> None:
    buffer = editor.open(SOURCE, uri="file:///ein%20t%C3%A4st.py")
    params = {"textDocument": {"uri": buffer.uri, "version": 2}, "contentChanges": "no list"}
    editor.client.protocol._send_data({"jsonrpc": "2.0", "method": types.TEXT_DOCUMENT_DID_CHANGE, "params": params})
    with pytest.raises(JsonRpcException, match="lost track"):
        await editor.ask("midfill/holes", {"uri": buffer.uri, "range": unstructure(editor, buffer.text.range((0, 0)))})


async def test_a_poor_client_gets_commands_and_a_reason(start: Start) -> None:
    editor = await start(capabilities=types.ClientCapabilities())
    editor.open(SOURCE)
    params = types.CodeActionParams(
        types.TextDocumentIdentifier("untitled:1"),
        editor.buffers["untitled:1"].text.range((0, 0)),
        types.CodeActionContext([]),
    )
    (command,) = await editor.client.text_document_code_action_async(params) or ()
    assert isinstance(command, types.Command) and command.title == "Fill all stubs in this file"
    with pytest.raises(JsonRpcException, match="does not take versioned edits"):
        await editor.run(command)


async def test_no_code_in_the_log(start: Start) -> None:
    editor = await start((*SCRIPTED, "--log-level", "debug"), options={"model": "breaks"})
    buffer = editor.open(SOURCE)
    with pytest.raises(JsonRpcException) as error:
        await editor.run(await body_command(editor, buffer))
    code, log = await editor.stop()
    assert code == 0 and "RuntimeError" in log
    assert not any(secret in f"{log} {error.value}" for secret in ("first(a)", "b + 1", "guess"))


async def test_the_server_ends_when_its_client_dies() -> None:
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(600)")
    editor = Editor()
    await editor.start(REAL, capabilities=describe_client(), process_id=client.pid)
    assert editor.client._server is not None
    await asyncio.sleep(2 * PARENT_POLL_S)
    assert editor.client._server.returncode is None
    client.kill()
    await client.wait()
    assert await asyncio.wait_for(editor.client._server.wait(), TIMEOUT_S) == 1
    await editor.kill()


async def reconfigure(editor: Editor, **settings: object) -> None:
    """New settings, taken when this returns: messages are handled in order."""
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams({"midfill": settings}))
    buffer = next(iter(editor.buffers.values()))
    await editor.actions(buffer, 0)


def unstructure(editor: Editor, value: object) -> object:
    return editor.client.protocol._converter.unstructure(value)
