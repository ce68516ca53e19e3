"""One document in a copy of its tree, and the command that tells candidates apart. Knows no engine's connection."""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from midfill_infill.candidates import Alternative
from midfill_infill.errors import MidfillError
from midfill_infill.fill import Options, Preview
from midfill_infill.refactor.journal.places import find_place
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.copy import Copy, check_sandbox
from midfill_infill.sandbox.leftovers import scratch_folder
from midfill_infill.sandbox.runner import Ran, Runner
from midfill_infill.sandbox.view import find_homes
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, Patch
from midfill_infill.until.choosing import Reach, with_examples
from midfill_infill.until.starting import start
from midfill_infill.until.trying import Make, Tried, Try, fill_until


class Lab:
    """`name` is the document's below the root of the copy; `others` are files that an editor holds unsaved.

    `complete` makes the file of a patch, by default that and nothing else; lines that it adds stand above all holes.
    """

    def __init__(
        self,
        runner: Runner,
        document: Document,
        name: str,
        others: Mapping[str, bytes],
        complete: Callable[[Patch], bytes] | None = None,
    ) -> None:
        self.runner, self._document, self._name, self._others = runner, document, name, others
        self._complete = complete or document.apply

    def start(self, holes: Sequence[Hole], *, timeout_s: float | None = None) -> Ran:
        """Raises MidfillError where no fill can make the command pass."""
        return start(self.runner, self._document, holes, self._files, timeout_s=timeout_s)

    def find_examples(self, holes: Sequence[Hole]) -> tuple[Hole, ...]:
        """The holes with what the tests say of them."""
        place, path = self.runner.copy.place, self.runner.copy.root / self._name
        tests = Reach(place)
        return tuple(with_examples(hole, tests.of(path, hole.name)) for hole in holes)

    def fill(
        self, holes: Sequence[Hole], options: Options, make: Make, num_tries: int
    ) -> Generator[Preview | Try | Tried, None, None]:
        """Fills `holes` by `make` until the command passes. Raises MidfillError."""
        where = self.is_document
        return fill_until(self._document, holes, options, make, self.run, where=where, num_tries=num_tries)

    def run(self, candidate: Alternative) -> Ran:
        """What the command says of a candidate; that it passes, twice. Raises `verify_flaky`."""
        files = self._files(candidate.patch)
        ran = self.runner.run(files)
        if not ran.is_good:
            return self._count_from_top(ran, candidate.patch)
        again = self.runner.run(files, cold=True)
        if not again.is_good and ran.is_warm:
            self.runner.close()
            return again
        if not again.is_good:
            raise MidfillError("verify_flaky", f"`{self.runner.command.line}` passes and fails with the same fill")
        return ran

    def is_document(self, path: str) -> bool:
        """Whether a path of a traceback, as the command printed it, is the document."""
        copy = self.runner.copy
        found = os.path.normpath(copy.root / self.runner.command.folder / path)
        return found in (str(copy.root / self._name), str(copy.mirror.work / self._name))

    def _files(self, patch: Patch) -> Mapping[str, bytes]:
        return {**self._others, self._name: self._complete(patch)}

    def _count_from_top(self, ran: Ran, patch: Patch) -> Ran:
        """The run with the lines of the patched document in its tracebacks."""
        added = self._complete(patch).count(b"\n") - self._document.apply(patch).count(b"\n")
        failures = tuple(
            replace(
                failure,
                frames=tuple(
                    replace(frame, line=frame.line - added) if self.is_document(frame.path) else frame
                    for frame in failure.frames
                ),
            )
            for failure in ran.failures
        )
        return replace(ran, failures=failures) if added else ran


@contextmanager
def open_lab(
    document: Document, path: Path, command: Command, folder: Path, others: Mapping[Path, bytes] | None = None
) -> Iterator[Lab]:
    """A copy of the tree around `folder`, or around `path` where that is elsewhere; the command runs in `folder`.

    Raises MidfillError where there is no sandbox, or no tree that could be copied.
    """
    check_sandbox(wanted=command.sandboxed)
    file, folder = path.resolve(), folder.resolve()
    place = find_place(folder)
    if not file.is_relative_to(place.root):
        place = find_place(file.parent)
    if place.root == Path(place.root.anchor) or place.root in find_homes():
        said = f"{place.root} is no project, and all of it would be copied"
        raise MidfillError("bad_request", said, "run it in the folder of the project")
    inside = folder.relative_to(place.root).as_posix() if folder.is_relative_to(place.root) else "."
    held = {
        other.resolve().relative_to(place.root).as_posix(): data
        for other, data in (others or {}).items()
        if other.resolve().is_relative_to(place.root)
    }
    command = replace(command, folder="" if inside == "." else inside)
    with scratch_folder() as scratch:
        copy = Copy(place, scratch, sandboxed=command.sandboxed)
        with closing(Runner(copy, command, scratch / "warm")) as runner:
            yield Lab(runner, document, file.relative_to(place.root).as_posix(), held)
