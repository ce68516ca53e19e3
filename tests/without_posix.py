"""Runs a module in a Python without what the standard library lacks on Windows: `without_posix.py MODULE ...`."""

import asyncio  # noqa: F401 - it and the others use on this system what is taken away below
import http.client  # noqa: F401
import multiprocessing  # noqa: F401
import os
import runpy
import shutil  # noqa: F401
import signal
import socket
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
from functools import partial

import platformdirs  # noqa: F401

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
NAMES = {
    os: "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK fchmod fchown fork geteuid getuid getxattr killpg memfd_create "
    "pidfd_open pread pwrite set_blocking setsid setxattr statvfs sysconf",
    signal: "SIGKILL SIGURG",
    socket: "AF_UNIX SO_PEERCRED",
}

if __name__ == "__main__":
    socket.socketpair = partial(socket.socketpair, socket.AF_UNIX)  # type: ignore[assignment] - asyncio's own pair
    sys.modules.update(dict.fromkeys(MODULES))  # type: ignore[arg-type] - importing them fails
    for owner, names in NAMES.items():
        for name in names.split():
            owner.__dict__.pop(name, None)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
