"""State of runs outside of git goes into the test's own folder; trees that are synced often stand in memory."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def quick_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for trees and runs in which a sync costs nothing. What a killed process leaves there is the same."""
    if not (_MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 1 << 28):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="midfill-test-", dir=_MEMORY) as folder:
        monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/state")
        yield Path(folder)
