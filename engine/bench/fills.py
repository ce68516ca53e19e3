"""Fills of evaluation tasks with one variant or another: what they cost, and how good they are. Prints nothing.

Quality is measured three ways, each with its interval over tasks: fills equal to the text that was cut out, the
likeness of the two (difflib's ratio), and how likely the model finds what it wrote, in nats a token: its tokens from
left to right, each with all that stands behind it masked. The last is the same for every sampler and needs no truth,
but a model likes what is dull; so read it beside the others.
"""

import gzip
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from midfill_engine.denoising.denoise import denoise, drain
from midfill_engine.denoising.opening import encode_context, make_row
from midfill_engine.denoising.plan import read_request
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.choice import Choice, Echo
from midfill_engine.models.packed import Pass, Result
from midfill_engine.wire import InfillRequest

NUM_DRAWS: Final = 2000  # of the bootstrap
MAX_RATED: Final = 24  # tokens


@dataclass(frozen=True)
class Task:
    prefix: str
    middle: str
    suffix: str


@dataclass
class Cost:
    """Sums over fills; `exact`, `similar` and `nats` have a number a fill."""

    tokens: int = 0
    steps: int = 0
    forwards: int = 0
    rows: int = 0
    seconds: float = 0.0
    exact: list[float] = field(default_factory=list)
    similar: list[float] = field(default_factory=list)
    nats: list[float] = field(default_factory=list)

    @property
    def num_fills(self) -> int:
        return len(self.exact)

    @property
    def forwards_per_token(self) -> float:
        return self.forwards / max(1, self.tokens)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def ms_a_fill(self) -> float:
        return 1000 * self.seconds / self.num_fills


class Counting(Runtime):
    """A runtime that counts the rows of its forwards."""

    def run(self, passes: list[Pass]) -> list[Result]:
        self.counter.append(sum(len(step.ids) for step in passes))
        return super().run(passes)

    @property
    def counter(self) -> list[int]:
        found: list[int] = self.__dict__.setdefault("_counter", [])
        return found


def counting(runtime: Runtime) -> Counting:
    return Counting(**{name: getattr(runtime, name) for name in Runtime.__dataclass_fields__})


def read_tasks(paths: Iterable[Path], num_tasks: int, max_characters: int = 10**6) -> list[Task]:
    """`num_tasks` of every file, evenly drawn: of the validation split where a file has splits, no several lines."""
    found: list[Task] = []
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines if line.strip()]
        rows = [row for row in rows if row.get("split", "validation") == "validation" and row.get("kind") != "multi"]
        rows = [row for row in rows if len(row["middle"]) <= max_characters]
        chosen = sorted({round(place) for place in np.linspace(0, len(rows) - 1, min(num_tasks, len(rows)))})
        found += [Task(rows[place]["prefix"], rows[place]["middle"], rows[place]["suffix"]) for place in chosen]
    return found


def measure(
    runtime: Counting,
    tasks: Sequence[Task],
    *,
    is_oracle: bool = False,
    rates: bool = False,
    **variants: str | float | None,
) -> Cost:
    """Greedy fills of `tasks`. With `is_oracle` the true number of tokens is given, else the policy decides.

    With `rates` the model also says how likely it finds them; that is not part of the time.
    """
    cost, options = Cost(), {name: variants[name] for name in ("sampler", "quality") if variants.get(name) is not None}
    cache, lengths = (None if variants.get(name) is None else str(variants[name]) for name in ("cache", "lengths"))
    for task in tasks:
        num_tokens = max(1, len(runtime.loaded.tokenizer.encode(task.middle)))
        hole = {"max_tokens": min(num_tokens, runtime.loaded.config.max_hole)} if is_oracle else {}
        request = ask(task, hole, **options)
        runtime.contexts.clear()
        runtime.counter.clear()
        started_s = time.process_time()
        response = drain(denoise(runtime, request, cache=cache, lengths="fixed" if is_oracle else lengths))
        cost.seconds += time.process_time() - started_s
        text = response.holes[0].text
        cost.tokens += response.stats.tokens
        cost.steps += response.stats.steps
        cost.forwards += response.stats.forwards
        cost.rows += sum(runtime.counter)
        cost.exact.append(float(text == task.middle))
        cost.similar.append(SequenceMatcher(None, text, task.middle, autojunk=False).ratio())
        if rates:
            cost.nats.append(rate(runtime, task, text))
    return cost


def ask(task: Task, hole: dict[str, Any], **options: Any) -> InfillRequest:
    segments = [{"text": task.prefix}, {"hole": hole}, {"text": task.suffix}]
    return InfillRequest.model_validate({"segments": segments, "tag": "python", "experts": [], **options})


def rate(runtime: Runtime, task: Task, text: str) -> float:
    """Nats a token that the first tokens of `text` cost the model in the gap of `task`, from left to right."""
    request = ask(task, {})
    plan = read_request(runtime, request, None, None)
    (outline,) = plan.outline.holes
    whole = outline.lead + text.removesuffix(outline.tail)
    ids = torch.tensor(runtime.loaded.tokenizer.encode(whole)[:MAX_RATED])
    if not len(ids):
        return float("nan")
    steps = encode_context(runtime, plan)
    try:
        work = next(steps)
        while True:
            work = steps.send(runtime.run(work.passes))
    except StopIteration as stop:
        context = stop.value[0]
    passes = []
    for place in range(len(ids)):
        row = make_row(runtime, plan, [[len(ids)]], context, request, 0)
        row.canvas.ids[0, :place] = ids[:place]
        row.canvas.masked[0, :place] = False
        step = row.open_pass()
        assert step.choice is not None
        passes.append(replace(step, wanted=step.wanted[:1], choice=ask_for(step.choice, ids[place : place + 1])))
    asked = [float(result.chosen.asked) for result in runtime.run(passes) if result.chosen is not None]  # type: ignore[arg-type]
    return -float(np.log(np.maximum(asked, 1e-12)).mean())


def ask_for(choice: Choice, token: Tensor) -> Choice:
    """The choice of the first row alone, asked for the probability of `token` [1]."""
    echo = choice.echo
    if echo is not None:
        first = echo.rows == 0
        echo = Echo(echo.rows[first], echo.tokens[first], echo.amounts[first], echo.kept[:1])
    return replace(choice, rule_of=choice.rule_of[:1], barred={}, echo=echo, asked=token)


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean and its 95 % interval over tasks (bootstrap, a fixed seed); what is no number is left out."""
    known = np.array([value for value in values if value == value])
    if not len(known):
        return float("nan"), float("nan"), float("nan")
    draws = np.random.default_rng(0).choice(known, (NUM_DRAWS, len(known))).mean(axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(known.mean()), float(low), float(high)


def difference(values: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """Of two variants on the same tasks, with its interval."""
    return interval([value - other for value, other in zip(values, others, strict=True)])
