"""A checkpoint comes from a hub that breaks off, hangs, lies or refuses, and from the cache without any hub."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.engine.fakes import wait_until
from tests.engine.hub import COMMIT, Hub, run_hub
from tests.engine.tiny import make_random

from midfill_engine.errors import StartError
from midfill_engine.families import FAMILIES
from midfill_engine.loading import fetch, runtime, stock
from midfill_engine.loading.runtime import find_model, load_runtime
from midfill_engine.starting import is_hub_id
from midfill_engine.wire import FetchProgress

NAME = "somebody/tiny"
ROOT = Path(__file__).parents[2]
Get = Callable[..., Path]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "tiny"
    make_random(folder, FAMILIES.find("dream"))
    (folder / "modeling_evil.py").write_text("raise SystemExit")
    return folder


@pytest.fixture
def cache(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    hurried = SimpleNamespace(sleep=lambda seconds: None, time=time.time)
    for name, value in {
        "constants.HF_HUB_DOWNLOAD_TIMEOUT": 0.5,
        "constants.DOWNLOAD_CHUNK_SIZE": 1000,
        "file_download.time": hurried,
        "utils._http.time": hurried,
    }.items():
        monkeypatch.setattr(f"huggingface_hub.{name}", value)
    return hub_cache


@pytest.fixture
def get(cache: Path) -> Get:
    def run(hub: Hub, name: str = NAME, token: str | None = None, **options: object) -> Path:
        said: list[FetchProgress] = []
        say = options.pop("say", said.append)
        fits = options.pop("fits", lambda folder, size: runtime.check_fits(folder, size, "cpu"))
        return fetch.fetch(fetch.Hub(hub.url, token), name, cache, say, fits, **options)  # type: ignore[arg-type]

    return run


def same(folder: Path, source: Path) -> bool:
    wanted = [file for file in source.iterdir() if file.suffix != ".py"]
    return all((folder / file.name).read_bytes() == file.read_bytes() for file in wanted)


def weights(source: Path) -> bytes:
    return (source / "model.safetensors").read_bytes()


def parts(cache: Path) -> list[Path]:
    return list(cache.glob("**/*.midfill-part"))


def test_a_download_reports_its_bytes_and_ends_in_the_cache_of_the_hub(source: Path, cache: Path, get: Get) -> None:
    said: list[FetchProgress] = []
    with run_hub({NAME: source}) as hub:
        folder = get(hub, say=said.append)
    assert same(folder, source) and not (folder / "modeling_evil.py").exists()
    assert said[0].done_bytes == 0 and said[-1].done_bytes == said[-1].total_bytes == len(weights(source))
    from huggingface_hub import snapshot_download

    assert Path(snapshot_download(NAME, cache_dir=cache, local_files_only=True)) == folder
    assert load_runtime(NAME, "cpu").family.name == "dream"


@pytest.mark.parametrize("takes_ranges", [True, False])
def test_a_broken_download_resumes_at_the_byte_where_it_broke(
    takes_ranges: bool, source: Path, cache: Path, get: Get
) -> None:
    said: list[FetchProgress] = []
    with run_hub({NAME: source}, cut_after=5000, takes_ranges=takes_ranges) as hub:
        assert same(get(hub, say=said.append), source)
    ranges = [asked for path, asked in hub.asked if path.endswith(".safetensors")]
    assert ranges == [None, "bytes=5000-"]
    assert said[-1].done_bytes == len(weights(source))
    assert any("trying again" in each.note for each in said)


def test_a_download_that_stalls_is_resumed_by_the_next_run(source: Path, cache: Path, get: Get) -> None:
    with run_hub({NAME: source}, stall_after=7000) as hub:
        with pytest.raises(StartError, match="no answer in time") as caught:
            get(hub)
        assert "resumes" in caught.value.next_step
    assert [part.stat().st_size for part in parts(cache)] == [7000]
    assert stock.find_cached(NAME) is None
    with run_hub({NAME: source}) as hub:
        assert same(get(hub), source)
    assert [asked for path, asked in hub.asked if path.endswith(".safetensors")] == ["bytes=7000-"]
    assert not parts(cache)


def test_a_partial_file_that_is_wrong_or_too_long_is_downloaded_again(source: Path, cache: Path, get: Get) -> None:
    for left in (b"x" * 3000, b"x" * (len(weights(source)) + 5), b"x" * len(weights(source))):
        with run_hub({NAME: source}, stall_after=10) as hub, pytest.raises(StartError):
            get(hub)
        parts(cache)[0].write_bytes(left)
        with run_hub({NAME: source}) as hub:
            assert same(get(hub), source)
        shutil.rmtree(cache)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_other_bytes_than_the_hubs_are_never_served(name: str, source: Path, cache: Path, get: Get) -> None:
    with run_hub({NAME: source}, wrong=name) as hub, pytest.raises(StartError, match="is not what the hub says"):
        get(hub)
    assert not parts(cache) and stock.find_cached(NAME) is None
    assert not list(cache.glob(f"**/snapshots/*/{name}"))


def test_what_is_here_and_damaged_is_found_by_check(source: Path, cache: Path, get: Get) -> None:
    with run_hub({NAME: source}) as hub:
        folder = get(hub)
        (folder / "model.safetensors").resolve().write_bytes(b"rotten")
        assert not same(get(hub), source)
        assert same(get(hub, check=True), source)


@pytest.mark.parametrize(
    ("behaviour", "message", "next_step"),
    [
        ({"refusal": (401, "GatedRepo")}, "accepted its licence", "somebody/tiny, set HF_TOKEN"),
        ({"refusal": (403, "GatedRepo"), "refuses_listing": True}, "accepted its licence", "accept it at http"),
        ({"refusal": (418, "")}, "HTTP 418", "HF_ENDPOINT"),
        ({"token": "secret"}, "has no somebody/tiny, or it is private", "set HF_TOKEN"),
        ({"hangs": True}, "no answer in time", "check the network"),
        ({"resets": True}, "cannot be used: .*(disconnected|reset)", "check the network"),
        ({"busy_times": 9}, "HTTP 503", "run the command again"),
    ],
)
def test_every_failure_has_its_reason(
    behaviour: dict[str, object], message: str, next_step: str, source: Path, get: Get
) -> None:
    with run_hub({NAME: source}, **behaviour) as hub, pytest.raises(StartError, match=message) as caught:
        get(hub)
    assert next_step in caught.value.next_step


def test_names_revisions_and_addresses_that_are_not_there(source: Path, cache: Path, get: Get) -> None:
    with run_hub({NAME: source}) as hub:
        with pytest.raises(StartError, match="has no nobody/none"):
            get(hub, "nobody/none")
        with pytest.raises(StartError, match="no revision 'v9'"):
            get(hub, f"{NAME}@v9")
        for name in ("a/b--c", "a/b..c", "a/b.git", "a/" + "b" * 99):
            assert is_hub_id(name)
            with pytest.raises(StartError, match=f"{name} is no name that a hub can have") as refused:
                get(hub, name)
            assert refused.value.next_step == "check its name"
        for revision in ("../../../evil", f"{cache}/evil", "a//b", "a/"):
            with pytest.raises(StartError, match="is no revision"):
                get(hub, f"{NAME}@{revision}")
        assert get(hub, f"{NAME}@{COMMIT}") == stock.find_cached(f"{NAME}@{COMMIT}")
    with pytest.raises(StartError, match="cannot be used: .*refused"):
        get(SimpleNamespace(url="http://127.0.0.1:9"))


def test_a_token_is_sent(source: Path, get: Get) -> None:
    with run_hub({NAME: source}, token="secret") as hub:
        assert same(get(hub, token="secret"), source)


def test_pickles_strange_families_and_what_does_not_fit_are_refused_before_the_weights(
    source: Path, cache: Path, get: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pickled, strange = tmp_path / "pickled", tmp_path / "strange"
    shutil.copytree(source, pickled)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    shutil.copytree(source, strange)
    config = json.loads((strange / "config.json").read_text())
    (strange / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    with run_hub({NAME: source, "a/pickled": pickled, "a/strange": strange}) as hub:
        with pytest.raises(StartError, match="only pickled weights"):
            get(hub, "a/pickled")
        with pytest.raises(StartError, match="'gpt2'; known types"):
            get(hub, "a/strange")
        with pytest.raises(StartError, match="GB of memory, and cpu has 0.5 GB"):
            get(hub, fits=partial(runtime.check_fits, device="cpu", memory_bytes=2**29))
        monkeypatch.setattr(fetch.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(9, 9, 2**28))  # type: ignore[attr-defined]
        with pytest.raises(StartError, match="still to come .* has 0.3 GB free"):
            get(hub, fits=lambda folder, size: None)
    assert not [path for path, _ in hub.asked if path.endswith((".safetensors", ".bin"))]


def test_an_adapter_is_fetched_where_its_base_is_here_and_refused_before_its_weights_where_not(
    source: Path, get: Get, tmp_path: Path
) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": NAME}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (adapter / "adapter_model.safetensors").write_bytes(b"low rank")
    with run_hub({NAME: source, "a/adapter": adapter}) as hub:
        with pytest.raises(StartError, match=f"was trained on {NAME!r}, which is not on this machine") as refused:
            get(hub, "a/adapter")
        assert f"midfill models get {NAME}" in refused.value.next_step
        get(hub)
        assert same(get(hub, "a/adapter"), adapter)
        (adapter / "adapter_config.json").write_text(json.dumps(config | {"peft_type": "IA3"}))
        with pytest.raises(StartError, match="It was not fetched: .* no LoRA adapter"):
            get(hub, "a/adapter")


def test_weights_without_an_index_are_whole_once_all_of_them_are_here(source: Path, get: Get, tmp_path: Path) -> None:
    folder = shutil.copytree(source, tmp_path / "two")
    (folder / "second.safetensors").write_bytes(b"more")
    with run_hub({NAME: folder}, wrong="second.safetensors") as hub:
        with pytest.raises(StartError, match="hash differs"):
            get(hub, f"{NAME}@{COMMIT}")
        assert stock.find_cached(f"{NAME}@{COMMIT}") is None
        hub.behaviour.wrong = ""
        assert same(get(hub, f"{NAME}@{COMMIT}"), folder)
    assert stock.find_cached(f"{NAME}@{COMMIT}") is not None


def test_a_copy_in_place_of_a_link_is_whole_or_not_there(
    source: Path, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def begin(source: Path, target: Path) -> None:
        is_large = ".safetensors" in target.name
        target.write_bytes(source.read_bytes()[: 100 if is_large else None])
        if is_large:
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "symlink_to", refuse)
    with run_hub({NAME: source}) as hub:
        with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
            broken.setattr(fetch.shutil, "copyfile", begin)  # type: ignore[attr-defined]
            get(hub, f"{NAME}@{COMMIT}")
        assert stock.find_cached(f"{NAME}@{COMMIT}") is None
        assert same(get(hub), source)


def test_a_model_that_fits_in_four_bits_alone_is_refused_with_the_setting(source: Path) -> None:
    with pytest.raises(StartError, match=r"GB of memory, and cpu has 8\.6 GB") as refused:
        runtime.check_fits(source, 15 * 10**9, "cpu", memory_bytes=8 * 2**30)
    assert "`midfill config weights int4`, with which it takes 6.5 GB" in str(refused.value.next_step)
    with pytest.raises(StartError) as refused:
        runtime.check_fits(source, 15 * 10**9, "cpu", memory_bytes=4 * 2**30)
    assert "int4" not in str(refused.value.next_step)


def test_a_full_disk_is_the_reason_in_the_error(source: Path, get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fetch, "http_get", refuse)
    with run_hub({NAME: source}) as hub, pytest.raises(StartError, match="No space left on device"):
        get(hub)


def test_only_the_shards_of_the_index_are_taken(source: Path, get: Get, tmp_path: Path) -> None:
    folder = tmp_path / "sharded"
    shutil.copytree(source, folder)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    (folder / "consolidated.safetensors").write_bytes(b"twice")
    index = {"weight_map": {"a": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with run_hub({NAME: folder}) as hub:
        found = get(hub)
        assert not (found / "consolidated.safetensors").exists() and stock.is_whole(found)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "gone.safetensors"}}))
        with pytest.raises(StartError, match="lacks weights that its index names"):
            get(hub)
    index_file = tmp_path / "model.safetensors.index.json"
    for damaged in ("[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', "{"):
        index_file.write_text(damaged)
        assert not stock.is_whole(tmp_path)


@pytest.mark.parametrize("behaviour", [{"hangs": True}, {"resets": True}])
def test_a_cached_model_starts_whatever_the_hub_does(
    behaviour: dict[str, bool], source: Path, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_hub({NAME: source}) as hub:
        folder = get(hub)
    with run_hub({NAME: source}, **behaviour) as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        assert find_model(NAME) == folder
        assert hub.asked == []
    with pytest.raises(StartError, match="not on this machine"):
        find_model("owner/other")


def test_offline_is_obeyed(source: Path, get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as offline:
        offline.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(StartError, match="HF_HUB_OFFLINE forbids"):
            stock.download(NAME, lambda _: None, lambda *_: None)
    with run_hub({NAME: source}) as hub:
        folder = get(hub)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert stock.download(NAME, lambda _: None, lambda *_: None, check=True) == folder, "get of what is here"


def test_the_stock_is_listed_and_removed(source: Path, cache: Path, get: Get) -> None:
    assert stock.list_stock().data == []
    with run_hub({NAME: source, "a/half": source}) as hub:
        get(hub)
        hub.behaviour.stall_after = 100
        with pytest.raises(StartError):
            get(hub, "a/half")
    assert [(each.model, each.is_whole) for each in stock.list_stock().data] == [("a/half", False), (NAME, True)]
    assert [each.model for each in stock.remove_stock(NAME).data] == [NAME]
    assert [each.model for each in stock.list_stock().data] == ["a/half"]
    with pytest.raises(StartError, match="is not in"):
        stock.remove_stock(NAME)


def test_what_is_whole_at_one_revision_is_listed_by_it(source: Path, cache: Path, get: Get) -> None:
    with run_hub({NAME: source}) as hub:
        folder = get(hub, f"{NAME}@{COMMIT}")
        (stored,) = stock.list_stock().data
        assert (stored.model, stored.is_whole, stored.folder) == (f"{NAME}@{COMMIT}", True, str(folder))
        assert find_model(stored.model) == folder
        reference = cache / "models--somebody--tiny/refs/pr/3"
        reference.parent.mkdir(parents=True)
        reference.write_text(COMMIT)
        assert [each.model for each in stock.list_stock().data] == [f"{NAME}@pr/3"]
        get(hub)
        assert [each.model for each in stock.list_stock().data] == [NAME]
    for model in (f"{NAME}@v9", "somebody/other"):
        with pytest.raises(StartError, match="is not in"):
            stock.remove_stock(model)
    (cache / "models--somebody--tiny/refs/main").unlink()
    assert [each.model for each in stock.remove_stock(NAME).data] == [f"{NAME}@pr/3"]
    assert stock.list_stock().data == []


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []

    def start(hub: Hub, *words: str) -> "subprocess.Popen[str]":
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "engine"), "HF_ENDPOINT": hub.url}
        environment |= {"HF_HOME": str(tmp_path / "home"), "NO_PROXY": "127.0.0.1"}
        command = [sys.executable, "-m", "midfill_engine", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, env=environment, text=True, **pipes))  # type: ignore[call-overload]
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def sizes(folder: Path) -> list[int]:
    """Of the part files; one that is done is renamed meanwhile."""
    found = []
    for part in parts(folder):
        with suppress(FileNotFoundError):
            found.append(part.stat().st_size)
    return found


def test_a_killed_download_goes_on_in_the_next_process(
    source: Path, tmp_path: Path, engine: Callable[..., "subprocess.Popen[str]"]
) -> None:
    source = shutil.copytree(source, tmp_path / "large")
    (source / "large.safetensors").write_bytes(bytes(12 * 2**20))  # the library writes pieces of 10 MiB
    with run_hub({NAME: source}, stall_after=11 * 2**20) as hub:
        first = engine(hub, "fetch", NAME, "--device", "cpu")
        wait_until(lambda: any(size >= 10 * 2**20 for size in sizes(tmp_path / "home")))
        first.send_signal(signal.SIGKILL)
        first.wait()
    kept = max(sizes(tmp_path / "home"))
    with run_hub({NAME: source}) as hub:
        out, err = engine(hub, "fetch", NAME, "--device", "cpu").communicate(timeout=60)
        assert f"bytes={kept}-" in [asked for _, asked in hub.asked]
        last = FetchProgress.model_validate_json(out.splitlines()[-1])
        assert last.folder is not None and same(Path(last.folder), source), err
        hub.asked.clear()
        again, _ = engine(hub, "fetch", NAME, "--if-missing").communicate(timeout=60)
        assert FetchProgress.model_validate_json(again).folder == last.folder and hub.asked == []
