"""How the engine's package is run as a process. Knows its command line's beginning and our environment, no option."""

import os
import sys
from typing import Final

# glibc keeps a heap a thread otherwise, and what is freed: 414 MB after 120 fills of the model that ships, not 381.
_ONE_HEAP: Final = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "65536"}


def engine_command() -> list[str]:
    """How the engine is started. `-P`: a file of the user's folder must not be imported in place of a library."""
    return [sys.executable, "-P", "-m", "midfill_engine"]


def engine_environment() -> dict[str, str]:
    """Our environment; PYTHONPATH made absolute, for the engine runs in another folder."""
    environment = _ONE_HEAP | os.environ
    if path := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in path.split(os.pathsep))
    return environment
