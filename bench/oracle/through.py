"""Fills a place by a whole way through the product, and says what came of it. Knows no form."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.oracle.doors import Answers, open_client
from bench.oracle.editor import Editor
from bench.oracle.places import Gap, Place
from bench.oracle.stand_in import StandIn, serve
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Filled, Options, fill
from midfill_infill.syntax.holes import body_named

COMMAND_TIMEOUT_S: Final = 60
_FAULTS: Final = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError)


@dataclass(frozen=True)
class Outcome:
    """The file after a fill, or why there is none."""

    data: bytes = b""
    error: str = ""

    def judge(self, place: Place) -> str:
        """`kept`, `error`, `white space` if only that is another, otherwise `another text`."""
        if self.error:
            return "error"
        if self.data == place.file.data:
            return "kept"
        is_white = b"".join(self.data.split()) == b"".join(place.file.data.split())
        return "white space" if is_white else "another text"


Fill = Callable[[Answers], Outcome]


@contextmanager
def fill_in_process(door: str) -> Iterator[Fill]:
    """`fill` with the default options and the related files, as commands and editors call it; no socket."""
    with closing(open_client(door)) as client:

        def run(answers: Answers) -> Outcome:
            client.answers, place = answers, answers.place
            try:
                *_, filled = fill(place.document, place.holes, Options(references=place.file.references), client)
                assert isinstance(filled, Filled)
                return Outcome(filled.patch.apply(place.document.data))
            except MidfillError as error:
                return Outcome(error=f"{error.code}: {error}")
            except _FAULTS as error:
                return Outcome(error=f"{type(error).__name__}: {error}")

        yield run


@contextmanager
def fill_by_command(door: str) -> Iterator[Fill]:
    """`midfill fill --write` as a process, on a copy of the file and the folder that it is in."""
    with serve(door) as server, tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)

        def run(answers: Answers) -> Outcome:
            server.answers, place = answers, answers.place
            path = _copy_folder(place, home)
            options = "--write", "--yes", "--min-certainty", "0"  # as it says where it holds back a suggestion
            words = (sys.executable, "-m", "midfill_infill", "fill", *name_holes(place, path), *options)
            try:
                ended = subprocess.run(
                    words, env=_environment(server, home), capture_output=True, timeout=COMMAND_TIMEOUT_S
                )
            except subprocess.TimeoutExpired:
                return Outcome(error="the command did not end")
            if ended.returncode:
                return Outcome(error=ended.stderr.decode("utf-8", "replace").strip())
            return Outcome(path.read_bytes())

        yield run


def _environment(server: StandIn, home: Path) -> dict[str, str]:
    """Names the stand-in, this copy of Midfill, and settings and state of nobody else: no text was written before."""
    shutil.rmtree(home / "state", ignore_errors=True)
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("MIDFILL_")},
        **server.environment,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "MIDFILL_CONFIG": str(home / "config.toml"),
        "XDG_STATE_HOME": str(home / "state"),
        "MIDFILL_RUNTIME_DIR": str(home / "run"),
    }


def _copy_folder(place: Place, home: Path) -> Path:
    """The document at its name in a repository of its own, with its neighbors."""
    original = place.document.path
    assert original is not None
    folder = home / "work" / original.parent.name
    shutil.rmtree(home / "work", ignore_errors=True)
    (home / "work/.git").mkdir(parents=True)
    folder.mkdir()
    for neighbor in original.parent.iterdir():
        if neighbor.is_file():
            shutil.copyfile(neighbor, folder / neighbor.name)
    (folder / original.name).write_bytes(place.document.data)
    return folder / original.name


def name_holes(place: Place, path: Path) -> list[str]:
    """The words of the command that name a place's holes."""
    words, target = list[str](), ""
    for gap in place.gaps:
        name = gap.hole.name
        if gap.header is not None and name and _is_only(place, gap, name):
            words += ["--function", name]
        elif gap.header is not None and not target:
            target = f"{path}:{_place_of(place, gap.header)}"
        else:
            words += ["--hole", "-".join(_place_of(place, byte) for byte in (gap.hole.start_byte, gap.hole.end_byte))]
    return [target or str(path), *words]


def _place_of(place: Place, byte: int) -> str:
    line, column = place.document.position_at(byte)
    return f"{line}:{column}"


def _is_only(place: Place, gap: Gap, name: str) -> bool:
    try:
        return body_named(place.document, name) == gap.hole
    except MidfillError:
        return False


@contextmanager
def fill_by_server(door: str) -> Iterator[Fill]:
    """The language server over a pipe, on an open document that is not saved."""
    with serve(door) as server, tempfile.TemporaryDirectory() as temporary:
        with closing(Editor(_environment(server, Path(temporary)))) as editor:

            def run(answers: Answers) -> Outcome:
                server.answers, place = answers, answers.place
                document = place.document
                assert document.path is not None and document.language is not None
                header = place.gaps[0].header if len(place.gaps) == 1 else None
                try:
                    text = document.data.decode()
                    ranges = [(hole.start_byte, hole.end_byte) for hole in place.holes]
                    bytes_asked = ranges if header is None else [(header, header)]
                    spans = [_characters(document.data, *span) for span in bytes_asked]
                    what = "selection" if header is None else "body"
                    return Outcome(editor.fill(document.path, document.language, text, what, spans).encode())
                except MidfillError as error:
                    return Outcome(error=f"{error.code}: {error}")

            yield run


def _characters(data: bytes, start: int, end: int) -> tuple[int, int]:
    first = len(data[:start].decode())
    return first, first + len(data[start:end].decode())


WAYS: Final[dict[str, Callable[[str], AbstractContextManager[Fill]]]] = {
    "fill": fill_in_process,
    "command": fill_by_command,
    "server": fill_by_server,
}
