"""Stand-ins for engines of other projects, which answer in the forms their documents show."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.ports import serving

Form = Callable[[list[str]], list[str]]


def ollama(parts: list[str]) -> list[str]:
    lines = [
        {"model": "m", "created_at": "2026-01-01T00:00:00Z", "response": part, "done": False,
         "logprobs": [{"token": part, "logprob": -0.5, "bytes": [*part.encode()]}]}
        for part in parts
    ]  # fmt: skip
    end = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "response": "", "done": True, "done_reason": "stop"}
    return [json.dumps(line) for line in [*lines, end | {"eval_count": 3, "total_duration": 5}]]


def llamacpp(parts: list[str]) -> list[str]:
    events = [
        {"index": 0, "content": part, "tokens": [1], "stop": False, "id_slot": -1, "completion_probabilities": [
            {"id": 1, "token": part, "bytes": [*part.encode()], "logprob": -0.5, "top_logprobs": []}]}
        for part in parts
    ]  # fmt: skip
    end = {"index": 0, "content": "", "tokens": [], "stop": True, "model": "/models/m", "stop_type": "eos"}
    return [f"data: {json.dumps(event)}" for event in [*events, end]]


def openai(parts: list[str]) -> list[str]:
    events = [
        {"id": "cmpl-1", "object": "text_completion", "model": "m", "choices": [
            {"index": 0, "text": part, "finish_reason": None, "stop_reason": None,
             "logprobs": {"text_offset": [0], "tokens": [part], "token_logprobs": [-0.5], "top_logprobs": [{}]}}]}
        for part in parts
    ]  # fmt: skip
    usage = {"id": "cmpl-1", "object": "text_completion", "model": "m", "choices": [], "usage": {"total_tokens": 9}}
    return [*(f"data: {json.dumps(event)}" for event in [*events, usage]), "data: [DONE]"]


def fim(parts: list[str]) -> list[str]:
    events = [
        {"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": part}, "finish_reason": None}]}
        for part in parts
    ]  # fmt: skip
    return [*(f"data: {json.dumps(event)}" for event in events), "data: [DONE]"]


def chat(parts: list[str]) -> list[str]:
    thought = {"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [
        {"index": 0, "delta": {"role": "assistant", "content": None, "reasoning_content": "Hm."}}]}  # fmt: skip
    first, *others = fim(parts)
    return [first, f"data: {json.dumps(thought)}", *others]


def cut_short(form: Form, parts: list[str]) -> list[str]:
    """The answer that the limit of tokens cuts, as the document of its form shows it."""
    lines = form(parts)
    if form is ollama:
        return [line.replace('"done_reason": "stop"', '"done_reason": "length"') for line in lines]
    if form is llamacpp:
        return [line.replace('"stop_type": "eos"', '"stop_type": "limit"') for line in lines]
    choice = {"index": 0, "text": "", "finish_reason": "length"}
    if form is not openai:
        choice = {"index": 0, "delta": {}, "finish_reason": "length"}
    return [*lines[:-1], f"data: {json.dumps({'id': '1', 'model': 'm', 'choices': [choice]})}", lines[-1]]


FORMS: dict[str, Form] = {"ollama": ollama, "llamacpp": llamacpp, "openai": openai, "fim": fim, "chat": chat}


class StandIn(ThreadingHTTPServer):
    """Answers every query with `parts`, `#` in them with the query's number; keeps what it was asked. `pages` answer
    questions about the server, which it counts.
    """

    daemon_threads = True

    def __init__(self, protocol: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.form, self.url = FORMS[protocol], f"http://127.0.0.1:{self.server_port}"
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.parts = ["<#", ">"]
        self.refuse: Callable[[dict[str, Any]], tuple[int, Any] | None] = lambda _: None
        self.headers: dict[str, str] = {}  # of refusals
        self.encoding = "utf-8"
        self.pages: dict[str, Any] = {}
        self.looked_up: list[str] = []
        self.is_endless = False
        self.cut_at: int | None = None  # the number of lines of an answer behind which the connection is lost
        self.is_chunked = False
        self.is_short = False  # the limit of tokens cuts its answers
        self.was_closed = threading.Event()


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        found = self.server.pages.get(self.path)
        self.server.looked_up.append(self.path)
        self._send(200 if found is not None else 404, json.dumps(found or {}).encode())

    def do_POST(self) -> None:
        body = {"path": self.path, **json.loads(self.rfile.read(int(self.headers["content-length"])))}
        if self.path == "/api/show":
            assert body["model"]
            return self.do_GET()
        self.server.asked.append(body)
        self.server.keys.append(self.headers["authorization"])
        if (refusal := self.server.refuse(body)) is not None:
            return self._send(refusal[0], json.dumps(refusal[1]).encode())
        if self.server.is_endless:
            return self._stream()
        parts = [part.replace("#", str(len(self.server.asked))) for part in self.server.parts]
        form = self.server.form
        lines = [f"{line}\n\n" for line in (cut_short(form, parts) if self.server.is_short else form(parts))]
        if self.server.cut_at is not None or self.server.is_chunked:
            return self._send_lines(lines)
        self._send(200, "".join(lines).encode(self.server.encoding))

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        for name, value in self.server.headers.items() if status != 200 else ():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _send_lines(self, lines: list[str]) -> None:
        """Sends an answer without its length, in chunks if the server `is_chunked`. Nothing ends the last line."""
        self.send_response(200)
        if self.server.is_chunked:
            self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        *others, last = lines[: self.server.cut_at]
        for line in (*others, last.rstrip()):
            content = line.encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content) if self.server.is_chunked else content)
        if self.server.is_chunked and self.server.cut_at is None:
            self.wfile.write(b"0\r\n\r\n")

    def _stream(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(f"{self.server.form(['x = 1; '])[0]}\n\n".encode())
                self.wfile.flush()
                time.sleep(0.01)
        except OSError:
            self.server.was_closed.set()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def serve(protocol: str) -> Iterator[StandIn]:
    server = StandIn(protocol)
    with serving(server):
        yield server
