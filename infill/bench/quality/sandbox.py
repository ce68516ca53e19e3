"""Runs Python programs that a model wrote: bounded in time and memory, walled off as far as the machine allows.

Three walls, the best that works here: `bubblewrap`; `namespaces` (util-linux `unshare`: no network, no other processes,
nothing but an empty /tmp writable); `limits`, which bound time, memory and file size and nothing else. A program passes
when it runs to its end, not when its process does: `sys.exit(0)` half-way is a failure. These walls are for programs
that go wrong, not for an attacker who knows this file.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

Wall = Literal["bubblewrap", "namespaces", "limits"]

_CHILD: Final = (Path(__file__).parent / "child.py").read_text(encoding="utf-8")
_NOBODY: Final = 65534
# Inside fresh namespaces: no file of the machine can be changed, /tmp is empty and /dev has no device but null.
_SEAL: Final = """
set -e
mount --make-rprivate /
mount -t tmpfs -o size=64m,nosuid,nodev,mode=1777 tmpfs /tmp
while read -r _ _ _ _ target _; do
  case "$target" in /tmp|/proc|/proc/*|/sys|/sys/*) ;; *) mount -o remount,bind,ro "$target" 2>/dev/null || true ;; esac
done < /proc/self/mountinfo
touch /tmp/null
mount --bind /dev/null /tmp/null
mount -t tmpfs -o size=64k,mode=755 tmpfs /dev
touch /dev/null
mount --bind /tmp/null /dev/null
cd /tmp
exec "$@"
"""


@dataclass(frozen=True)
class Limits:
    """`cpu_s` bounds computing, which does not depend on the machine's load; `wall_s` bounds waiting."""

    cpu_s: int = 5
    wall_s: float = 30.0
    memory_bytes: int = 1 << 30
    file_bytes: int = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """`why` is "passed", "timeout", "memory", "syntax", "died", or the name of the exception that ended the program."""

    passed: bool
    why: str


@cache
def best_wall() -> Wall:
    """The strongest wall that holds on this machine, tried out."""
    for wall in ("bubblewrap", "namespaces"):
        if _holds(wall):
            return wall
    return "limits"


def run_programs(
    programs: Mapping[str, str], limits: Limits | None = None, wall: Wall | None = None, num_workers: int | None = None
) -> dict[str, Verdict]:
    """A verdict for every program, by its key; equal programs run once."""
    chosen, bounds = wall or best_wall(), limits or Limits()
    distinct = sorted(set(programs.values()))
    with ThreadPoolExecutor(num_workers or os.cpu_count() or 1) as pool:
        verdicts = dict(zip(distinct, pool.map(lambda text: run(text, bounds, chosen), distinct), strict=True))
    return {key: verdicts[text] for key, text in programs.items()}


def run(program: str, limits: Limits, wall: Wall) -> Verdict:
    """Runs one program to its end or its limits, and ends what it started.

    Behind `limits` a process that made itself a session of its own is not found again; its limits still hold.
    """
    mark = secrets.token_hex(16)
    job = {"program": program, "mark": mark, "cpu_s": limits.cpu_s, "memory_bytes": limits.memory_bytes}
    with tempfile.TemporaryDirectory(prefix="midfill-eval-") as folder:
        process = subprocess.Popen(
            [*_words(wall), sys.executable, "-I", "-S", "-B", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(
                json.dumps({**job, "file_bytes": limits.file_bytes}).encode(), limits.wall_s
            )
        except subprocess.TimeoutExpired:
            return Verdict(False, "timeout")
        finally:
            _end(process)
    return _verdict(process.returncode, output.decode(errors="replace"), mark)


def _verdict(code: int, output: str, mark: str) -> Verdict:
    if output == mark:
        return Verdict(True, "passed")
    # A signal arrives as -N from a child of ours, and as 128 + N through bubblewrap or unshare.
    if code in (-signal.SIGXCPU, 128 + signal.SIGXCPU, -signal.SIGKILL, 128 + signal.SIGKILL):
        return Verdict(False, "timeout")
    return Verdict(False, output if output.isidentifier() else "died")


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    for pipe in (process.stdin, process.stdout):  # what it started may still hold the other end
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _words(wall: Wall) -> list[str]:
    """What a command is run by."""
    if wall == "limits":
        return []
    if wall == "bubblewrap":
        shown = [word for path in _below_tmp() for word in ("--ro-bind", path, path)]
        return [
            *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run"),
            *(*shown, "--chdir", "/tmp", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
            *("--uid", str(_NOBODY), "--gid", str(_NOBODY), "--"),
        ]
    own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    spaces = ("--net", "--pid", "--fork", "--kill-child", "--mount", "--ipc", "--uts", "--mount-proc")
    words = ["unshare", *own_user, *spaces, "bash", "-c", _SEAL, "seal"]
    return [*words, "setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--"]


def _below_tmp() -> list[str]:
    """What the interpreter needs and an empty /tmp would hide."""
    return sorted({path for path in (sys.prefix, sys.base_prefix) if Path(path).is_relative_to("/tmp")})


def _holds(wall: Wall) -> bool:
    """Whether a program behind `wall` runs, reaches no network and cannot write where this process can."""
    needed = ("bwrap",) if wall == "bubblewrap" else ("unshare", "setpriv", "mount", "bash")
    if not all(map(shutil.which, needed)):
        return False
    places = [Path.home(), Path(__file__).parent, Path("/var/tmp")]
    return run(_PROBE.format(places=[str(place) for place in places]), Limits(wall_s=20), wall).passed


_PROBE: Final = """
import os, socket, stat
assert not [name for name in os.listdir("/dev") if stat.S_ISBLK(os.lstat("/dev/" + name).st_mode)]
assert not [name for _, name in socket.if_nameindex() if name != "lo"]
for place in {places}:
    path = os.path.join(place, ".midfill-probe-%d" % os.getpid())
    try:
        open(path, "x").close()
    except OSError:
        continue
    os.unlink(path)
    raise SystemExit("this place can be written: " + place)
open("/tmp/probe", "x").close()
"""
