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
from midfill_engine.serving.sockets import EXIT_CANNOT_SERVE, prepare_folder, runtime_folder
from midfill_engine.wire import ErrorCode

MIN_TOKEN_CHARACTERS: Final = 16
MAX_NAME_CHARACTERS: Final = 64
MAX_FILE_BYTES: Final = 1024 * 1024
RELOAD_S: Final = 1.0
ONLY_NAME: Final = ""  # the name of a token that stands alone

Stamp = tuple[int, int]  # of a file: another one after each change of its text, its mode or its inode

logger = logging.getLogger(__name__)


class BearerTokens:
    """The valid tokens by name. If they are from a `file`, its changes apply at the first request that comes `reload_s`
    after the last check; while it is unusable the old tokens stay valid. `stamp` is that of the file when it was read.
    """

    def __init__(
        self,
        by_name: Mapping[str, str],
        file: Path | None = None,
        stamp: Stamp | None = None,
        reload_s: float = RELOAD_S,
    ) -> None:
        self._by_name = by_name
        self._file = file
        self._stamp = stamp
        self._reload_s = reload_s
        self._checked_s = time.monotonic()

    @property
    def source(self) -> str:
        """Where the user finds the tokens: the variable or the file."""
        return "MIDFILL_TOKEN" if self._file is None else str(self._file)

    def find(self, given: str) -> str | None:
        """The name of the token that a client gave, None for a wrong one, which takes the same time however wrong."""
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


def stamp_of(file: Path) -> Stamp | None:
    """The file's stamp, None if it cannot be looked at."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ctime_ns, status.st_ino  # a new mode changes the ctime alone


def find_tokens(file: Path | None, reload_s: float = RELOAD_S) -> BearerTokens:
    """MIDFILL_TOKEN, otherwise the tokens of `file`, which is made with mode 0600 if missing. Raises StartError."""
    from_environment = os.environ.get("MIDFILL_TOKEN")
    if from_environment is not None:
        check_token(from_environment, "choose a longer one, or unset MIDFILL_TOKEN")
        return BearerTokens({ONLY_NAME: from_environment})
    path = file or runtime_folder() / "token"
    prepare_folder(path.parent, "put the token file into a folder that nobody else may write to")
    if not os.path.lexists(path):
        make_token_file(path)
    stamp = stamp_of(path)  # before the text is read, so that a change meanwhile is noticed
    return BearerTokens(parse_tokens(read_own_file(path), path), path, stamp, reload_s)


def parse_tokens(text: str, path: Path) -> dict[str, str]:
    """The tokens of a file by name: one token alone, whose name is "", or lines of `NAME TOKEN`. Lines that begin with
    # are comments. Raises StartError.
    """
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise unusable_file(f"the token file {path} holds no token", "delete it, and a new one is made")
    if len(lines) == 1 and len(lines[0]) == 1:
        lines = [[ONLY_NAME, *lines[0]]]
    by_name: dict[str, str] = {}
    for words in lines:
        if len(words) != 2:
            message = f"the token file {path} is neither one token nor lines of NAME TOKEN"
            raise unusable_file(message, "write one name and one token a line")
        name, token = words
        if len(name) > MAX_NAME_CHARACTERS:
            message = f"the token file {path} has a name of more than {MAX_NAME_CHARACTERS} characters"
            raise unusable_file(message, "choose a shorter one")
        if name in by_name:
            raise unusable_file(f"the token file {path} has two tokens of one name", "give each its own name")
        check_token(token, f"mend {path}")
        by_name[name] = token
    return by_name


def check_token(token: str, next_step: str) -> None:
    """Raises StartError for a token that is too short or has unusual characters."""
    if len(token) < MIN_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable() or " " in token:
        message = f"a token is not {MIN_TOKEN_CHARACTERS} or more printable ASCII characters"
        raise StartError(ErrorCode.BAD_REQUEST, message, next_step, EXIT_CANNOT_SERVE)


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
        raise inaccessible_file(path, error) from error


def read_own_file(path: Path) -> str:
    """The text of a file. Raises StartError unless the file belongs to the user and is closed to all others."""
    try:
        file = open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb")
    except OSError as error:
        raise inaccessible_file(path, error) from error
    with file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            message = f"the token file {path} is open to others"
            raise StartError(ErrorCode.FORBIDDEN, message, f"delete it, or chmod 600 {path}", EXIT_CANNOT_SERVE)
        if status.st_size > MAX_FILE_BYTES:
            raise unusable_file(f"the token file {path} is larger than {MAX_FILE_BYTES} bytes", "name another file")
        return file.read().decode(errors="replace")


def inaccessible_file(path: Path, error: OSError) -> StartError:
    """The error for a token file that cannot be made or opened."""
    message = f"the token file {path} cannot be used: {error.strerror or error}"
    return unusable_file(message, "name a plain file, not a link, in a folder of your own, or set MIDFILL_TOKEN")


def unusable_file(message: str, next_step: str) -> StartError:
    return StartError(ErrorCode.BAD_REQUEST, message, next_step, EXIT_CANNOT_SERVE)
