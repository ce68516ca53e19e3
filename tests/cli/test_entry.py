"""The console entry where things are not as usual: an early Ctrl-C, no working directory, closed streams, shells."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pytest
import typer
from tests.cli.command import python_path
from tests.cli.fake_engine import Plan

from midfill_infill.cli.failures import report_failures
from midfill_infill.cli.options import complete_model
from midfill_infill.engines.records import runtime_folder
from midfill_infill.errors import MidfillError
from midfill_infill.languages import find_language
from midfill_infill.repository.exclusions import find_exclusion
from midfill_infill.text.document import Document

MIDFILL = f"{sys.executable} -m midfill_infill"


def sh(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {**os.environ, "PYTHONPATH": python_path(), **environment}
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=known, timeout=60)


STARTED = """
import os, signal
from midfill_infill.cli import main
hear = signal.signal
def tell(number, handler):
    signal.signal = hear
    hear(number, handler)
    os.write(1, b".")  # what comes before is Python's own start
signal.signal = tell
hear(signal.SIGINT, signal.default_int_handler)  # a shell starts its background jobs with interrupts ignored
main()
"""


def test_an_interrupt_at_any_moment_is_one_sentence_at_once(
    tmp_path: Path, fake_installation: Callable[[], dict[str, str]], set_plan: Callable[..., Plan]
) -> None:
    set_plan(endless=True)
    (tmp_path / "t.py").write_text("def add(a, b):\n    ...\n")
    subprocess.run([*MIDFILL.split(), "models"], env=fake_installation(), check=True)  # starts the engine
    started_s, took_s = list[float](), list[float]()
    for moment in range(20):
        begun_s = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", STARTED, "fill", str(tmp_path / "t.py")],
            env=fake_installation(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None and process.stdout.read(1) == b"."
        started_s.append(time.perf_counter() - begun_s)
        time.sleep(moment * 0.03)  # from the first import to a fill that waits for its engine
        process.send_signal(signal.SIGINT)
        sent_s = time.perf_counter()
        out, err = process.communicate(timeout=100)
        took_s.append(time.perf_counter() - sent_s)
        assert (process.returncode, out, err) == (130, b"", b"midfill: interrupted; nothing was written.\n"), moment
    assert median(took_s) < 2 * median(started_s), "the time of Python's own start tells how fast the machine is"


@pytest.fixture
def hears_interrupts() -> Iterator[None]:
    """As from a terminal: a shell's background job and a command that ended ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_interrupts")
def test_an_interrupt_that_a_library_turns_into_its_own_error_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end, report_failures():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("regular expression error") from None
    assert end.value.exit_code == 130 and capsys.readouterr().err == "midfill: interrupted; nothing was written.\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_warning_of_pythons_parser_about_the_users_code_is_not_shown() -> None:
    with report_failures():
        assert compile("1 is 1", "m.py", "eval")


def test_a_working_directory_that_is_gone_is_said(tmp_path: Path) -> None:
    ended = sh(f"mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir {tmp_path}/gone && {MIDFILL} config")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr.splitlines()[-1] == "midfill: the working directory is gone; change to another one."


BECOME = """
from midfill_infill.cli import _prepare_streams
from midfill_infill.cli.execute import become
_prepare_streams()
become(["/bin/sh", "-c", "for n in 0 1 2; do test -e /dev/fd/$n || exit 9; done"])
"""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_end_no_command(tmp_path: Path, closed: str) -> None:
    (tmp_path / "t.py").write_text("x = 1\n")
    ended = sh(f"cd {tmp_path} && {MIDFILL} config {closed}", MIDFILL_CONFIG=str(tmp_path / "config.toml"))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sh(f"{sys.executable} -c '{BECOME}' {closed}").returncode == 0, "an engine opens no file in their place"
    refused = sh(f"cd {tmp_path} && {MIDFILL} fill t.py {closed}", MIDFILL_CONFIG=str(tmp_path / "config.toml"))
    assert refused.returncode == 2 and "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("shell", "holds"), [("zsh", "#compdef"), ("fish", "complete --command"), ("bash", "COMPREPLY")]
)
def test_completion_is_for_the_shell_that_is_named(shell: str, holds: str) -> None:
    assert holds in sh(f"{MIDFILL} --show-completion {shell}").stdout


def test_models_are_offered_where_no_engine_lists_any(set_stock: Callable[..., None]) -> None:
    def fail(*_: str) -> None:
        raise MidfillError("engine_missing", "no engine")

    set_stock(fail)
    assert complete_model("") == ["smollm2", "embedded"] and complete_model("em") == ["embedded"]


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for that of a socket."""
    with TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_a_shared_folder_is_not_closed_to_others(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, advice in [
        ("shared", "set MIDFILL_RUNTIME_DIR to a folder that only you can enter"),
        ("midfill", "chmod 700"),
    ]:
        (short_folder / name).mkdir()
        (short_folder / name).chmod(0o1777 if name == "shared" else 0o777)
        monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(short_folder / name))
        with pytest.raises(MidfillError) as error:
            runtime_folder()
        assert advice in error.value.sentence


@pytest.mark.parametrize(
    ("line", "language"),
    [
        ("#!/usr/bin/env python3", "python"),
        ("#!/usr/bin/python3.12 -I", "python"),
        ("#!/usr/bin/env -S node --no-warnings", "javascript"),
        ("#! /usr/bin/deno", "typescript"),
        ("#!/bin/sh", None),
        ("x = 1", None),
    ],
)
def test_a_file_without_extension_is_what_its_first_line_runs(tmp_path: Path, line: str, language: str | None) -> None:
    (tmp_path / "tool").write_text(f"{line}\nx = 1\n")
    assert Document.read(tmp_path / "tool").language == language
    assert find_language(tmp_path / "tool.py", line.encode()) == "python"


def test_a_link_to_a_file_with_secrets_is_left_out(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=1\n")
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "link.py").symlink_to(".env")
    (tmp_path / "other.py").symlink_to("a.py")
    assert find_exclusion(tmp_path / "link.py") == "it links to .env, and its name is that of a file with secrets"
    assert find_exclusion(tmp_path / "other.py") is None
