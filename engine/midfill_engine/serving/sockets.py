"""Opens the socket that the engine listens on. Knows files and modes, no HTTP."""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from platformdirs import user_runtime_path

from midfill_engine.errors import StartError
from midfill_engine.wire import ErrorCode

EXIT_CANNOT_SERVE: Final = 2
EXIT_ALREADY_RUNNING: Final = 4


@contextmanager
def listen_unix(path: Path) -> Iterator[socket.socket]:
    """A listening socket with mode 0600 in a private folder, in place of one that a dead engine left. At the end its
    file is removed, unless another listener has replaced it. Raises StartError.
    """
    prepare_folder(path.parent, "put the socket into a folder of mode 0700")
    if path.is_socket():
        if answers(path):
            message = f"another engine answers on {path} already"
            raise StartError(ErrorCode.BUSY, message, "use it, or choose another path", EXIT_ALREADY_RUNNING)
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old_mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        message = f"the socket {path} cannot be made: {error.strerror or error}"
        next_step = "choose another path" if error.errno else "choose a shorter path"  # Python checks the length itself
        raise StartError(ErrorCode.BAD_REQUEST, message, next_step, EXIT_CANNOT_SERVE) from error
    finally:
        os.umask(old_mask)
    listener.listen(128)
    inode = path.stat().st_ino
    try:
        yield listener
    finally:
        listener.close()
        if path.exists() and path.stat().st_ino == inode:
            path.unlink()


def prepare_folder(folder: Path, next_step: str) -> None:
    """Makes the folder with mode 0700 if it is missing. If others own it or may write to it, raises StartError with
    `next_step`.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        message = f"the folder {folder} cannot be made: {error.strerror or error}"
        raise StartError(ErrorCode.BAD_REQUEST, message, "choose another path", EXIT_CANNOT_SERVE) from error
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        message = f"others may write to the folder {folder}"
        raise StartError(ErrorCode.FORBIDDEN, message, next_step, EXIT_CANNOT_SERVE)


def answers(path: Path) -> bool:
    """True if a process listens on a unix socket, also if it is too busy to accept the connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(str(path)) not in (errno.ECONNREFUSED, errno.ENOENT)


def listen_tcp(host: str, port: int) -> socket.socket:
    """A listening socket. Raises StartError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        message = f"{host}:{port} cannot be listened on: {error.strerror or error}"
        next_step = "choose another port, or an address of this machine"
        raise StartError(ErrorCode.BAD_REQUEST, message, next_step, EXIT_CANNOT_SERVE) from error
    listener.listen(128)
    return listener


def runtime_folder() -> Path:
    """The folder of sockets and tokens: MIDFILL_RUNTIME_DIR, otherwise the user's runtime directory."""
    chosen = os.environ.get("MIDFILL_RUNTIME_DIR")
    return Path(chosen) if chosen else user_runtime_path("midfill", appauthor=False)
