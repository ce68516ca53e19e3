"""Runs editors/install.py in an empty home, with a wheel of three empty packages in place of Midfill's."""

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
INSTALLER = ROOT / "editors" / "install.py"
TIMEOUT_S = 200.0  # on the slowest of machines
MODEL = """
import json, os, subprocess, sys, time
from pathlib import Path
file = Path(os.environ["XDG_DATA_HOME"], "midfill", "models", "smollm2", "weights")
if "get" in sys.argv:
    if os.environ.get("TEST_HANGS"):
        subprocess.Popen(["sleep", "600"])
        Path(os.environ["TEST_HANGS"]).touch()
        time.sleep(600)
    file.parent.mkdir(parents=True)
    file.write_text("weights")
found = [{"model": "smollm2", "is_whole": True, "folder": str(file)}] if file.exists() else []
print(json.dumps({"data": found}, indent=2))
"""
COPIES = """
import os, shutil, sys
if sys.orig_argv[1:3] == ["-m", "venv"]:
    others = shutil.ignore_patterns("sitecustomize*")
    shutil.copytree(sys.prefix, sys.orig_argv[3], symlinks=True, copy_function=os.link, ignore=others)
    os._exit(0)
"""


def make_wheel(folder: Path, version: str = "0.1", *, needs: str = "", main: str = "") -> Path:
    """A wheel with what the installer starts; `main` is the server, by default it prints the version."""
    path = folder / f"midfill-{version}-py3-none-any.whl"
    needed = (
        f'Provides-Extra: engine\nRequires-Dist: {needs}; extra == "engine"\n' if needs else "Provides-Extra: engine\n"
    )
    files = {
        "midfill_lsp/__init__.py": "", "midfill_lsp/server.py": "",
        "midfill_lsp/__main__.py": main or f"print({version!r})",
        "midfill_infill/__init__.py": "", "midfill_infill/fill.py": "", "midfill_infill/__main__.py": MODEL,
        "midfill_engine/__init__.py": "", "midfill_engine/__main__.py": "import time; time.sleep(600)",
        f"midfill-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: midfill\nVersion: {version}\n{needed}",
        f"midfill-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }  # fmt: skip
    record = "".join(f"{name},sha256={_hash(text)},{len(text.encode())}\n" for name, text in files.items())
    files[f"midfill-{version}.dist-info/RECORD"] = f"{record}midfill-{version}.dist-info/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def _hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def start_of(server: tuple[str, ...]) -> str:
    """The text of a module that becomes the program `server`, with this tree's packages."""
    path = os.pathsep.join(str(ROOT / room) for room in ("lsp", "infill", "engine", "kernels"))
    return f"import os\nos.environ['PYTHONPATH'] = {path!r}\nos.execv({server[0]!r}, {list(server)!r})"


def pack(folder: Path, server: tuple[str, ...], *, needs: str = "") -> Path:
    """The folder `server` of a packed plugin: the installer and a wheel whose server is the program `server`."""
    folder.mkdir()
    for name in ("install.py", "install.json"):
        shutil.copy(INSTALLER.with_name(name), folder)
    make_wheel(folder, main=start_of(server), needs=needs)
    return folder


def make_python(folder: Path) -> str:
    """A Python in a new environment, whose `-m venv` copies that one: pip takes seconds to install itself."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=TIMEOUT_S)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "sitecustomize.py").write_text(COPIES)
    return str(folder / "bin" / "python")


@dataclass
class Home:
    """An empty home; `store` is the folder that an editor gives Midfill, and `python` runs the installer."""

    folder: Path
    python: str = sys.executable

    @property
    def store(self) -> Path:
        return self.folder / "with space" / "store"

    @property
    def model(self) -> Path:
        return self.folder / "data" / "midfill" / "models" / "smollm2" / "weights"

    def environment(self, **more: str) -> dict[str, str]:
        own = {"HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder / "runtime")}
        own |= {f"XDG_{kind}_HOME": str(self.folder / kind.lower()) for kind in ("DATA", "STATE", "CACHE", "CONFIG")}
        folders = os.environ["PATH"].split(os.pathsep)
        own["PATH"] = os.pathsep.join(folder for folder in folders if not Path(folder, "midfill").exists())
        own["RUSTUP_HOME"] = str(self.folder.parent / "rustup")  # pip asks rustc for its version
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MIDFILL_", "PYTHON"))}
        return {**kept, **own, **more}

    def start(self, *words: str | Path, **more: str) -> "subprocess.Popen[str]":
        command = [self.python, str(INSTALLER), words[0], str(self.store), *map(str, words[1:])]
        return subprocess.Popen(
            command, env=self.environment(**more), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str | Path, timeout_s: float = TIMEOUT_S, **more: str) -> dict[str, Any]:
        """The last line of a run, with all before it as `told` and what it wrote to stderr as `log`."""
        return finish(self.start(*words, **more), timeout_s)

    def install(self, wheel: Path, **more: str) -> dict[str, Any]:
        return self.run("install", "--source", wheel, **more)

    def serve(self) -> str:
        """What the server of the environment in use prints."""
        command = [str(self.store / "current" / "bin" / "python"), "-P", "-m", "midfill_lsp"]
        done = subprocess.run(
            command, env=self.environment(), check=True, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        return done.stdout.strip()

    def close(self) -> None:
        """Ends what a failed test left running."""
        end_below(self.folder)

    def files(self) -> list[str]:
        """All that is in the home, folders too."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))


def finish(process: "subprocess.Popen[str]", timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    out, log = process.communicate(timeout=timeout_s)
    *told, last = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == (last["kind"] != "done"), log
    return {**last, "told": told, "log": log}


def processes_below(folder: Path) -> dict[int, str]:
    """The processes with a folder in their environment, as all have that a home started: their command lines by id."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
            if command and str(folder).encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = command
        except OSError:  # it ended, or is another user's
            continue
    return found


def end_below(folder: Path) -> None:
    for pid in processes_below(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait(what: str, condition: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.02)
