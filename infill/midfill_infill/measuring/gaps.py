"""Draws lines and bodies of a repository as holes whose text is known. Reads files and git's log; asks no engine."""

import hashlib
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import tree_sitter

from midfill_infill.errors import MidfillError
from midfill_infill.filling.certainty import Kind
from midfill_infill.languages import find_language
from midfill_infill.repository import git, guards, walk
from midfill_infill.repository.changes import ChangedLines, find_changed
from midfill_infill.repository.exclusions import find_exclusions
from midfill_infill.repository.places import Repository
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.holes import hole_at_cursor
from midfill_infill.syntax.outline import outline
from midfill_infill.syntax.stubs import is_stub
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

MOST_FILES: Final = 60  # of the files changed last
LONGEST_BODY: Final = 12  # lines
LONGEST_LINE: Final = 200  # characters; a longer line stands in data or generated code
LEAST_LINE: Final = 6
MOST_COMMITS: Final = 400  # that are looked at for the files changed last
_TEXT: Final = re.compile(r"(?:\w+_)?(?:comment|string|template_string|regex|char|rune|jsx_text)(?:_literal|_content)?")
_EVEN: Final = b" \t;,"


@dataclass(frozen=True)
class Gap:
    """A hole in a copy of a file, and the text that stood there. `name` is the path relative to the root."""

    name: str
    kind: Kind
    document: Document
    hole: Hole
    truth: str

    @property
    def id(self) -> str:
        """The same as long as the file is."""
        parts = (self.name.encode(), self.kind.encode(), b"%d" % self.hole.start_byte, self.document.data)
        return hashlib.sha256(b"\0".join([*parts, self.truth.encode("utf-8", "replace")])).hexdigest()[:20]

    def is_right(self, text: str) -> bool:
        """True if a fill is the text that stood there, but for white space at line ends and around it."""
        return _even(text) == _even(self.truth)


def _even(text: str) -> str:
    return "\n".join(map(str.rstrip, text.strip().split("\n")))


def draw_gaps(place: Repository, below: Path, counts: dict[Kind, int], changed: str | None, seed: int) -> list[Gap]:
    """So many gaps of each kind, or as many as there are, spread over the files changed last, or over all lines changed
    since a commit. The same tree and seed give the same gaps. Raises MidfillError.
    """
    since = None if changed is None else find_changed(place.root, changed)
    drawn = random.Random(seed)
    read = ((document, name) for name in _list_latest(place, below, since) if (document := _read(place.root, name)))
    files = [*islice(read, MOST_FILES)]
    drawn.shuffle(files)
    found = list[Gap]()
    for kind, count in counts.items():
        draw = _draw_lines if kind == "line" else _draw_bodies
        rows = [draw(name, document, drawn, _touching(name, document, since)) for document, name in files]
        found += islice(_take_turns(rows), count)
    return found


def _take_turns(rows: Sequence[Iterator[Gap]]) -> Iterator[Gap]:
    """Yields one gap of each file in turn."""
    while rows:
        turn = [(row, gap) for row in rows if (gap := next(row, None))]
        yield from (gap for _, gap in turn)
        rows = [row for row, _ in turn]


def _list_latest(place: Repository, below: Path, since: ChangedLines | None) -> Iterator[str]:
    """Source files, the ones changed last first; none that is ignored, secret, generated or of other projects."""
    if below.is_file():
        names = [Path(os.path.realpath(below)).relative_to(place.root).as_posix()]
    else:
        names = walk.list_files(place, below)
    names = [name for name in names if since is None or name in since.ranges]
    marked = walk.read_attributes(place.root)
    chosen = [name for name in walk.choose(names, (), marked, include_generated=False) if find_language(Path(name))]
    for name in sorted(chosen, key=_rank_by_age(place)):
        if not find_exclusions((place.root / name,)):
            yield name


def _rank_by_age(place: Repository) -> Callable[[str], tuple[float, str]]:
    """A sort key: uncommitted files, then files in the order of git's log; without git by when they were written."""
    if place.git_dir is None:
        return lambda name: (-_time_s(place.root / name), name)
    order: dict[str, float] = {}
    with suppress(MidfillError):  # no commit yet
        asked = ("--name-only", "--no-renames", "--relative", "-z")
        uncommitted = git.split_names(git.run_git(place.root, "diff", *asked, "HEAD", "--", "."))
        logged = git.run_git(place.root, "log", f"--max-count={MOST_COMMITS}", "--format=", *asked, "--", ".")
        for name in (*uncommitted, *git.split_names(logged)):
            order.setdefault(name.strip("\n"), float(len(order)))
    return lambda name: (order.get(name, float(len(order))), name)


def _time_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read(root: Path, name: str) -> Document | None:
    """A source file without syntax errors; None for every other one."""
    path = root / name
    if path.is_symlink() or path.suffix == ".ipynb":
        return None
    try:
        document = Document.read(path)
        if document.syntax is None or guards.is_generated(document.data):
            return None
        tree = document.syntax.parse_once(document.source)
        return None if tree.root_node.has_error or not document.data.strip() else document
    except MidfillError:
        return None


def _touching(name: str, document: Document, since: ChangedLines | None) -> Callable[[Hole], bool]:
    return lambda hole: since is None or since.touches(name, document.data, hole.start_byte, hole.end_byte)


def _draw_lines(name: str, document: Document, drawn: random.Random, touches: Callable[[Hole], bool]) -> Iterator[Gap]:
    """Lines that hold one whole statement or one whole part of a list, which a blank line can be filled with."""
    assert document.syntax is not None
    root, lines = document.syntax.parse_once(document.source).root_node, document.lines
    for number in drawn.sample(range(len(lines)), len(lines)):
        start, end = lines.first_char(number), lines.end(number)
        text = document.data[start:end].rstrip()
        end = start + len(text)
        if not (LEAST_LINE <= len(text) <= LONGEST_LINE and re.search(rb"\w", text)):
            continue
        if not _is_whole(root, document, start, end) or not touches(Hole(start, end)):
            continue
        emptied = Document(document.data[:start] + document.data[end:], document.language, document.path)
        yield Gap(name, "line", emptied, hole_at_cursor(emptied, start), document.show(start, end))


def _is_whole(root: tree_sitter.Node, document: Document, start: int, end: int) -> bool:
    """True if a node of code covers a line, but for a comma or a semicolon at its end."""
    least = end - (len(text := document.data[start:end]) - len(text.rstrip(_EVEN)))
    first, last = document.to_source(start), document.to_source(least)
    node = root.named_descendant_for_byte_range(first, last)
    if node is None or node.start_byte != first or node.end_byte > document.to_source(end):
        return False
    while node is not None:
        if _TEXT.fullmatch(node.type):
            return False
        node = node.parent
    return True


def _draw_bodies(name: str, document: Document, drawn: random.Random, touches: Callable[[Hole], bool]) -> Iterator[Gap]:
    """Bodies of a few lines, with a placeholder in their place where the language needs one."""
    assert document.syntax is not None
    functions = [each for each in outline(document).functions if each.name and not is_stub(document, each)]
    placeholder = b"pass" if document.syntax.has_indented_blocks else b""
    for function in drawn.sample(functions, len(functions)):
        hole = body_hole(document, function)
        start, end = hole.start_byte, hole.end_byte
        truth = document.show(start, end)
        is_plain = hole.is_body and not (hole.lead or hole.tail or function.is_expression)
        if not (is_plain and truth.strip() and truth.count("\n") < LONGEST_BODY and touches(hole)):
            continue
        data = document.data[:start] + placeholder + document.data[end:]
        emptied = Document(data, document.language, document.path)
        left = next((each for each in outline(emptied).functions if each.head == function.head), None)
        if left is not None:
            yield Gap(name, "body", emptied, body_hole(emptied, left), truth)
