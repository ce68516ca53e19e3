"""A hub on this machine: speaks what the Hugging Face hub speaks of its protocol, and misbehaves as it is told."""

import hashlib
import http.server
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


@dataclass
class Behaviour:
    """`cut_after` ends the first answer with a file's bytes there; `stall_after` waits there for `release`; `wrong`
    names a file whose bytes are others; `refusal` is (status, error code) for files, or with `refuses_listing` for all.
    """

    refusal: tuple[int, str] | None = None
    refuses_listing: bool = False
    token: str | None = None
    cut_after: int | None = None
    stall_after: int | None = None
    takes_ranges: bool = True
    wrong: str = ""
    busy_times: int = 0
    hangs: bool = False
    resets: bool = False
    release: threading.Event = field(default_factory=threading.Event)


class Hub(http.server.ThreadingHTTPServer):
    """`asked` are (path, Range header) of every request."""

    daemon_threads = True

    def __init__(self, repositories: dict[str, Path], behaviour: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories, self.behaviour = repositories, behaviour
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        return


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_GET(self) -> None:
        behaviour, path = self.server.behaviour, unquote(urlsplit(self.path).path)
        self.server.asked.append((path, self.headers["range"]))
        if behaviour.resets:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RD)
            self.close_connection = True
            return
        if behaviour.hangs:
            behaviour.release.wait()
            return
        if behaviour.busy_times:
            behaviour.busy_times -= 1
            return self.answer(503, b"", {})
        if behaviour.token and self.headers["authorization"] != f"Bearer {behaviour.token}":
            return self.answer(401, b"", {"x-error-code": "RepoNotFound"})
        parts = path.strip("/").split("/")
        is_listing = parts[:2] == ["api", "models"]
        repository = "/".join(parts[2:4] if is_listing else parts[:2])
        if repository not in self.server.repositories:
            return self.answer(401, b"", {"x-error-code": "RepoNotFound"})
        if behaviour.refusal and (behaviour.refuses_listing or not is_listing):
            return self.answer(behaviour.refusal[0], b"", {"x-error-code": behaviour.refusal[1]})
        folder = self.server.repositories[repository]
        if is_listing and parts[5] not in ("main", COMMIT):
            return self.answer(404, b"", {"x-error-code": "RevisionNotFound"})
        if is_listing:
            return self.answer(200, json.dumps(listing(folder)).encode(), {"content-type": "application/json"})
        self.send_file(folder / parts[4])

    def send_file(self, file: Path) -> None:
        behaviour, data = self.server.behaviour, file.read_bytes()
        if file.name == behaviour.wrong:
            data = data[:-1] + bytes([data[-1] ^ 1])
        asked = self.headers["range"] if behaviour.takes_ranges else None
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if start >= len(data):
            return self.answer(416, b"", {})
        self.send_response(206 if asked else 200)
        self.send_header("content-length", str(len(data) - start))
        self.end_headers()
        if file.suffix == ".safetensors":
            for end, then in ((behaviour.cut_after, self.cut), (behaviour.stall_after, self.stall)):
                if end is not None:
                    self.wfile.write(data[start:end])
                    self.wfile.flush()
                    return then()
        self.wfile.write(data[start:])

    def cut(self) -> None:
        self.server.behaviour.cut_after = None
        self.close_connection = True

    def stall(self) -> None:
        self.server.behaviour.release.wait()

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def listing(folder: Path) -> dict[str, Any]:
    return {"id": "somebody/tiny", "sha": COMMIT, "siblings": [describe(file) for file in sorted(folder.iterdir())]}


def describe(file: Path) -> dict[str, Any]:
    data = file.read_bytes()
    entry: dict[str, Any] = {"rfilename": file.name, "size": len(data), "blobId": git_hash(data)}
    if file.suffix == ".safetensors":
        entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return entry


def git_hash(data: bytes) -> str:
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


@contextmanager
def run_hub(repositories: dict[str, Path], **behaviour: Any) -> Iterator[Hub]:
    with Hub(repositories, Behaviour(**behaviour)) as hub:
        threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield hub
        hub.behaviour.release.set()
        hub.shutdown()
