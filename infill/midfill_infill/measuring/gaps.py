"""Draws lines and bodies of a repository at random, as holes whose right text is known. Asks git, but no engine."""

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
from midfill_infill.repository.roots import Repository
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.holes import hole_at_cursor
from midfill_infill.syntax.outline import outline
from midfill_infill.syntax.stubs import is_stub
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

MAX_FILES: Final = 60  # of the files that were changed last
LONGEST_BODY: Final = 12  # in lines
LONGEST_LINE: Final = 200  # in bytes; longer lines are in data or in generated code
SHORTEST_LINE: Final = 6  # in bytes
MAX_COMMITS: Final = 400  # the latest ones, which tell the files that were changed last
_TEXT: Final = re.compile(r"(?:\w+_)?(?:comment|string|template_string|regex|char|rune|jsx_text)(?:_literal|_content)?")
_SEPARATORS: Final = b" \t;,"


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
        """An id that stays the same while the file does not change, in every run."""
        parts = (os.fsencode(self.name), self.kind.encode(), b"%d" % self.hole.start_byte, self.document.data)
        return hashlib.sha256(b"\0".join([*parts, self.truth.encode("utf-8", "replace")])).hexdigest()[:20]

    def is_right(self, text: str) -> bool:
        """True if a fill is the text that was there, apart from white space at line ends and around the text."""
        return _strip_line_ends(text) == _strip_line_ends(self.truth)


def _strip_line_ends(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().split("\n"))


def draw_gaps(
    repository: Repository, below: Path, counts: dict[Kind, int], changed: str | None, seed: int
) -> list[Gap]:
    """Draws `counts[kind]` gaps of each kind, or as many as there are, from the files below `below` that were changed
    last. With `changed`, a commit, only from lines that were changed since. The same tree and seed give the same gaps.
    Raises MidfillError.
    """
    since = None if changed is None else find_changed(repository.root, changed)
    rng = random.Random(seed)
    read = ((name, _read_source(repository.root, name)) for name in _list_recent(repository, below, since))
    files = list(islice(((name, document) for name, document in read if document is not None), MAX_FILES))
    rng.shuffle(files)
    gaps = list[Gap]()
    for kind, count in counts.items():
        draw = _draw_lines if kind == "line" else _draw_bodies
        by_file = [draw(name, document, rng, _may_touch(name, document, since)) for name, document in files]
        gaps += islice(_alternate(by_file), count)
    return gaps


def _alternate(by_file: Sequence[Iterator[Gap]]) -> Iterator[Gap]:
    """Yields the first gap of each file, then the second of each, and so on."""
    left = by_file
    while left:
        drawn = [(gaps, gap) for gaps in left if (gap := next(gaps, None))]
        yield from (gap for _, gap in drawn)
        left = [gaps for gaps, _ in drawn]


def _list_recent(repository: Repository, below: Path, since: ChangedLines | None) -> Iterator[str]:
    """Source files, the last changed one first; none that is ignored, secret, generated or of another project."""
    if below.is_file():
        names = [Path(os.path.realpath(below)).relative_to(repository.root).as_posix()]
    else:
        names = walk.list_files(repository, below)
    names = [name for name in names if since is None or name in since.ranges]
    marked = walk.read_attributes(repository.root)
    chosen = [name for name in names if find_language(Path(name)) and not walk.is_foreign(name, marked)]
    for name in sorted(chosen, key=_make_age_key(repository)):
        if not find_exclusions((repository.root / name,)):
            yield name


def _make_age_key(repository: Repository) -> Callable[[str], tuple[float, str]]:
    """A sort key: uncommitted files, then files in the order of git's log; without git by when they were written."""
    if repository.git_dir is None:
        return lambda name: (-_mtime_s(repository.root / name), name)
    positions: dict[str, float] = {}
    with suppress(MidfillError):  # no commit yet
        options = ("--name-only", "--no-renames", "--relative", "-z")
        uncommitted = git.split_names(git.run_git(repository.root, "diff", *options, "HEAD", "--", "."))
        uncommitted += git.list_files(repository.root, "--others", "--exclude-standard")
        logged = git.run_git(repository.root, "log", f"--max-count={MAX_COMMITS}", "--format=", *options, "--", ".")
        for name in (*uncommitted, *git.split_names(logged)):
            positions.setdefault(name.strip("\n"), float(len(positions)))
    return lambda name: (positions.get(name, float(len(positions))), name)


def _mtime_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read_source(root: Path, name: str) -> Document | None:
    """A file of source code without syntax errors; None for any other file."""
    path = root / name
    if path.is_symlink() or path.suffix == ".ipynb":
        return None
    try:
        document = Document.read(path)
        if document.syntax is None or guards.is_generated(document.data):
            return None
        tree = document.syntax.parse_once(document.source)
        return document if document.data.strip() and not tree.root_node.has_error else None
    except MidfillError:
        return None


def _may_touch(name: str, document: Document, since: ChangedLines | None) -> Callable[[Hole], bool]:
    """A function that is True for holes in lines that changed, or for all holes without `since`."""
    return lambda hole: since is None or since.touches(name, document.data, hole.start_byte, hole.end_byte)


def _draw_lines(name: str, document: Document, rng: random.Random, touches: Callable[[Hole], bool]) -> Iterator[Gap]:
    """Gaps of lines that are one whole statement or part of a list: a blank line can be filled with these."""
    assert document.syntax is not None
    root, lines = document.syntax.parse_once(document.source).root_node, document.lines
    for line in rng.sample(range(len(lines)), len(lines)):
        start = lines.first_char(line)
        text = document.data[start : lines.end(line)].rstrip()
        end = start + len(text)
        if not (SHORTEST_LINE <= len(text) <= LONGEST_LINE and re.search(rb"\w", text)):
            continue
        if not _is_whole(root, document, start, end) or not touches(Hole(start, end)):
            continue
        emptied = Document(document.data[:start] + document.data[end:], document.language, document.path)
        yield Gap(name, "line", emptied, hole_at_cursor(emptied, start), document.visible_text(start, end))


def _is_whole(root: tree_sitter.Node, document: Document, start: int, end: int) -> bool:
    """True if the text from `start` to `end` is all of a node of code, apart from a comma or a semicolon at its end."""
    text = document.data[start:end].rstrip(_SEPARATORS)
    first, last = document.to_source(start), document.to_source(start + len(text))
    node = root.named_descendant_for_byte_range(first, last)
    if node is None or node.start_byte != first or node.end_byte > document.to_source(end):
        return False
    while node is not None:
        if _TEXT.fullmatch(node.type):
            return False
        node = node.parent
    return True


def _draw_bodies(name: str, document: Document, rng: random.Random, touches: Callable[[Hole], bool]) -> Iterator[Gap]:
    """Gaps of bodies of a few lines, with a placeholder in their place where the language needs one."""
    assert document.syntax is not None
    named = [function for function in outline(document).functions if function.name and not is_stub(document, function)]
    placeholder = b"pass" if document.syntax.has_indented_blocks else b""
    for function in rng.sample(named, len(named)):
        hole = body_hole(document, function)
        start, end = hole.start_byte, hole.end_byte
        truth = document.visible_text(start, end)
        is_plain = hole.is_body and not (hole.lead or hole.tail or function.is_expression)
        if not (is_plain and truth.strip() and truth.count("\n") < LONGEST_BODY and touches(hole)):
            continue
        data = document.data[:start] + placeholder + document.data[end:]
        emptied = Document(data, document.language, document.path)
        emptied_function = next((other for other in outline(emptied).functions if other.head == function.head), None)
        if emptied_function is not None:
            yield Gap(name, "body", emptied, body_hole(emptied, emptied_function), truth)
