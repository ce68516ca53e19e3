"""The scripted engine of the tests, which also logs the times of requests and answers."""

import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from tests.cli import fake_engine  # noqa: E402 - the tests are no package that is installed

from midfill_engine import wire  # noqa: E402


class TimedHandler(fake_engine.Handler):
    """Times are of `time.monotonic`, one clock for all processes; `got` is when a request's first line came."""

    def parse_request(self) -> bool:
        self.times = {"got": time.monotonic()}
        return super().parse_request()

    def send_header(self, keyword: str, value: str) -> None:
        """The stream goes in chunks, as the real engine's: the connection is kept."""
        is_close = keyword == "connection"
        super().send_header(*(("transfer-encoding", "chunked") if is_close else (keyword, value)))

    def event(self, name: str, message: wire.Message) -> None:
        data = f"event: {name}\ndata: {message.model_dump_json()}\n\n".encode()
        self.times.setdefault(name, time.monotonic())
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        if name == "done":
            self.wfile.write(b"0\r\n\r\n")
            with open(os.environ["TIMED_ENGINE_LOG"], "a", encoding="utf-8") as log:
                log.write(json.dumps(self.times) + "\n")


if __name__ == "__main__":
    fake_engine.Handler = TimedHandler  # type: ignore[misc]
    fake_engine.main()
