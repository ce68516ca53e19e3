"""Keeps pytest warm: a plugin of the user's command that forks a child for every run and never ends.

It runs in the sandbox, in the user's Python, and imports nothing of ours. Requests are lines of JSON on standard
input; an answer is a line on standard output that begins with a mark that only the client knows.
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
from typing import Any

import pytest

_MOST_FAILURES = 20
_MOST_FRAMES = 50
_MESSAGE_CHARACTERS = 600
_ROUNDS = 200
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run")
_known: dict[tuple[str, bytes], Any] = {}


class Recorder:
    """Reports a run's failures to the server. Code that is reached creates the file `marker`."""

    def __init__(self, descriptor: int, marker: str, wants_modules: bool) -> None:
        self._descriptor, self._marker, self._wants_modules = descriptor, marker, wants_modules
        self._passed = 0
        self._failures: list[dict[str, Any]] = []
        self._reached: set[str] = set()
        self._code: int | None = None

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        self._look(node.nodeid)
        if len(self._failures) >= _MOST_FAILURES or call.excinfo is None:
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
        told = {"test": node.nodeid, "kind": kind, "message": message[:_MESSAGE_CHARACTERS]}
        self._failures.append(dict(told, frames=frames[-_MOST_FRAMES:]))

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._passed += report.when == "call" and report.passed
        self._look(report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._code = int(exitstatus)

    def _look(self, test: str) -> None:
        if self._marker and os.path.exists(self._marker):
            os.unlink(self._marker)
            self._reached.add(test)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        if self._reached:
            open(self._marker, "w").close()
        for failure in self._failures:
            failure["reached"] = failure["test"] in self._reached
        told = {"passed": self._passed, "failures": self._failures}
        if self._wants_modules:
            told["paths"] = sys.path
            told["modules"] = [name for name, module in list(sys.modules.items()) if _is_installed(module)]
            told["sources"] = [path for module in list(sys.modules.values()) if (path := _own_source(module))]
        data = json.dumps(told).encode()
        while data:
            data = data[os.write(self._descriptor, data) :]
        if self._code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._code)  # interpreter shutdown takes a fifth of a short run


def _is_installed(module: Any) -> bool:
    path = getattr(module, "__file__", None) or ""
    return bool(path) and not _is_own(path) and getattr(module, "__spec__", None) is not None


def _own_source(module: Any) -> str | None:
    path = getattr(module, "__file__", None) or ""
    return path if path.endswith(".py") and _is_own(path) else None


def _is_own(path: str) -> bool:
    return path.startswith(_root + os.sep) and "site-packages" not in path


def _take_in(modules: list[str], sources: list[str], paths: list[str]) -> None:
    """Imports installed modules and compiles modules of the tree, so that later runs need not."""
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
            _known[path, data] = compile(data, path, "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError):
            continue


def _compile(loader: Any, data: Any, path: Any, **options: Any) -> Any:
    known = _known.get((path, bytes(data))) if isinstance(data, (bytes, bytearray, memoryview)) else None
    return _compile_anew(loader, data, path, **options) if known is None else known


def _pids() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _end_all(but: set[int]) -> None:
    """Ends every process of the sandbox except `but`."""
    for _ in range(_ROUNDS):
        left = _pids() - but
        for pid in left:
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
        if not left:
            return
        time.sleep(0.002)
    os._exit(70)


def _tidy(kept: dict[str, set[str]]) -> None:
    """Removes files that a run left in the sandbox's own folders."""
    import shutil

    for folder, names in kept.items():
        for name in set(os.listdir(folder)) - names:
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)


def _serve(mark: str) -> None:
    """Returns in the child of each run; the server itself ends with its input."""
    alive = _pids()
    folders = [folder for folder in (*_TEMPORARY, os.path.expanduser("~")) if os.path.isdir(folder)]
    kept = {folder: set(os.listdir(folder)) for folder in folders if os.access(folder, os.W_OK)}
    requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    _answer(answers, mark, {"ready": True})
    while line := requests.readline():
        asked = json.loads(line)
        if "modules" in asked:
            _take_in(asked["modules"], asked["sources"], asked["paths"])
            _answer(answers, mark, {"ready": threading.active_count() == 1})
            continue
        gc.collect()
        gc.freeze()
        read, write = os.pipe()
        began_s = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            requests.close()
            os.close(answers)
            os.close(read)
            _become_child(write, asked)
            return
        os.close(write)
        told, code = _watch(pid, read, began_s + asked["timeout_s"])
        _end_all(alive)
        _tidy(kept)
        told.update(code=code, seconds=time.perf_counter() - began_s)
        _answer(answers, mark, told)
    os._exit(0)


def _watch(pid: int, read: int, deadline_s: float) -> tuple[dict[str, Any], int | None]:
    os.set_blocking(read, False)
    said, code = b"", None
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        try:
            while piece := os.read(read, 1 << 16):
                said += piece
        except BlockingIOError:
            pass
        if ended:
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
            break
        if time.perf_counter() > deadline_s:
            break
        time.sleep(0.003)
    os.close(read)
    try:
        return json.loads(said), code
    except ValueError:
        return {}, code


def _become_child(write: int, asked: dict[str, Any]) -> None:
    os.setsid()
    with open(os.devnull) as null:
        os.dup2(null.fileno(), 0)
    linecache.checkcache()
    importlib.invalidate_caches()
    global pytest_configure

    def pytest_configure(config: Any) -> None:
        recorder = Recorder(write, asked.get("marker", ""), asked.get("wants_modules", False))
        config.pluginmanager.register(recorder, "midfill-recorder")


def _answer(descriptor: int, mark: str, told: dict[str, Any]) -> None:
    sys.stdout.flush()
    data = ("\n" + mark + json.dumps(told) + "\n").encode()
    while data:
        data = data[os.write(descriptor, data) :]


_mark, _space, _root = (os.environ.pop(f"MIDFILL_WARM_{name}", "") for name in ("MARK", "SPACE", "ROOT"))
_others = [name for name in os.environ.pop("PYTEST_PLUGINS", "").split(",") if name not in ("", __name__)]
if _others:
    os.environ["PYTEST_PLUGINS"] = ",".join(_others)
# Only in a PID namespace of its own: `_end_all` kills every other process.
if _mark and os.readlink("/proc/self/ns/pid") != _space:
    _compile_anew = importlib.machinery.SourceFileLoader.source_to_code
    importlib.machinery.SourceFileLoader.source_to_code = _compile  # type: ignore[method-assign, assignment]
    _serve(_mark)
