"""Starts the server's process, `python -m midfill_lsp`. Knows arguments, log and garbage collector, no message."""

import argparse
import gc
import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midfill_lsp.server import MidfillServer

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LOG_LEVELS = ("debug", "info", "warning", "error")
SWITCH_S = 0.0005  # after which a thread lets another one run


class Formatter(logging.Formatter):
    """Shows the type and the places of an error, not its text, which may quote code."""

    def formatException(self, ei: Any) -> str:
        return "".join([*traceback.format_tb(ei[2]), getattr(ei[0], "__name__", "")])


def main(server: "MidfillServer | None" = None) -> None:
    """Serves until the client leaves, then exits without waiting for worker threads."""
    parser = argparse.ArgumentParser(prog="midfill lsp", description="Midfill's language server, over stdio.")
    parser.add_argument("--stdio", action="store_true", help="what editors pass; it is the only way")
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="of the log on stderr")
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter(_LINE))
    logging.basicConfig(handlers=[handler], level=parser.parse_args().log_level.upper())
    # pygls logs messages, and so the user's code, at INFO, and parameters of failed notifications at ERROR.
    logging.getLogger("pygls").setLevel(logging.CRITICAL)
    logging.getLogger("concurrent.futures").setLevel(logging.CRITICAL)  # output that a killed editor does not read
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    # Worker threads yield to messages sooner than Python's default of 5 ms.
    sys.setswitchinterval(SWITCH_S)
    gc.disable()  # saves up to a tenth of the start; imports stay forever
    from midfill_lsp.protocol import run_stdio
    from midfill_lsp.server import MidfillServer

    gc.freeze()
    gc.set_threshold(50_000)  # the default costs a third of the time to read a large file
    gc.enable()
    code = run_stdio(server or MidfillServer())
    logging.shutdown()
    os._exit(code)


if __name__ == "__main__":
    main()
