"""`midfill refactor review`: asks about every fill, in the terminal or by lines of stdin. A shell around reporting/."""

import os
import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import Annotated

from midfill_infill.cli.options import DeviceOption, option
from midfill_infill.cli.refactor.common import RootOption, RunOption, open_run, plural, reported, say
from midfill_infill.cli.view import read_key
from midfill_infill.engines.supervise import EngineSettings
from midfill_infill.errors import MidfillError
from midfill_infill.refactor.generating import engines, generate
from midfill_infill.refactor.journal.records import State
from midfill_infill.refactor.reporting.review import review
from midfill_infill.text.visible import visible


class TerminalScreen:
    """Shows fills on stdout and asks for a key if stdin is a terminal, otherwise for a line. See `Screen`."""

    def show(self, text: str) -> None:
        print(visible(text), flush=True)

    def show_diff(self, diff: bytes, encoding: str) -> None:
        text = diff.decode(encoding, "replace")
        if sys.stdout.isatty():
            from rich.console import Console

            from midfill_infill.cli.live import color_diff

            Console().print(color_diff(text), soft_wrap=True, end="")
        else:
            self.show(text)

    def ask(self, question: str) -> str:
        print(question, end="", flush=True)
        if not sys.stdin.isatty():
            return sys.stdin.readline()
        key = read_key()
        print(key)
        return key

    def edit(self, text: str, suffix: str) -> str | None:
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        with tempfile.NamedTemporaryFile("w", suffix=f".{suffix}", encoding="utf-8", newline="") as file:
            try:
                file.write(text + "\n")
                file.flush()
                if subprocess.run([*shlex.split(editor), file.name], check=False).returncode:
                    return None
                edited = Path(file.name).read_bytes().decode()
            except (OSError, ValueError) as error:
                message = f"the editor {editor} returns no text ({error})"
                raise MidfillError("bad_request", message, "set EDITOR to one that does") from None
        return edited if edited != text + "\n" else None


def review_command(
    root: RootOption = Path("."),
    run: RunOption = None,
    model: Annotated[str | None, option("NAME|DIR", "The model that the key `r` uses.")] = None,
    device: DeviceOption = "auto",
) -> None:
    """Accept or reject fills one by one. Every answer is kept at once; stop and go on any time.

    Keys: y n a d q e b r s.
    """
    with reported(), ExitStack() as stack:
        place, journal = stack.enter_context(open_run(root, run, "review"))
        settings = EngineSettings(model, device, project=Path.cwd())
        open_engine = cache(lambda: stack.enter_context(closing(engines.LocalEngine(settings))))  # at the first reroll
        review(journal, TerminalScreen(), lambda hole: generate.reroll(journal, place.root, hole, open_engine()))
        counts = journal.counts()
        num_accepted = counts.get(State.ACCEPTED, 0)
        num_rejected = counts.get(State.REJECTED, 0)
        num_open = counts.get(State.GENERATED, 0)
        say(f"{num_accepted} accepted, {num_rejected} rejected, {num_open} open")
        if num_planned := counts.get(State.PLANNED, 0):
            say(f"{plural(num_planned, 'hole')} not filled yet: run `midfill refactor generate`")
