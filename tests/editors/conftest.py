"""Each Neovim that is here, for the plugin's tests."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.lsp.editor import ROOT


def find_nvims() -> list[Path]:
    ours = sorted((ROOT / ".venv").glob("nvim-*/bin/nvim"))
    if ours:
        return ours
    found = shutil.which("nvim")
    return [Path(found)] if found else []


def is_new_enough(nvim: Path) -> bool:
    first = subprocess.run([nvim, "--version"], capture_output=True, text=True, timeout=60).stdout.splitlines()[0]
    return tuple(int(part) for part in first.split("v")[1].split("-")[0].split(".")[:2]) >= (0, 11)


@pytest.fixture(params=find_nvims() or [None], ids=lambda nvim: nvim.parts[-3] if nvim else "none")
def nvim(request: pytest.FixtureRequest) -> Path:
    found: Path | None = request.param
    if found is None:
        pytest.skip("no Neovim here: `make editors` fetches two")
    if not is_new_enough(found):
        pytest.skip(f"{found} is older than 0.11")
    return found
