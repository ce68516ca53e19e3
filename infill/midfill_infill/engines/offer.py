"""Says once that a better model can be had, where the demonstrator filled and the machine has room. Fetches nothing."""

import os
from pathlib import Path
from typing import Final

SHIPPED_NAMES: Final = ("embedded", "midfill-embedded")
OFFERED: Final = "fredzzp/open-dcoder-0.5B"
NEEDED_BYTES: Final = 6 * 2**30  # the model in fp32, and room for an editor and a browser


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
    return f"this was the demonstrator that ships; `midfill models get {OFFERED} --use` gets a trained model (1 GB)"


def memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
