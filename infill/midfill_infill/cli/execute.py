"""Replaces this process by an engine or the language server. Knows no options of either."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn


def become(command: Sequence[str]) -> NoReturn:
    """Replaces this process by a command, which so gets all signals and the standard streams directly."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], list(command))


def become_server(words: Sequence[str]) -> NoReturn:
    """Replaces this process by the language server with the options `words`."""
    become([sys.executable, "-P", "-m", "midfill_lsp", *words])
