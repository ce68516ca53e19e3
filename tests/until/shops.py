"""A shop with a stub, its tests, and the commands that run them."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest

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


def is_running(word: str) -> bool:
    """Whether a process has that word."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                return True
    return False
