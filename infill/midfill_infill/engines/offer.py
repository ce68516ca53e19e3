"""Says once that the pretrained base can be had, where the small model that ships filled. Fetches nothing."""

import os
from pathlib import Path
from typing import Final

from midfill_engine.wire import BASE

SHIPPED_NAMES: Final = ("embedded", "midfill-embedded")
NEEDED_BYTES: Final = 2 * 2**30  # the engine with it, and room for an editor and a browser


def offer(model: str, state_folder: Path | None = None) -> str | None:
    """The sentence, None where it does not apply or was said before: a file in the user's state folder remembers."""
    if model not in SHIPPED_NAMES or os.environ.get("MIDFILL_MODEL") or memory_bytes() < NEEDED_BYTES:
        return None
    if state_folder is None:
        from platformdirs import user_state_path

        state_folder = user_state_path("midfill")
    marker = state_folder / "offered"
    try:
        state_folder.mkdir(parents=True, exist_ok=True)
        marker.touch(exist_ok=False)
    except OSError:  # said before, or there is no place to remember it: then never, rather than always
        return None
    return f"the small model that ships filled this; `midfill models get {BASE}` gets one that knows languages (93 MB)"


def memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
