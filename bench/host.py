"""Times the host's part of a step: everything between two forward passes, with a model whose passes cost nothing.

    python -m bench host [--scene dual] [--requests 1 --requests 16] [--profile 25] [--json FILE]

Scheduler, fills, canvases, caches and events are the engine's own; only `NullModel` is not: it answers every pass with
prepared states, keys, tokens and confidences of the right shapes. With `--kernels` the runner of the kernels answers,
whose graph is replaced by prepared numbers. Times are CPU milliseconds of this process on one thread, for all requests
together. `between` is the median from the end of a pass to the start of the next, `beside` that of what a device hides,
because it is done while the pass runs, and `runner` that of the runner. `whole` is all but the runner's over the number
of passes, so it has the reading of the requests and the writing of the answers too.
"""

import cProfile
import gc
import pstats
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict, Unpack
from unittest.mock import patch

import torch
import typer
from rich.console import Console
from rich.table import Table
from tests.engine import tiny
from torch import Tensor

from bench.measure import JsonFile, describe, write_record
from midfill_engine.backends import open_fill
from midfill_engine.errors import RequestError
from midfill_engine.families import FAMILIES
from midfill_engine.families.embedded import EMBEDDED
from midfill_engine.loading.checkpoints import load_embedded
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.models.choice import Choice, Chosen
from midfill_engine.models.packed import Pass, Result
from midfill_engine.models.transformer import StackedKeys
from midfill_engine.scheduling.scheduler import Scheduler
from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest, InfillResponse, Segment, StepEvent, TextSegment

if TYPE_CHECKING:  # needs Triton
    from midfill_engine.models.fused_runner import Step

MAX_ROWS: Final = 2048  # of a pass
NUM_SHIFTS: Final = 97  # passes see different parts of the prepared tables
STEPS: Final = 16
EVERYTHING: Final = 1 << 30  # rows of a pass: each step of all requests is one
LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz"


class NullModel:
    """Answers passes of `runtime`'s shape from tables. CPU times of each pass: `spent_s` before it, `beside_s` while it
    runs, `runner_s` in it.
    """

    def __init__(self, runtime: Runtime, num_tokens: int, *, kernels: bool) -> None:
        config, vocabulary = runtime.loaded.config.transformer, runtime.vocabulary
        generator = torch.Generator().manual_seed(0)
        letters = [vocabulary.pieces.index(bytes([letter])) for letter in LETTERS]
        size = MAX_ROWS + NUM_SHIFTS
        self._states = torch.randn(size, config.dim, generator=generator)
        self._ids = torch.tensor(letters)[torch.randint(len(letters), (size,), generator=generator)]
        self._confidence = torch.rand(size, generator=generator) * 0.6 + 0.3
        keys = torch.zeros(config.num_layers, 2, 1, config.num_kv_heads, num_tokens, config.head_dim)
        self._keys = lru_cache(lambda count: StackedKeys(*keys[:, :, :, :, :count].unbind(1)))  # as the kernels' runner
        self._turn = 0
        self.ended_s = 0.0
        self.spent_s: list[float] = []
        self.beside_s: list[float] = []
        self.runner_s: list[float] = []
        self._begin = self._answer_all
        if kernels:
            from midfill_engine.models.fused_runner import FusedRunner

            self._begin = FusedRunner(runtime.loaded.model.transformer, runtime.operators).launch

    def launch(self, passes: list[Pass]) -> Callable[[], list[Result]]:
        """Like a device: what is done before the results are asked for is done beside the pass."""
        began_s = time.process_time()
        self.spent_s.append(began_s - self.ended_s)
        answer = self._begin(passes)
        launched_s = time.process_time()

        def wait() -> list[Result]:
            asked_s = time.process_time()
            results = answer()
            self.ended_s = time.process_time()
            self.beside_s.append(asked_s - launched_s)
            self.runner_s.append(self.ended_s - asked_s + launched_s - began_s)
            return results

        return wait

    def compute(self, step: "Step") -> tuple[Tensor, Tensor]:
        """In place of the graph of a kernels' step: states and numbers of as many rows."""
        self._turn = (self._turn + 1) % NUM_SHIFTS
        rows = slice(self._turn, self._turn + step.rows.own.shape[2])
        return self._states[rows], torch.stack((self._ids[rows].float(), *[self._confidence[rows]] * 2))

    def _answer_all(self, passes: list[Pass]) -> Callable[[], list[Result]]:
        results = [self._answer(step) for step in passes]
        return lambda: results

    def _answer(self, step: Pass) -> Result:
        self._turn = (self._turn + 1) % NUM_SHIFTS
        rows = slice(self._turn, self._turn + len(step.wanted))
        own = self._keys(len(step.ids)) if step.keeps else None
        return Result(self._states[rows], own, self._choose(step.choice, rows))

    def _choose(self, choice: Choice | None, rows: slice) -> Chosen | None:
        if choice is None:
            return None
        confidence = self._confidence[rows]
        entropy = -confidence.log() if choice.needs_entropy else None
        ids = self._ids[rows] if choice.forced is None else choice.forced
        return Chosen(ids, confidence, entropy)


@dataclass(frozen=True)
class Scene:
    """Fills of one kind: a hole of `hole` tokens between the text and `after`, `before` right in front of it. Unless
    the model is causal, each of 16 steps settles as many tokens.
    """

    family: str
    cache: str | None
    hole: int = 64
    before: str = "total = f("
    after: str = ")\nprint(total)\n"
    forbid: tuple[str, ...] = ()

    def request(self, text: str) -> InfillRequest:
        """The request with `text` before the hole."""
        is_causal = self.family == "causal"
        least = 0 if is_causal else self.hole
        hole = HoleSpec(min_tokens=least, max_tokens=self.hole, forbid=list(self.forbid), indent="    ")
        before = TextSegment(text=text + self.before)
        segments: list[Segment] = [before, HoleSegment(hole=hole), TextSegment(text=self.after)]
        if is_causal:
            return InfillRequest(segments=segments)
        return InfillRequest(segments=segments, steps=STEPS, quality=1.0)


SCENES: Final = {
    "dual": Scene("dream", "dual"),
    "none": Scene("dream", "none"),
    "expand": Scene("dreamon", "dual"),
    "block": Scene("sdar", "block"),
    "frozen": Scene("embedded", "frozen"),
    "lines": Scene("causal", None, 24, "", "\nprint(total)\n", ("\n",)),
    "bodies": Scene("causal", None, 48, "def fill(items):\n    ", "\n\nprint(total)\n"),
}


class Ways(TypedDict, total=False):
    """How fills are played: with the event of every step sent, and by the kernels' runner."""

    watches: bool
    kernels: bool


TIMES: Final = ("between_ms", "beside_ms", "runner_ms", "whole_ms")


@dataclass(frozen=True)
class Figures:
    """CPU milliseconds of a step of `requests` fills together; see the top of this module."""

    scene: str
    requests: int
    forwards: int
    between_ms: float
    beside_ms: float
    runner_ms: float
    whole_ms: float


def open_runtime(scene: Scene, num_layers: int) -> Runtime:
    """A tiny random model with as many layers as a large one: the host's work grows with layers, not with widths."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if scene.family == EMBEDDED.name:
            tiny.make_embedded(folder, dim=32, num_layers=num_layers)
            return Runtime.of(load_embedded(folder))
        config = tiny.config_of(scene.family, num_hidden_layers=num_layers)
        tiny.make_random(folder, FAMILIES.find(scene.family), config=config)
        return load_runtime(str(folder), "cpu", dtype="fp32")


def play(
    runtime: Runtime,
    scene: Scene,
    requests: int,
    context: int,
    *,
    watches: bool = True,
    kernels: bool = False,
    profiler: cProfile.Profile | None = None,
) -> tuple[NullModel, float]:
    """Fills `requests` requests at once. Returns the model and the CPU seconds of all outside its passes."""
    model = NullModel(runtime, context + scene.hole + 64, kernels=kernels)
    text = "total = total + 1\n" * (context // 18)
    ended = threading.Semaphore(0)
    events: list[object] = []
    has_fixed_length = runtime.family.attention == "bidirectional" and not runtime.family.expands
    lengths = "fixed" if has_fixed_length else None

    def listen(event: object) -> None:
        events.append(event)
        if not isinstance(event, StepEvent):
            ended.release()

    gate = threading.Event()

    def open_one(request: InfillRequest) -> Any:
        gate.wait()
        if profiler is not None and not any(isinstance(event, StepEvent) for event in events):
            profiler.enable()
        return open_fill(runtime, request, cache=scene.cache, lengths=lengths)

    scheduler = Scheduler(
        open_one,
        launch=model.launch,
        max_active=requests,
        max_requests=2 * requests + 2,
        max_rows=EVERYTHING,
        shared_rows=EVERYTHING,
    )
    with closing(scheduler), replaced_graph(model) if kernels else nullcontext():
        for number in range(requests):
            scheduler.submit(scene.request(f"# {number:04}\n{text}"), listen, watches=watches)
        started_s = model.ended_s = time.process_time()
        gate.set()
        for _ in range(requests):
            ended.acquire()
        spent_s = time.process_time() - started_s - sum(model.runner_s)
    for event in events:
        if isinstance(event, RequestError):
            raise event
    assert sum(isinstance(event, InfillResponse) for event in events) == requests
    return model, spent_s


@contextmanager
def replaced_graph(model: NullModel) -> Iterator[None]:
    """Prepared numbers in place of the graph of the kernels' runner."""
    from midfill_engine.models.fused_runner import Step

    with patch.object(Step, "_compute", lambda step: model.compute(step)):
        yield


def measure(name: str, runtime: Runtime, requests: int, context: int, repeats: int, **how: Unpack[Ways]) -> Figures:
    """Medians of `repeats` plays; an earlier one warms up and does not count."""
    steady = slice(1, None)  # before the first pass the requests are read
    plays: list[Figures] = []
    for turn in range(repeats + 1):
        runtime.prefixes.clear()
        runtime.contexts.clear()
        gc.collect()
        model, spent_s = play(runtime, SCENES[name], requests, context, **how)
        if turn == 0:
            continue
        count = len(model.spent_s)
        between_s, beside_s, runner_s = (
            statistics.median(seconds[steady]) for seconds in (model.spent_s, model.beside_s, model.runner_s)
        )
        whole_s = spent_s / count
        plays.append(Figures(name, requests, count, 1e3 * between_s, 1e3 * beside_s, 1e3 * runner_s, 1e3 * whole_s))
    medians = {field: statistics.median(getattr(figures, field) for figures in plays) for field in TIMES}
    return Figures(name, requests, plays[0].forwards, **medians)


def draw_table(steps: list[Figures], title: str) -> Table:
    table = Table("scene", "requests", "passes", "between", "beside", "runner", "whole", title=title)
    for figures in steps:
        times = [f"{getattr(figures, field):.3f} ms" for field in TIMES]
        table.add_row(figures.scene, str(figures.requests), str(figures.forwards), *times)
    return table


def run(
    scenes: list[str], counts: list[int], *, layers: int, context: int, repeats: int, kernels: bool, watches: bool
) -> dict[str, Any]:
    """The record of these scenes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        steps: list[Figures] = []
        for name in scenes:
            runtime = open_runtime(SCENES[name], layers)
            for count in counts:
                steps.append(measure(name, runtime, count, context, repeats, kernels=kernels, watches=watches))
        machine = describe(torch.device("cpu"))
    finally:
        torch.set_num_threads(threads)
    settings = {"layers": layers, "context": context, "repeats": repeats, "kernels": kernels, "watches": watches}
    return {"machine": machine, **settings, "steps": [asdict(figures) for figures in steps]}


def show_profile(name: str, requests: int, layers: int, context: int, rows: int, **how: Unpack[Ways]) -> None:
    """The functions that take longest in fills of one scene, with their callees' time left out."""
    torch.set_num_threads(1)
    runtime = open_runtime(SCENES[name], layers)
    play(runtime, SCENES[name], requests, context, **how)
    profiler = cProfile.Profile(time.thread_time)
    play(runtime, SCENES[name], requests, context, profiler=profiler, **how)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(rows)


def main(
    scene: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(SCENES)}; all if none is named")] = None,
    requests: Annotated[list[int] | None, typer.Option(help="how many at once")] = None,
    layers: Annotated[int, typer.Option(help="of the model")] = 28,
    context: Annotated[int, typer.Option(help="tokens before the hole")] = 1024,
    repeats: Annotated[int, typer.Option(help="plays of each scene")] = 5,
    kernels: Annotated[bool, typer.Option(help="run passes by the kernels' runner")] = False,
    watches: Annotated[bool, typer.Option(help="send the event of every step")] = True,
    profile: Annotated[int, typer.Option(help="show so many functions of the first scene instead")] = 0,
    json_file: JsonFile = None,
) -> None:
    """The host's part of a step."""
    names, counts = scene or list(SCENES), requests or [1, 16]
    if profile:
        for count in counts:
            show_profile(names[0], count, layers, context, profile, kernels=kernels, watches=watches)
        return
    record = run(names, counts, layers=layers, context=context, repeats=repeats, kernels=kernels, watches=watches)
    figures = [Figures(**fields) for fields in record["steps"]]
    Console(width=80).print(draw_table(figures, record["machine"]["device"]))
    if json_file is not None:
        write_record(json_file, record)


if __name__ == "__main__":
    typer.run(main)
