"""Finds a checkpoint by its hub id, first in the hub's cache, then on the hub. Downloads no code and no pickles.

HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN and HF_HUB_DOWNLOAD_TIMEOUT have their usual meaning.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from midfill_engine.errors import fetch_failed

if TYPE_CHECKING:
    from midfill_engine.loading.fetch import Fits, Say

HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
INDEX: Final = "model.safetensors.index.json"


def is_hub_id(name: str) -> bool:
    """`OWNER/NAME`, or `OWNER/NAME@REVISION`."""
    return HUB_ID.fullmatch(name) is not None


def cache_folder() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def find_cached(name: str) -> Path | None:
    """The folder of a complete hub checkpoint in the cache. Makes no network request."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    repository, _, revision = name.partition("@")
    try:
        folder = Path(snapshot_download(repository, revision=revision or None, local_files_only=True))
    except (LocalEntryNotFoundError, OSError, ValueError):
        return None
    return folder if is_whole(folder) else None


def is_whole(folder: Path) -> bool:
    """Whether all weights are there: those of the index, or any if there is no index."""
    try:
        names = set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    except FileNotFoundError:
        return any(file.exists() for file in folder.glob("*.safetensors"))
    except (OSError, ValueError, KeyError, AttributeError):
        return False
    return all((folder / Path(name).name).exists() for name in names)


def download(name: str, say: "Say", fits: "Fits", *, check: bool = False) -> Path:
    """Downloads what is missing; with `check` also verifies the hashes of files that are here. Raises StartError."""
    from huggingface_hub import constants, get_token

    from midfill_engine.loading.fetch import Hub, fetch  # imports an HTTP client, which takes half a second

    if constants.HF_HUB_OFFLINE:
        if (here := find_cached(name)) is not None:
            return here
        message = f"{name} is not in {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE forbids to fetch it"
        raise fetch_failed(message, "unset HF_HUB_OFFLINE, or set HF_HOME to where it is")
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    return fetch(Hub(constants.ENDPOINT, token), name, cache_folder(), say, fits, check=check)
