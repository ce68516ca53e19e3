"""Tells whether the user's command passes with fills of Python bodies. Does not count a body that no test reaches."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import Alternative
from midfill_infill.measuring.gaps import Gap
from midfill_infill.repository.roots import Repository
from midfill_infill.sandbox.command import Command, read_words
from midfill_infill.sandbox.copy import Copy, open_copy
from midfill_infill.text.spans import Patch
from midfill_infill.until.choosing import place_tests
from midfill_infill.until.lab import open_lab


class Passing(AbstractContextManager["Passing"]):
    """Runs the user's command on fills, in a copy of the tree around `folder` that is removed at the exit. `timeout_s`
    limits a run; by default that is five times the time of a run without a fill, but at least 10 s.
    """

    def __init__(self, command: Command, folder: Path, timeout_s: float | None = None) -> None:
        self._command, self._folder, self._timeout_s = command, folder, timeout_s
        self._skipped: dict[str, str] = {}  # the reasons why bodies were not counted, by the gap's id
        self._results: dict[tuple[str, Patch], bool] = {}  # whether a gap's fill passes: a later model may repeat it
        self._copies: dict[Path, Copy] = {}  # by the root of the tree
        self._open_copies = ExitStack()

    def __exit__(self, *error: object) -> None:
        self._open_copies.close()

    @property
    def line(self) -> str:
        """The user's command."""
        return self._command.line

    @property
    def skipped(self) -> list[str]:
        """The reasons why bodies were not counted, one for each body."""
        return list(self._skipped.values())

    def __call__(self, gap: Gap, candidate: Alternative) -> bool | None:
        """True if the command passes with the fill `candidate`. None if the command cannot tell: the gap is no Python
        body, no test reaches it, or the command passes without a fill or is flaky. Raises other MidfillErrors.
        """
        path = gap.document.path
        if gap.kind != "body" or gap.document.language != "python" or path is None or gap.id in self._skipped:
            return None
        key = gap.id, candidate.patch
        if key not in self._results:
            try:
                line = place_tests(self._command.line, path, [gap.hole.name], self._folder)
                command = replace(self._command, words=read_words(line))
                open_shared = partial(self._open_copy, Path(os.path.realpath(path)))
                with open_lab(gap.document, path, command, self._folder, open_copy=open_shared) as lab:
                    lab.start((gap.hole,), timeout_s=self._timeout_s)
                    self._results[key] = lab.run(candidate).is_good
            except MidfillError as error:
                if error.code not in ("until_passes", "until_unreached", "verify_flaky", "bad_request"):
                    raise
                self._skipped[gap.id] = error.message
        return self._results.get(key)

    @contextmanager
    def _open_copy(self, file: Path, repository: Repository, *, sandboxed: bool) -> Iterator[Copy]:
        """Used as `open_copy`, but gives all bodies of a tree one copy. At the end `file` is restored in the copy."""
        if repository.root not in self._copies:
            opened = open_copy(repository, sandboxed=sandboxed)
            self._copies[repository.root] = self._open_copies.enter_context(opened)
        copy = self._copies[repository.root]
        try:
            yield copy
        finally:
            copy.mirror.reset()
            copy.mirror.copy_from_root((), [file.relative_to(copy.root).as_posix()])
