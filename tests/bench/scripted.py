"""A scripted engine over a unix socket and a port: answers requests with the texts of its plan, and keeps them."""

import http.server
import re
import socketserver
import threading
from pathlib import Path

from midfill_engine import wire


class ScriptedEngine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Cuts text into words and white space. `fills` has the text for open holes and for those of a given length."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: Path) -> None:
        self.path = path
        self.family = "scripted"
        self.fills = {"own": "    return 1\n", "bounded": "    return 2\n"}
        self.requests: list[wire.InfillRequest] = []
        self.refusal: wire.ErrorCode | None = None
        super().__init__(str(path), Handler)
        self._port: http.server.ThreadingHTTPServer | None = None

    @staticmethod
    def cut(text: str) -> list[str]:
        return re.findall(r"\s+|\w+|[^\w\s]", text)

    def url(self) -> str:
        """The same engine over TCP, from now on."""
        engine = self

        class PortHandler(Handler):
            @property
            def engine(self) -> ScriptedEngine:
                return engine

        self._port = http.server.ThreadingHTTPServer(("127.0.0.1", 0), PortHandler)
        self._port.daemon_threads = True
        threading.Thread(target=self._port.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{self._port.server_port}"

    def shutdown(self) -> None:
        if self._port is not None:
            self._port.shutdown()
            self._port.server_close()
        super().shutdown()

    def answer(self, request: wire.InfillRequest) -> wire.FilledHole:
        (spec,) = [segment.hole for segment in request.segments if isinstance(segment, wire.HoleSegment)]
        text = spec.draft if spec.keep else self.fills["bounded" if spec.max_tokens else "own"]
        tokens, start = [], 0
        for piece in self.cut(text):
            tokens.append((start, start + len(piece)))
            start += len(piece)
        return wire.FilledHole(text=text, tokens=tokens, confidence=[0.75] * len(tokens))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def engine(self) -> ScriptedEngine:
        assert isinstance(self.server, ScriptedEngine)
        return self.server

    def address_string(self) -> str:
        return "scripted"

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_GET(self) -> None:
        info = wire.ModelInfo(
            id="scripted", family=self.engine.family, parameters=1, device="cpu", dtype="float32",
            max_context_tokens=512, max_hole_tokens=128,
        )  # fmt: skip
        self.send(200, "application/json", wire.ModelList(data=[info]).model_dump_json())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        request = wire.InfillRequest.model_validate_json(body)
        self.engine.requests.append(request)
        if self.engine.refusal is not None:
            error = wire.ErrorBody(code=self.engine.refusal, message="refused")
            return self.send(400, "application/json", wire.ErrorResponse(error=error).model_dump_json())
        stats = wire.Stats(steps=1, forwards=1, tokens=1, ms=1.0)
        done = wire.InfillResponse(model="scripted", holes=[self.engine.answer(request)], stats=stats)
        self.send(200, "text/event-stream", f"event: done\ndata: {done.model_dump_json()}\n\n")

    def send(self, status: int, kind: str, body: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())
