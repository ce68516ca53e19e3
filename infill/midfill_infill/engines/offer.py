"""Tells a user, once each, that the pretrained base is available and that code leaves this machine. Knows no engine."""

import os
import re
import sys
from typing import Final

from midfill_engine.wire import BASE

SHIPPED_NAMES: Final = ("embedded", "midfill-embedded")
NEEDED_BYTES: Final = 2 * 2**30  # for the engine with the pretrained base, an editor and a browser


def offer(model: str, num_bytes: int | None = None) -> str | None:
    """The offer of the pretrained base, if the shipped model has filled and the memory suffices; None otherwise, and if
    this user was offered it before. `num_bytes` is the size of the memory, by default this machine's.
    """
    applies = model in SHIPPED_NAMES and not os.environ.get("MIDFILL_MODEL")
    if not applies or (num_bytes or memory_bytes()) < NEEDED_BYTES or not is_first_time("offered"):
        return None
    return f"the small model that ships filled this; `midfill models get {BASE}` gets one that knows languages (93 MB)"


def tell_where(host: str) -> str | None:
    """The warning that code is sent to `host`; None if `host` is empty, which means this machine, and if the user was
    warned of this host before.
    """
    file_name = re.sub(r"[^\w.-]", "_", host)
    if not host or not is_first_time(f"told-files-{file_name}"):
        return None
    sentence = f"the code around each hole and parts of related files are sent to {host}"
    related = "`midfill config context off` keeps related files on this machine"
    return f"{sentence}; {related}, `midfill config engine --unset` everything"


def print_where(host: str) -> None:
    """Prints that warning on stderr, also if that is no terminal, because it comes only once."""
    warning = tell_where(host)
    if warning is not None:
        print(f"midfill: {warning}", file=sys.stderr)


def is_first_time(mark: str) -> bool:
    """True if there is no file `mark` in the user's state folder yet; makes it. If it cannot be made, True for warnings
    and False for the offer, because a warning may be repeated.
    """
    from platformdirs import user_state_path

    state_folder = user_state_path("midfill")
    try:
        state_folder.mkdir(parents=True, exist_ok=True)
        (state_folder / mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:  # it cannot be recorded
        return mark != "offered"
    return True


def memory_bytes() -> int:
    """The size of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
