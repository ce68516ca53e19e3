"""`python -m bench quality.context SUITE KEEP`: what related files gain for an engine of another project, on lines.

The base of the default model, without its adapter, reads the prompt that a llama.cpp server gets for a model without
fill-in-the-middle tokens, with related files and far lines and without, and writes the next line greedily. Knows
suites, the fill and the engine's search; runs no program.
"""

from collections.abc import Generator, Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final
from unittest.mock import patch

import numpy as np
import torch
import typer
from tests.engine.in_process import complete

from bench.quality.kept import KeptFile
from bench.quality.product import describe_fills
from bench.quality.report import show
from bench.quality.score import difference, share
from bench.quality.suite import SuiteFile, Task, read_suite
from midfill_engine.causal.branches import Beam, read_prefix, score
from midfill_engine.causal.branches import Path as SearchPath
from midfill_engine.loading.packaged import SMOLLM2, find_packaged
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.wire import InfillRequest, InfillResponse, StepEvent, TextSegment
from midfill_infill.context.origins import Origins
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.endpoint import parse_engine
from midfill_infill.engines.outside import PROTOCOLS
from midfill_infill.engines.outside.exchange import Exchange, Refused
from midfill_infill.engines.outside.protocol import Call, Protocol
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Options, fill
from midfill_infill.syntax.holes import hole_at_cursor
from midfill_infill.text.document import Document

WINDOW: Final = 4096  # tokens, prompt and answer, as the server says
MAX_TOKENS: Final = 64


class Asked(Exception):
    """The prompt is known; no answer is wanted."""


@dataclass(frozen=True)
class Line:
    """The line that was written, ln P of the true one, and the number of the prompt's tokens."""

    text: str
    nats: float
    num_tokens: int


@dataclass(frozen=True)
class Pair:
    """A true line, and what is written `with_context` and `without` it."""

    id: str
    group: str
    truth: str
    with_context: Line
    without: Line

    @classmethod
    def of(cls, with_context: dict[str, Any], without: dict[str, Any], **fields: str) -> "Pair":
        """The pair that a kept row has."""
        return cls(**fields, with_context=Line(**with_context), without=Line(**without))


class Prompts(EngineClient):
    """A connection to a llama.cpp server that only keeps what it is asked."""

    def __init__(self) -> None:
        super().__init__(parse_engine("llamacpp:http://127.0.0.1:9"))
        self.prompt, self.white = "", ""
        self._asked = Exchange(PROTOCOLS["llamacpp"], "", "llamacpp", self._keep, Protocol.context_tokens, WINDOW)

    @property
    def window(self) -> int:
        return self._asked.window

    def infill_outside(
        self, request: InfillRequest, origins: Origins
    ) -> Generator[StepEvent | InfillResponse, None, None]:
        before = next(segment.text for segment in request.segments if isinstance(segment, TextSegment))
        self.white = before[len(before.rstrip()) :]
        yield from self._asked.run(request, origins)

    def _keep(self, call: Call) -> Generator[str, None, None]:
        if call.path == "/infill":
            raise Refused("no tokens for it")
        self.prompt = call.body["prompt"]
        raise Asked
        yield


def main(
    suite: SuiteFile,
    keep: Annotated[Path, typer.Argument(help="A file: lines are kept there, and not written again.")],
    limit: Annotated[int, typer.Option(min=1)] = 200,
    seed: int = 3,
) -> None:
    """Prints exact lines with and without context, and the paired differences, with intervals over files."""
    torch.set_num_threads(1)
    runtime = load_runtime(str(find_packaged(SMOLLM2)), "cpu", weights="int8")
    read = read_suite(suite)
    tasks = [task for task in read.tasks if task.language == "python"]
    order = np.random.default_rng(seed).permutation(len(tasks))
    with KeptFile(keep, describe_fills(SMOLLM2.name, read)) as kept:
        pairs = list(islice(measure(runtime, [tasks[index] for index in order], kept), limit))
    groups = [pair.group for pair in pairs]
    ways = {"with": [pair.with_context for pair in pairs], "without": [pair.without for pair in pairs]}
    rights = {}
    for name, lines in ways.items():
        rights[name] = [float(is_same(line.text, pair.truth)) for line, pair in zip(lines, pairs, strict=True)]
        exact = show(share(rights[name], groups))
        tokens = sum(line.num_tokens for line in lines) / len(pairs)
        print(f"exact %, {name} context: {exact}, of {len(pairs)}; {tokens:.0f} tokens a prompt")
    print(f"more exact, points: {show(difference(rights['with'], rights['without'], groups))}")
    nats, nats_without = ([line.nats for line in lines] for lines in ways.values())
    print(f"more ln P of the true line, hundredths of a nat: {show(difference(nats, nats_without, groups))}")


def is_same(text: str, truth: str) -> bool:
    return text.split() == truth.split()


def measure(runtime: Runtime, tasks: list[Task], kept: KeptFile) -> Iterator[Pair]:
    """Yields a pair for each task that the product asks an engine for."""
    known = {row["id"]: Pair.of(**row) for row in kept.rows}
    for task in tasks:
        if task.id not in known:
            truth, *_ = task.middle.strip().split("\n")
            try:
                lines = [write(runtime, task, truth, has_context=has_context) for has_context in (True, False)]
            except MidfillError:
                continue
            known[task.id] = Pair(task.id, task.group, truth, *lines)
            kept.add(asdict(known[task.id]))
        yield known[task.id]


def write(runtime: Runtime, task: Task, truth: str, *, has_context: bool) -> Line:
    """The next line after the prompt of a task. Raises MidfillError if the product finds no hole there."""
    lead = task.middle[: len(task.middle) - len(task.middle.lstrip())]
    document = Document((task.prefix + lead + task.suffix).encode(), task.language)
    hole = hole_at_cursor(document, len((task.prefix + lead).encode()))
    prompts = Prompts()
    with nullcontext() if has_context else patch("midfill_infill.filling.fill.find_excerpts", lambda *_: []):
        with suppress(Asked):
            list(fill(document, [hole], Options(references=task.shown_references), prompts))
    return complete(runtime, go_on(runtime, prompts, truth))


async def go_on(runtime: Runtime, prompts: Prompts, truth: str) -> Line:
    encode, token_bytes = runtime.loaded.tokenizer.encode, runtime.loaded.tokenizer.token_bytes
    ids = tuple(encode(prompts.prompt) or encode("\n"))
    prefix, _ = await read_prefix(runtime, ids)
    (logs,) = await score(runtime, prefix, [encode(prompts.white + truth + "\n")])
    beam = Beam(runtime, prefix)
    path = SearchPath((int(prefix.next_logs.argmax()),), (0.0,), ())
    written = token_bytes(path.ids[0])
    while len(path.ids) < MAX_TOKENS and b"\n" not in written.lstrip():
        (path,), (rows,) = await beam.read([path], [()])
        token = int(rows[-1].argmax())
        path = SearchPath((*path.ids, token), (*path.logs, 0.0), path.places)
        written += token_bytes(token)
    first, *_ = written.decode(errors="ignore").strip().split("\n")
    return Line(first, round(sum(logs), 3), len(ids))


if __name__ == "__main__":
    typer.run(main)
