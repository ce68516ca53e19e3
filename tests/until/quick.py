"""A runner that runs the tests of a copy in this process: no sandbox, no pytest, a thousandth of the time."""

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from midfill_infill.sandbox.failures import Failure
from midfill_infill.sandbox.runner import MARKER, TESTS_FAILED, Ran, Runner


class QuickRunner(Runner):
    """Counts the cold and the warm runs of all runners in `num_cold` and `num_warm`, those of `warm_up` too."""

    num_cold = num_warm = 0
    _is_warm = False

    def run(self, files: Mapping[str, bytes], *, cold: bool = False, traced: bool = False) -> Ran:
        self.copy.put(files)
        is_warm = self._is_warm and not cold
        QuickRunner.num_warm += is_warm
        QuickRunner.num_cold += not is_warm
        tree = self.copy.mirror.work
        named = [tree / word for word in self.command.words if word.endswith(".py")]
        return _run_tests(
            tree, named or sorted(tree.rglob("test_*.py")), self.copy.root / MARKER, is_warm=is_warm, traced=traced
        )

    def warm_up(self, files: Mapping[str, bytes], expected: Ran) -> Ran:
        self._is_warm = True
        return self.run(files)

    def close(self) -> None:
        self._is_warm = False


def use_quick_runner(monkeypatch: pytest.MonkeyPatch, module: object) -> None:
    """In place of the runner that a module starts."""
    monkeypatch.setattr(module, "Runner", QuickRunner)
    monkeypatch.setattr(QuickRunner, "num_cold", 0)
    monkeypatch.setattr(QuickRunner, "num_warm", 0)


def _run_tests(tree: Path, paths: list[Path], marker: Path, *, is_warm: bool, traced: bool) -> Ran:
    failures: list[Failure] = []
    reached: dict[str, frozenset[str]] = {}
    num_passed = 0
    with _modules_of(tree):
        for path in paths:
            module = importlib.import_module(path.stem)
            for name in (name for name in vars(module) if name.startswith("test_")):
                test = f"{path.relative_to(tree)}::{name}"
                try:
                    os.environ["PYTEST_CURRENT_TEST"] = test
                    getattr(module, name)()
                    num_passed += 1
                except BaseException as error:  # noqa: BLE001 - a stub without a fill raises one
                    failures.append(Failure(test, type(error).__name__, str(error)))
                finally:
                    del os.environ["PYTEST_CURRENT_TEST"]
                if marker.exists():
                    reached[test] = frozenset(marker.read_text().split())
                    marker.unlink()
    failed = frozenset(failure.test for failure in failures)
    code = TESTS_FAILED if failed else 0
    reached_by = reached if is_warm or traced else None
    return Ran(code, "", 0.01, num_passed, tuple(failures), bool(reached), is_warm, failed, reached_by=reached_by)


@contextmanager
def _modules_of(tree: Path) -> Iterator[None]:
    """Imports from a tree, and forgets its modules at the end. Other threads may import others meanwhile."""
    own_test = os.environ.pop("PYTEST_CURRENT_TEST", None)
    folders = sorted({str(path.parent) for path in tree.rglob("*.py")})
    sys.path[:0] = folders
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = [folder for folder in sys.path if folder not in folders]
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(f"{tree}/"):
                del sys.modules[name]
        if own_test is not None:
            os.environ["PYTEST_CURRENT_TEST"] = own_test
