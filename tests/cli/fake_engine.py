"""A scripted engine: speaks the wire over a unix socket and answers what its plan says. Run as `python fake_engine.py`.

It takes the options of `midfill_engine serve`; the plan is JSON in FAKE_ENGINE_PLAN.
"""

import argparse
import http.server
import json
import os
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from midfill_engine import wire


@dataclass
class Plan:
    """`rows[i]` are the fills of alternative i, one a hole; `repaired` answer requests whose holes have a draft,
    `alone` those that propose nothing.

    `compared[i]` are what was compared for hole i beside its fills, the likeliest first, with their certainties, and
    `likelihoods` those of texts and of the lines behind them; `certainty` is that of every fill.
    An `endless` fill takes steps until its connection is closed; a model loads `load_until` there is such a file.
    """

    rows: list[list[str]] = field(default_factory=lambda: [["return a + b"]])
    compared: list[list[tuple[str, float]]] = field(default_factory=list)
    likelihoods: dict[str, tuple[float, float]] = field(default_factory=dict)
    certainty: float | None = None
    model: str = "fake"
    repaired: list[list[str]] = field(default_factory=list)
    alone: list[list[str]] = field(default_factory=list)
    num_steps: int = 3
    step_s: float = 0.0
    accept_s: float = 0.0
    endless: bool = False
    load_s: float = 0.0
    load_until: str | None = None
    busy_times: int = 0
    repair_refused_as: str | None = None
    refused: bool = False
    die_after_step: int | None = None
    end_after_step: int | None = None
    error_after_step: int | None = None
    raw_answer: str | None = None
    exit_code: int | None = None
    exit_line: str = ""
    fetch_fails: str = ""
    fetch_stalls: bool = False
    fetch_s: float = 0.0
    record: str | None = None
    idle_s: float = 0.0

    @classmethod
    def from_environment(cls) -> "Plan":
        return cls(**json.loads(os.environ.get("FAKE_ENGINE_PLAN", "{}")))

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "FakeEngine"

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self.answer(200, json.dumps({"status": self.server.status}))
        elif self.path == "/v1/models":
            info = wire.ModelInfo(
                id="fake", family="fake", parameters=1, device="cpu", dtype="float32",
                max_context_tokens=512, max_hole_tokens=128,
            )  # fmt: skip
            self.answer(200, wire.ModelList(data=[info]).model_dump_json())
        elif self.path == "/props":
            self.answer(200, json.dumps({"idle_s": self.server.plan.idle_s, "idle_timeout_s": 1800.0}))
        else:
            self.refuse(404, wire.ErrorCode.NOT_FOUND)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        plan = self.server.plan
        if plan.refused or self.headers["host"] != "localhost" or self.headers["content-type"] != "application/json":
            return self.refuse(403, wire.ErrorCode.FORBIDDEN)
        if plan.busy_times > 0:
            plan.busy_times -= 1
            return self.refuse(429, wire.ErrorCode.BUSY, {"retry-after": "0.01"})
        if plan.raw_answer is not None:
            return self.answer(200, plan.raw_answer, {"content-type": "text/event-stream"})
        self.record({"request": json.loads(body)})
        time.sleep(plan.accept_s)
        self.stream(wire.InfillRequest.model_validate_json(body), plan)

    def stream(self, request: wire.InfillRequest, plan: Plan) -> None:
        holes = [segment.hole for segment in request.segments if isinstance(segment, wire.HoleSegment)]
        is_repair = any(hole.draft for hole in holes)
        if is_repair and plan.repair_refused_as:
            return self.refuse(503, wire.ErrorCode(plan.repair_refused_as))
        is_alone = bool(plan.alone) and not any(hole.candidates for hole in holes)
        rows = plan.repaired if plan.repaired and is_repair else plan.alone if is_alone else plan.rows
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        with self.noting_the_end("step"):
            self.end_headers()
        for step in range(plan.num_steps + 1):
            states = [state(text, step, plan.num_steps) for text in rows[0]]
            self.event("step", wire.StepEvent(step=step, num_steps=plan.num_steps, holes=states))
            if step == plan.die_after_step:
                os._exit(9)
            if step == plan.end_after_step:
                return
            if step == plan.error_after_step:
                return self.event("error", wire.ErrorBody(code=wire.ErrorCode.OUT_OF_MEMORY, message="no memory left"))
            time.sleep(plan.step_s)
        while plan.endless:
            self.event("step", wire.StepEvent(step=plan.num_steps, num_steps=plan.num_steps, holes=states))
            time.sleep(0.01)
        best, *others = [
            [hole.model_copy(update={"certainty": plan.certainty}) for hole in map(filled, row, specs)]
            for row, specs in ((row, chain(holes, repeat(wire.HoleSpec()))) for row in rows[: request.n])
        ]
        best, *others = [
            [hole.model_copy(update={"certainty": plan.certainty}) for hole in row] for row in [best, *others]
        ]
        compared = [
            [
                wire.FilledHole(text=text, certainty=sure, log_likelihood=nats, following=following)
                for text, sure in some
                for nats, following in [plan.likelihoods.get(text, (None, None))]
            ]
            for some in plan.compared
        ]
        stats = wire.Stats(steps=plan.num_steps, forwards=plan.num_steps, tokens=4, ms=1.5)
        answer = wire.InfillResponse(
            model=plan.model, holes=best, alternatives=others, candidates=compared, stats=stats
        )
        self.event("done", answer)

    def event(self, name: str, message: wire.Message) -> None:
        with self.noting_the_end(name):
            self.wfile.write(f"event: {name}\ndata: {message.model_dump_json()}\n\n".encode())
            self.wfile.flush()

    @contextmanager
    def noting_the_end(self, name: str) -> Iterator[None]:
        """Notes that the client went away, be it before the first byte."""
        try:
            yield
        except OSError:
            self.record({"closed": name})
            raise

    def record(self, entry: dict[str, Any]) -> None:
        if self.server.plan.record:
            with open(self.server.plan.record, "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def refuse(self, status: int, code: wire.ErrorCode, headers: dict[str, str] | None = None) -> None:
        error = wire.ErrorBody(code=code, message=f"refused as {code}")
        self.answer(status, wire.ErrorResponse(error=error).model_dump_json(), headers)

    def answer(self, status: int, body: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())


class FakeEngine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: Path, plan: Plan) -> None:
        self.plan = plan
        self.status = "loading" if plan.load_s or plan.load_until else "ok"
        super().__init__(str(path), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        return

    def load(self) -> None:
        time.sleep(self.plan.load_s)
        while self.plan.load_until and not Path(self.plan.load_until).exists():
            time.sleep(0.01)
        self.status = "ok"


def state(text: str, step: int, num_steps: int) -> wire.HoleState:
    """The text settles from the left; before the first step nothing is shown."""
    if step == 0:
        return wire.HoleState(text="", settled=[], masked=len(text))
    settled = len(text) * step // num_steps
    tokens = filled(text, wire.HoleSpec())
    return wire.HoleState(
        text=text, settled=[(0, settled)] if settled else [], masked=len(text) - settled,
        tokens=tokens.tokens, confidence=tokens.confidence,
    )  # fmt: skip


def filled(text: str, spec: wire.HoleSpec) -> wire.FilledHole:
    """Four characters a token; what the request kept is found again as an anchor."""
    tokens = [(start, min(start + 4, len(text))) for start in range(0, len(text), 4)]
    anchors: list[tuple[int, int]] = []
    for start, end in spec.keep:
        at = text.find(spec.draft[start:end], anchors[-1][1] if anchors else 0)
        if at >= 0:
            anchors.append((at, at + end - start))
    surely = [1.0 if any(begin <= start < stop for begin, stop in anchors) else 0.9 for start, _ in tokens]
    return wire.FilledHole(text=text, tokens=tokens, confidence=surely, anchors=anchors)


def read_record(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(path: Path, what: str) -> str:
    """The text of a file as soon as it holds `what`. A test that waits in vain ends by its own time limit."""
    while not path.exists() or what not in path.read_text():
        time.sleep(0.01)
    return path.read_text()


def fetch(options: argparse.Namespace, plan: Plan) -> None:
    """Ten tenths of a model, unless the plan has it end or stop there; what was asked is recorded."""
    if plan.record:
        with open(plan.record, "a", encoding="utf-8") as file:
            file.write(json.dumps({"fetch": options.what, "cached_only": options.cached_only}) + "\n")
    for tenth in range(10):
        line = wire.FetchProgress(model=options.what, done_bytes=tenth * 10**8, total_bytes=10**9, bytes_per_s=5e7)
        print(line.model_dump_json(), flush=True)
        if plan.fetch_fails and tenth == 3:
            print("noise", plan.fetch_fails, sep="\n", file=sys.stderr)
            sys.exit(3)
        time.sleep(60 if plan.fetch_stalls and tenth == 3 else plan.fetch_s / 10)
    print(line.model_copy(update={"folder": "/cache/there"}).model_dump_json())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve", "fetch"])
    for name in (
        "--socket",
        "--model",
        "--device",
        "--idle-timeout-s",
        "--dtype",
        "--cache",
        "--weights",
        "--host",
        "--port",
    ):
        parser.add_argument(name)
    parser.add_argument("what", nargs="?")
    for name in ("--if-missing", "--cached-only", "--check", "--force"):
        parser.add_argument(name, action="store_true")
    options = parser.parse_args()
    plan = Plan.from_environment()
    if options.command == "fetch":
        return fetch(options, plan)
    if plan.exit_code is not None:
        print("noise before", plan.exit_line, sep="\n", file=sys.stderr)
        sys.exit(plan.exit_code)
    with open(Path(options.socket).parent / "starts", "a") as starts:
        starts.write(f"{os.getpid()}\n")
    engine = FakeEngine(Path(options.socket), plan)
    threading.Thread(target=engine.load, daemon=True).start()
    signal.signal(signal.SIGUSR1, lambda *_: hang(plan))
    engine.serve_forever()


def hang(plan: Plan) -> None:
    """The system takes connections still, and nobody answers them."""
    if plan.record:
        with open(plan.record, "a", encoding="utf-8") as file:
            file.write(json.dumps({"hanging": True}) + "\n")
    time.sleep(3600)


def read_report(text: str | bytes) -> Any:
    """The JSON that a command printed, its keys as attributes."""
    return json.loads(text, object_hook=lambda keys: SimpleNamespace(**keys))


if __name__ == "__main__":
    main()
