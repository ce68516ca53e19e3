"""A shop with a stub and its tests, empty repositories, and the scripted engines of the command and of runs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.engines import choose_answers, start_engines
from tests.refactor.workers import use_workers
from tests.until.runs import Engine
from tests.until.shops import SHOP, TESTS


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


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    with start_engines(tmp_path) as start:
        yield choose_answers(start, monkeypatch)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which the test runs."""
    folder = tmp_path / "repo"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The engine of the runs that the test makes."""
    engine = Engine()
    use_workers(monkeypatch, engine)
    return engine
