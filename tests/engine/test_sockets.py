"""Sockets, folders and tokens: modes, leftovers, refusals."""

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from midfill_engine.errors import StartError
from midfill_engine.serving.sockets import find_token, listen_tcp, listen_unix, runtime_folder


@pytest.fixture(autouse=True)
def open_umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modes must be right whatever the user's umask is."""
    monkeypatch.delenv("MIDFILL_TOKEN", raising=False)
    old = os.umask(0)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_socket_and_folder_are_the_users_alone(tmp_path: Path) -> None:
    listener = listen_unix(tmp_path / "new" / "engine.sock")
    assert (mode(listener.path), mode(listener.path.parent)) == (0o600, 0o700)
    listener.remove()
    assert not listener.path.exists()


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    with pytest.raises(StartError) as caught:
        listen_unix(tmp_path / "open" / "engine.sock")
    assert caught.value.exit_code == 2


def test_a_dead_engines_socket_is_replaced_and_a_live_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    listener = listen_unix(path)
    with pytest.raises(StartError) as caught:
        listen_unix(path)
    assert caught.value.exit_code == 4
    listener.remove()


def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    path.write_text("precious")
    with pytest.raises(StartError):
        listen_unix(path)
    assert path.read_text() == "precious"


def test_another_engines_socket_is_not_removed(tmp_path: Path) -> None:
    first = listen_unix(tmp_path / "engine.sock")
    first.path.rename(tmp_path / "moved.sock")
    second = listen_unix(tmp_path / "engine.sock")
    first.remove()
    assert second.path.exists()
    second.remove()


def test_a_path_that_is_too_long_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot be made"):
        listen_unix(tmp_path / ("x" * 120))


def test_a_taken_port_is_one_clear_sentence() -> None:
    with listen_tcp("127.0.0.1", 0) as first, pytest.raises(StartError, match="cannot be listened on"):
        listen_tcp("127.0.0.1", first.getsockname()[1])


def test_the_token_is_made_once_and_kept_private(tmp_path: Path) -> None:
    file = tmp_path / "new" / "token"
    token = find_token(file)
    assert (mode(file), mode(file.parent), len(token) >= 32) == (0o600, 0o700, True)
    assert find_token(file) == token


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    find_token(file)
    file.chmod(0o644)
    with pytest.raises(StartError, match="open to others"):
        find_token(file)


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "unwritable", "unreadable"])
def test_a_token_file_that_cannot_be_used_is_one_clear_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    file = tmp_path / "token"
    match kind:
        case "link":
            find_token(tmp_path / "real")
            file.symlink_to(tmp_path / "real")
        case "dangling link":
            file.symlink_to(tmp_path / "nothing")
        case "folder":
            file.mkdir(mode=0o700)
        case _:  # modes mean nothing to root, who may run these tests
            if kind == "unreadable":
                find_token(file)
            monkeypatch.setattr(os, "open", partial(refuse, os.open))
    with pytest.raises(StartError, match="cannot be used") as caught:
        find_token(file)
    assert caught.value.exit_code == 2
    assert str(file) in caught.value.message


def refuse(really_open: Callable[..., int], path: Path, flags: int, mode: int = 0o777) -> int:
    if flags & os.O_CREAT and path.exists():
        return really_open(path, flags, mode)
    raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize("token", ["", "short", "long enough but spaced", "not-ascii-\xe9-but-long-enough"])
def test_a_weak_token_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("MIDFILL_TOKEN", token)
    with pytest.raises(StartError) as caught:
        find_token(None)
    assert not token or token not in caught.value.message


def test_the_environments_token_goes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MIDFILL_TOKEN", "a-token-of-the-environment")
    assert find_token(tmp_path / "token") == "a-token-of-the-environment"
    assert not (tmp_path / "token").exists()


def test_the_runtime_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(tmp_path))
    assert find_token(None) == (tmp_path / "token").read_text().strip()
    assert runtime_folder() == tmp_path
