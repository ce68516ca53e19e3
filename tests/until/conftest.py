"""A shop with a stub and its tests, and the scripted engine of the command's tests."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.conftest import answer as answer
from tests.cli.conftest import engine_client as engine_client

from midfill_infill.sandbox import run as sandbox

SHOP = '''def discount(price, rate):
    """The price after a discount of so many percent."""
    ...


def total(prices):
    return sum(prices)
'''
TESTS = """import shop


def test_discount():
    assert shop.discount(100, 10) == 90


def test_total():
    assert shop.total([1, 2]) == 3
"""
PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider -p no:randomly"
UNITTEST = f"{sys.executable} check.py"

needs_bubblewrap = pytest.mark.skipif(sandbox.find_bubblewrap() is None, reason="bubblewrap does not work here")


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the pytest that a command starts: without those installed here it is up in a fifth of the time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, in which the test runs."""
    root = tmp_path / "repo"
    (root / "tests").mkdir(parents=True)
    (root / "shop.py").write_text(SHOP)
    (root / "tests" / "test_shop.py").write_text(TESTS)
    (root / "check.py").write_text("import shop\nassert shop.discount(100, 10) == 90, shop.discount(100, 10)\n")
    monkeypatch.chdir(root)
    return root


def is_running(word: str) -> bool:
    """Whether a process has that word."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                return True
    return False
