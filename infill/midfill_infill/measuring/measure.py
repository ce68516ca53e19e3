"""Fills gaps with one model and compares the fills with what stood there. Knows no terminal."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final, Protocol

from midfill_infill import config
from midfill_infill.context.references import Reference, find_references
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.installed import distribution_version
from midfill_infill.errors import OF_HOLE_OR_ENGINE, OF_ONE_HOLE, MidfillError
from midfill_infill.filling import certainty, written
from midfill_infill.filling.candidates import Alternative
from midfill_infill.filling.fill import Filled, Options, fill, find_model, propose_fill
from midfill_infill.measuring.gaps import Gap
from midfill_infill.measuring.judging import JudgeFit, list_compared
from midfill_infill.measuring.outcomes import GapOutcome, Store

MOST_IN_A_ROW: Final = 4


class Context:
    """Related files of the gaps' files, read once; none if the user turned them off."""

    def __init__(self, root: Path) -> None:
        self._is_on, self._root = config.shows_related(root), root
        self._known: dict[Path, tuple[Reference, ...]] = {}

    @property
    def how(self) -> str:
        return f"{distribution_version()} {'with' if self._is_on else 'without'} related files"

    def of(self, gap: Gap) -> tuple[Reference, ...]:
        path = gap.document.path
        if not self._is_on or path is None:
            return ()
        if path not in self._known:
            self._known[path] = find_references(gap.document, path, root=self._root)
        return self._known[path]


class Test(Protocol):
    """Runs a command line on fills: True if it passes, None if it cannot tell."""

    @property
    def line(self) -> str: ...

    def __call__(self, gap: Gap, candidate: Alternative) -> bool | None: ...


class Measuring:
    """Fills gaps with one model, and keeps the outcomes. `find_bytes` tells the engine's memory, `test` runs the user's
    command on a fill. `model` is how the model names itself, known after the first fill.
    """

    def __init__(
        self,
        client: EngineClient,
        options: Options,
        context: Context,
        find_bytes: Callable[[], int | None] = lambda: None,
        test: Test | None = None,
    ) -> None:
        """Raises MidfillError if the engine has no such model."""
        self._client, self._options, self._context = client, options, context
        self._find_bytes, self._test = find_bytes, test
        self.info = find_model(client, options.model)
        self._store = Store(self.info)
        self.model = ""

    def run(self, gaps: Sequence[Gap], *, again: bool = False) -> Iterator[GapOutcome]:
        """Yields an outcome for each gap: that of an earlier run of the day, unless `again`. The first gap is always
        filled, to know which model answers. Raises MidfillError if the engine fails or nothing can be kept.
        """
        num_failed = 0
        for gap in gaps:
            known = self._store.find(gap.id, self.model, self._how(gap)) if self.model and not again else None
            if known is None:
                known = self._fill(gap)
                self._store.add(known)
                num_failed = num_failed + 1 if known.error else 0
                if num_failed == MOST_IN_A_ROW:
                    raise MidfillError(known.error, f"{MOST_IN_A_ROW} fills in a row fail")
            yield known

    def fit(self) -> JudgeFit | None:
        """Fits how sure this model's fills are from now on, and what decides among its lines; returns the latter.
        Raises MidfillError if that cannot be kept.
        """
        return self._store.fit(self.model)

    def _how(self, gap: Gap) -> str:
        if gap.kind == "line" and (judge := certainty.load_judge(self.info)) is not None:
            return f"{self._context.how}, judged by {dict(judge)}"
        if self._test is None or gap.kind != "body":
            return self._context.how
        return f"{self._context.how}, tested by {self._test.line}"

    def _fill(self, gap: Gap) -> GapOutcome:
        options = replace(self._options, references=self._context.of(gap), written=written.load())
        outcome = GapOutcome(gap.id, gap.kind, gap.name, how=self._how(gap), at=time.time())
        started_s, preview_s, filled = time.perf_counter(), None, None
        try:
            with closing(fill(gap.document, (gap.hole,), options, self._client)) as events:
                for event in events:
                    if isinstance(event, Filled):
                        filled = event
                    elif preview_s is None and event.holes[0].text.strip():
                        preview_s = time.perf_counter() - started_s
        except MidfillError as error:
            if error.code not in (*OF_ONE_HOLE, *OF_HOLE_OR_ENGINE):
                raise
            return replace(outcome, model=self.model, error=error.code, end_s=time.perf_counter() - started_s)
        assert filled is not None
        end_s = time.perf_counter() - started_s
        self.model = filled.model
        return replace(
            compare(gap, filled.best, outcome),
            model=self.model,
            preview_s=round(end_s if preview_s is None else preview_s, 4),
            end_s=round(end_s, 4),
            num_bytes=self._find_bytes(),
            compared=tuple(list_compared(gap, filled.judged[0])) if gap.kind == "line" and filled.judged else (),
            passes=self._test(gap, filled.best) if self._test else None,
        )


def compare(gap: Gap, found: Alternative, outcome: GapOutcome) -> GapOutcome:
    """The outcome with what a fill is worth."""
    fill = found.fills[0]
    matcher = SequenceMatcher(None, fill.text.strip(), gap.truth.strip(), autojunk=False)
    return replace(
        outcome,
        is_right=gap.is_right(fill.text),
        similar=round(matcher.ratio(), 4),
        parses=not found.new_errors,
        told=fill.told,
        evidence=fill.evidence,
    )


def copy_from_files(gaps: Sequence[Gap], context: Context) -> Iterator[GapOutcome]:
    """What the files alone propose, without a model: the floor of every measurement."""
    for gap in gaps:
        started_s, outcome = time.perf_counter(), GapOutcome(gap.id, gap.kind, gap.name)
        found = propose_fill(gap.document, (gap.hole,), Options(references=context.of(gap)))
        if found is not None:
            outcome = compare(gap, found, outcome)
        seconds = round(time.perf_counter() - started_s, 4)
        yield replace(outcome, preview_s=seconds, end_s=seconds)
