"""llama.cpp's own server with the pretrained base, where a `llama-server` is on the PATH and the base is here."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ports import find_free_port

from midfill_engine.wire import BASE
from midfill_infill.context.references import Reference
from midfill_infill.engines.client import EngineClient, get_json
from midfill_infill.engines.endpoint import parse_engine
from midfill_infill.filling.fill import Filled, Options, Preview, fill
from midfill_infill.syntax.holes import body_named, find_stubs, hole_at_cursor
from midfill_infill.text.document import Document

PROGRAM = shutil.which("llama-server")
MODEL = next((Path(os.environ.get("MIDFILL_TEST_MODELS", os.devnull)) / BASE).glob("*.gguf"), None)
SOURCE = b'''def add(a, b):
    """Return the sum."""
    ...


def sub(a, b):
    """Return the difference."""
    ...
'''

pytestmark = pytest.mark.skipif(PROGRAM is None or MODEL is None, reason="no llama-server, or no pretrained base")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = find_free_port()
    command = [PROGRAM, "-m", MODEL, "--host", "127.0.0.1", "--port", port, "-c", 2048, "-t", 1, "--no-warmup"]
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while get_json(f"http://127.0.0.1:{port}/health", 1.0) is None:
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    os.kill(process.pid, signal.SIGTERM)
    process.wait(30)


def is_busy(url: str) -> bool:
    return any(slot["is_processing"] for slot in get_json(f"{url}/slots", 5.0))


def test_stubs_are_filled_one_after_the_other_with_their_probabilities(url: str) -> None:
    document = Document(SOURCE, "python", Path("t.py"))
    with EngineClient(parse_engine(f"llamacpp:{url}")) as client:
        *previews, filled = fill(document, find_stubs(document), Options(), client)
    assert isinstance(filled, Filled) and len(previews) > 4
    assert [each.text for each in filled.fills] == ["return a + b", "return a - b"]
    assert all(each.confidence and each.certainty is None for each in filled.fills) and filled.new_errors == 0


def test_alternatives_differ(url: str) -> None:
    document = Document(SOURCE, "python", Path("t.py"))
    with EngineClient(parse_engine(f"llamacpp:{url}")) as client:
        *_, filled = fill(document, [body_named(document, "add")], Options(n=4, max_tokens=24), client)
    assert isinstance(filled, Filled)
    texts = [each.fills[0].text for each in (filled.best, *filled.alternatives)]
    assert len(set(texts)) == len(texts) > 1


def test_a_blank_line_does_not_get_a_comment_alone(url: str) -> None:
    source = b"""import os


def first(rows):
    # Return the first row.
    return rows[0]


def last(rows):
    # Return the last row.
    return rows[-1]


def middle(rows):

    return rows[len(rows) // 2]
"""
    document = Document(source, "python", Path("t.py"))
    with EngineClient(parse_engine(f"llamacpp:{url}")) as client:
        *previews, filled = fill(document, [hole_at_cursor(document, source.index(b":\n\n") + 2)], Options(), client)
    assert isinstance(filled, Filled)
    first_round = [each for each in previews if isinstance(each, Preview) and not (each.is_repair or each.is_chosen)]
    assert first_round[-1].holes[0].text.strip().startswith("#"), "what the server says by itself"
    lines = filled.fills[0].text.splitlines()
    assert any(line.strip() and not line.strip().startswith("#") for line in lines)
    assert all(line.startswith("    ") for line in lines if line.strip())


def test_closing_a_fill_frees_the_server(url: str) -> None:
    document = Document(b"def tell(story):\n    ...\n", "python", Path("t.py"))
    with EngineClient(parse_engine(f"llamacpp:{url}")) as client:
        events = fill(document, find_stubs(document), Options(max_tokens=1000, temperature=1.5), client)
        assert isinstance(next(events), Preview) and is_busy(url)
        events.close()
    until = time.monotonic() + 60
    while is_busy(url) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_busy(url)


def test_the_server_tells_how_much_it_takes_and_reads_parts_of_related_files(url: str) -> None:
    document = Document(b"def total(path):\n    return parse_invoice(path).\n", "python", Path("total.py"))
    related = "def show(path):\n    print(path)\n\n\ndef sum_of(path):\n    return parse_invoice(path).grand_total\n"
    hole = hole_at_cursor(document, len(document.data) - 1)
    texts = []
    with EngineClient(parse_engine(f"llamacpp:{url}")) as client:
        assert client.window == 2048 - 1024, "of -c 2048, without the answer"
        for references in ((), (Reference("open", related, Path("invoice.py")),)):
            options = Options(references=references, proposers=(), repair=False)
            *_, filled = fill(document, [hole], options, client)
            assert isinstance(filled, Filled)
            texts.append(filled.fills[0].text)
    assert texts[0] != texts[1] == "grand_total"
