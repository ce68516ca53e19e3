"""`python -m bench quality.known SUITE`: lines whose every second token is known, filled by the engine alone.

Knows suites and the engine's interface; runs no program.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated

import torch
import typer
from tests.engine.in_process import denoise, drain

from bench.quality.product import ModelName
from bench.quality.report import show
from bench.quality.score import share
from bench.quality.suite import Task, read_suite
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.wire import BASE, HoleSegment, HoleSpec, InfillRequest, Range, Segment, TextSegment
from midfill_infill.context.excerpts import find_excerpts


@dataclass(frozen=True)
class Filled:
    """`right` of `count` unknown tokens are the line's own."""

    right: int
    count: int
    is_whole: bool
    forwards: int
    cpu_s: float


def main(
    suite: Annotated[Path, typer.Argument(help="As bench.quality.lines --physical writes it.")],
    limit: Annotated[
        int, typer.Option(min=1, help="At most so many gaps; those of fewer than three tokens count.")
    ] = 50,
    model: ModelName = BASE,
) -> None:
    """Prints how many unknown tokens and how many lines are right, with intervals over files."""
    torch.set_num_threads(1)
    runtime = load_runtime(model, "cpu")
    tasks = [task for task in read_suite(suite).tasks[:limit] if can_be_asked(runtime, task)]
    answers = [ask(runtime, task, number) for number, task in enumerate(tasks)]
    groups = [task.group for task in tasks]
    total = sum(answer.count for answer in answers)
    num_right = sum(answer.right for answer in answers)
    print(f"{len(answers)} lines: {100 * num_right / total:.1f} % of {total} unknown tokens right")
    print(
        f"a line's unknown tokens right %: {show(share([answer.right / answer.count for answer in answers], groups))}"
    )
    print(f"whole lines right %: {show(share([float(answer.is_whole) for answer in answers], groups))}")
    forwards = sum(answer.forwards for answer in answers) / len(answers)
    cpu_s = sum(answer.cpu_s for answer in answers) / len(answers)
    print(f"forward passes: {forwards:.1f}; CPU s: {cpu_s:.2f}")


def can_be_asked(runtime: Runtime, task: Task) -> bool:
    line = task.middle.strip()
    return "\n" not in line and line.isascii() and len(runtime.loaded.tokenizer.encode(line)) >= 3


def ask(runtime: Runtime, task: Task, number: int) -> Filled:
    """Fills a line behind a prompt that was read before. The unknown tokens are the odd or the even ones by turns."""
    tokenizer, line = runtime.loaded.tokenizer, task.middle.strip()
    lead = task.middle[: len(task.middle) - len(task.middle.lstrip())]
    before, after = task.prefix + lead, task.middle[len(lead) + len(line) :] + task.suffix
    spans = list(pairwise([0, *accumulate(len(tokenizer.token_bytes(token)) for token in tokenizer.encode(line))]))
    keep = [span for place, span in enumerate(spans) if place % 2 != number % 2]
    excerpts = [excerpt.text for excerpt in find_excerpts([before, after], [])]

    def fill(hole: HoleSpec) -> InfillRequest:
        segments: list[Segment] = [TextSegment(text=before), HoleSegment(hole=hole), TextSegment(text=after)]
        return InfillRequest(segments=segments, excerpts=excerpts)

    drain(denoise(runtime, fill(HoleSpec(max_tokens=1, forbid=["\n"]))))
    started_s = time.process_time()
    answer = drain(denoise(runtime, fill(HoleSpec(draft=line, keep=keep, forbid=["\n"]))))
    cpu_s, (hole,) = time.process_time() - started_s, answer.holes
    pairs = zip(list_gaps(hole.text, hole.anchors), list_gaps(line, keep), strict=True)
    unknown = [(written, wanted) for written, wanted in pairs if wanted]
    right = sum(written == wanted for written, wanted in unknown)
    return Filled(right, len(unknown), hole.text == line, answer.stats.forwards, cpu_s)


def list_gaps(text: str, keep: Sequence[Range]) -> list[str]:
    """The texts before, between and behind the ranges."""
    ends = [0, *(end for _, end in keep)]
    return [text[end:start] for end, (start, _) in zip(ends, [*keep, (len(text), len(text))], strict=True)]


if __name__ == "__main__":
    typer.run(main)
