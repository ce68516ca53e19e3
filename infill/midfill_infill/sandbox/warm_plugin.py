"""A plugin of the user's pytest. Keeps it warm: serves requests, and forks a child for each run of the tests.

It runs in the sandbox, in the user's Python, and imports nothing of Midfill. Requests are lines of JSON on standard
input. An answer is a line on standard output that begins with a mark that tests do not know. A request with "modules"
imports them in advance; any other one runs the tests.

Without a mark, but with the name of a file, the plugin serves nothing: it writes a report of the command's run there.
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import json
import linecache
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

_MAX_FAILURES = 1000
_MAX_TRACED = 50  # so many failures are reported with up to _MAX_FRAMES frames, all others with their last frame
_MAX_FRAMES = 50
_MAX_MESSAGE_CHARACTERS = 600
_MAX_ROUNDS = 200  # of kills, 2 ms apart, until the processes of a run are gone
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # what a run leaves there is removed
_compiled: dict[tuple[str, bytes], Any] = {}  # code objects by path and source


class Recorder:
    """The plugin of one run of the tests with the ids `only`, of all if that is None. At the end it calls `tell` with a
    report as JSON and with the exit code. The report describes failures, and names all tests that failed, unless pytest
    stopped early. Code that is to be noticed creates the file `marker`, and may write words into it: the report has the
    words of each test that did so, unless code that several tests share did so.
    """

    def __init__(
        self,
        tell: Callable[[bytes, int | None], None],
        marker: str = "",
        wants_modules: bool = False,
        only: list[str] | None = None,
    ) -> None:
        self._tell, self._marker, self._wants_modules = tell, marker, wants_modules
        self._only = None if only is None else set(only)
        self._is_shared = False  # True if a module, or a fixture of several tests, created the marker
        self._passed = 0
        self._failures: list[dict[str, Any]] = []
        self._reached: dict[str, set[str]] = {}  # the words of tests that created the marker, by the test's id
        self._failed: set[str] = set()  # the ids of tests that failed
        self._stopped_early = False
        self._code: int | None = None

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        """Describes an exception in a test or in the collection of tests."""
        self._check_marker(node.nodeid)
        if len(self._failures) >= _MAX_FAILURES or call.excinfo is None:
            return
        value, kind, frames = call.excinfo.value, call.excinfo.typename, []
        if kind == "CollectError" and value.__cause__ is not None:  # it only repeats its cause
            value, kind = value.__cause__, type(value.__cause__).__name__
        traceback = value.__traceback__
        while traceback is not None:
            code = traceback.tb_frame.f_code
            if _is_own(code.co_filename):
                frames.append((code.co_filename, traceback.tb_lineno, code.co_name))
            traceback = traceback.tb_next
        try:
            message = str(value)
        except Exception:  # noqa: BLE001 - the exception's own __str__ may raise
            message = ""
        failure = {"test": node.nodeid, "kind": kind, "message": message[:_MAX_MESSAGE_CHARACTERS]}
        num_frames = _MAX_FRAMES if len(self._failures) < _MAX_TRACED else 1
        self._failures.append(dict(failure, frames=frames[-num_frames:]))

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._passed += report.when == "call" and report.passed
        self._note_failed(report)
        self._check_marker(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        self._is_shared |= self._has_marker()
        if self._only is not None:
            left_out = [item for item in items if item.nodeid not in self._only]
            items[:] = [item for item in items if item.nodeid in self._only]
            config.hook.pytest_deselected(items=left_out)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        """Notes if a fixture of several tests creates the marker. The words that it had before are put back."""
        before = self._take_marker()
        yield
        self._is_shared |= fixturedef.scope != "function" and self._has_marker()
        if before is not None:
            with open(self._marker, "a") as file:
                file.write(" ".join(["", *before]))

    def _has_marker(self) -> bool:
        return bool(self._marker) and os.path.exists(self._marker)

    def _take_marker(self) -> set[str] | None:
        """Removes the marker, so that the next test can create it. Returns its words, None if there is no marker."""
        if not self._has_marker():
            return None
        with open(self._marker) as file:
            words = set(file.read().split())
        os.unlink(self._marker)
        return words

    def pytest_collectreport(self, report: Any) -> None:
        self._note_failed(report)

    def pytest_sessionfinish(self, session: Any, exitstatus: int) -> None:
        self._code = int(exitstatus)
        self._stopped_early = bool(session.shouldfail or session.shouldstop)

    def _note_failed(self, report: Any) -> None:
        if report.failed:
            self._failed.add(report.nodeid)

    def _check_marker(self, test: str) -> None:
        """Records `test` if it created the marker."""
        words = self._take_marker()
        if words is not None:
            self._reached.setdefault(test, set()).update(words)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Makes the report and passes it to `tell`. Creates the marker again, because `Runner` looks for it."""
        if self._reached:
            open(self._marker, "w").close()
        for failure in self._failures:
            knows_reach = self._marker and not self._is_shared
            failure["reached"] = failure["test"] in self._reached if knows_reach else None
        report: dict[str, Any] = {"passed": self._passed, "failures": self._failures}
        if self._marker and not self._is_shared:
            report["reached"] = {test: list(words) for test, words in self._reached.items()}
        if not self._stopped_early:
            report["failed"] = list(self._failed)
        if self._wants_modules:
            report["paths"] = sys.path
            report["modules"] = [name for name, module in list(sys.modules.items()) if _is_installed(module)]
            report["sources"] = [path for module in list(sys.modules.values()) if (path := _own_source(module))]
        self._tell(json.dumps(report).encode(), self._code)


def _is_installed(module: Any) -> bool:
    path = getattr(module, "__file__", None) or ""
    return bool(path) and not _is_own(path) and getattr(module, "__spec__", None) is not None


def _own_source(module: Any) -> str | None:
    """The source file of a module of the tree; None for other modules."""
    path = getattr(module, "__file__", None) or ""
    return path if path.endswith(".py") and _is_own(path) else None


def _is_own(path: str) -> bool:
    """True for a file of the tree that is not an installed one."""
    return path.startswith(_root + os.sep) and "site-packages" not in path


def _take_in(modules: list[str], sources: list[str], paths: list[str]) -> None:
    """Imports installed modules and compiles the sources of modules of the tree, so that later runs need not."""
    before = sys.path[:]
    sys.path += [path for path in paths if path not in before]
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException:  # noqa: BLE001 - the run itself will report it
            continue
    sys.path[:] = before
    for path in sources:
        try:
            with open(path, "rb") as file:
                data = file.read()
            _compiled[path, data] = compile(data, path, "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError):
            continue


def _compile(loader: Any, data: Any, path: Any, **options: Any) -> Any:
    """Replaces `SourceFileLoader.source_to_code`: a source that was compiled in advance is not compiled again."""
    ready_code = _compiled.get((path, bytes(data))) if isinstance(data, (bytes, bytearray, memoryview)) else None
    return _compile_anew(loader, data, path, **options) if ready_code is None else ready_code


def _list_pids() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _kill_others(kept_pids: set[int]) -> None:
    """Kills every process of the sandbox except `kept_pids`, and ends this process if some cannot be killed."""
    for _ in range(_MAX_ROUNDS):
        pids = _list_pids() - kept_pids
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break
        if not pids:
            return
        time.sleep(0.002)
    os._exit(70)


def _remove_new_files(old_names: dict[str, set[str]]) -> None:
    """Removes what a run left in the sandbox's own folders; `old_names` has what each folder held at the start."""
    import shutil

    for folder, names in old_names.items():
        for name in set(os.listdir(folder)) - names:
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)


def _serve(mark: str) -> None:
    """Answers requests until the end of the input, then ends the process. Returns only in the child that is forked for
    each run: there pytest goes on and runs the tests.
    """
    own_pids = _list_pids()
    folders = [folder for folder in (*_TEMPORARY, os.path.expanduser("~")) if os.path.isdir(folder)]
    old_names = {folder: set(os.listdir(folder)) for folder in folders if os.access(folder, os.W_OK)}
    requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    _answer(answers, mark, {"ready": True})
    while line := requests.readline():
        request = json.loads(line)
        if "modules" in request:
            _take_in(request["modules"], request["sources"], request["paths"])
            _answer(answers, mark, {"ready": threading.active_count() == 1})
            continue
        gc.collect()
        gc.freeze()  # else each collection in the child would copy the memory that it shares with this process
        read, write = os.pipe()
        began_s = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            requests.close()
            os.close(answers)
            os.close(read)
            _become_child(write, request)
            return
        os.close(write)
        report, code = _watch(pid, read, began_s + request["timeout_s"])
        _kill_others(own_pids)
        _remove_new_files(old_names)
        report.update(code=code, seconds=time.perf_counter() - began_s)
        _answer(answers, mark, report)
    os._exit(0)


def _watch(pid: int, read: int, deadline_s: float) -> tuple[dict[str, Any], int | None]:
    """Waits for a child. Returns its report, empty without a valid one, and its exit code, None after the deadline."""
    os.set_blocking(read, False)
    data, code = b"", None
    while True:
        has_ended, status = os.waitpid(pid, os.WNOHANG)
        try:
            while piece := os.read(read, 1 << 16):
                data += piece
        except BlockingIOError:
            pass
        if has_ended:
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
            break
        if time.perf_counter() > deadline_s:
            break
        time.sleep(0.003)
    os.close(read)
    try:
        return json.loads(data), code
    except ValueError:
        return {}, code


def _become_child(write: int, request: dict[str, Any]) -> None:
    """Prepares this process, a forked child, for its run: defines `pytest_configure`, which pytest calls next, because
    it is still importing this module.
    """
    os.setsid()
    with open(os.devnull) as null:
        os.dup2(null.fileno(), 0)
    linecache.checkcache()
    importlib.invalidate_caches()
    global pytest_configure

    def tell(data: bytes, code: int | None) -> None:
        """Writes the report to the server, and ends this child."""
        while data:
            data = data[os.write(write, data) :]
        if code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # interpreter shutdown takes a fifth of a short run

    def pytest_configure(config: Any) -> None:
        recorder = Recorder(tell, request["marker"], request["wants_modules"], request["only"])
        if _register(config, recorder):
            config.option.tbstyle = "line"  # the report says more, and many tracebacks take longer than their tests


def _register(config: Any, recorder: Recorder) -> bool:
    """Registers a recorder. Returns False instead if workers of xdist, which are other processes, run the tests."""
    if getattr(config.option, "dist", "no") != "no":
        return False
    config.pluginmanager.register(recorder, "midfill-recorder")
    return True


def _answer(descriptor: int, mark: str, answer: dict[str, Any]) -> None:
    sys.stdout.flush()
    data = ("\n" + mark + json.dumps(answer) + "\n").encode()
    while data:
        data = data[os.write(descriptor, data) :]


def _write_report(data: bytes, code: int | None) -> None:
    with open(_report, "wb") as file:
        file.write(data)


_mark, _client_space, _root, _report, _marker = (
    os.environ.pop(f"MIDFILL_WARM_{name}", "") for name in ("MARK", "SPACE", "ROOT", "REPORT", "MARKER")
)
_others = [name for name in os.environ.pop("PYTEST_PLUGINS", "").split(",") if name not in ("", __name__)]
if _others:
    os.environ["PYTEST_PLUGINS"] = ",".join(_others)
# Serves only in a PID namespace of its own, because `_kill_others` kills every other process.
if _mark and os.readlink("/proc/self/ns/pid") != _client_space:
    _compile_anew = importlib.machinery.SourceFileLoader.source_to_code
    importlib.machinery.SourceFileLoader.source_to_code = _compile  # type: ignore[method-assign, assignment]
    _serve(_mark)
elif _report:

    def pytest_configure(config: Any) -> None:
        _register(config, Recorder(_write_report, _marker))
