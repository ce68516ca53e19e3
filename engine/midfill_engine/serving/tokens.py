"""Reads and checks named bearer tokens, in a file that may change while the engine runs. Knows files, no HTTP."""

import logging
import os
import secrets
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from midfill_engine.errors import StartError
from midfill_engine.serving.sockets import EXIT_BAD_SOCKET, prepare_folder, runtime_folder
from midfill_engine.wire import ErrorCode

MIN_TOKEN_CHARACTERS: Final = 16
MAX_NAME_CHARACTERS: Final = 64
MAX_FILE_BYTES: Final = 1024 * 1024
RELOAD_S: Final = 1.0
ONLY_NAME: Final = ""  # name of the only token of a file

logger = logging.getLogger(__name__)


class BearerTokens:
    """The valid tokens. Changes of `file` apply after `reload_s`; while it is unusable the old tokens stay valid."""

    def __init__(self, by_name: Mapping[str, str], file: Path | None = None, reload_s: float = RELOAD_S) -> None:
        self._by_name = by_name
        self._file = file
        self._reload_s = reload_s
        self._stamp = stamp_of(file)
        self._checked_s = time.monotonic()

    @property
    def place(self) -> str:
        """The place where the user finds the tokens."""
        return "MIDFILL_TOKEN" if self._file is None else str(self._file)

    def find(self, given: str) -> str | None:
        """The name of a token, None for a wrong one. Takes the same time for every wrong token."""
        self._reload()
        given_bytes = given.encode()
        owners = [name for name, token in self._by_name.items() if secrets.compare_digest(given_bytes, token.encode())]
        return owners[0] if owners else None

    def _reload(self) -> None:
        """Reads the file again if it has changed and was not checked within `reload_s`."""
        if self._file is None or time.monotonic() - self._checked_s < self._reload_s:
            return
        self._checked_s = time.monotonic()
        old_stamp, self._stamp = self._stamp, stamp_of(self._file)
        if self._stamp == old_stamp:
            return
        try:
            self._by_name = parse_tokens(read_own_file(self._file), self._file)
            logger.info("%d tokens are known now", len(self._by_name))
        except StartError as error:
            logger.warning("the tokens stay as they were: %s", error.message)


def stamp_of(file: Path | None) -> tuple[int, int] | None:
    """A value that changes with the file; None if there is none."""
    if file is None:
        return None
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def find_tokens(file: Path | None, reload_s: float = RELOAD_S) -> BearerTokens:
    """MIDFILL_TOKEN, otherwise the tokens of `file`, which is made with mode 0600 if missing. Raises StartError."""
    given = os.environ.get("MIDFILL_TOKEN")
    if given is not None:
        check_token(given, "choose a longer one, or unset MIDFILL_TOKEN")
        return BearerTokens({ONLY_NAME: given})
    path = file or runtime_folder() / "token"
    prepare_folder(path.parent)
    if not os.path.lexists(path):
        make_token_file(path)
    return BearerTokens(parse_tokens(read_own_file(path), path), path, reload_s)


def parse_tokens(text: str, path: Path) -> dict[str, str]:
    """The tokens of a file by name: one token alone, whose name is "", or lines of `NAME TOKEN`. Lines that begin with
    # are comments. Raises StartError.
    """
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        message = f"the token file {path} holds no token"
        raise StartError(ErrorCode.BAD_REQUEST, message, "delete it, and a new one is made", EXIT_BAD_SOCKET)
    by_name: dict[str, str] = {}
    for words in lines:
        is_bare = len(words) == 1 and len(lines) == 1
        name = ONLY_NAME if is_bare else words[0]
        if not (is_bare or len(words) == 2) or name in by_name or len(name) > MAX_NAME_CHARACTERS:
            message = f"the token file {path} is neither one token nor lines of NAME TOKEN with different names"
            raise StartError(ErrorCode.BAD_REQUEST, message, "write one name and one token a line", EXIT_BAD_SOCKET)
        check_token(words[-1], f"mend {path}")
        by_name[name] = words[-1]
    return by_name


def check_token(token: str, next_step: str) -> None:
    """Raises StartError for a token that is too short or has unusual characters."""
    if len(token) < MIN_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable() or " " in token:
        message = f"a token is not {MIN_TOKEN_CHARACTERS} or more printable ASCII characters"
        raise StartError(ErrorCode.BAD_REQUEST, message, next_step, EXIT_BAD_SOCKET)


def make_token_file(path: Path) -> None:
    """Makes a file with a new token, atomically by a link, so that parallel starts agree on one. Raises StartError."""
    try:
        with tempfile.NamedTemporaryFile("w", encoding="ascii", prefix=".token-", dir=path.parent) as file:  # mode 0600
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
            os.link(file.name, path)
    except FileExistsError:
        pass
    except OSError as error:
        raise no_token_file(path, error) from error


def read_own_file(path: Path) -> str:
    """The text of a file. Raises StartError unless the file belongs to the user and is closed to all others."""
    try:
        file = open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), encoding="utf-8", errors="replace")
    except OSError as error:
        raise no_token_file(path, error) from error
    with file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            message = f"the token file {path} is open to others"
            raise StartError(ErrorCode.FORBIDDEN, message, f"delete it, or chmod 600 {path}", EXIT_BAD_SOCKET)
        return file.read(MAX_FILE_BYTES)


def no_token_file(path: Path, error: OSError) -> StartError:
    """The StartError for a token file that cannot be made or read."""
    message = f"the token file {path} cannot be used: {error.strerror or error}"
    next_step = "name a plain file, not a link, in a folder of your own, or set MIDFILL_TOKEN"
    return StartError(ErrorCode.BAD_REQUEST, message, next_step, EXIT_BAD_SOCKET)
