"""Robustness runs of the server: short in the suite, full behind `make soak`. Each counts what went wrong."""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from tests.lsp.editor import SCRIPTED, Buffer, Editor, server_environment
from tests.lsp.scripted_server import FILL, GATE

from midfill_lsp.frames import FrameParser
from midfill_lsp.text import SyncedDocument, Text

ALPHABETS = {
    "ascii": "ab (){}:=\t",
    "latin": "äöüßéñ x",
    "cyrillic": "жщыя д",
    "cjk": "漢字仮名 填",
    "astral": "😀🧩𝒳 a",
    "combining": "e\u0301a\u0308o\u0302 ",
    "right to left": "שלוםعربي ",
    "line ends": "a\x0c\x0b\x1c\x85\u2028\u2029 ",
}
NUM_HELD = 10
LINE_ENDS = ("\n", "\r\n", "\r", "")


def edit_at_random(num_edits: int, seed: int = 0) -> tuple[int, int]:
    """Edits of documents by positions, against a plain string that is cut at code points: (edits, wrong documents)."""
    chance = random.Random(seed)
    done = wrong = 0
    while done < num_edits:
        alphabet = chance.choice(list(ALPHABETS.values()))
        encoding = chance.choice(("utf-8", "utf-16", "utf-32"))
        plain = _words(chance, alphabet, 30)
        document = SyncedDocument("untitled:1", Text(plain, encoding), 1, "python")
        for _ in range(100):
            start = chance.randint(0, len(plain))
            end = min(len(plain), start + chance.choice((0, 0, 1, 2, 9)))
            start, end = _between_line_ends(plain, start), _between_line_ends(plain, end)
            new = _words(chance, alphabet, chance.choice((0, 1, 1, 3)))
            place = types.Range(*(_position(plain, offset, encoding) for offset in (start, max(start, end))))
            document.apply_change(types.TextDocumentContentChangePartial(place, new))
            plain = plain[:start] + new + plain[max(start, end) :]
            done += 1
        wrong += document.desynced or document.source != plain
    return done, wrong


def _words(chance: random.Random, alphabet: str, num_words: int) -> str:
    words = (
        "".join(chance.choices(alphabet, k=chance.randint(0, 6))) + chance.choice(LINE_ENDS) for _ in range(num_words)
    )
    return "".join(words)


def _between_line_ends(text: str, offset: int) -> int:
    return offset - 1 if text[offset - 1 : offset + 1] == "\r\n" else offset


def _position(text: str, offset: int, encoding: str) -> types.Position:
    """Counted plainly, by another way than the server's."""
    line = column = 0
    for index in range(offset):
        char = text[index]
        if char == "\n" or (char == "\r" and text[index + 1 : index + 2] != "\n"):
            line, column = line + 1, 0
        elif char != "\r":
            column += {"utf-8": len(char.encode()), "utf-16": 1 + (ord(char) > 0xFFFF), "utf-32": 1}[encoding]
    return types.Position(line, column)


def break_frames(num_frames: int, seed: int = 0) -> tuple[int, int]:
    """Good frames damaged at random, each with a good one behind it: (frames, good ones that did not come through)."""
    chance = random.Random(seed)
    lost = 0
    for number in range(num_frames):
        body = json.dumps(
            {"jsonrpc": "2.0", "id": number, "method": "x", "params": "ü" * chance.randint(0, 50)}
        ).encode()
        bad = bytearray(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        for _ in range(chance.randint(1, 4)):
            _damage(chance, bad)
        good = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        parser = FrameParser()
        stream = bytes(bad) + good * 2
        size = chance.choice((1, 5, 64, 4096))
        found = [item for at in range(0, len(stream), size) for item in parser.feed(stream[at : at + size])]
        lost += not found or found[-1] != json.loads(body)
    return num_frames, lost


def _damage(chance: random.Random, frame: bytearray) -> None:
    place = chance.randrange(len(frame)) if frame else 0
    match chance.randrange(4):
        case 0:
            frame[place : place + 1] = bytes([chance.randrange(256)])
        case 1:
            del frame[place : place + chance.randint(1, 9)]
        case 2:
            frame[place:place] = chance.randbytes(chance.randint(1, 9))
        case 3:
            del frame[place:]


async def fill_while_typing(num_fills: int, folder: Path, seed: int = 0) -> tuple[int, int, int]:
    """Fills of a document that is edited all the while: (fills, refused fills, wrong documents).

    The first of them wait until all is typed.
    """
    chance = random.Random(seed)
    editor = await Editor().start()
    models = {0: f"{GATE}{folder}", NUM_HELD: "fast"}
    filled = refused = wrong = 0
    try:
        for number in range(num_fills):
            if number in models:
                settings = {"midfill": {"model": models[number], "steps": 6, "trigger": "manual"}}
                editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings))
            source = "".join(f"def f{index}(ä):\n    '😀'\n    hole_{index}\n\n\n" for index in range(3))
            buffer = editor.open(source, uri=f"untitled:{number}")
            name = f"hole_{chance.randrange(3)}"
            start = source.index(name)
            span = buffer.text.range((start, start + len(name)))
            ends = {
                key: {"line": end.line, "character": end.character}
                for key, end in (("start", span.start), ("end", span.end))
            }
            asked = {"uri": buffer.uri, "what": "selection", "version": 1, "ranges": [ends]}
            running = asyncio.ensure_future(editor.do("fill", **asked))
            outside = source.replace(name, "\0")
            for _ in range(chance.randint(0, 4)):
                await asyncio.sleep(chance.random() * 0.004)
                outside = _type(chance, editor, buffer, outside, name)
            if number < NUM_HELD:
                await editor.settle()
                (folder / "open").touch()
            try:
                await running
                filled += 1
                wrong += buffer.text.source != outside.replace("\0", FILL)
            except JsonRpcException as error:
                refused += 1
                wrong += FILL in buffer.text.source or error.code != types.LSPErrorCodes.ContentModified
            closed = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(buffer.uri))
            editor.client.text_document_did_close(closed)
            del editor.buffers[buffer.uri]
            (folder / "open").unlink(missing_ok=True)
    finally:
        await editor.kill()
    return filled, refused, wrong


async def type_for_hours(num_edits: int, seed: int = 0) -> float:
    """Keys in two documents with a pending fill each: by how many MiB the server grew since the first tenth."""
    chance = random.Random(seed)
    editor = await Editor().start()
    source = "".join(f"def f{index}(ä):\n    return {index}\n\n\n" for index in range(50))
    first_kib = 0
    try:
        buffers = [editor.open(source, uri=f"untitled:{number}") for number in range(2)]
        for buffer in buffers:
            await editor.do("fill", uri=buffer.uri, what="body", ranges=[_at_start()])
        for number in range(num_edits // 2):
            buffer = chance.choice(buffers)
            place = chance.randrange(100, len(buffer.text.source))
            editor.edit(buffer, place, place, "ä")
            editor.edit(buffer, place, place + 1, "")
            if number % 250 == 0:
                await editor.settle()
            if number == num_edits // 20:
                first_kib = _resident_kib(editor)
        await editor.settle()
        return (_resident_kib(editor) - first_kib) / 1024
    finally:
        await editor.kill()


def _at_start() -> dict[str, object]:
    place = {"line": 1, "character": 5}
    return {"start": place, "end": place}


def _resident_kib(editor: Editor) -> int:
    assert editor.client._server is not None
    status = Path(f"/proc/{editor.client._server.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def _type(chance: random.Random, editor: Editor, buffer: Buffer, outside: str, name: str) -> str:
    """One edit somewhere; now and then inside the hole. Returns the text around the hole, which stands as NUL."""
    source = buffer.text.source
    new = chance.choice(("x", "😀\n", "# ä\n", ""))
    if chance.random() < 0.15:
        place = source.find(name) + 2
        if place > 2:
            editor.edit(buffer, place, place + 1, "XX")
        return outside
    hole = outside.index("\0")
    place = chance.randrange(len(outside))
    if abs(place - hole) < 3:
        return outside
    end = min(place + chance.choice((0, 1)), len(outside), hole - 1 if place < hole else len(outside))
    end = max(end, place)
    length = len(source) - len(outside) + 1
    shift = length - 1 if place > hole else 0
    editor.edit(buffer, place + shift, end + shift, new)
    return outside[:place] + new + outside[end:]


def kill_editors(num_kills: int, folder: Path) -> tuple[int, int]:
    """Editors that are killed while their server works: (kills, servers left a minute later)."""
    program = (
        "import subprocess, sys, json, time\n"
        f"server = subprocess.Popen({list(SCRIPTED)!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "def send(m):\n    b = json.dumps({'jsonrpc': '2.0', **m}).encode()\n"
        "    server.stdin.write(b'Content-Length: %d\\r\\n\\r\\n' % len(b) + b); server.stdin.flush()\n"
        "send({'id': 1, 'method': 'initialize', 'params': {'processId': None, 'rootUri': None, 'capabilities': {}}})\n"
        "print(server.pid, flush=True)\ntime.sleep(60)\n"
    )
    pids = []
    for number in range(num_kills):
        editor = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=server_environment())
        assert editor.stdout is not None
        pids.append(int(editor.stdout.readline()))
        time.sleep((number % 5) * 0.05)
        editor.kill()
        editor.wait()
        editor.stdout.close()
    deadline_s = time.monotonic() + 60
    while (left := [pid for pid in pids if _is_alive(pid)]) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return num_kills, len(left)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def kill_engines(num_kills: int, folder: Path) -> tuple[int, int, float]:
    """Engines killed in the middle of fills by the real server: (kills, wrong answers, the longest wait in seconds)."""
    plan = {"num_steps": 400, "step_s": 0.02}
    engine = Path(__file__).parents[1] / "cli" / "fake_engine.py"
    environment = {"MIDFILL_RUNTIME_DIR": str(folder), "FAKE_ENGINE_PLAN": json.dumps(plan), "TEST_ENGINE": str(engine)}
    server = (sys.executable, str(Path(__file__).with_name("fake_engine_server.py")))
    editor = await Editor().start(server, **environment)
    wrong, longest_s = 0, 0.0
    source = "def add(a, b):\n    ...\n"
    try:
        buffer = editor.open(source)
        for _ in range(num_kills):
            num_seen = len(editor.seen.previews)
            place = {"line": 1, "character": 5}
            asked = {"uri": buffer.uri, "what": "body", "ranges": [{"start": place, "end": place}], "previewToken": "p"}
            running = asyncio.ensure_future(editor.ask("midfill/fill", asked))
            while len(editor.seen.previews) < num_seen + 2:
                await asyncio.sleep(0.005)
            kill_engine(folder)
            killed_s = time.monotonic()
            try:
                await running
                wrong += 1
            except JsonRpcException as error:
                wrong += "a new engine is started" not in error.message
            longest_s = max(longest_s, time.monotonic() - killed_s)
            wrong += buffer.text.source != source
    finally:
        await editor.kill()
        kill_engine(folder)
    return num_kills, wrong, longest_s


def kill_engine(folder: Path) -> None:
    for lock in folder.glob("*.lock"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(lock.read_text()), signal.SIGKILL)
