"""The real server with the real engine: a tiny random model, once the weights that ship, and a killed engine."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from tests.engine.tiny import make_random
from tests.lsp.editor import REAL, ROOT, Buffer, Editor, Start

from midfill_engine.families import FAMILIES
from midfill_lsp.messages import Range

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHIPPED = ROOT / "engine" / "midfill_engine" / "weights" / "embedded"
SOURCE = '# 😀\nimport os\n\n\ndef add(a, b):\n    """Return the sum of a and b."""\n    ...\n\n\nprint(add(1, 2))\n'


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DreamOn's canvas grows from a few tokens: dozens of steps, about two seconds, so a fill can be met half way."""
    folder = tmp_path_factory.mktemp("checkpoint")
    make_random(folder, FAMILIES.find("dreamon"))
    return folder


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("causal")
    make_random(folder, FAMILIES.find("causal"))
    return folder


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A runtime folder of its own; the engines started in it are ended."""
    folder = tmp_path_factory.mktemp("run")
    folder.chmod(0o700)
    yield folder
    kill_engines(folder)


def kill_engines(folder: Path) -> None:
    for lock in folder.glob("*.lock"):
        try:
            os.kill(int(lock.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            continue


async def start_real(start: Start, runtime: Path, **options: object) -> tuple[Editor, Buffer]:
    options = {"device": "cpu", **options}
    slow = {"MIDFILL_QUALITY": "1"}  # a token a step, so that a fill can be ended midway
    editor = await start(REAL, options=options, MIDFILL_RUNTIME_DIR=str(runtime), OMP_NUM_THREADS="1", **slow)
    return editor, editor.open(SOURCE)


def only_the_hole_changed(buffer: Buffer) -> bool:
    before, after = SOURCE.split("...")
    return buffer.text.source.startswith(before) and buffer.text.source.endswith(after)


async def body_command(editor: Editor, buffer: Buffer) -> types.Command:
    command = (await editor.actions(buffer, SOURCE.index("...")))["body"].command
    assert isinstance(command, types.Command)
    return command


async def test_a_killed_engine_is_told_and_the_next_fill_works(start: Start, runtime: Path, checkpoint: Path) -> None:
    editor, buffer = await start_real(start, runtime, model=str(checkpoint), maxHoleTokens=512, seed=1)
    fill = asyncio.ensure_future(editor.run(await body_command(editor, buffer)))
    while not any("settled" in value.get("message", "") for value in editor.seen.progress):
        await asyncio.sleep(0.005)
        assert not fill.done()
    kill_engines(runtime)
    with pytest.raises(JsonRpcException) as error:
        await fill
    assert error.value.code == types.LSPErrorCodes.RequestFailed
    assert len(editor.seen.messages) == 1 and "a new engine is started" in editor.seen.messages[0].message
    assert buffer.text.source == SOURCE
    result = await editor.run(await body_command(editor, buffer))
    assert only_the_hole_changed(buffer) and buffer.version == 2
    assert result["holes"][0]["text"] in buffer.text.source
    assert len(result["holes"][0]["tokens"]) == len(result["holes"][0]["confidence"]) > 0
    assert all(0 <= confidence <= 1 for confidence in result["holes"][0]["confidence"])


async def test_cancel_leaves_engine_and_document_alone(start: Start, runtime: Path, checkpoint: Path) -> None:
    editor, buffer = await start_real(start, runtime, model=str(checkpoint), maxHoleTokens=512, seed=1)
    fill = asyncio.ensure_future(editor.run(await body_command(editor, buffer), msg_id="fill"))
    while not any("settled" in value.get("message", "") for value in editor.seen.progress):
        await asyncio.sleep(0.005)
    editor.client.cancel_request(types.CancelParams("fill"))
    with pytest.raises(JsonRpcException) as error:
        await fill
    assert error.value.code == types.LSPErrorCodes.RequestCancelled
    assert not editor.seen.edits
    await editor.run(await body_command(editor, buffer))
    assert only_the_hole_changed(buffer)


def lines_of(buffer: Buffer) -> int:
    """Lines with text where the body was."""
    before, after = SOURCE.split("...")
    return sum(bool(line.strip()) for line in buffer.text.source[len(before) : -len(after)].splitlines())


async def test_a_causal_model_fills_longer_and_shorter(start: Start, runtime: Path, causal: Path) -> None:
    """A body, then a selection of a line; `steps` and `quality`, which it has not, are left out with a sentence."""
    editor, buffer = await start_real(start, runtime, model=str(causal), maxHoleTokens=256, steps=4)
    await editor.run(await body_command(editor, buffer))
    await editor.wait_for(lambda: editor.seen.messages)
    (told,) = editor.seen.messages
    assert "`steps` and `quality` are left out" in told.message and "choose a diffusion model" in told.message
    counts = [lines_of(buffer)]
    for length in ("longer", "longer", "shorter"):
        assert length in editor.seen.pending[buffer.uri][0].lengths
        await editor.do("reroll", length=length, uri=buffer.uri)
        assert only_the_hole_changed(buffer)
        counts.append(lines_of(buffer))
    assert counts[0] < counts[1] < counts[2] > counts[3] >= 1
    assert len(editor.seen.messages) == 1, "told once"
    await editor.do("discard", uri=buffer.uri)
    assert buffer.text.source == SOURCE
    place = SOURCE.index("😀")  # in a comment, where all that the model writes compiles
    selection = editor.buffers[buffer.uri].text.range((place, place + 1))
    picked = Range.of(selection).to_json()
    first = await editor.do("fill", uri=buffer.uri, what="selection", ranges=[picked])
    sizes = [len(first["holes"][0]["tokens"])]
    for length in ("longer", "longer", "shorter"):
        made = await editor.do("reroll", length=length, uri=buffer.uri)
        assert "\n" not in made["holes"][0]["text"]
        sizes.append(len(made["holes"][0]["tokens"]))
    assert sizes[0] < sizes[1] < sizes[2] > sizes[3] >= 1


async def test_an_unknown_model_is_one_sentence(start: Start, runtime: Path) -> None:
    editor, buffer = await start_real(start, runtime, model="gpt-none")
    with pytest.raises(JsonRpcException, match="gpt-none") as error:
        await editor.run(await body_command(editor, buffer))
    assert error.value.code == types.LSPErrorCodes.RequestFailed
    assert buffer.text.source == SOURCE and len(editor.seen.messages) == 1


@pytest.mark.shipped
@pytest.mark.skipif(not SHIPPED.is_dir(), reason=f"no weights in {SHIPPED}")
async def test_the_weights_that_ship(start: Start, runtime: Path) -> None:
    editor, buffer = await start_real(start, runtime)
    result = await editor.run(await body_command(editor, buffer))
    assert only_the_hole_changed(buffer) and result["model"] == "midfill-embedded"
    assert result["holes"][0]["text"].strip() and result["holes"][0]["text"] in buffer.text.source
