"""Times a causal model's fills and passes on a GPU: with the kernels, with torch, and what the graph alone takes.

    python -m bench gpu.causal [--seconds 40] [--json FILE]

The model is the default one where its file is, else random weights of its shape: figures of speed, none of quality.
Fills go through the scheduler, several at once, behind about 1,000 tokens: lines behind a text that was read before
(warm) or was not (cold), and bodies; with random weights, which indent nothing, the passes of a body. Scenes that find
no time left are named. Interpreted on a CPU (`TRITON_INTERPRET=1`) all runs at toy size, and times mean nothing.
"""

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, product
from pathlib import Path
from typing import Annotated, Any, Final

import torch
import typer
from rich.console import Console
from rich.table import Table
from tests.engine import tiny
from tests.engine.in_process import complete

from bench.gpu.cases import choose_dtype
from bench.gpu.serving import make_model, times_as_fast
from bench.gpu.shapes import SHAPES
from bench.green import find_red
from bench.measure import JsonFile, choose_device, describe, note_toy, write_record
from midfill_engine.backends import open_fill
from midfill_engine.caches.stores import PrefixStore
from midfill_engine.causal import branches
from midfill_engine.causal.branches import Beam, log_probs, read_prefix, score
from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.families import FAMILIES
from midfill_engine.loading import checkpoints
from midfill_engine.loading.packaged import SMOLLM2
from midfill_engine.loading.runtime import Runtime, load_runtime, open_fused
from midfill_engine.models.packed import Pass, Result
from midfill_engine.scheduling.scheduler import Scheduler
from midfill_engine.scheduling.work import Fill
from midfill_engine.tokens.tokenizer import SPECIAL_TOKENS, byte_of_character
from midfill_engine.wire import (
    FilledHole,
    HoleSegment,
    HoleSpec,
    InfillRequest,
    InfillResponse,
    Segment,
    Stats,
    TextSegment,
)

TESTS: Final = (
    "test_fused_branches.py",
    "test_cached_attention.py",
    "test_norm.py",
    "test_matmul.py",
    "test_rotary.py",
)
CODE: Final = "def scale(values, factor):\n    return [value * factor for value in values]\n\n\n"
AFTER: Final = "\n\n\ndef test_scale():\n    assert scale([1], 2) == [2]\n"
SHAPE: Final = "135M"  # of the default model


@dataclass(frozen=True)
class Sizes:
    """Tokens of a context, of a line and of a body, requests at once, timed calls, the texts of a scoring pass."""

    context: int = 1000
    line: int = 10
    body: int = 48
    together: tuple[int, ...] = (1, 8, 32)
    repeats: int = 30
    texts: int = 8


TOY: Final = Sizes(context=24, line=1, body=2, together=(1, 2), repeats=1, texts=2)


@dataclass(frozen=True)
class FillResult:
    """`together` requests at once: seconds until the last answer, the median request's, and the share of them that the
    GPU worked (in a run of its own, under the profiler; None without one)."""

    scene: str
    operators: str
    together: int
    all_s: float
    median_s: float
    forwards: float
    gpu_share: float | None = None


@dataclass(frozen=True)
class PassResult:
    """Medians of one pass, in seconds: `run_s` until its states are there, `used_s` until its numbers are on the host,
    `graph_s` of the captured graph alone."""

    name: str
    operators: str
    rows: int
    past: int
    run_s: float
    used_s: float
    graph_s: float | None


def make_tokenizer(vocab_size: int) -> Any:
    """One token a byte, and as many of two and then three ASCII letters and signs as fit."""
    letters = [letter for letter in byte_of_character() if "!" <= letter <= "~"]
    pairs = list(product(letters, letters))
    triples = ((left + middle, right) for left, middle in pairs for right in letters)
    count = vocab_size - len(byte_of_character()) - len(SPECIAL_TOKENS)
    return tiny.build_tokenizer(list(islice(chain(pairs, triples), count)))


def open_runtimes(device: torch.device, shape: str) -> tuple[dict[str, Runtime], str]:
    """Runtimes by operators over the same weights, and the model's name."""
    if shape == SHAPE and SMOLLM2.is_here:
        plain, name = load_runtime(SMOLLM2.name, device.type, "torch"), SMOLLM2.name
    else:
        family = FAMILIES.find("causal")
        loaded = make_model(FAMILIES.find("dream"), SHAPES[shape], 4096, device, choose_dtype(device))
        with tempfile.TemporaryDirectory() as folder:
            tiny.make_random(Path(folder), family)
            files = checkpoints.load(CheckpointFiles(Path(folder)), family).files
        loaded = replace(loaded, tokenizer=make_tokenizer(SHAPES[shape].vocab_size), files=files)
        plain, name = Runtime.of(loaded, family=family), f"random weights of the shape {shape}"
    fused = open_fused(plain.loaded.model.transformer, plain.operators, is_causal=True)
    return {"torch": plain, "kernels": replace(plain, fused=fused, prefixes=PrefixStore())}, name


def make_text(runtime: Runtime, tokens: int, number: int) -> str:
    """Code of about so many tokens, its own for each number."""
    encode, text = runtime.loaded.tokenizer.encode, ""
    while len(encode(text)) < tokens:
        text += CODE.replace("scale", f"scale{number}_{len(text)}")
    return text[-3 * tokens :] if tokens < 100 else text


def make_requests(runtime: Runtime, scene: str, sizes: Sizes, count: int) -> list[InfillRequest]:
    """Warm lines and bodies stand behind one text, cold ones each behind its own."""
    requests = []
    for number in range(count):
        before = make_text(runtime, sizes.context, number + 1 if scene == "line, cold" else 0)
        hole = HoleSpec(min_tokens=sizes.line, max_tokens=sizes.line + 4, forbid=["\n"])  # random ones end at once
        if scene == "body":
            hole = HoleSpec(max_tokens=sizes.body, indent="    ")
        head = "def apply(values, factor):\n" + "    result = " * (scene != "body")
        segments: list[Segment] = [TextSegment(text=before + head), HoleSegment(hole=hole), TextSegment(text=AFTER)]
        requests.append(InfillRequest(segments=segments))
    return requests


async def write_body(runtime: Runtime, sizes: Sizes, request: InfillRequest) -> InfillResponse:
    """The passes of a body: six beginnings, so many tokens of each, every second one guessed, and the text after."""
    segment = request.segments[0]
    assert isinstance(segment, TextSegment)
    encode = runtime.loaded.tokenizer.encode
    prefix, _ = await read_prefix(runtime, tuple(encode(segment.text)))
    beam, first = Beam(runtime, prefix), encode("value")
    paths, logs = await beam.open([(token, *first) for token in encode("abcdef")])
    num_passes, scores = sizes.body // 2, list(logs[:, None])
    for _ in range(num_passes):
        guesses = [(int(rows[-1].argmax()),) for rows in scores]
        paths = [path.add(guess[0], 0.0) for path, guess in zip(paths, guesses, strict=True)]
        paths, scores = await beam.read(paths, guesses)
    await beam.follow(paths, [encode(AFTER)[:30]] * len(paths))
    stats = Stats(steps=num_passes, forwards=num_passes + 2, tokens=sizes.body, ms=0.0)
    return InfillResponse(model="", holes=[FilledHole(text="", tokens=[], confidence=[])], stats=stats)


def serve(
    runtime: Runtime, requests: Sequence[InfillRequest], open_one: Callable[[InfillRequest], Fill]
) -> tuple[float, list[float], float]:
    """Seconds until the last answer, of each request, and the mean number of forwards of a request."""
    scheduler = Scheduler(open_one, runtime.run)
    ended, took, answers = threading.Semaphore(0), list[float](), list[InfillResponse]()
    started = time.perf_counter()

    def listen(event: object) -> None:
        if isinstance(event, Exception):
            print(f"a fill failed: {event}", file=sys.stderr)
        if isinstance(event, InfillResponse | Exception):
            took.append(time.perf_counter() - started)
            if isinstance(event, InfillResponse):
                answers.append(event)
            ended.release()

    try:
        for request in requests:
            scheduler.submit(request, listen)
        for _ in requests:
            ended.acquire()
    finally:
        scheduler.close()
    if len(answers) < len(requests):
        raise SystemExit("Fills failed: no figures.")
    return max(took), took, statistics.mean(answer.stats.forwards for answer in answers)


def open_scene(
    runtime: Runtime, scene: str, sizes: Sizes, together: int
) -> Callable[[], tuple[float, list[float], float]]:
    """A call that runs a scene once, see `serve`. Cold ones begin with no text kept."""
    requests, open_one = make_requests(runtime, scene, sizes, together), partial(open_fill, runtime)
    if scene == "body" and SMOLLM2.name not in runtime.names:
        open_one = partial(write_body, runtime, sizes)

    def once() -> tuple[float, list[float], float]:
        if scene == "line, cold":
            runtime.prefixes.clear()
        return serve(runtime, requests, open_one)

    return once


def run_scene(runtime: Runtime, operators: str, scene: str, sizes: Sizes, together: int, repeats: int) -> FillResult:
    """The median of a few runs of a scene."""
    once = open_scene(runtime, scene, sizes, together)
    if together == 1 or runtime.reads_stacks:  # what is new to torch is only a length
        once()
    samples = sorted((once() for _ in range(repeats)), key=lambda sample: sample[0])
    all_s, took, forwards = samples[len(samples) // 2]
    return FillResult(scene, operators, together, all_s, statistics.median(took), forwards)


def add_shares(runtimes: dict[str, Runtime], sizes: Sizes, fills: Sequence[FillResult]) -> list[FillResult]:
    """The results, with the share of the GPU where so few kernels start that counting them takes seconds."""
    results = []
    for result in fills:
        runtime = runtimes[result.operators]
        if result.together == 1 or (result.together <= 8 and runtime.reads_stacks):
            result = replace(result, gpu_share=share_of_gpu(open_scene(runtime, result.scene, sizes, result.together)))
        results.append(result)
    return results


def share_of_gpu(call: Callable[[], tuple[float, Any, Any]]) -> float:
    """The part of a call's time that kernels and copies ran on the GPU."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        all_s = call()[0]
        torch.cuda.synchronize()
    busy_us = sum(event.self_device_time_total for event in profile.key_averages())
    return float(busy_us) / 1e6 / all_s


def time_call(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The median of some calls, in seconds, each until the device is done."""
    samples, warm_ups = [], int(device.type == "cuda")  # compiles and captures
    for turn in range(warm_ups + repeats):
        started = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if turn >= warm_ups:
            samples.append(time.perf_counter() - started)
    return statistics.median(samples)


def lay_passes(runtime: Runtime, sizes: Sizes) -> list[tuple[str, Pass, Callable[[Result], object]]]:
    """Passes by name, and what their results are used for: a beam's, a tree's, the last part of a prompt's."""
    generator, vocab_size = torch.Generator().manual_seed(0), runtime.loaded.tokenizer.vocab_size

    def draw(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(len(SPECIAL_TOKENS), vocab_size, (count,), generator=generator).tolist())

    prefix, _ = complete(runtime, read_prefix(runtime, draw(sizes.context)))
    beam = Beam(runtime, prefix)
    paths, _ = complete(runtime, beam.open([draw(1) for _ in range(5)]))
    reading = beam.read([path.add(draw(1)[0], 0.0) for path in paths], [draw(2)] * len(paths))
    scoring = score(runtime, prefix, [list(draw(12)) for _ in range(sizes.texts)])
    whole = max(sizes.context // branches.READ_ROWS, 1) * branches.READ_ROWS
    prompt = draw(whole if sizes.context >= branches.READ_ROWS else sizes.context)
    parts, answer = read_prefix(runtime, prompt), None
    for _ in range(0, len(prompt), branches.READ_ROWS):
        work = parts.send(answer)
        answer = runtime.run(work.passes)
    return [
        ("beam, 5 paths x 3 rows", only(reading.send(None).passes), lambda one: log_probs(runtime, one.hidden)),
        ("scoring", only(scoring.send(None).passes), lambda one: one.chosen),
        ("part of a prompt", only(work.passes), lambda one: one.hidden),
    ]


def only(passes: Sequence[Any]) -> Pass:
    (step,) = passes
    assert isinstance(step, Pass)
    return step


def measure_passes(runtime: Runtime, operators: str, sizes: Sizes) -> list[PassResult]:
    """Each pass by itself, and behind what its numbers are used for; with kernels also its graph alone."""
    results = []
    for name, step, use in lay_passes(runtime, sizes):
        run_s = time_call(lambda step=step: runtime.run([step]), runtime.device, sizes.repeats)  # type: ignore[misc]
        used_s = time_call(lambda step=step, use=use: use(*runtime.run([step])), runtime.device, sizes.repeats)  # type: ignore[misc]
        graph_s = None
        if runtime.fused is not None and (graph := runtime.fused.branches.graph_of(len(step.ids))) is not None:
            graph_s = time_call(graph.replay, runtime.device, sizes.repeats)
        past = 0
        if step.attention_mask is not None:
            past += step.attention_mask.shape[1] - len(step.ids)
        if step.stacks is not None:
            past += step.stacks.past.shape[3]
        results.append(PassResult(name, operators, len(step.ids), past, run_s, used_s, graph_s))
    return results


def measure_fills(runtimes: dict[str, Runtime], sizes: Sizes, until_s: float) -> tuple[list[FillResult], list[str]]:
    """The scenes in turn with kernels and with torch, as many as begin in time; and the names of the others."""
    results, left = list[FillResult](), list[str]()
    for together in sizes.together:
        for scene in ("line, warm", "line, cold", "body"):
            for operators, runtime in reversed(runtimes.items()):
                if results and time.perf_counter() > until_s:
                    left.append(f"{scene}, {together} at once, {operators}")
                    continue
                repeats = 3 if together == 1 and sizes != TOY else 1
                results.append(run_scene(runtime, operators, scene, sizes, together, repeats))
    return results, left


def ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.2f}"


def draw_tables(record: dict[str, Any], title: str) -> list[Table]:
    passes = Table("pass", "operators", "rows", "behind", "ms", "with its numbers", "graph alone", title=title)
    for one in record["passes"]:
        sizes = (one.name, one.operators, str(one.rows), str(one.past))
        passes.add_row(*sizes, ms(one.run_s), ms(one.used_s), ms(one.graph_s))
    fills = Table("fill", "operators", "at once", "all, ms", "median, ms", "forwards", "GPU works", "times torch")
    for one in record["fills"]:
        same = (other for other in record["fills"] if (other.scene, other.together) == (one.scene, one.together))
        plain = next((other.all_s for other in same if other.operators == "torch"), None)
        share = "" if one.gpu_share is None else f"{one.gpu_share:.0%}"
        cells = (one.scene, one.operators, one.together, ms(one.all_s), ms(one.median_s), f"{one.forwards:.0f}")
        fills.add_row(*map(str, cells), share, times_as_fast(plain, one.all_s))
    return [passes, fills]


def main(
    seconds: Annotated[float, typer.Option(help="no scene of fills begins later")] = 40.0,
    shape: Annotated[str, typer.Option(help="of random weights; 135M is the default model's")] = SHAPE,
    json_file: JsonFile = None,
) -> None:
    """Fills and passes of a causal model."""
    device = choose_device()
    toy = device.type == "cpu"
    sizes, red = Sizes(), list[str]()
    if toy:
        sizes, shape = TOY, "toy"
    else:
        red = sorted(find_red(*TESTS))
    began = time.perf_counter()
    runtimes, model = open_runtimes(device, shape)
    if red:
        del runtimes["kernels"]
    passes = [one for name, runtime in runtimes.items() for one in measure_passes(runtime, name, sizes)]
    fills, left = measure_fills(runtimes, sizes, began + seconds)
    record: dict[str, Any] = {"machine": describe(device), "model": model}
    record |= {"passes": passes, "fills": fills, "left": left, "red": red}
    if json_file is not None:
        write_record(json_file, record)  # the profiler may end the process
    if not toy:
        record["fills"] = add_shares(runtimes, sizes, fills)
    for table in draw_tables(record, f"{record['machine']['device']}, {model}{note_toy(toy)}"):
        Console(width=130).print(table)
    print(*(f"no time was left for: {name}" for name in left), sep="\n")
    if red:
        print(f"kernels: not timed, red are {', '.join(red)}")
    if json_file is not None:
        write_record(json_file, record)
    sys.exit(bool(red))


if __name__ == "__main__":
    typer.run(main)
