"""`python -m midfill_lsp`: the server on standard input and output. Knows file descriptors and exit codes."""

import argparse
import asyncio
import gc
import logging
import os
import sys

from pygls.io_ import StdoutWriter

from midfill_lsp.protocol import serve
from midfill_lsp.server import MidfillServer

LOG_LEVELS = ("debug", "info", "warning", "error")
SWITCH_S = 0.0005


def main(server: MidfillServer | None = None) -> None:
    """Serves until the client leaves, then ends the process, whatever a worker thread is still waiting for."""
    parser = argparse.ArgumentParser(prog="midfill lsp", description="Midfill's language server, over stdio.")
    parser.add_argument("--stdio", action="store_true", help="what editors pass; it is the only way")
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="of the log on stderr")
    _set_up_logging(parser.parse_args().log_level)
    # A worker that reads a document gives way to messages sooner than after Python's 5 ms.
    sys.setswitchinterval(SWITCH_S)
    gc.freeze()
    gc.set_threshold(50_000)  # by default a third of the time that a large file is read in
    code = run_stdio(server or MidfillServer())
    logging.shutdown()
    os._exit(code)


class Output(StdoutWriter):
    """The client's end. Where it is closed the process ends, whatever still waits in its pipe: nobody listens."""

    def write(self, data: bytes) -> None:
        try:
            super().write(data)
        except OSError:
            logging.shutdown()
            os._exit(1)


def run_stdio(server: MidfillServer) -> int:
    """The exit code: 0 after shutdown and exit, 1 when the client left without them."""
    # Whatever prints, here or in a child process, must not get into the messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    server.protocol.set_writer(Output(out))
    try:
        return asyncio.run(serve(server, 0))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except (BrokenPipeError, KeyboardInterrupt):
        return 1


def _set_up_logging(level: str) -> None:
    line = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(stream=sys.stderr, level=level.upper(), format=line)
    # pygls logs messages, so the user's code, at INFO, and parameters of failed notifications at ERROR.
    logging.getLogger("pygls").setLevel(logging.CRITICAL)
    logging.getLogger("concurrent.futures").setLevel(logging.CRITICAL)  # what an editor that was killed does not read
    for chatty in ("asyncio", "httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


if __name__ == "__main__":
    main()
