"""Replaces this process by an engine or the language server."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn


def become(command: Sequence[str]) -> NoReturn:
    """Replaces this process, so that signals and standard streams are the new one's own."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], list(command))


def become_server(words: Sequence[str]) -> NoReturn:
    """Becomes the language server, which takes `words`."""
    become([sys.executable, "-P", "-m", "midfill_lsp", *words])
