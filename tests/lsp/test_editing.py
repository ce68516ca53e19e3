"""Over stdio with a scripted filler: previews, pending fills, rerolls, ghost text, exclusions."""

import asyncio
import subprocess
from itertools import groupby, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from tests.lsp.editor import BODY, SOURCE, Buffer, Editor, Start, at, body, configure, describe_client, span
from tests.lsp.gate import Gate
from tests.lsp.scripted_server import FILL, GUESS, WRITES

from midfill_lsp.offers import offer_lenses
from midfill_lsp.progress import PREVIEWS_PER_S
from midfill_lsp.text import Text

pytestmark = pytest.mark.asyncio(loop_scope="module")


def apply_answer(buffer: Buffer, result: Any) -> str:
    """What an editor makes of the edits of an answer that the server did not apply itself."""
    source = buffer.text.source
    for hole in reversed(result.holes):
        ends = [types.Position(end.line, end.character) for end in (hole.range.start, hole.range.end)]
        start, end = buffer.text.span(types.Range(*ends))
        source = source[:start] + hole.text + source[end:]
    return source


async def see_two_previews(editor: Editor, gate: Gate) -> None:
    await editor.wait_for(lambda: editor.seen.previews)
    await asyncio.sleep(1 / PREVIEWS_PER_S)
    gate.let(1)
    await editor.wait_for(lambda: len(editor.seen.previews) == 2)


async def test_a_plugin_gets_edits_and_previews_and_applies_them_itself(editor: Editor, gate: Gate) -> None:
    buffer = editor.open(SOURCE)
    configure(editor, model=gate.model)
    fill = asyncio.ensure_future(editor.ask("midfill/fill", body(buffer, previewToken="p")))
    await see_two_previews(editor, gate)
    gate.open()
    result = await fill
    assert not editor.seen.edits and buffer.text.source == SOURCE and result.applied is False and result.version == 1
    assert apply_answer(buffer, result) == SOURCE.replace(BODY, FILL)
    previews = editor.seen.previews
    assert len(previews) >= 2 and [preview.seq for preview in previews] == list(range(1, len(previews) + 1))
    assert {preview.token for preview in previews} == {"p"} and previews[0].step == 0
    hole = previews[-1].holes[0]
    # "return '😀" is 9 code points and 10 units of UTF-16.
    assert hole.text == GUESS and [list(pair) for pair in hole.settled] == [[0, 10]]
    assert [list(pair) for pair in hole.tokens] == [[0, 6], [6, 10], [10, 12], [12, 15], [15, 17]]
    assert [*hole.confidence] == [0.9, 0.8, 0.7, 0.3, 0.2]
    assert (hole.range.start.line, hole.range.start.character) == (10, 4)
    num_previews = len(previews)
    await editor.settle()
    assert len(editor.seen.previews) == num_previews, "a preview after the answer"


async def test_previews_come_at_most_fifteen_a_second(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    configure(editor, model="fast", steps=1000)
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    await editor.ask("midfill/fill", body(buffer, previewToken=1))
    assert 1 <= len(editor.seen.previews) <= 1 + 15 * (loop.time() - started_s)


async def test_previews_follow_a_hole_that_moves(editor: Editor, gate: Gate) -> None:
    buffer = editor.open(SOURCE)
    configure(editor, model=gate.model)
    fill = asyncio.ensure_future(editor.ask("midfill/fill", body(buffer, previewToken=1)))
    await editor.wait_for(lambda: editor.seen.previews)
    editor.edit(buffer, 0, 0, "# typed\n\n")
    await editor.settle()
    await see_two_previews(editor, gate)
    gate.open()
    result = await fill
    assert editor.seen.previews[-1].holes[0].range.start.line == 12 and result.version == 2
    assert apply_answer(buffer, result) == "# typed\n\n" + SOURCE.replace(BODY, FILL)


@pytest.mark.parametrize("certainty, least, is_shown", [
    (0.44, None, False), (0.45, None, True), (0.44, 0.3, True), (0.8, 0.9, False), (0.0, 0, True),
])  # fmt: skip
async def test_unasked_ghost_text_is_shown_where_it_is_sure_enough(
    editor: Editor, certainty: float, least: float | None, is_shown: bool
) -> None:
    wanted = {} if least is None else {"ghostTextCertainty": least}
    configure(editor, model=f"sure:{certainty}", debounceMs=0, **wanted)
    for number in range(2):
        buffer = editor.open(f"def f{number}():\n    \n", uri=f"untitled:sure{certainty}{least}{number}")
        assert await editor.suggest(buffer, 14) == ([FILL] if is_shown else [])
        assert FILL in await editor.suggest(buffer, 14, invoked=True), "what is asked for is shown"
    configure(editor, model=f"sure:{certainty}", debounceMs=0, ghostTextCertainty=0)
    assert await editor.suggest(buffer, 14) == [FILL], "settings that show more hold where nothing was shown, too"


@pytest.mark.parametrize("least, is_shown", [(None, True), (-0.5, True), (-0.4, False), (0, False)])
async def test_without_a_certainty_it_is_shown_from_a_mean_log_probability_on(
    editor: Editor, least: float | None, is_shown: bool
) -> None:
    """Its two words have the probabilities 0.9 and 0.45, in the mean -0.45 nats."""
    configure(editor, debounceMs=0, ghostTextCertainty=0.9, ghostTextLogProbability=least)
    buffer = editor.open("def f():\n    \n", uri=f"untitled:likely{least}")
    assert await editor.suggest(buffer, 13) == ([FILL] if is_shown else [])
    assert FILL in await editor.suggest(buffer, 13, invoked=True), "what is asked for is shown"
    configure(editor, model="sure:0.95", debounceMs=0, ghostTextCertainty=0.9, ghostTextLogProbability=least)
    buffer = editor.open("def g():\n    \n", uri=f"untitled:likely{least}g")
    assert await editor.suggest(buffer, 13) == [FILL], "a certainty says more"


@pytest.mark.parametrize("source, written, is_shown", [
    ("def f(x):\n    |\n\n  \n    return x\n", "return x", False),
    ("def f(x):\n    |\n    x += 1\n    return x\n", "x += 1\n    return x", False),
    ("def f(x):\n    |\n    x += 1\n    return x\n", "x += 1\n    x += 2", True),
    ("def f(x):\n    |\n    return x\n", "return x\n\n\ndef g():\n    return 2", False),
    ("def f(x):\n    |\n    return x\n", "return -x", True),
    ("def f(x):\n    return |x\n", "x", False),
    ("def f(x):\n    return g(|x + 1)\n", "x +", False),
    ("def f(x):\n    return g(|x + 1)\n", "x - ", True),
    ("def f(x):\n    return |'x'\n", "x or ", True),
])  # fmt: skip
async def test_it_does_not_repeat_what_is_behind_the_cursor(
    editor: Editor, source: str, written: str, is_shown: bool
) -> None:
    configure(editor, model=f"{WRITES}{written}", debounceMs=0)
    buffer = editor.open(source.replace("|", ""), uri=f"untitled:{abs(hash((source, written)))}")
    assert await editor.suggest(buffer, source.index("|")) == ([written] if is_shown else [])


@pytest.mark.parametrize("certainty, said", [(0.49, ["a suggestion"]), (0.5, [])])
async def test_a_fill_below_the_threshold_is_called_a_suggestion(
    editor: Editor, certainty: float, said: list[str]
) -> None:
    configure(editor, model=f"sure:{certainty}")
    buffer = editor.open(SOURCE)
    result = await editor.do("fill", **body(buffer))
    assert result["holes"][0]["certainty"] == certainty and result["holes"][0]["isSuggestion"] is (certainty < 0.5)
    assert await editor.lenses(buffer) == ["Accept", "Reroll", "Discard", *said]
    configure(editor)
    buffer = editor.open(SOURCE, uri="untitled:nothing-said")
    result = await editor.do("fill", **body(buffer))
    assert "certainty" not in result["holes"][0] and await editor.lenses(buffer) == ["Accept", "Reroll", "Discard"]


@pytest.mark.parametrize(
    ("is_suggestion", "origin", "said"),
    [
        (True, "like `total`", ["a suggestion, like `total`"]),
        (False, f"like `{'a' * 40}.total_of_all`", [f"like `{'a' * 16}…aaa.total_of_all`"]),
        (False, "like `total`", ["like `total`"]),
        (False, "drafted", []),
    ],
)
async def test_the_lenses_of_a_fill_name_its_origin_behind_the_commands(
    is_suggestion: bool, origin: str, said: list[str]
) -> None:
    fill = SimpleNamespace(is_suggestion=is_suggestion, origin=origin)
    holes = [SimpleNamespace(outer=(0, 0), fill=fill)]
    pending = SimpleNamespace(id=1, filled=SimpleNamespace(passed_command=""), holes=holes, text=Text("\n"))
    lenses = offer_lenses(pending)  # type: ignore[arg-type]
    commands = [lens.command for lens in lenses if lens.command is not None]
    assert [command.title for command in commands] == ["Accept", "Reroll", "Discard", *said]
    assert [command.command for command in commands[3:]] == [""] * len(said)


async def test_a_reroll_keeps_what_was_typed_behind_a_blank(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    await editor.do("fill", **body(buffer))
    start = at(buffer, FILL)
    editor.edit(buffer, start, start + len("return"), "")  # the fill begins with a blank now
    editor.edit(buffer, start + 1, start + 1, "x = ")
    await editor.do("reroll", keep=0)
    assert buffer.text.source == SOURCE.replace(BODY, " x = + new")


async def test_lenses_stand_on_a_pending_fill_only(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    assert await editor.lenses(buffer) == []
    result = await editor.do("fill", **body(buffer))
    assert await editor.lenses(buffer) == ["Accept", "Reroll", "Discard"] and editor.seen.refreshes == 1
    await editor.do("accept", id=result["id"])
    assert await editor.lenses(buffer) == [] and buffer.text.source == SOURCE.replace(BODY, FILL)
    with pytest.raises(JsonRpcException, match="no longer pending"):
        await editor.do("accept", id=result["id"])


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
async def test_discard_puts_back_what_was_there(editor: Editor, newline: str) -> None:
    source = (SOURCE + "\n\ndef third(): pass\n").replace("\n", newline)
    buffer = editor.open(source)
    await editor.do("fill", uri=buffer.uri, what="stubs")
    assert buffer.text.source.count(FILL) == 2
    editor.edit(buffer, 0, 0, f"# typed{newline}")
    editor.edit(buffer, at(buffer, FILL) + 6, at(buffer, FILL) + 6, " (")
    await editor.do("discard")
    assert buffer.text.source == f"# typed{newline}{source}"
    assert await editor.lenses(buffer) == []


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
async def test_a_reroll_keeps_the_surest_tokens_and_what_was_typed(editor: Editor, newline: str) -> None:
    buffer = editor.open(SOURCE.replace("\n", newline))
    await editor.do("fill", **body(buffer))
    place = at(buffer, FILL) + len("return ")
    editor.edit(buffer, place, place, "typed or ")
    await editor.do("reroll")
    assert buffer.text.source.count("return typed or  + new") == 1
    await editor.do("discard")
    assert buffer.text.source == SOURCE.replace("\n", newline)


async def test_shorter_and_longer_compare_with_the_fill(editor: Editor) -> None:
    """What comes of it a model says: see test_real_engine.py."""
    buffer = editor.open(SOURCE)
    await editor.do("fill", **body(buffer))
    assert list(editor.seen.pending[buffer.uri][0].lengths) == ["same", "shorter", "longer"]
    result = await editor.do("reroll", length="longer")
    assert "seed 1 min 0 max None line False longer than (2,)" in result["model"]
    result = await editor.do("reroll", length="shorter")
    assert "seed 2 min 0 max None line False shorter than (2,)" in result["model"]
    assert buffer.text.source == SOURCE.replace(BODY, FILL)


async def test_the_next_alternative_and_round_again(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    result = await editor.do("fill", **body(buffer, alternatives=3))
    assert [list(row) for row in result["alternatives"]] == [["return 1"], ["return 2"]]
    seen = [(await editor.do("next"))["holes"][0]["text"] for _ in range(3)]
    assert seen == ["return 1", "return 2", FILL]
    await editor.do("next")
    assert buffer.text.source == SOURCE.replace(BODY, "return 1")
    await editor.do("discard")
    assert buffer.text.source == SOURCE


async def test_a_pending_fill_that_was_cut_is_let_go(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    result = await editor.do("fill", **body(buffer))
    place = at(buffer, FILL)
    editor.edit(buffer, place - 10, place + 5, "")
    assert await editor.lenses(buffer) == []
    before = buffer.text.source
    with pytest.raises(JsonRpcException, match="no longer pending"):
        await editor.do("discard", id=result["id"])
    assert buffer.text.source == before


async def test_a_fill_may_be_ended_at_any_step(editor: Editor, gate: Gate) -> None:
    buffer = editor.open(SOURCE)
    configure(editor, model=gate.model, steps=200)
    fill = asyncio.ensure_future(editor.do("fill", **body(buffer, previewToken=1)))
    await see_two_previews(editor, gate)
    await editor.do("finish")
    gate.let(2)
    result = await fill
    assert buffer.text.source == SOURCE.replace(BODY, GUESS) and result["stats"]["steps"] == 2
    with pytest.raises(JsonRpcException, match="no fill is running"):
        await editor.do("finish")


async def test_drafts_and_anchors_of_a_request(editor: Editor) -> None:
    buffer = editor.open("x = '😀'\nfirst = 1\nsecond = 2\n")
    ranges = [span(buffer, at(buffer, "2"), at(buffer, "2") + 1), span(buffer, 4, 7)]
    drafts = [{"text": "alpha\nbeta", "keep": [[6, 10]]}, {"keep": [[1, 3]]}]
    params = {"uri": buffer.uri, "what": "selection", "ranges": ranges, "drafts": drafts}
    result = await editor.ask("midfill/fill", params)
    assert apply_answer(buffer, result) == "x = 😀 + new\nfirst = 1\nsecond = beta + new\n"
    with pytest.raises(JsonRpcException, match="one draft a range"):
        await editor.ask("midfill/fill", {**params, "drafts": drafts[:1]})
    with pytest.raises(JsonRpcException, match="stubs takes no drafts"):
        await editor.ask("midfill/fill", {**params, "what": "stubs", "ranges": ranges[:1], "drafts": drafts[:1]})


async def test_a_draft_may_have_the_line_ends_of_its_document(editor: Editor) -> None:
    buffer = editor.open("x = 1\r\n")
    draft = {"text": "[😀,\r\n 2,\r\n 3]", "keep": [[0, 4], [6, 9]]}
    params = {"uri": buffer.uri, "what": "selection", "ranges": [span(buffer, 4, 5)], "drafts": [draft]}
    result = await editor.ask("midfill/fill", params)
    assert apply_answer(buffer, result) == "x = [😀, 2, + new\r\n"
    assert "text x = [😀,\r\n 2,\r\n 3]\r\n" in result.model


async def test_a_hole_at_the_cursor(editor: Editor) -> None:
    buffer = editor.open("def f():\n    \n    return x\n")
    actions = await editor.actions(buffer, 13)
    assert {"hole", "body"} <= set(actions)
    await editor.run(actions["hole"].command)
    assert buffer.text.source == f"def f():\n    {FILL}\n    return x\n"
    assert "hole" not in await editor.actions(buffer, at(buffer, "return x"))


async def test_many_holes_may_be_confirmed_one_by_one(start: Start) -> None:
    capabilities = describe_client()
    assert capabilities.workspace and capabilities.workspace.workspace_edit
    capabilities.workspace.workspace_edit.change_annotation_support = types.ChangeAnnotationsSupportOptions()
    editor = await start(capabilities=capabilities)
    buffer = editor.open("def f(): ...\n\n\ndef g(): ...\n")
    result = await editor.do("fill", uri=buffer.uri, what="stubs", confirm=True)
    (sent,) = editor.seen.edits
    assert sent.edit.change_annotations and sent.edit.change_annotations["fill"].needs_confirmation
    assert buffer.text.source.count(FILL) == 2 and "id" not in result and await editor.lenses(buffer) == []


async def test_ghost_text_and_what_is_reused(editor: Editor) -> None:
    buffer = editor.open("def f():\n    \n    return 0\n")
    configure(editor, debounceMs=0)
    assert await editor.suggest(buffer, 13) == [FILL]
    configure(editor, debounceMs=0, model="fails")
    editor.edit(buffer, 13, 13, "ret")
    assert await editor.suggest(buffer, 16) == [FILL[3:]], "found again, not made anew"
    configure(editor, debounceMs=0)
    editor.edit(buffer, 16, 16, "ry")
    assert await editor.suggest(buffer, 18) == [], "retryreturn 'x' would be a syntax error"
    assert await editor.suggest(buffer, 18, invoked=True) == [FILL, "return 1", "return 2"]
    assert await editor.suggest(buffer, 18) == [], "what was asked for once is not shown unasked"


async def test_ghost_text_has_plain_line_ends_in_a_document_of_others(editor: Editor) -> None:
    source = "def f(x):\r\n    \r\n    return 0\r\n"
    buffer = editor.open(source)
    configure(editor, debounceMs=0, model=f"{WRITES}if x:\n    return 1")
    offset = source.index("\r\n    return")
    assert await editor.suggest(buffer, offset) == ["if x:\n        return 1"]
    configure(editor, debounceMs=0, model="fails")
    editor.edit(buffer, offset, offset, "if x:\r\n     ")
    assert await editor.suggest(buffer, offset + 12) == ["   return 1"], "found again, not made anew"


CHECKS = "".join(
    f"def {name}(path):\n    check(path)\n    return {name}_of(path)\n\n\n" for name in ("size", "age", "kind")
)


async def test_ghost_text_is_the_files_own_until_the_engine_has_judged_it(start: Start, gate: Gate) -> None:
    editor, judged = await start(), list[Any]()
    editor.client.feature("midfill/didJudge")(lambda params: judged.append(params))
    source = CHECKS + "def owner(path):\n    \n    return owner_of(path)\n"
    for number, written in enumerate(("check(path)", FILL)):
        configure(editor, model=f"{WRITES}{written}", debounceMs=0, ghostTextCertainty=0.1)
        buffer = editor.open(f"# {gate.model}\n{source}", uri=f"untitled:judged{number}")
        place = buffer.text.source.index("    \n") + 4
        for _ in range(2):
            assert await editor.suggest(buffer, place) == ["check(path)"], "the engine waits at the gate"
        assert not judged
    gate.open()
    await editor.wait_for(lambda: judged)
    (told,) = judged
    assert told.uri == buffer.uri and told.position.line == buffer.text.position(place).line
    assert await editor.suggest(buffer, place) == [FILL]
    configure(editor, model="fails", debounceMs=0, ghostTextCertainty=0.1)
    assert await editor.suggest(buffer, place) == [FILL], "it is not judged again"


async def test_ghost_text_when_asked_for_has_alternatives(editor: Editor) -> None:
    buffer = editor.open("def f():\n    \n")
    configure(editor, trigger="manual")
    assert await editor.suggest(buffer, 13) == []
    assert await editor.suggest(buffer, 13, invoked=True) == [FILL, "return 1", "return 2"]


async def test_ghost_text_is_one_line_before_other_text_and_never_the_next_line(editor: Editor) -> None:
    buffer = editor.open(f"x = f()\n{FILL}\n")
    configure(editor, debounceMs=0)
    assert await editor.suggest(buffer, 7) == []
    buffer = editor.open("x = f()\n", uri="untitled:2")
    assert await editor.suggest(buffer, 6, invoked=True) == [FILL, "return 1", "return 2"]


async def test_a_newer_key_ends_the_older_ghost_text(editor: Editor, gate: Gate) -> None:
    buffer = editor.open("a\nb\n")
    configure(editor, model=gate.model, debounceMs=0)
    older = asyncio.ensure_future(editor.suggest(buffer, 1))
    await editor.wait_for(lambda: editor.seen.status)
    configure(editor)
    assert await editor.suggest(buffer, 3, invoked=True) == [FILL, "return 1", "return 2"]
    gate.let(1)
    assert await older == []


async def test_a_failed_engine_is_let_rest_by_ghost_text_but_not_by_commands(start: Start) -> None:
    editor = await start()
    buffer = editor.open(SOURCE)
    configure(editor, model="fails", debounceMs=0)
    assert await editor.suggest(buffer, len(SOURCE)) == [] and not editor.seen.messages
    status = await editor.ask("midfill/status", {})
    assert (status.kind, status.busy) == ("Error", False) and "does not start" in status.message
    assert editor.seen.status[-1].kind == "Error"
    configure(editor, debounceMs=0)
    assert await editor.suggest(buffer, len(SOURCE)) == []
    await editor.do("fill", **body(buffer))
    assert (await editor.ask("midfill/status", None)).kind == "Normal"
    assert [text.strip() for text in await editor.suggest(buffer, len(buffer.text.source))] == [FILL]


async def test_a_suggestion_found_again_says_nothing_of_the_engine(start: Start) -> None:
    editor = await start()
    buffer = editor.open("def f():\n    \n")
    suggested = await editor.suggest(buffer, 13, invoked=True)
    configure(editor, model="dies")
    with pytest.raises(JsonRpcException, match="engine ended"):
        await editor.do("fill", uri=buffer.uri, what="hole", ranges=[span(buffer, 13)])
    assert suggested and await editor.suggest(buffer, 13, invoked=True) == suggested
    assert (await editor.ask("midfill/status", {})).kind == "Error"


async def test_status_is_busy_while_a_fill_runs(editor: Editor, gate: Gate) -> None:
    buffer = editor.open(SOURCE)
    configure(editor, model=gate.model)
    fill = asyncio.ensure_future(editor.do("fill", **body(buffer)))
    await editor.wait_for(lambda: editor.seen.status)
    gate.open()
    await fill
    assert [busy for busy, _ in groupby(editor.seen.status, lambda status: status.busy)] == [True, False]
    status = await editor.ask("midfill/status", {"uri": buffer.uri})
    assert status.pending == 1 and status.version


async def test_secrets_and_ignored_files_are_left_out(start: Start, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("local/\n")
    editor = await start(options={"exclude": ["vendor/"], "debounceMs": 0})
    own = editor.open("def shared_name():\n    \n", uri=(tmp_path / "own.py").as_uri())
    for name in (".env", "local/a.py", "vendor/b.py"):
        buffer = editor.open("def f():\n    shared_name = 'hunter2'\n", uri=(tmp_path / name).as_uri())
        assert await editor.actions(buffer, 13) == {} and await editor.suggest(buffer, 13, invoked=True) == []
        with pytest.raises(JsonRpcException, match="this file is left out: "):
            await editor.do("fill", uri=buffer.uri, what="body", ranges=[span(buffer, 13)])
        status = await editor.ask("midfill/status", {"uri": buffer.uri})
        assert status.kind == "Inactive" and "leaves this file out" in status.message
    result = await editor.do("fill", uri=own.uri, what="hole", ranges=[span(own, 23)])
    assert "hunter2" not in result["model"] and "counted  text" in result["model"]


async def test_each_file_is_left_out_by_its_own_folders_settings(start: Start, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    editor = await start(folders=(one.as_uri(), two.as_uri()))
    editor.by_folder = {one.as_uri(): {"exclude": ["*.ipynb"]}, two.as_uri(): {"exclude": ["private/"]}}
    cell = f"vscode-notebook-cell:{(one / 'n.ipynb').as_uri().removeprefix('file:')}#W0sZmlsZQ"
    reload = types.DidChangeConfigurationParams(None)
    editor.client.workspace_did_change_configuration(reload)
    await editor.wait_for_exclusion(cell)
    await editor.wait_for_exclusion((two / "private" / "other.py").as_uri())

    async def ask() -> str:
        place = [span(buffer, len(buffer.text.source) - 1)]
        return str((await editor.ask("midfill/fill", {"uri": buffer.uri, "what": "hole", "ranges": place})).model)

    source = "def shared_name():\n    return 'hunter2'\n"
    with pytest.raises(JsonRpcException, match="this file is left out"):
        editor.open(source, uri=cell)
        await editor.do("fill", uri=cell, what="stubs")
    editor.open(source, uri=(two / "private" / "other.py").as_uri())
    buffer = editor.open("def own():\n    shared_name\n    \n", uri=(one / "own.py").as_uri())
    assert "counted  text" in await ask()
    seen = editor.open(source, uri=(two / "seen.py").as_uri())
    assert "hunter2" in await ask()
    editor.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(seen.uri)))
    assert "hunter2" in await ask(), "recent files are seen"
    editor.by_folder[two.as_uri()] = {"exclude": ["private/", "seen.py"]}
    editor.client.workspace_did_change_configuration(reload)
    await editor.wait_for_exclusion(seen.uri)
    assert "counted  text" in await ask()


async def test_a_file_that_was_filled_alone_is_a_recent_one(start: Start) -> None:
    editor = await start()

    async def ask(buffer: Buffer) -> str:
        place = [span(buffer, len(buffer.text.source) - 1)]
        return str((await editor.ask("midfill/fill", {"uri": buffer.uri, "what": "hole", "ranges": place})).model)

    first = editor.open("one = 1\n\n", uri="untitled:one")
    await ask(first)
    editor.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(first.uri)))
    assert "counted recent one = 1" in await ask(editor.open("two = 2\n\n", uri="untitled:two"))


async def test_related_text_of_other_files_comes_along(editor: Editor, tmp_path: Path) -> None:
    editor.open("def parse_invoice(path):\n    return path\n", uri=(tmp_path / "invoice.py").as_uri())
    buffer = editor.open("def total(path):\n    rows = parse_invoice(path)\n    \n", uri="untitled:2")
    asked = {"uri": buffer.uri, "what": "hole", "ranges": [span(buffer, len(buffer.text.source) - 1)]}
    result = await editor.ask("midfill/fill", asked)
    assert "counted open def parse_invoice(path):" in result.model
    configure(editor, repositoryContext=False)
    assert "counted  text" in (await editor.ask("midfill/fill", asked)).model


async def test_what_a_document_showed_is_known_at_its_next_fill(editor: Editor) -> None:
    buffers = [editor.open(f"{name} = 1\n\n", uri=f"untitled:{name}") for name in ("one", "two")]

    async def ask(buffer: Buffer) -> str:
        place = [span(buffer, len(buffer.text.source) - 1)]
        return (await editor.ask("midfill/fill", {"uri": buffer.uri, "what": "hole", "ranges": place})).model

    assert "shown []" in await ask(buffers[0]) and "shown []" in await ask(buffers[1])
    assert "shown ['one = 1\\n\\n']" in await ask(buffers[0]) and "shown ['two" in await ask(buffers[1])


async def test_a_project_turns_related_text_off(editor: Editor, tmp_path: Path) -> None:
    for name, words in (("quiet", "counted  text"), ("loud", "neighbor def parse_invoice")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / ".git").mkdir()
        (folder / "test_total.py").write_text("def parse_invoice(path):\n    return path\n")
        (folder / ".midfill.toml").write_text('context = "off"\n' if name == "quiet" else "")
        source = "def total(path):\n    rows = parse_invoice(path)\n    \n"
        buffer = editor.open(source, uri=(folder / "total.py").as_uri())
        asked = {"uri": buffer.uri, "what": "hole", "ranges": [span(buffer, len(source) - 1)]}
        model = (await editor.ask("midfill/fill", asked)).model
        editor.client.text_document_did_close(
            types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(buffer.uri))
        )
        assert words in model


async def test_files_that_matter_are_counted_and_fresh(start: Start, tmp_path: Path) -> None:
    root = tmp_path / "work"
    (root / "private").mkdir(parents=True)
    (tmp_path / "above.py").write_text("above = 'hunter2'\n")
    (root / "link.py").symlink_to(tmp_path / "above.py")
    (root / ".env").write_text("env = 'hunter2'\n")
    (root / "private" / "hidden.py").write_text("hidden = 'hunter2'\n")
    (root / "money.py").write_text("money = 'on disk'\n")
    (root / "test_own.py").write_text("tested = 1\n")
    editor = await start(folders=(root.as_uri(),), options={"exclude": ["private/"]})
    source = "import money, private.hidden, link\nfrom .. import above\n\ndef own():\n    \n"
    buffer = editor.open(source, uri=(root / "own.py").as_uri())
    asked = {"uri": buffer.uri, "what": "hole", "ranges": [span(buffer, len(source) - 1)]}

    async def count() -> str:
        model = (await editor.ask("midfill/fill", asked)).model
        return str(model.partition(" counted ")[2].partition(" text ")[0])

    assert await count() == "imported money = 'on disk'\n | neighbor tested = 1\n"
    money = editor.open("money = 'typed'\n", uri=(root / "money.py").as_uri())
    assert await count() == "open money = 'typed'\n | neighbor tested = 1\n"
    (root / "test_own.py").write_text("tested = 'again'\n")
    editor.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(money.uri)))
    assert await count() == "recent money = 'typed'\n | neighbor tested = 'again'\n"
    other = editor.open("x\n", uri="untitled:3")
    asked = {"uri": other.uri, "what": "hole", "ranges": [span(other, 1)]}
    assert (await count()).startswith("open ") and "hunter2" not in await count()


def open_notebook(editor: Editor, sources: dict[str, str], markdown: str = "") -> None:
    """Opens a notebook of these cells, by URI, which are Python but for the one of `markdown`."""
    kinds = {markdown: types.NotebookCellKind.Markup}
    cells = [types.NotebookCell(kinds.get(uri, types.NotebookCellKind.Code), uri) for uri in sources]
    items = [
        types.TextDocumentItem(uri, "markdown" if uri in kinds else "python", 1, text) for uri, text in sources.items()
    ]
    notebook = types.NotebookDocument("file:///n.ipynb", "jupyter-notebook", 1, cells)
    editor.client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, items))


def close_notebook(editor: Editor, sources: dict[str, str]) -> None:
    editor.client.notebook_document_did_close(
        types.DidCloseNotebookDocumentParams(
            types.NotebookDocumentIdentifier("file:///n.ipynb"), [types.TextDocumentIdentifier(uri) for uri in sources]
        )
    )


async def test_the_cells_of_a_notebook_are_context(editor: Editor) -> None:
    sources = {"c:1": "import pandas as pd\n", "c:2": "# Title", "c:3": "def load():\n    ...", "c:4": "load()\n"}
    open_notebook(editor, sources, "c:2")
    asked = {
        "uri": "c:3",
        "what": "body",
        "ranges": [{"start": {"line": 1, "character": 5}, "end": {"line": 1, "character": 5}}],
    }
    result = await editor.ask("midfill/fill", asked)
    assert "open # Title" in result.model and "open import" not in result.model and "open load()" not in result.model
    assert result.model.endswith("text import pandas as pd\n\n\ndef load():\n    ...\n\nload()\n")
    hole = result.holes[0]
    assert (hole.range.start.line, hole.range.start.character, hole.range.end.character, hole.text) == (1, 4, 7, FILL)
    stubs = await editor.ask("midfill/fill", {"uri": "c:3", "what": "stubs"})
    assert len(stubs.holes) == 1
    with pytest.raises(JsonRpcException, match="no stubs"):
        await editor.ask("midfill/fill", {"uri": "c:4", "what": "stubs"})
    close_notebook(editor, sources)


@pytest.mark.parametrize("closes", ["the notebook", "the cell"])
async def test_a_cell_that_is_closed_has_nothing_pending(editor: Editor, closes: str) -> None:
    sources = {"c:1": "def load():\n    ...\n", "c:2": "load()\n"}
    open_notebook(editor, sources)
    editor.buffers["c:1"] = Buffer("c:1", Text(sources["c:1"]))
    await editor.do("fill", uri="c:1", what="body", ranges=[span(editor.buffers["c:1"], 16)])
    assert (await editor.ask("midfill/status", {})).pending == 1
    del editor.buffers["c:1"]
    if closes == "the cell":
        array = types.NotebookCellArrayChange(0, 1)
        structure = types.NotebookDocumentCellChangeStructure(array, [], [types.TextDocumentIdentifier("c:1")])
        change = types.NotebookDocumentChangeEvent(cells=types.NotebookDocumentCellChanges(structure))
        notebook = types.VersionedNotebookDocumentIdentifier(2, "file:///n.ipynb")
        editor.client.notebook_document_did_change(types.DidChangeNotebookDocumentParams(notebook, change))
    else:
        close_notebook(editor, sources)
    assert (await editor.ask("midfill/status", {})).pending == 0 and editor.seen.pending["c:1"] == []
    close_notebook(editor, sources)


async def test_the_first_change_of_a_cell_is_one_to_repeat(editor: Editor) -> None:
    sources = {"c:1": "self.assertEquals(1)\nself.assertEquals(2)\n"}
    open_notebook(editor, sources)
    event = types.TextDocumentContentChangePartial(types.Range(types.Position(0, 16), types.Position(0, 17)), "")
    texts = [types.NotebookDocumentCellContentChanges(types.VersionedTextDocumentIdentifier(2, "c:1"), [event])]
    change = types.NotebookDocumentChangeEvent(cells=types.NotebookDocumentCellChanges(text_content=texts))
    notebook = types.VersionedNotebookDocumentIdentifier(2, "file:///n.ipynb")
    editor.client.notebook_document_did_change(types.DidChangeNotebookDocumentParams(notebook, change))
    assert (await editor.do("repeat", uri="c:1", position={"line": 0, "character": 0}))["left"] == 1
    close_notebook(editor, sources)


async def test_each_workspace_folder_has_its_settings(start: Start) -> None:
    folders = ("file:///one", "file:///two")
    editor = Editor()
    editor.by_folder = {
        folders[0]: {"seed": 7, "exclude": ["left_out.py"]},
        folders[1]: {"seed": 8, "exclude": ["left_out.py"]},
    }
    try:
        await editor.start(folders=folders)
        for folder in folders:
            await editor.wait_for_exclusion(f"{folder}/left_out.py")
        for uri, seed in (("file:///one/a.py", 7), ("file:///two/deep/a.py", 8), ("untitled:1", 0)):
            buffer = editor.open(SOURCE, uri=uri)
            result = await editor.ask("midfill/fill", body(buffer))
            assert result.model.startswith(f"seed {seed} ")
    finally:
        await editor.kill()


async def test_a_document_that_is_too_large_is_refused_with_a_reason(editor: Editor) -> None:
    buffer = editor.open("x = 1\n" * 200_000)
    assert await editor.actions(buffer, 0, 5) == {}
    with pytest.raises(JsonRpcException, match="the document has 1171 KiB, the limit is 1024 KiB"):
        await editor.do("fill", uri=buffer.uri, what="selection", ranges=[span(buffer, 0, 5)])


async def test_confidence_lies_on_tokens_in_the_units_of_the_editor(editor: Editor) -> None:
    buffer = editor.open(SOURCE)
    result = await editor.do("fill", **body(buffer))
    (hole,) = result["holes"]
    units = hole["text"].encode("utf-16-le")
    assert [units[2 * a : 2 * b].decode("utf-16-le") for a, b in hole["tokens"]] == ["return", "'ß😀'"]
    assert all(first > second for first, second in pairwise(hole["confidence"]))


SECRETS = [
    "untitled:/home/me/project/.env", "untitled:.ENV", "vscode-vfs://github/me/project/.env", "untitled:C:%5Cme%5C.env",
    "vscode-remote://ssh-remote%2Bhost/srv/Secrets.json", "vscode-userdata:/User/id_rsa", "git:/me/.env?%7B%22x%22%7D",
    "untitled:/me/%2Eenv.local", "zip:/me/all.zip/.aws/config", "file:///me/.Env", "file:///me/SECRETS.yaml",
]  # fmt: skip


@pytest.mark.parametrize("uri", SECRETS)
async def test_files_with_secrets_are_left_out_whatever_their_uri(editor: Editor, uri: str, tmp_path: Path) -> None:
    secret = editor.open("def f():\n    shared_name = 'hunter2'\n", uri=uri)
    own = editor.open("def shared_name():\n    \n", uri=(tmp_path / "settings.py").as_uri())
    assert await editor.actions(secret, 13) == {} and await editor.suggest(secret, 13, invoked=True) == []
    with pytest.raises(JsonRpcException, match="this file is left out: its name is that of a file with secrets"):
        await editor.do("fill", uri=uri, what="body", ranges=[span(secret, 13)])
    with pytest.raises(JsonRpcException, match="this file is left out: its name is that of a file with secrets"):
        await editor.do("repeat", uri=uri)
    result = await editor.do("fill", uri=own.uri, what="hole", ranges=[span(own, 23)])
    assert "hunter2" not in result["model"]


async def test_excluded_files_are_left_out_whatever_their_uri(start: Start) -> None:
    editor = await start(options={"exclude": ["private/"]})
    left_out = editor.open("x = 1\n", uri="vscode-vfs://github/me/private/a.py")
    seen = editor.open("x = 1\n", uri="vscode-vfs://github/me/public/a.py")
    assert (await editor.ask("midfill/status", {"uri": left_out.uri})).kind == "Inactive"
    assert (await editor.ask("midfill/status", {"uri": seen.uri})).kind != "Inactive"


async def test_what_git_ignores_and_what_it_tracks(start: Start, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("*.gen.py\n")
    editor = await start(
        GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="core.excludesFile", GIT_CONFIG_VALUE_0=str(tmp_path / "list")
    )
    root = tmp_path / "repository"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    for name in ("tracked.gen.py", "left_out.gen.py"):
        (root / name).write_text("x = 1\n")
    subprocess.run(["git", "add", "-f", "tracked.gen.py"], cwd=root, check=True)
    left_out, tracked = (
        editor.open("x = 1\n", uri=(root / name).as_uri()) for name in ("left_out.gen.py", "tracked.gen.py")
    )
    assert (await editor.ask("midfill/status", {"uri": left_out.uri})).kind == "Inactive"
    assert (await editor.ask("midfill/status", {"uri": tracked.uri})).kind != "Inactive"


async def test_the_status_says_why_nothing_is_filled(editor: Editor) -> None:
    large = editor.open("x = 1\n" * 200_000, uri="untitled:large")
    assert await editor.suggest(large, 0) == []
    status = await editor.ask("midfill/status", {"uri": large.uri})
    assert status.kind == "Inactive" and status.message == (
        "Midfill cannot fill this file: the document has 1171 KiB, the limit is 1024 KiB."
    )
    editor.edit(large, 6, len(large.text.source), "")
    assert (await editor.ask("midfill/status", {"uri": large.uri})).message == "Midfill is ready."
    binary = editor.open("x\0y\n", uri="untitled:binary")
    assert "holds NUL bytes" in (await editor.ask("midfill/status", {"uri": binary.uri})).message
