"""Sockets and their folders: modes, leftovers, refusals."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from midfill_engine.errors import StartError
from midfill_engine.serving.sockets import listen_tcp, listen_unix


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Modes must be right whatever the user's umask is."""
    old = os.umask(0)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_socket_and_folder_are_the_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "engine.sock"
    with listen_unix(path):
        assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert not path.exists()


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    with pytest.raises(StartError) as caught, listen_unix(tmp_path / "open" / "engine.sock"):
        pass
    assert caught.value.exit_code == 2


def test_a_dead_engines_socket_is_replaced_and_a_live_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listen_unix(path), pytest.raises(StartError) as caught, listen_unix(path):
        pass
    assert caught.value.exit_code == 4


def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    path.write_text("precious")
    with pytest.raises(StartError) as caught, listen_unix(path):
        pass
    assert path.read_text() == "precious" and caught.value.next_step == "choose another path"


def test_another_engines_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with ExitStack() as second:
        with listen_unix(path):
            path.rename(tmp_path / "moved.sock")
            second.enter_context(listen_unix(path))
        assert path.exists()
    assert not path.exists()


def test_a_path_that_is_too_long_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot be made") as caught, listen_unix(tmp_path / ("x" * 120)):
        pass
    assert caught.value.next_step == "choose a shorter path"


def test_a_taken_port_is_one_clear_sentence() -> None:
    with listen_tcp("127.0.0.1", 0) as first, pytest.raises(StartError, match="cannot be listened on"):
        listen_tcp("127.0.0.1", first.getsockname()[1])
