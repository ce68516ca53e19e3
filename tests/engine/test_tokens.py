"""Bearer tokens: made once, kept private, named, revoked while the engine runs."""

import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from midfill_engine.errors import StartError
from midfill_engine.serving.sockets import runtime_folder
from midfill_engine.serving.tokens import BearerTokens, find_tokens

ANNA, BEN = "anna-" + "a" * 20, "ben-" + "b" * 20


@pytest.fixture(autouse=True)
def open_umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modes must be right whatever the user's umask is."""
    monkeypatch.delenv("MIDFILL_TOKEN", raising=False)
    old = os.umask(0)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)


def test_first_starts_at_the_same_time_agree_on_one_token(tmp_path: Path) -> None:
    for round_number in range(20):
        file, found, start = tmp_path / f"token{round_number}", list[BearerTokens](), threading.Barrier(4)

        def find(file: Path = file, found: list[BearerTokens] = found, start: threading.Barrier = start) -> None:
            start.wait()
            found.append(find_tokens(file))

        threads = [threading.Thread(target=find) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        token = file.read_text().strip()
        assert [tokens.find(token) for tokens in found] == [""] * 4
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_full_disk_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(StartError, match="No space left"):
            find_tokens(tmp_path / "token")
    assert list(tmp_path.iterdir()) == []
    assert find_tokens(tmp_path / "token")


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "token", "\n")
    with pytest.raises(StartError, match="holds no token") as caught:
        find_tokens(tmp_path / "token")
    assert "MIDFILL_TOKEN" not in caught.value.message + caught.value.next_step


@pytest.mark.parametrize(
    "text", ["a b c", f"{ANNA}\n{BEN}", f"anna {ANNA}\n{BEN}", f"anna {ANNA}\nanna {BEN}", f"{'n' * 65} {ANNA}"]
)
def test_a_file_of_other_lines_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    write(tmp_path / "token", text)
    with pytest.raises(StartError) as caught:
        find_tokens(tmp_path / "token")
    assert ANNA not in caught.value.message and BEN not in caught.value.message


def test_one_of_several_tokens_is_revoked_while_the_engine_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tokens"
    write(file, f"# the team\nanna {ANNA}\n\nben {BEN}\n")
    tokens = find_tokens(file, reload_s=0.0)
    assert [tokens.find(token) for token in (ANNA, BEN, "other")] == ["anna", "ben", None]
    write(file, f"anna {ANNA}\n")
    assert [tokens.find(token) for token in (ANNA, BEN)] == ["anna", None]
    write(file, "nonsense of three words\n")
    assert [tokens.find(token) for token in (ANNA, BEN)] == ["anna", None]
    file.unlink()
    assert tokens.find(ANNA) == "anna"
    assert "stay as they were" in caplog.text and ANNA not in caplog.text


def test_tokens_of_a_file_that_was_open_to_others_apply_once_it_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    write(file, f"anna {ANNA}\n")
    tokens = find_tokens(file, reload_s=0.0)
    write(file, f"ben {BEN}\n")
    file.chmod(0o644)
    assert [tokens.find(token) for token in (ANNA, BEN)] == ["anna", None]
    file.chmod(0o600)
    assert [tokens.find(token) for token in (ANNA, BEN)] == [None, "ben"]


@pytest.mark.parametrize(
    "text, reason",
    [(f"{'n' * 65} {ANNA}", "more than 64 characters"), (f"anna {ANNA}\nanna {BEN}", "two tokens of one name")],
)
def test_what_is_wrong_with_a_name_is_said(tmp_path: Path, text: str, reason: str) -> None:
    write(tmp_path / "token", text)
    with pytest.raises(StartError, match=reason):
        find_tokens(tmp_path / "token")


def test_a_folder_that_others_may_write_to_is_refused_for_what_it_holds(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    with pytest.raises(StartError, match="others may write") as caught:
        find_tokens(tmp_path / "token")
    assert "token file" in caught.value.next_step


def test_the_token_is_made_once_and_kept_private(tmp_path: Path) -> None:
    file = tmp_path / "new" / "token"
    tokens, token = find_tokens(file), file.read_text().strip()
    assert (mode(file), mode(file.parent), len(token) >= 32) == (0o600, 0o700, True)
    assert (tokens.find(token), tokens.find("another"), find_tokens(file).find(token)) == ("", None, "")


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    find_tokens(file)
    file.chmod(0o644)
    with pytest.raises(StartError, match="open to others"):
        find_tokens(file)


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "unwritable", "unreadable"])
def test_a_token_file_that_cannot_be_used_is_one_clear_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    file = tmp_path / "token"
    match kind:
        case "link":
            find_tokens(tmp_path / "real")
            file.symlink_to(tmp_path / "real")
        case "dangling link":
            file.symlink_to(tmp_path / "nothing")
        case "folder":
            file.mkdir(mode=0o700)
        case _:  # modes mean nothing to root, who may run these tests
            if kind == "unreadable":
                find_tokens(file)
            monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StartError, match="cannot be used") as caught:
        find_tokens(file)
    assert caught.value.exit_code == 2
    assert str(file) in caught.value.message


def refuse(path: object, flags: int, mode: int = 0o777) -> NoReturn:
    raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize("token", ["", "short", "long enough but spaced", "not-ascii-\xe9-but-long-enough"])
def test_a_weak_token_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("MIDFILL_TOKEN", token)
    with pytest.raises(StartError) as caught:
        find_tokens(None)
    assert not token or token not in caught.value.message


def test_the_environments_token_goes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MIDFILL_TOKEN", "a-token-of-the-environment")
    assert find_tokens(tmp_path / "token").find("a-token-of-the-environment") == ""
    assert not (tmp_path / "token").exists()


def test_the_runtime_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(tmp_path))
    assert find_tokens(None).find((tmp_path / "token").read_text().strip()) == ""
    assert runtime_folder() == tmp_path
