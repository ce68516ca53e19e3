"""Runs the user's command on candidates for one document, in a copy of its tree. Knows no engine connection."""

import os
import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import Alternative
from midfill_infill.filling.fill import Options, Preview
from midfill_infill.repository.roots import find_repository
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.copy import OpenCopy, open_copy
from midfill_infill.sandbox.failures import Failure, Frame
from midfill_infill.sandbox.runner import MARKER, Ran, Runner
from midfill_infill.sandbox.view import find_homes
from midfill_infill.sandbox.warm import tell_why_cold
from midfill_infill.splicing.splice import splice
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, Patch
from midfill_infill.until.choosing import ReachingTests, with_examples
from midfill_infill.until.trying import Make, Tried, Try, fill_until

# By language: a body that creates the marker file and raises an error with a message that no test contains.
_TELLTALE: Final = "midfill looks who comes here"
_PROBES: Final = {"python": 'open({path!r}, "w").close()\nraise NotImplementedError("{word}")'}
# A body for functions that a run fills later. Only a test that comes to it fails: modules can still be imported. The
# error is one that no `except Exception` and no `pytest.raises` takes for its own.
NOT_FILLED: Final = "midfill fills this function later"
NOT_FILLED_BODY: Final = (
    '"PYTEST_CURRENT_TEST" in __import__("os").environ and (_ for _ in ()).throw('
    f'type("NotFilled", (BaseException,), {{}})("{NOT_FILLED}"))'
)
_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]+")
# Default time limit of the first run: short, because a command that does not end shows only by the limit.
FIRST_S: Final = 120.0
# Default time limit of a try: a multiple of the run without a fill, and at least _LEAST_S.
_SLOWER: Final = 5.0
_LEAST_S: Final = 10.0
# Of a suite that takes longer, only the tests that fail or come to the holes are run, until a candidate passes.
_LONG_S: Final = 1.0


def plain(failure: Failure) -> str:
    """The sentence of a failure, without addresses, which differ from run to run."""
    return _ADDRESS.sub("", failure.sentence)


def find_unrelated(asis: Ran, probed: Ran) -> dict[str, str] | None:
    """The ids of the tests that fail without coming to the holes, each with its failure in `asis`, a run without fills.
    In the run `probed` the holes create the marker. None if the runs do not tell which tests failed or came to a hole.
    """
    if asis.failed is None or probed.failed is None or probed.reached_by is None:
        return None
    reaching = set(probed.reached_by)
    reaching.update(failure.test for failure in probed.failures if _TELLTALE in failure.message)
    unrelated: dict[str, str] = {}
    for failure in asis.failures:
        # A test that is stopped by a function without a fill may come to the holes once that has one.
        is_stopped = NOT_FILLED in failure.message
        if failure.test in probed.failed and failure.test not in reaching and not is_stopped:
            unrelated[failure.test] = plain(failure)
    return unrelated


def excuse(ran: Ran, unrelated: Mapping[str, str]) -> Ran:
    """Returns the run with some tests excused: those that are `unrelated` to the holes and fail as they do without a
    fill, and those that stop in a NOT_FILLED_BODY. A test with another failure, too, is not excused.
    """
    if ran.failed is None:
        return ran
    excused: set[str] = set()
    blamed: list[Failure] = []
    for failure in ran.failures:
        if NOT_FILLED in failure.message or unrelated.get(failure.test) == plain(failure):
            excused.add(failure.test)
        else:
            blamed.append(failure)
    return replace(ran, failures=tuple(blamed), excused=frozenset(excused.difference(f.test for f in blamed)))


def why_strict(command: Command, probed: Ran | None) -> str:
    """Why every test counts if `find_unrelated` returns None, and what to do about it. `probed` is None if no body can
    create the marker.
    """
    why_cold = tell_why_cold(command)
    if why_cold:
        return why_cold
    if probed is None:
        return "not every hole is a body of a Python function"
    if not probed.is_warm:
        return "pytest ends in another way when it is kept warm, or its settings have -n"
    if probed.failed is None:
        return "pytest stops at a failure; leave out -x"
    return "a module or a fixture that several tests share runs the function"


class Lab:
    """Runs a command on candidates for one document in a copy of its tree. `name` is the document's path below the root
    of the copy; `others` are unsaved files of an editor. `complete` turns a patch into the file's new bytes, by default
    by applying it; lines that it adds must be above all holes.

    With `is_partial` other functions have a NOT_FILLED_BODY meanwhile. If the command is kept warm, tests that stop in
    one do not count then, nor those that fail without coming to the holes.
    """

    def __init__(
        self,
        runner: Runner,
        document: Document,
        name: str,
        others: Mapping[str, bytes],
        complete: Callable[[Patch], bytes] | None = None,
        *,
        is_partial: bool = False,
    ) -> None:
        self.runner = runner
        self.unrelated: Mapping[str, str] = {}  # see `find_unrelated`; known after `start`
        self.touched: frozenset[str] = frozenset()  # ids of tests that fail and come to the holes
        self._is_partial = is_partial
        self._document = document
        self._name = name
        self._others = others
        self._complete = complete or document.apply

    def start(
        self, holes: Sequence[Hole], say: Callable[[str], None] = lambda _: None, *, timeout_s: float | None = None
    ) -> None:
        """Runs the command on the tree as it is and prepares the runner: warm, and with a time limit for each try.

        A command that does not end in time counts as failing; `say` gets a sentence about it. The time limit of a try
        then depends on a run in which the holes raise an error at once; if there is none, it stays that of the first
        run. Raises MidfillError `until_passes`, `verify_flaky`, `until_unreached` and `bad_request` if no fill helps.
        """
        runner, asis, probe = self.runner, self._files(Patch(())), self._make_probe(holes)
        runner.only = None
        first = runner.run(asis)
        self._check_starts(first)
        if first.code is None:
            limit = f"{runner.command.timeout_s:.4g} s"
            say(f"`{runner.command.line}` is too slow on the code as it is ({limit}): counts as failing")
            probed = runner.run(probe) if probe is not None else None
            if probe is not None and probed is not None and probed.code is not None:
                self._limit_and_warm_up(probe, probed, probed.seconds, timeout_s)
        else:
            first = self._run_again(asis, first, timeout_s)
            probed = runner.run(probe) if probe is not None else None
        unrelated = None if probed is None else find_unrelated(first, probed)
        is_python = self._document.language in _PROBES
        if self._is_partial and unrelated is None and is_python and first.code is not None:
            why = why_strict(runner.command, probed)
            say(f"every test that fails counts, because {why}")
        if probed is not None:
            self._check_reach(holes, first, probed, unrelated)
            self._leave_out_tests(asis, first, probed)

    def _run_again(self, asis: Mapping[str, bytes], first: Ran, timeout_s: float | None) -> Ran:
        """Runs the command once more to refuse a flaky one, by warm pytest if that ends as the `first` run did. Returns
        the run that the probe's run is compared with. Raises `verify_flaky` or `until_passes`.
        """
        if not first.is_good:
            warm = self._limit_and_warm_up(asis, first, first.seconds, timeout_s)
            if warm.is_warm:
                return warm
        second = self.runner.run(asis)
        self._check_fails(first, second)
        return first

    def _check_starts(self, ran: Ran) -> None:
        """Raises `bad_request` if the command did not run."""
        word = self.runner.command.words[0]
        is_missing = ran.code in (1, 126, 127) and f"execvp {word}" in ran.output  # to bubblewrap or a shell
        if ran.verdict == "did not run" or is_missing:
            raise MidfillError("bad_request", f"{word} cannot be run", "give another command")

    def _check_fails(self, first: Ran, second: Ran) -> None:
        """Raises `verify_flaky` or `until_passes` unless both runs fail alike."""
        line = self.runner.command.line
        if (first.code, first.is_good) != (second.code, second.is_good):
            raise MidfillError("verify_flaky", f"`{line}` fails 1 of 2 times without a fill")
        if first.is_good:
            raise MidfillError("until_passes", f"`{line}` passes already, without a fill")

    def _limit_and_warm_up(self, files: Mapping[str, bytes], ran: Ran, seconds: float, timeout_s: float | None) -> Ran:
        """Sets the time limit of each try by the `seconds` of a run that ended. Keeps the command warm unless it is;
        returns a run as `Runner.warm_up` does.
        """
        longest = max(_LEAST_S, _SLOWER * seconds)
        limit_s = timeout_s or min(self.runner.command.timeout_s, longest)
        self.runner.command = replace(self.runner.command, timeout_s=limit_s)
        self.runner.start_s = longest
        return ran if ran.is_warm else self.runner.warm_up(files, ran)

    def _make_probe(self, holes: Sequence[Hole]) -> Mapping[str, bytes] | None:
        """The files with bodies that create the marker, where the command sees it, and raise an error. None if not all
        holes are bodies, or if the document's language has no such body.
        """
        probe, tree = _PROBES.get(self._document.language or ""), self.runner.copy.root
        if probe is None or not all(hole.is_body for hole in holes):
            return None
        if not self.runner.command.sandboxed:
            tree = self.runner.copy.mirror.work
        body = probe.format(path=str(tree / MARKER), word=_TELLTALE)
        return self._files(splice(self._document, holes, [body] * len(holes)).patch)

    def _check_reach(self, holes: Sequence[Hole], asis: Ran, probed: Ran, unrelated: Mapping[str, str] | None) -> None:
        """Raises `until_unreached` if the command, or a test that fails, never reaches a hole: no fill changes that.
        `probed` is the probe's run, `unrelated` the result of `find_unrelated`. Sets `unrelated` and `touched`.
        """
        line = self.runner.command.line
        names = ", ".join(hole.name or "the hole" for hole in holes)
        if not probed.reached and _TELLTALE not in probed.output:
            if probed.code is None:
                limit = f"{self.runner.command.timeout_s:.4g} s"
                raise MidfillError("until_unreached", f"`{line}` does not come to {names} in {limit}")
            output = probed.output.strip().splitlines() or ["it prints nothing"]
            reason = probed.reason or output[-1]
            raise MidfillError("until_unreached", f"`{line}` fails before it comes to {names}: {reason}")
        if self._is_partial and unrelated is not None and asis.failed is not None and probed.reached_by is not None:
            at_stubs = {failure.test for failure in asis.failures if NOT_FILLED in failure.message}
            stopped = at_stubs - probed.reached_by.keys()
            self.unrelated, self.touched = unrelated, asis.failed - unrelated.keys() - stopped
            if not self.touched and stopped:
                raise MidfillError("until_unreached", f"tests that come to {names} stop before in other functions")
            if not self.touched:
                raise MidfillError("until_passes", f"no test of `{line}` that comes to {names} fails")
            return
        failing = {failure.test: plain(failure) for failure in asis.failures if failure.test}
        for failure in probed.failures:
            if failure.reached is not False or _TELLTALE in failure.message:
                continue
            if failure.test in failing and failing[failure.test] == plain(failure):
                test = f"{failure.test}, which does not come to {names}"
                raise MidfillError("until_unreached", f"`{line}` fails in {test}: {failure.sentence}")

    def _leave_out_tests(self, files: Mapping[str, bytes], asis: Ran, probed: Ran) -> None:
        """From now on warm runs only run the tests that come to the holes or fail, unless these end otherwise when they
        run without the other tests. A quick suite is always run as a whole.
        """
        if asis.failed is None or probed.failed is None or probed.reached_by is None or probed.seconds < _LONG_S:
            return
        self.runner.only = asis.failed.union(probed.failed, probed.reached_by)
        alone = self.runner.run(files)
        if not alone.is_warm or alone.failed != asis.failed:
            self.runner.only = None

    def find_examples(self, holes: Sequence[Hole]) -> tuple[Hole, ...]:
        """Returns the holes with lines of tests that call their functions as notes."""
        copy = self.runner.copy
        path = copy.root / self._name
        reaching_tests = ReachingTests(copy.repository)
        return tuple(with_examples(hole, reaching_tests.find(path, hole.name)) for hole in holes)

    def fill(
        self,
        holes: Sequence[Hole],
        options: Options,
        make: Make,
        num_tries: int,
        say: Callable[[str], None] = lambda _: None,
        *,
        timeout_s: float | None = None,
    ) -> Generator[Preview | Try | Tried, None, None]:
        """Starts, and fills `holes` by `make` until the command passes. The first candidates are drafted while the
        command runs on the tree as it is. Raises MidfillError, one of `start` before one of `make`.
        """
        with self._start_beside(holes, say, timeout_s) as started:

            def run(candidate: Alternative) -> Ran:
                started.result()
                return self.run(candidate)

            events = fill_until(self._document, holes, options, make, run, where=self.is_document, num_tries=num_tries)
            with closing(events):
                try:
                    for event in events:
                        if started.done() or isinstance(event, Tried):
                            started.result()
                        yield event
                except MidfillError:
                    started.result()
                    raise

    @contextmanager
    def _start_beside(
        self, holes: Sequence[Hole], say: Callable[[str], None], timeout_s: float | None
    ) -> Iterator[Future[None]]:
        """Runs `start` in a thread, and yields its future. At exit cancels the command, and waits for the thread."""
        command, ended = self.runner.command, threading.Event()
        self.runner.command = replace(command, is_cancelled=lambda: ended.is_set() or command.is_cancelled())
        try:
            with ThreadPoolExecutor(1, "midfill-lab") as pool:
                try:
                    yield pool.submit(self.start, holes, say, timeout_s=timeout_s)
                finally:
                    ended.set()
        finally:
            self.runner.command = replace(self.runner.command, is_cancelled=command.is_cancelled)

    def run(self, candidate: Alternative) -> Ran:
        """Runs the command on a candidate; one that passes is run again from a cold start. Raises `verify_flaky`."""
        files = self._files(candidate.patch)
        ran = self.runner.run(files)
        if self._is_partial and ran.is_warm:
            ran = excuse(ran, self.unrelated)
        if not ran.is_good:
            return self._count_from_top(ran, candidate.patch)
        again = self.runner.run(files, cold=True)
        if ran.excused:
            again = excuse(again, self.unrelated)
        if not again.is_good and ran.is_warm:
            self.runner.close()
            return again
        if not again.is_good:
            raise MidfillError("verify_flaky", f"`{self.runner.command.line}` passes and fails with the same fill")
        return ran

    def is_document(self, path: str) -> bool:
        """True if a path that a traceback shows is the document."""
        copy = self.runner.copy
        shown = os.path.normpath(copy.root / self.runner.command.folder / path)
        return shown in (str(copy.root / self._name), str(copy.mirror.work / self._name))

    def _files(self, patch: Patch) -> Mapping[str, bytes]:
        """The files to put into the copy for a run, by their names."""
        return {**self._others, self._name: self._complete(patch)}

    def _count_from_top(self, ran: Ran, patch: Patch) -> Ran:
        """Corrects the line numbers of tracebacks for lines that `complete` added above the holes."""
        num_added = self._complete(patch).count(b"\n") - self._document.apply(patch).count(b"\n")
        if num_added == 0:
            return ran

        def move(frame: Frame) -> Frame:
            if not self.is_document(frame.path):
                return frame
            return replace(frame, line=frame.line - num_added)

        failures = (replace(failure, frames=tuple(map(move, failure.frames))) for failure in ran.failures)
        return replace(ran, failures=tuple(failures))


@contextmanager
def open_lab(
    document: Document,
    path: Path,
    command: Command,
    folder: Path,
    others: Mapping[Path, bytes] | None = None,
    open_copy: OpenCopy = open_copy,
) -> Iterator[Lab]:
    """A Lab in a copy of the tree around `folder`, or around `path` if that is elsewhere. The command runs in `folder`.
    `others` are unsaved files of an editor. Raises MidfillError if there is no sandbox or no tree that can be copied.
    """
    file = Path(os.path.realpath(path))
    real_folder = Path(os.path.realpath(folder))
    repository = find_repository(real_folder)
    if not file.is_relative_to(repository.root):
        repository = find_repository(file.parent)
    if repository.root == Path(repository.root.anchor) or repository.root in find_homes():
        message = f"{repository.root} is not a project, and all of it would be copied"
        raise MidfillError("bad_request", message, "run it in the folder of the project")
    folder_name = ""
    if real_folder.is_relative_to(repository.root):
        folder_name = real_folder.relative_to(repository.root).as_posix()
    unsaved: dict[str, bytes] = {}
    for other, data in (others or {}).items():
        real = Path(os.path.realpath(other))
        if real.is_relative_to(repository.root):
            unsaved[real.relative_to(repository.root).as_posix()] = data
    command = replace(command, folder=folder_name)
    with open_copy(repository, sandboxed=command.sandboxed) as copy, closing(Runner(copy, command)) as runner:
        # A file that the copy leaves out, such as one with secrets, stays out although an editor holds it.
        unsaved = {name: data for name, data in unsaved.items() if (copy.mirror.work / name).is_file()}
        yield Lab(runner, document, file.relative_to(repository.root).as_posix(), unsaved)
