"""Fills the gaps of a suite through the product, in one process: context, proposals, engine, parser. Scores nothing."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, cast
from unittest.mock import patch

import typer
from tests.engine.in_process import denoise

from bench.measure import ROOT, hash_sources
from bench.quality.kept import Facts, KeptFile
from bench.quality.report import SHIPPED, find_weights, hash_weights
from bench.quality.suite import Suite, Task
from midfill_engine.loading import runtime
from midfill_engine.loading.runtime import Runtime
from midfill_engine.wire import InfillRequest, InfillResponse, StepEvent
from midfill_infill.engines.client import EngineClient
from midfill_infill.filling.fill import Filled, Options, fill
from midfill_infill.syntax.holes import hole_at_cursor, hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

ModelName = Annotated[str, typer.Option(help="A known model, or a checkpoint's folder.")]
KeepFolder = Annotated[Path, typer.Argument(help="A folder: fills are kept there, and not made again.")]


@dataclass(frozen=True)
class Fill:
    text: str
    certainty: float | None
    cpu_ms: float


class Local:
    """An in-process engine in place of a connection."""

    endpoint = SimpleNamespace(is_outside=False)

    def __init__(self, opened: Runtime) -> None:
        self._runtime = opened

    def models(self) -> tuple[object, ...]:
        return (self._runtime.info,)

    def infill(self, request: InfillRequest) -> Iterator[StepEvent | InfillResponse]:
        yield (yield from denoise(self._runtime, request))


@cache
def open_client(model: str, has_adapter: bool = True) -> EngineClient:
    with nullcontext() if has_adapter else patch.object(runtime, "ADAPTER", "-none"):
        return cast(EngineClient, Local(runtime.load_runtime(model, "cpu")))


def find_facts(model: str) -> Facts:
    """What a fill depends on besides its gap: the weights, those of the adapter too, and the code."""
    folder = find_weights(model)
    shipped = [folder] if folder else sorted(path for path in SHIPPED.iterdir() if path.is_dir())
    weights = sha256("".join(map(hash_weights, shipped)).encode()).hexdigest()
    code = hash_sources(ROOT / "engine/midfill_engine", ROOT / "infill")
    return {"model": Path(model).name, "weights": weights, "code": code}


def name_fills(model: str) -> str:
    """The name of the folder for a model's fills: another one for other weights, or other code."""
    facts = repr(find_facts(model))
    return f"{Path(model).name}-{sha256(facts.encode()).hexdigest()[:12]}"


def describe_fills(model: str, suite: Suite) -> Facts:
    """What the fills of one file in a folder share."""
    return {"suite": suite.sha256, **find_facts(model)}


def keep_fills(
    folder: Path | None, way: str, facts: Facts, tasks: Sequence[Task], make: Callable[[Task], Fill]
) -> list[Fill]:
    """The fills of one way, in order; reuses those in `folder`. Raises KeptError if they are of other facts."""
    path = None if folder is None else folder / f"{way}.jsonl"
    with KeptFile(path, facts) as kept:
        known = {row.pop("id"): Fill(**row) for row in kept.rows}
        for task in tasks:
            if task.id in known:
                continue
            started_s = time.process_time()
            made = make(task)
            cpu_ms = round(1000 * (time.process_time() - started_s), 1)
            known[task.id] = replace(made, cpu_ms=cpu_ms)
            kept.add({"id": task.id, **asdict(known[task.id])})
    return [known[task.id] for task in tasks]


def fill_holes(client: EngineClient, task: Task, document: Document, holes: Sequence[Hole], **options: Any) -> Filled:
    """Raises MidfillError."""
    *_, filled = fill(document, holes, Options(references=task.shown_references, **options), client)
    assert isinstance(filled, Filled)
    return filled


def fill_gap(client: EngineClient, task: Task, document: Document, hole: Hole, **options: Any) -> Fill:
    """What stands between the task's prefix and suffix once a hole there is filled. Raises MidfillError."""
    filled = fill_holes(client, task, document, [hole], **options)
    text = filled.patch.apply(document.data).decode()
    return Fill(text[len(task.prefix) : len(text) - len(task.suffix)], filled.best.certainty, 0.0)


def place_task(task: Task) -> tuple[Document, Hole]:
    """Finds the hole as `midfill fill --hole` does for an empty range: one blank line replaces a gap of whole lines. A
    gap of several lines is a selection, which keeps the white space at its ends.
    """
    start = len(task.prefix.encode())
    if "\n" in task.middle.strip():
        whole = Document(task.program(task.middle).encode(), task.language)
        hole = hole_at_range(whole, start, start + len(task.middle.encode()))
        document = Document(whole.data[: hole.start_byte] + whole.data[hole.end_byte :], task.language)
        return document, replace(hole, end_byte=hole.start_byte)
    begins_line = task.prefix.endswith("\n") or not task.prefix
    blank = "\n" if begins_line and not task.suffix.startswith("\n") else ""
    document = Document(task.program(blank).encode(), task.language)
    return document, hole_at_cursor(document, start)


def by_product(client: EngineClient, task: Task, **options: Any) -> Fill:
    document, hole = place_task(task)
    return fill_gap(client, task, document, hole, **options)
