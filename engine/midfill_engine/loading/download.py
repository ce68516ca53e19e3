"""Fetches a checkpoint that the user named from the Hugging Face hub: JSON, merges, safetensors and no code."""

import re
from pathlib import Path
from typing import Final

from midfill_engine.errors import StartError
from midfill_engine.wire import ErrorCode

HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
PATTERNS: Final = ["*.json", "*.safetensors", "merges.txt"]
NESTED: Final = ["*/*"]  # the hub's * also takes slashes
EXIT_NO_MODEL: Final = 3


def is_hub_id(name: str) -> bool:
    """`OWNER/NAME`, or `OWNER/NAME@REVISION`."""
    return HUB_ID.fullmatch(name) is not None


def find_cached(name: str) -> Path | None:
    """The folder of a hub checkpoint that was fetched before. Asks no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    repository, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, local_files_only=True))
    except (LocalEntryNotFoundError, OSError, ValueError):
        return None


def fetch_checkpoint(name: str) -> Path:
    """The folder of a hub checkpoint, downloaded at first use into the hub's own cache. Raises StartError.

    Only the files at the top of the repository are taken, and of these none that holds code or pickles.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository, _, revision = name.partition("@")
    try:
        found = snapshot_download(
            repository, revision=revision or None, allow_patterns=PATTERNS, ignore_patterns=NESTED
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        message = f"The checkpoint {name!r} cannot be fetched from the hub: {type(error).__name__}"
        next_step = "check its name and your network, or name a folder"
        raise StartError(ErrorCode.UNKNOWN_MODEL, message, next_step, EXIT_NO_MODEL) from error
    return Path(found)
