"""What is to be known before the first try: that the command fails, always, and for want of what the holes lack."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.sandbox.failures import Failure
from midfill_infill.sandbox.runner import MARKER, Ran, Runner
from midfill_infill.splicing.splice import splice
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, Patch

# A body that makes a file where it is run, then ends its caller. It says so in a word that no test has.
_TELLTALE: Final = "midfill looks who comes here"
_PROBES: Final = {"python": 'open({path!r}, "w").close()\nraise NotImplementedError("{word}")'}
_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]+")
# A try may take so much longer than the tree as it is.
_SLOWER: Final = 5.0
_LEAST_S: Final = 10.0


def start(
    runner: Runner,
    document: Document,
    holes: Sequence[Hole],
    files: Callable[[Patch], Mapping[str, bytes]],
    *,
    timeout_s: float | None = None,
) -> Ran:
    """Runs the command on the tree as it is and makes `runner` ready: warm, and with a limit for each try.

    `files` says what the copy gets for a patch of the document. Raises `until_passes`, `verify_flaky`,
    `until_unreached` and `bad_request`.
    """
    line = runner.command.line
    asis = files(Patch(()))
    first = runner.run(asis)
    word = runner.command.words[0]
    is_missing = first.code in (1, 126, 127) and f"execvp {word}" in first.output  # to bubblewrap or a shell
    if first.verdict == "did not run" or is_missing:
        raise MidfillError("bad_request", f"{word} cannot be run", "give another command")
    second = runner.run(asis)
    if (first.code, first.is_good) != (second.code, second.is_good):
        failed = [first, second].count(first) - first.is_good - second.is_good
        raise MidfillError("verify_flaky", f"`{line}` fails {max(1, failed)} of 2 times without a fill")
    if first.is_good:
        raise MidfillError("until_passes", f"`{line}` passes already, without a fill")
    if first.code is None:
        raise MidfillError("until_unreached", f"`{line}` does not end in {runner.command.limits.timeout_s:.0f} s")
    longest = max(_LEAST_S, _SLOWER * max(first.seconds, second.seconds))
    limit = timeout_s or min(runner.command.limits.timeout_s, longest)
    limits = replace(runner.command.limits, timeout_s=limit)
    runner.command, runner.start_s = replace(runner.command, limits=limits), longest
    warm = runner.warm_up(asis, first)
    _check_reach(runner, document, holes, files, warm)
    return warm


def _check_reach(
    runner: Runner, document: Document, holes: Sequence[Hole], files: Callable[[Patch], Mapping[str, bytes]], asis: Ran
) -> None:
    """Raises `until_unreached` where the command, or a test that fails, never comes to a hole: no fill changes that."""
    probe = _PROBES.get(document.language or "")
    if probe is None or not all(hole.is_body for hole in holes):
        return
    tree = runner.copy.root if runner.copy.sandboxed else runner.copy.mirror.work
    text = probe.format(path=str(tree / MARKER), word=_TELLTALE)
    patch = splice(document, list(holes), [text] * len(holes)).patch
    ran = runner.run(files(patch))
    names = ", ".join(hole.name or "the hole" for hole in holes)
    if not ran.reached and _TELLTALE not in ran.output:
        reason = (
            ran.failures[0].sentence if ran.failures else (ran.output.strip().splitlines() or ["it prints nothing"])[-1]
        )
        raise MidfillError("until_unreached", f"`{runner.command.line}` fails before it comes to {names}: {reason}")
    failing = {failure.test: failure for failure in asis.failures if failure.test}
    for failure in ran.failures:
        never = failure.reached is False and _TELLTALE not in failure.message
        if never and failure.test in failing and _plain(failing[failure.test]) == _plain(failure):
            test = f"{failure.test}, which does not come to {names}"
            raise MidfillError("until_unreached", f"`{runner.command.line}` fails in {test}: {failure.sentence}")


def _plain(failure: Failure) -> str:
    """Without addresses, which differ from run to run."""
    return _ADDRESS.sub("", failure.sentence)
