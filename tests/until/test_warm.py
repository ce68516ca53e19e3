"""A command that is kept warm: the same answers, its own copy every time, nothing that outlives a run."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.until.shops import PYTEST, SHOP, UNITTEST, needs_bubblewrap

from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import Alternative
from midfill_infill.repository.roots import find_repository
from midfill_infill.sandbox.command import read_command
from midfill_infill.sandbox.copy import Copy, scratch_folder
from midfill_infill.sandbox.runner import Ran, Runner
from midfill_infill.sandbox.warm import tell_why_cold
from midfill_infill.sandbox.warm_plugin import Recorder
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.text.document import Document
from midfill_infill.until.lab import open_lab

pytestmark = needs_bubblewrap


def open_runner(root: Path, line: str, timeout_s: float = 60.0, *, sandboxed: bool = True) -> Iterator[Runner]:
    with scratch_folder() as folder:
        copy = Copy(find_repository(root), folder, sandboxed=sandboxed)
        command = read_command(line, timeout_s, sandboxed=sandboxed)
        with closing(Runner(copy, command)) as runner:
            yield runner


@pytest.fixture
def runner(shop: Path) -> Iterator[Runner]:
    yield from open_runner(shop, PYTEST)


def body(text: str) -> dict[str, bytes]:
    return {"shop.py": SHOP.replace("...", text).encode()}


def warm_up(runner: Runner) -> Ran:
    cold = runner.run({})
    assert cold.code == 1 and not cold.is_warm
    warm = runner.warm_up({}, cold)
    assert warm.is_warm and (warm.code, warm.passed) == (1, 1)
    return warm


def test_a_run_says_what_failed_and_where(runner: Runner, shop: Path) -> None:
    (failure,) = warm_up(runner).failures
    assert failure.test == "tests/test_shop.py::test_discount" and failure.sentence.startswith("assert None == 90")
    ran = runner.run(body("part = 0\n    return price / part"))
    (failure,) = ran.failures
    assert ran.is_warm and failure.kind == "ZeroDivisionError" and ran.passed == 1
    assert (failure.frames[-1].path, failure.frames[-1].line) == (str(shop / "shop.py"), 4)
    assert runner.run(body("return price * (1 - rate / 100)")).is_good


def test_the_same_warm_and_cold(runner: Runner) -> None:
    warm_up(runner)
    for text in ("return 90", "return missing", "import nowhere", "return price - rate", "raise SystemExit(3)", ")"):
        warm, cold = runner.run(body(text)), runner.run(body(text), cold=True)
        assert (warm.code, warm.passed) == (cold.code, cold.passed or 0), text
        assert warm.is_warm and not cold.is_warm
        assert [failure.sentence for failure in warm.failures][:1] == [failure.sentence for failure in cold.failures][
            :1
        ] or text in (")", "import nowhere", "return 90")


def test_tests_are_told_where_pytest_takes_another_folder_for_the_root(shop: Path) -> None:
    (shop / "api").mkdir()
    (shop / "api/pytest.ini").write_text("[pytest]\n")
    (shop / "api/test_api.py").write_text("def test_api(): assert 1 == 2\n")
    for runner in open_runner(shop, f"{PYTEST} -qq --color=yes api/test_api.py"):
        ran = runner.run({})
        assert ran.failed == {"test_api.py::test_api"} and ran.failures[0].sentence == "assert 1 == 2"


def test_a_python_that_ignores_its_variables_runs_without_the_plugin(shop: Path) -> None:
    (shop / "test_alone.py").write_text("def test_alone(): assert 1 == 2\n")
    for runner in open_runner(shop, f"{PYTEST.replace(' -m ', ' -I -m ')} test_alone.py"):
        ran = runner.run({})
        assert ran.code == 1 and ran.failures[0].sentence == "assert 1 == 2" and ran.failed is None


def test_a_long_suite_runs_only_as_far_as_it_comes_to_the_hole(shop: Path) -> None:
    (shop / "tests/test_slow.py").write_text(
        "import time, shop\ndef test_slow(): time.sleep(1.5)\ndef test_zero(): assert not shop.discount(0, 10)\n"
    )
    document = Document(SHOP.encode(), "python", shop / "shop.py")
    holes = find_stubs(document)
    with open_lab(document, shop / "shop.py", read_command(PYTEST, 60), shop) as lab:
        lab.start(holes)
        assert lab.runner.only == {"tests/test_shop.py::test_discount", "tests/test_slow.py::test_zero"}

        def run(text: str) -> Ran:
            return lab.run(Alternative(splice(document, holes, [text]).patch, (), 0))

        wrong, right = run("return 90"), run("return price * (1 - rate / 100)")
    assert wrong.seconds < 1 and wrong.passed == 1 and wrong.failed == {"tests/test_slow.py::test_zero"}
    assert right.is_good and right.passed == 2


@pytest.mark.parametrize(("scope", "is_shared"), [("function", False), ("session", True)])
def test_what_a_fixture_of_several_tests_runs_is_theirs(tmp_path: Path, scope: str, is_shared: bool) -> None:
    """Also after a test has come to the hole by itself."""
    marker = tmp_path / "marker"
    recorder = Recorder(lambda data, code: None, str(marker))
    marker.touch()
    setup = recorder.pytest_fixture_setup(SimpleNamespace(scope=scope))
    next(setup)
    marker.touch()
    assert list(setup) == [] and recorder._is_shared is is_shared and marker.exists()


def test_a_try_writes_only_its_own_copy_and_none_sees_another_one(runner: Runner, shop: Path) -> None:
    warm_up(runner)
    before = {path: path.read_bytes() for path in shop.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    ran = runner.run(body("open('shop.py', 'a').write('x'); open('/tmp/left', 'w'); import os; os.mkdir('d')"))
    assert not ran.is_good
    look = "import os; return 90 if os.path.exists('/tmp/left') or os.path.exists('d') else price"
    assert "assert 100 == 90" in runner.run(body(look)).output
    after = {path: path.read_bytes() for path in shop.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert after == before


def test_a_try_has_no_network_and_no_secrets(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hush")
    warm_up(runner)
    ran = runner.run(body("import os; assert 'hush' not in str(os.environ); return 90"))
    assert ran.is_good
    ran = runner.run(body("import socket; socket.create_connection(('192.0.2.1', 80), 2)"))
    assert ran.failures[0].kind == "OSError" and "unreachable" in ran.failures[0].message


def test_a_try_ends_after_its_time_with_all_its_children(runner: Runner) -> None:
    warm_up(runner)
    runner.command = replace(runner.command, timeout_s=3.0)
    hang = "import os, time\n    if os.fork() == 0:\n        os.setsid()\n    time.sleep(99)"
    ran = runner.run(body(hang))
    assert ran.code is None and ran.verdict == "too slow" and ran.seconds < 50
    runner.command = replace(runner.command, timeout_s=60.0)
    count = "import os; return sum(name.isdigit() for name in os.listdir('/proc'))"
    first, second = (runner.run(body(count)) for _ in range(2))
    assert first.output.split("assert ")[1].split()[0] == second.output.split("assert ")[1].split()[0]
    assert ran.is_warm and first.is_warm and second.is_warm


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_cancelled_try_ends_at_once_and_the_next_is_not_told_of_it(runner: Runner, is_warm: bool) -> None:
    stop = threading.Event()
    runner.command = replace(runner.command, is_cancelled=stop.is_set)
    if is_warm:
        warm_up(runner)
    began_s = time.monotonic()
    threading.Timer(1.0, stop.set).start()
    with pytest.raises(MidfillError, match="cancelled"):
        runner.run(body("import time; time.sleep(50); return 90"))
    assert time.monotonic() - began_s < 30
    stop.clear()
    (failure,) = runner.run(body("return missing")).failures
    assert failure.kind == "NameError"


def test_what_is_installed_is_imported_once(shop: Path) -> None:
    slow = shop / ".venv/lib/python3/site-packages/slow.py"
    slow.parent.mkdir(parents=True)
    (shop / ".venv/pyvenv.cfg").touch()
    slow.write_text("import time\ntime.sleep(4)\n")
    (shop / "conftest.py").write_text(f"import sys\nsys.path.append({str(slow.parent)!r})\nimport slow\n")
    for runner in open_runner(shop, PYTEST):
        cold = runner.run({})
        runner.warm_up({}, cold)
        ran = runner.run(body("return price - rate"))
        assert ran.is_good and ran.is_warm and cold.seconds > 4 > ran.seconds


def test_which_commands_are_kept_warm() -> None:
    for line, expected in (
        ("pytest -q", True), (".venv/bin/pytest tests", True), ("python -m pytest -x", True), ("make test", False),
        ("uv run pytest", True), ("pytest -n 4", False), ("cd a && pytest", False), ("python check.py", False),
    ):  # fmt: skip
        assert (not tell_why_cold(read_command(line, 9))) is expected, line
    assert "leave out --no-sandbox" in tell_why_cold(read_command("pytest", 9, sandboxed=False))


@pytest.mark.parametrize("line", [UNITTEST, f"{PYTEST} -p no:midfill_warm", f"{PYTEST} -p xdist.plugin -n 2"])
def test_commands_that_cannot_be_kept_warm_are_started_anew(shop: Path, line: str) -> None:
    for runner in open_runner(shop, line):
        cold = runner.run({})
        assert runner.warm_up({}, cold) is cold
        ran = runner.run(body("return price - rate"))
        assert ran.is_good and not ran.is_warm


def test_pytest_with_workers_in_its_settings_is_started_anew_and_its_output_is_read(shop: Path) -> None:
    (shop / "conftest.py").write_text("def pytest_configure(config):\n    config.option.dist = 'load'\n")
    for runner in open_runner(shop, PYTEST):
        cold = runner.run({})
        assert runner.warm_up({}, cold) is cold and cold.failed is None
        assert cold.failures[0].sentence == "assert None == 90" and "where None = " in cold.output


def test_a_warm_process_that_dies_is_replaced_by_cold_runs(runner: Runner) -> None:
    warm_up(runner)
    ran = runner.run(body("import os, signal; os.kill(os.getppid(), signal.SIGKILL); return 1"))
    assert not ran.is_warm and not ran.is_good
    assert runner.run(body("return price - rate")).is_good
