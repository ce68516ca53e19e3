"""Fills gaps with one model, and compares the fills with the text that was there. Knows no terminal."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final

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
from midfill_infill.measuring.passing import Passing
from midfill_infill.text.visible import plural

MAX_FAILED_IN_A_ROW: Final = 4  # failed fills, after which a measurement ends
BUSY_WAITS_S: Final = (2.0, 5.0, 10.0, 20.0, 30.0)  # before each new try of a fill for which the engine is busy


class Context:
    """Finds the files related to a gap's file, once for each file; none if the user turned them off."""

    def __init__(self, root: Path) -> None:
        self._is_on, self._root = config.shows_related(root), root
        self._references: dict[Path, tuple[Reference, ...]] = {}

    @property
    def how(self) -> str:
        """What decides the context of all gaps, in words."""
        return f"{distribution_version()} {'with' if self._is_on else 'without'} related files"

    def of(self, gap: Gap) -> tuple[Reference, ...]:
        path = gap.document.path
        if not self._is_on or path is None:
            return ()
        if path not in self._references:
            self._references[path] = find_references(gap.document, path, root=self._root)
        return self._references[path]


class Measuring:
    """Fills gaps with one model, and keeps the outcomes. `find_bytes` tells how much memory the engine takes, `test`
    runs the user's command on a fill. `model` is the name that the model gives itself, "" before the first fill.
    """

    def __init__(
        self,
        client: EngineClient,
        options: Options,
        context: Context,
        find_bytes: Callable[[], int | None] = lambda: None,
        test: Passing | None = None,
    ) -> None:
        """Raises MidfillError if the engine has no such model."""
        self._client, self._options, self._context = client, options, context
        self._find_bytes, self._test = find_bytes, test
        self.info = find_model(client, options.model)
        self._store = Store(self.info)
        self._failure: MidfillError | None = None  # of the last fill that failed
        self.model = ""

    def run(self, gaps: Sequence[Gap], *, again: bool = False) -> Iterator[GapOutcome]:
        """Yields an outcome for each gap: that of an earlier run, if one within a day exists and not `again`, or a new
        one. The first gap is always filled, to know which model answers. Failed fills count only if another one
        succeeds, because an engine that fails says nothing about its model. Raises MidfillError if the engine fails or
        an outcome cannot be kept.
        """
        failed: list[GapOutcome] = []  # in a row
        for gap in gaps:
            outcome = None
            if self.model and not again:
                outcome = self._store.find(gap.id, self.model, self._how(gap))
            if outcome is None:
                outcome = self._fill_when_free(gap)
                failed.append(outcome)
                if not outcome.error:
                    yield from self._keep(failed)
                    failed = []
                elif len(failed) == MAX_FAILED_IN_A_ROW:
                    raise self._explain_failures(len(failed))
            else:
                yield outcome
        if failed and not self.model:
            raise self._explain_failures(len(failed))
        yield from self._keep(failed)

    def _keep(self, outcomes: Sequence[GapOutcome]) -> Iterator[GapOutcome]:
        """Yields outcomes that are kept for later runs."""
        for outcome in outcomes:
            self._store.add(outcome)
            yield outcome

    def _explain_failures(self, count: int) -> MidfillError:
        """The error that ends a measurement whose last `count` fills failed: what the last one said."""
        assert self._failure is not None
        message = f"{plural(count, 'fill')} in a row failed: {self._failure.message}"
        return MidfillError(self._failure.code, message, self._failure.next_step)

    def fit(self) -> JudgeFit | None:
        """Fits, for all later fills of this model, how sure they are and what decides among the texts of a line.
        Returns the second, None if it stays as shipped. Raises MidfillError if the fit cannot be kept.
        """
        return self._store.fit(self.model)

    def _how(self, gap: Gap) -> str:
        """The settings that an outcome of a gap depends on, in words; outcomes of others are not used again."""
        if gap.kind == "line" and (judge := certainty.load_judge(self.info)) is not None:
            return f"{self._context.how}, judged by {dict(judge)}"
        if self._test is None or gap.kind != "body":
            return self._context.how
        return f"{self._context.how}, tested by {self._test.line}"

    def _fill_when_free(self, gap: Gap) -> GapOutcome:
        """As `_fill`. Tries again a few times while the engine is busy."""
        for wait_s in BUSY_WAITS_S:
            try:
                return self._fill(gap)
            except MidfillError as error:
                if error.code != "engine_busy":
                    raise
                time.sleep(wait_s)
        return self._fill(gap)

    def _fill(self, gap: Gap) -> GapOutcome:
        """Fills a gap and measures its outcome, which may be an error. Raises MidfillError for errors of all gaps."""
        options = replace(self._options, references=self._context.of(gap), written=written.load())
        outcome = GapOutcome(gap.id, gap.kind, group=gap.name, how=self._how(gap), at=time.time())
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
            self._failure = error
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
            compared=tuple(list_compared(gap, filled.compared_texts[0]))
            if gap.kind == "line" and filled.compared_texts
            else (),
            passes=self._test(gap, filled.best) if self._test else None,
        )


def compare(gap: Gap, alternative: Alternative, outcome: GapOutcome) -> GapOutcome:
    """The outcome, completed by how a fill compares with the text that was there."""
    fill = alternative.fills[0]
    matcher = SequenceMatcher(None, fill.text.strip(), gap.truth.strip(), autojunk=False)
    return replace(
        outcome,
        is_right=gap.is_right(fill.text),
        similar=round(matcher.ratio(), 4),
        parses=not alternative.new_errors,
        told=fill.engine_certainty,
        evidence=fill.evidence,
    )


def copy_from_files(gaps: Sequence[Gap], context: Context) -> Iterator[GapOutcome]:
    """The outcomes of what the files alone propose, without a model: a model should do better."""
    for gap in gaps:
        started_s, outcome = time.perf_counter(), GapOutcome(gap.id, gap.kind, group=gap.name)
        proposed = propose_fill(gap.document, (gap.hole,), Options(references=context.of(gap)))
        if proposed is not None:
            outcome = compare(gap, proposed, outcome)
        seconds = round(time.perf_counter() - started_s, 4)
        yield replace(outcome, preview_s=seconds, end_s=seconds)
