"""In a Python without what Windows lacks, command and language server fill by an engine on TCP with a token."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.tiny import make_random
from tests.lsp.editor import ROOT, Start, server_environment
from tests.ports import find_free_port

from midfill_engine.families import FAMILIES
from midfill_infill.engines.client import get_json

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOURCE = "def add(a, b):\n    ...\n"
TOKEN = "t" * 20
WITHOUT = (sys.executable, str(ROOT / "tests/without_posix.py"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real engine with a tiny random model, which takes TOKEN."""
    folder = tmp_path_factory.mktemp("causal")
    make_random(folder, FAMILIES.find("causal"))
    address = f"http://127.0.0.1:{(port := find_free_port())}"
    words = ["serve", "--host", "127.0.0.1", "--port", str(port), "--model", str(folder), "--device", "cpu"]
    command = [sys.executable, "-m", "midfill_engine", *words]
    environment = server_environment(MIDFILL_TOKEN=TOKEN, OMP_NUM_THREADS="1")
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        while get_json(f"{address}/readyz", 1.0) is None:
            assert process.poll() is None
        yield address
        process.kill()


def environment_of(url: str, token: str) -> dict[str, str]:
    return {"MIDFILL_ENGINE_URL": url, "MIDFILL_TOKEN": token, "MIDFILL_CONFIG": os.devnull}


async def test_the_command_fills(url: str, tmp_path: Path) -> None:
    path = tmp_path / "t.py"
    path.write_text(SOURCE)

    def fill(token: str) -> subprocess.CompletedProcess[str]:
        words = [*WITHOUT, "midfill_infill", "fill", str(path), "--max-tokens", "8"]
        environment = server_environment(**environment_of(url, token))
        return subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100)

    done, refused = fill(TOKEN), fill("wrong")
    assert done.returncode == 0 and "-    ...\n+" in done.stdout, done.stderr
    assert refused.returncode == 4 and "the bearer token is missing or wrong" in refused.stderr


async def test_the_language_server_fills(url: str, start: Start) -> None:
    options = {"maxHoleTokens": 8}
    editor = await start((*WITHOUT, "midfill_lsp"), options=options, **environment_of(url, TOKEN))
    buffer = editor.open(SOURCE)
    command = (await editor.actions(buffer, SOURCE.index("...")))["body"].command
    await editor.run(command)  # type: ignore[arg-type]
    assert buffer.version == 2 and "..." not in buffer.text.source
    assert buffer.text.source.startswith("def add(a, b):\n    ")


async def test_what_windows_lacks_is_gone(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text("import os, socket\nprint(hasattr(os, 'geteuid'), hasattr(socket, 'AF_UNIX'))")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    probed, blocked = (
        subprocess.run([*WITHOUT, name], env=environment, capture_output=True, text=True) for name in ("probe", "fcntl")
    )
    assert probed.stdout == "False False\n" and blocked.returncode == 1
