"""A server on this machine that answers as an engine which knows the texts, for the ways that need an address."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.ports import serving

from bench.oracle.doors import MODEL, STREAMS, Answers, OutsideClient, open_client, stream
from midfill_engine import wire


class StandIn(ThreadingHTTPServer):
    """Answers as one door; `answers` is what it knows at the time."""

    daemon_threads = True

    def __init__(self, door: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.door = door
        self.client = open_client(door)
        self.answers: Answers

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which Midfill finds it."""
        url = f"http://127.0.0.1:{self.server_port}"
        if self.door in STREAMS:
            return {"MIDFILL_ENGINE": f"{self.door}:m@{url}"}
        return {"MIDFILL_ENGINE_URL": url}


class _Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        pages = {
            "/healthz": json.dumps({"status": "ok"}),
            "/v1/models": wire.ModelList(data=[MODEL]).model_dump_json(),
            "/props": json.dumps({"idle_s": 0.0, "idle_timeout_s": None}),
        }
        status = 200 if self.path in pages else 404
        self._send(status, pages.get(self.path, "{}"), "application/json")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        client = self.server.client
        if isinstance(client, OutsideClient):
            lines = stream(self.server.door, json.loads(body), self.server.answers)
            return self._send(200, "".join(f"{line}\n\n" for line in lines), "text/event-stream")
        client.answers = self.server.answers
        text = ""
        for message in client.infill(wire.InfillRequest.model_validate_json(body)):
            name = "step" if isinstance(message, wire.StepEvent) else "done"
            text += f"event: {name}\ndata: {message.model_dump_json()}\n\n"
        return self._send(200, text, "text/event-stream")

    def _send(self, status: int, content: str, kind: str) -> None:
        data = content.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def serve(door: str) -> Iterator[StandIn]:
    server = StandIn(door)
    with serving(server):
        yield server
