"""Installs Midfill for an editor into a folder of its own, updates and repairs it there, and removes it.

    install.py install FOLDER --source WHEEL_OR_CHECKOUT [--torch-index URL] [--cancel-on-eof]
    install.py remove FOLDER

FOLDER/current is a link to the environment in use; `FOLDER/current/bin/python -P -m midfill_lsp` is the server. Each
environment is built in a folder of its own and gets the link once it works, so that nothing half-made is ever used.
Prints one JSON object a line: {"kind": "progress", "message", "percent"}, at last {"kind": "done", "message"} or
{"kind": "failed", "reason", "message"}. What the called programs say goes to stderr. SIGTERM, SIGINT and, if asked for,
the end of stdin cancel: the run ends its programs and removes what it made. Needs no package, and no new Python to
say that a newer one is needed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
import zipfile
from pathlib import Path
from typing import Any

OLDEST, NEWEST = (3, 11), (3, 14)  # what Midfill and torch run on
NAMES = ("python3.13", "python3.12", "python3.14", "python3.11", "python3", "python")
MORE_FOLDERS = ("~/.local/bin", "~/.cargo/bin", "/opt/homebrew/bin", "/usr/local/bin", "/usr/bin")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # on Linux, the usual index has CUDA builds of several GB
MODEL = "smollm2"
PROBE_S, POLL_S, GRACE_S = 10.0, 1.0, 10.0
NEEDED_MB = {"cpu": 2500, "gpu": 12000}
TORCH_MB = {"cpu": 1000, "gpu": 8000}  # what a progress bar expects: the download and the unpacked files together
PACKAGES_MB = 250
NO_NETWORK = re.compile(
    "name resolution|Name or service not known|nodename nor servname|Failed to establish a new connection|NewConnection"
    "|Connection refused|ConnectTimeout|Network is unreachable|dns error|error sending request|timed out",
    re.IGNORECASE,
)


class Failure(Exception):
    """What ends a run: a reason for programs and a sentence for the user."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


def tell(kind: str, message: str, **more: Any) -> None:
    try:
        print(json.dumps({"kind": kind, "message": message, **more}), flush=True)
    except OSError:  # the editor is gone: the end of stdin cancels
        pass


def note(message: str) -> None:
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:
        pass


class Cancel:
    """Turns the first SIGINT or SIGTERM into a Failure, at the end of `hold` if it comes inside; ignores later ones."""

    def __init__(self) -> None:
        self.is_held = self.is_asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)

    def _take(self, number: int, frame: object) -> None:
        self.ignore()
        self.is_asked = True
        if not self.is_held:
            self.check()

    def check(self) -> None:
        if self.is_asked:
            raise Failure("cancelled", "Cancelled; nothing was left behind.")

    def ignore(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def watch_stdin(self) -> None:
        """Cancels when whoever started this run closes stdin, or dies."""

        def wait() -> None:
            while sys.stdin.buffer.read(1):
                pass
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=wait, daemon=True).start()


class Lock:
    """Held while a run changes the folder. Raises Failure("busy")."""

    def __init__(self, folder: Path) -> None:
        import fcntl  # Windows has none

        self.path = folder / "lock"
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            self.file = self.path.open("a")
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Failure("busy", "Midfill is being installed by another window; wait for it.") from None
            if self.path.exists() and os.path.samestat(self.path.stat(), os.fstat(self.file.fileno())):
                return

    def drop(self) -> None:
        """Removes the lock, and the folder if nothing else is in it."""
        self.path.unlink()
        self.file.close()
        remove_empty(self.path.parent)


def remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        pass


class Runner:
    """Runs programs that build `new`, tells how they get on, and ends them when the run is cancelled."""

    def __init__(self, new: Path, cancel: Cancel) -> None:
        self.new, self.cancel = new, cancel
        self.temporary = new.with_name(new.name.replace("env-", "tmp-"))
        self.temporary.mkdir(exist_ok=True)
        self.environment = {
            **os.environ, "PATH": search_path(), "TMPDIR": str(self.temporary), "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INPUT": "1", "PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1",
        }  # fmt: skip
        for name in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER"):
            self.environment.pop(name, None)

    def run(self, words: list[str], doing: str = "", part: tuple[float, float] = (0, 0), expected_mb: float = 0) -> str:
        """What the program printed. `part` is its share of the progress, from and to, in percent. Raises Failure."""
        note("$ " + " ".join(words))
        if doing:
            tell("progress", doing, percent=part[0])
        said: list[str] = []
        lines: queue.Queue[Any] = queue.Queue()
        before_mb, most_mb, process = self._size_mb(), 0.0, None
        try:
            self.cancel.is_held = True
            process = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace", start_new_session=True, cwd=self.temporary,
            )  # fmt: skip
            self.cancel.is_held = False
            self.cancel.check()
            threading.Thread(target=read, args=(process.stdout, lines), daemon=True).start()
            told_s = time.monotonic()
            while (line := next_line(lines)) is not None:
                if line:
                    said.append(line)
                    note(line)
                if expected_mb and time.monotonic() - told_s >= POLL_S:
                    most_mb = max(most_mb, self._size_mb() - before_mb)  # a download goes once it is unpacked
                    percent = part[0] + (part[1] - part[0]) * min(0.98, most_mb / expected_mb)
                    tell("progress", f"{doing}: {most_mb:.0f} MB", percent=round(percent, 1))
                    told_s = time.monotonic()
            code = process.wait()
        finally:
            self.cancel.is_held = False
            if process is not None:
                end(process)
        if code:
            raise explain("\n".join(said), code)
        return "\n".join(said)

    def _size_mb(self) -> float:
        return size_mb(self.new) + size_mb(self.temporary)


def read(stream: Any, lines: queue.Queue[Any]) -> None:
    for line in stream:
        lines.put(line.rstrip())
    lines.put(None)


def next_line(lines: queue.Queue[Any]) -> str | None:
    """The next line; "" if none comes for POLL_S, None at the end."""
    try:
        line: str | None = lines.get(timeout=POLL_S)
        return line
    except queue.Empty:
        return ""


def end(process: subprocess.Popen[str]) -> None:
    """Ends a program that still runs and all that it started: asks, then kills."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def size_mb(folder: Path) -> float:
    """The bytes of all files below a folder, in MB."""
    total, waiting = 0, [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:  # it went meanwhile
            continue
    return total / 1e6


def explain(said: str, code: int) -> Failure:
    """One sentence for what a program said before it failed."""
    if "No space left on device" in said:
        return Failure("no_space", "The disk is full: Midfill needs about 2 GB; free some and install again.")
    if "ensurepip is not available" in said:
        return Failure("no_venv", "This Python has no venv: run `sudo apt install python3-venv`, and install again.")
    if NO_NETWORK.search(said):
        return Failure("offline", "No package index can be reached: connect to the internet, and install again.")
    missing = re.search(r"No matching distribution found for (\S+)", said)
    if missing:
        here = f"Python {platform.python_version()} on {platform.machine()}"
        return Failure("no_package", f"The package index has no {missing[1]} for {here}.")
    errors = [line for line in said.splitlines() if re.match(r"\s*(error|\w*Error)\b", line, re.IGNORECASE)]
    last = (errors or [line for line in said.splitlines() if line.strip()] or [f"exit code {code}"])[-1].strip()
    return Failure("failed", f"Midfill could not be installed: {last}")


def search_path() -> str:
    """The path and the usual folders, as editors that no shell started lack some."""
    folders = os.environ.get("PATH", "").split(os.pathsep) + [os.path.expanduser(folder) for folder in MORE_FOLDERS]
    return os.pathsep.join(dict.fromkeys(folder for folder in folders if folder))


def no_python(system: str = sys.platform) -> str:
    """The sentence for this system."""
    ways: dict[str, str] = json.loads(Path(__file__).with_name("install.json").read_text(encoding="utf-8"))
    return ways.get(system) or ways[next((name for name in ways if shutil.which(name)), "other")]


def find_python(own: tuple[int, int] = sys.version_info[:2], path: str | None = None) -> str | None:
    """A Python that Midfill runs on: this one, whose version is `own`, else the first of the path."""
    if OLDEST <= own <= NEWEST:
        return sys.executable
    ask = "import sys; print(*sys.version_info[:2])"
    for found in filter(None, (shutil.which(name, path=path or search_path()) for name in NAMES)):
        done = subprocess.run([found, "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        version = tuple(int(part) for part in re.findall(r"\d+", done.stdout)[:2])
        if done.returncode == 0 and OLDEST <= version <= NEWEST:
            return found
    return None


def has_gpu() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def choose_index(asked: str | None, is_gpu: bool, cpu_index: str = CPU_INDEX, system: str = sys.platform) -> list[str]:
    """The option with torch's index; none for the usual one, which an empty string asks for."""
    if asked is not None:
        return ["--index-url", asked] if asked else []
    if system != "linux" or is_gpu:
        return []
    try:
        urllib.request.urlopen(f"{cpu_index}/torch/", timeout=PROBE_S).close()
    except (OSError, ValueError):
        note(f"{cpu_index} does not answer: torch comes from the usual index")
        return []
    return ["--index-url", cpu_index]


def torch_of(wheel: Path) -> str | None:
    """The wheel's requirement of torch, the one package that has an index of its own."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode("utf-8")
    found = re.search(r"^Requires-Dist: (torch\b[^;\n]*?)\s*(;.*)?$", metadata, re.MULTILINE)
    return found[1] if found else None


def digest(source: Path) -> str:
    """What tells a wheel from an older one; for a checkout, its path."""
    if source.is_dir():
        return str(source)
    with source.open("rb") as file:
        sha256 = hashlib.sha256()
        for block in iter(lambda: file.read(1 << 20), b""):
            sha256.update(block)
    return sha256.hexdigest()


def find_uv() -> str | None:
    """uv, unless pip alone is configured: uv does not read where pip is told to find packages."""
    places = [os.environ.get("PIP_CONFIG_FILE") or "", "~/.pip/pip.conf", "~/.config/pip/pip.conf", "/etc/pip.conf"]
    places += ["~/Library/Application Support/pip/pip.conf", "/etc/xdg/pip/pip.conf"]
    told = " ".join(name for name in os.environ if name.startswith("PIP_"))
    for place in filter(None, places):
        try:
            told += Path(place).expanduser().read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    is_pips = re.search(r"index[-_]url|find[-_]links", told, re.IGNORECASE)
    return None if is_pips and not os.environ.get("UV_INDEX_URL") else shutil.which("uv", path=search_path())


class Maker:
    """Makes an environment and fills it, with uv or with venv and pip."""

    def __init__(self, runner: Runner, uv: str | None) -> None:
        self.runner, self.uv = runner, uv
        self.python = runner.new / "bin" / "python"

    def make(self) -> None:
        """Makes the empty environment. Raises Failure."""
        python = find_python()
        if self.uv is not None:
            if python is None:  # uv brings one, which is removed with Midfill
                self.runner.environment["UV_PYTHON_INSTALL_DIR"] = str(self.runner.new.parent / "python")
            wanted = python or f">={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"
            words = [self.uv, "venv", "--seed", "--python", wanted, str(self.runner.new)]  # `models get` needs pip
        elif python is not None:
            words = [python, "-m", "venv", str(self.runner.new)]
        else:
            raise Failure("no_python", no_python())
        self.runner.run(words, "making an environment", (0, 5))

    def fill(self, source: Path, torch_index: str | None, *, is_update: bool = False) -> None:
        """Installs torch, then Midfill with its engine, and tries them. Raises Failure."""
        wheel = self._build(source) if source.is_dir() else source
        torch = torch_of(wheel)
        if torch:
            is_gpu = has_gpu()
            expected_mb = TORCH_MB["gpu" if is_gpu else "cpu"]
            self._install([*choose_index(torch_index, is_gpu), torch], "installing torch", (5, 60), expected_mb)
        self._install([f"{wheel}[engine]"], "installing Midfill and its packages", (60, 78), PACKAGES_MB)
        if is_update:  # this version may be here already
            force = "--reinstall" if self.uv else "--force-reinstall"
            self._install([force, "--no-deps", str(wheel)], "installing Midfill", (78, 80))
        modules = ["midfill_lsp.server", "midfill_infill.fill", *(["torch"] if torch else [])]
        self.runner.run([str(self.python), "-P", "-c", f"import {', '.join(modules)}"], "trying it", (80, 85))

    def _install(self, words: list[str], doing: str, part: tuple[float, float], expected_mb: float = 0) -> None:
        options = ["--no-compile", "--retries", "2", "--progress-bar", "off"]
        pip = [str(self.python), "-P", "-m", "pip", "install", *options]
        uv = [self.uv or "", "pip", "install", "--python", str(self.python)]
        self.runner.run([*(uv if self.uv else pip), *words], doing, part, expected_mb)

    def _build(self, source: Path) -> Path:
        folder = self.runner.temporary / "wheel"
        pip = [str(self.python), "-P", "-m", "pip", "wheel", "--quiet", "--no-deps", "--retries", "2"]
        self.runner.run([*pip, "--wheel-dir", str(folder), str(source)], "building Midfill", (5, 5))
        return next(folder.glob("*.whl"))


def runs(environment: Path) -> bool:
    """Whether an environment's Python starts and has Midfill."""
    words = [str(environment / "bin" / "python"), "-P", "-c", "import midfill_lsp"]
    try:
        return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def build(runner: Runner, old: Path | None, source: Path, torch_index: str | None) -> None:
    """Makes `runner.new`: an updated copy of the old environment where that works, else a new one. Raises Failure.

    The copy shares its files with the old one by hard links: installers replace files and never write into them.
    """
    uv = find_uv()
    if old is not None and runs(old):
        try:
            shutil.copytree(old, runner.new, symlinks=True, copy_function=os.link)
            return Maker(runner, uv).fill(source, torch_index, is_update=True)
        except (Failure, OSError) as error:
            if isinstance(error, Failure) and error.reason in ("cancelled", "offline"):
                raise
            note(f"the environment cannot be updated and is made anew: {error}")
            shutil.rmtree(runner.new, ignore_errors=True)
    if uv is not None:
        try:
            return _make(Maker(runner, uv), source, torch_index)
        except Failure as error:
            if error.reason == "cancelled" or find_python() is None:
                raise
            note(f"uv failed, pip tries: {error}")
            shutil.rmtree(runner.new, ignore_errors=True)
    _make(Maker(runner, None), source, torch_index)


def _make(maker: Maker, source: Path, torch_index: str | None) -> None:
    maker.make()
    maker.fill(source, torch_index)


def find_model(runner: Runner) -> str | None:
    """The default model's file if it is on this machine."""
    words = [str(runner.new / "bin" / "python"), "-P", "-m", "midfill_infill", "models", "list", "--json"]
    said = runner.run(words)
    stock = json.loads(said[said.index("{") :])["data"]
    return next((stored["folder"] for stored in stock if stored["model"] == MODEL and stored["is_whole"]), None)


def get_model(runner: Runner) -> str | None:
    """Gets the default model. Returns its file if this run brought it, None if it was here. Raises Failure."""
    if find_model(runner) is not None:
        return None
    words = [str(runner.new / "bin" / "python"), "-P", "-m", "midfill_infill", "models", "get", MODEL]
    runner.run(words, "getting the default model, 93 MB", (85, 99))
    return find_model(runner)


def remove_model(file: str | None) -> None:
    """Removes a model's file and the folders that hold nothing else."""
    if file:
        Path(file).unlink(missing_ok=True)
        for folder in list(Path(file).parents)[:3]:  # midfill/models/NAME
            remove_empty(folder)


def environment_of(folder: Path) -> Path | None:
    """The environment in use, even if it is broken."""
    link = folder / "current"
    return folder / os.readlink(link) if link.is_symlink() else None


def read_record(environment: Path | None) -> dict[str, Any]:
    try:
        record = json.loads((environment / "midfill.json").read_text(encoding="utf-8")) if environment else {}
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def use(new: Path, record: dict[str, Any]) -> None:
    """Makes `new` the environment in use."""
    part = new / "midfill.part"
    part.write_text(json.dumps(record), encoding="utf-8")
    part.replace(new / "midfill.json")  # not written into: a copy shares its files with the old environment
    link = new.with_name("next")
    link.unlink(missing_ok=True)
    link.symlink_to(new.name)
    link.replace(new.with_name("current"))


def sweep(folder: Path, *kept: Path | None) -> None:
    """Removes what earlier runs left: environments that are not in use, and temporary files."""
    for path in [*folder.glob("env-*"), *folder.glob("tmp-*")]:
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)
    (folder / "next").unlink(missing_ok=True)


def end_processes(folder: Path, word: str) -> None:
    """Ends the processes of programs below `folder` that have `word` in their command line."""
    pids = [pid for pid, command in list_processes() if command.startswith(f"{folder}{os.sep}") and word in command]
    until = time.monotonic() + GRACE_S
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        while (pids := [pid for pid in pids if lives(pid)]) and time.monotonic() < until:
            time.sleep(0.05)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return not Path("/proc/self").exists() or "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def list_processes() -> list[tuple[int, str]]:
    """This user's processes: their ids and command lines."""
    found = []
    if Path("/proc/self/cmdline").exists():
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                found.append(
                    (int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
                )
            except OSError:  # it ended, or is another user's
                continue
        return found
    done = subprocess.run(["ps", "-xo", "pid=,command="], stdout=subprocess.PIPE, text=True)
    for line in done.stdout.splitlines():
        pid, _, command = line.strip().partition(" ")
        found.append((int(pid), command.strip()))
    return found


def install(folder: Path, source: Path, torch_index: str | None, cancel: Cancel) -> str:
    """Installs, updates or repairs. The sentence for the user. Raises Failure; then the folder is as it was."""
    old = environment_of(folder)
    sweep(folder, old)
    needed_mb, free_mb = NEEDED_MB["gpu" if has_gpu() else "cpu"], shutil.disk_usage(folder).free / 1e6
    if free_mb < needed_mb:
        raise Failure(
            "no_space", f"Midfill needs {needed_mb / 1000:.1f} GB in {folder}, of which {free_mb / 1000:.1f} are free."
        )
    had_python = (folder / "python").exists()
    runner = Runner(folder / f"env-{uuid.uuid4().hex[:8]}", cancel)
    record, fetched, said = read_record(old), None, "Midfill is installed."
    try:
        build(runner, old, source, torch_index)
        try:
            fetched = get_model(runner)
        except (Failure, ValueError, KeyError) as error:
            if isinstance(error, Failure) and error.reason == "cancelled":
                raise
            note(f"no default model: {error}")
            said = (
                f"Midfill is installed; the small model that ships fills until `midfill models get {MODEL}` works here."
            )
        cancel.ignore()
        cancel.check()
    except BaseException:
        remove_model(fetched)
        sweep(folder, old)
        if not had_python:
            shutil.rmtree(folder / "python", ignore_errors=True)
        raise
    use(runner.new, {"source": digest(source), "model": fetched or record.get("model")})
    end_processes(folder, "midfill_engine")  # of the old environment; the next fill starts one
    sweep(folder, runner.new, old if old is not None and runs(old) else None)  # an old one may still be in use
    return said


def remove(folder: Path) -> str:
    """Removes all that `install` made. Settings, other models and what `midfill refactor` can undo stay."""
    end_processes(folder, "midfill_")
    remove_model(read_record(environment_of(folder)).get("model"))
    sweep(folder)
    shutil.rmtree(folder / "python", ignore_errors=True)
    (folder / "current").unlink(missing_ok=True)
    return "Midfill is removed."


def read_arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="install.py", description="Installs Midfill for an editor, and removes it.")
    actions = parser.add_subparsers(dest="action", required=True)
    for name in ("install", "remove"):
        action = actions.add_parser(name)
        action.add_argument("folder", type=Path)
        action.add_argument("--cancel-on-eof", action="store_true", help="the end of stdin cancels")
        if name == "install":
            action.add_argument("--source", type=Path, required=True, help="Midfill's wheel, or a checkout")
            action.add_argument("--torch-index", help="where torch comes from; empty: the usual index")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    arguments = read_arguments(words)
    cancel = Cancel()
    if arguments.cancel_on_eof:
        cancel.watch_stdin()
    folder = Path(os.path.realpath(arguments.folder))
    lock = None
    try:
        lock = Lock(folder)
        if arguments.action == "remove":
            cancel.ignore()
            said = remove(folder)
        else:
            said = install(folder, arguments.source.resolve(), arguments.torch_index, cancel)
    except Failure as error:
        failure: Failure | None = error
    except OSError as error:
        failure = Failure("failed", f"Midfill could not be installed: {error}")
    else:
        failure = None
    cancel.ignore()
    if lock is not None:
        lock.drop()
    if failure is None:
        tell("done", said)
        return 0
    tell("failed", failure.message, reason=failure.reason)
    return 1


if __name__ == "__main__":
    sys.exit(main())
