"""Serves over stdin and stdout until the client leaves. Knows file descriptors and exit codes, no message."""

import asyncio
import logging
import os

from pygls.io_ import StdoutWriter
from pygls.lsp.server import LanguageServer

from midfill_lsp.protocol import serve


class StdoutPipe(StdoutWriter):
    """The client's end of the pipe. When it closes the process exits at once."""

    def write(self, data: bytes) -> None:
        try:
            super().write(data)
        except OSError:
            logging.shutdown()
            os._exit(1)


def run_stdio(server: LanguageServer) -> int:
    """Returns the exit code: 0 after shutdown and exit, 1 if the client left without them."""
    # Output of print and of child processes must not mix with messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    server.protocol.set_writer(StdoutPipe(out))
    try:
        return asyncio.run(serve(server, 0))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except (BrokenPipeError, KeyboardInterrupt):
        return 1
