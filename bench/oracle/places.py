"""Draws places of source files: documents as a user has them, with holes whose right texts are known."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import tree_sitter

from bench.oracle.corpus import Function, SourceFile, Span
from midfill_infill.errors import MidfillError
from midfill_infill.syntax.holes import body_at, hole_at_cursor, hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit, Hole, Patch

MOST_BODY_LINES: Final = 30
MOST_SELECTED_LINES: Final = 10
MOST_BLANK_LINES: Final = 6
MOST_TOKENS: Final = 8
MOST_JOINT: Final = 3
PLACEHOLDERS: Final[dict[str, tuple[str, ...]]] = {
    "python": ("pass", "...", "raise NotImplementedError"),
    "javascript": ('throw new Error("not implemented");', "// TODO"),
    "go": ('panic("not implemented")',),
    "rust": ("todo!()", "unimplemented!()"),
    "java": ("throw new UnsupportedOperationException();",),
    "c": ("/* TODO */",),
}
PLACEHOLDERS.update(typescript=PLACEHOLDERS["javascript"], tsx=PLACEHOLDERS["javascript"], cpp=PLACEHOLDERS["c"])
# A first try that stands where the body is to be: with the true text there, an engine's true text changes nothing.
DRAFTS: Final = {"python": b"return draft()", "javascript": b"return draft();", "go": b"draft()", "rust": b"draft()"}
_CLOSERS: Final = frozenset(b")]}\"'`")


@dataclass(frozen=True)
class Gap:
    """One hole: its true text with line feeds, and the bytes of the wanted file that the text stands for. `header` is
    where the hole's function starts in the document to fill, which may differ from where it starts in `file`.
    """

    file: SourceFile
    hole: Hole
    truth: str
    span: Span
    function: Function | None = None
    header: int | None = None

    @property
    def is_inside(self) -> bool:
        """True if code stands before the hole in its line or behind it: the hole is a part of a line."""
        lines, (start, end) = self.file.document.lines, self.span
        before = self.file.data[lines.start(lines.at(start)) : start].strip()
        return bool(before or self.file.data[end : lines.end(lines.at(end))].strip(b" \t;,"))

    @property
    def indent(self) -> str:
        """The white space that the hole's first line begins with in the wanted file."""
        lines = self.file.document.lines
        return lines.indent(lines.at(self.span[0])).decode()

    @property
    def own(self) -> str:
        """The indent that the true text itself begins with: that of a blank line without any."""
        return self.truth[: len(self.truth) - len(self.truth.lstrip(" \t"))]

    @cached_property
    def behind(self) -> str:
        return self.file.document.visible_text(self.span[1], len(self.file.data))

    @cached_property
    def before(self) -> str:
        return self.file.document.visible_text(0, self.span[0])


@dataclass(frozen=True)
class Place:
    """A document as a user has it and its holes, in order. Filled with the true texts it is `file` again."""

    kind: str
    file: SourceFile
    document: Document
    gaps: tuple[Gap, ...]

    @property
    def holes(self) -> tuple[Hole, ...]:
        return tuple(gap.hole for gap in self.gaps)

    @property
    def name(self) -> str:
        lines = self.document.lines
        return f"{self.document.path}:{','.join(str(lines.at(hole.start_byte) + 1) for hole in self.holes)}"


def find_gap(file: SourceFile, document: Document, hole: Hole, function: Function | None = None) -> Gap | None:
    """The hole of a changed file with its true text; None if no text in the hole gives the file."""
    lead, tail = (text.replace("\n", document.newline).encode() for text in (hole.lead, hole.tail))
    before, behind = document.data[: hole.start_byte] + lead, tail + document.data[hole.end_byte :]
    start, end = len(before), len(file.data) - len(behind)
    if not (start < end and file.data.startswith(before) and file.data.endswith(behind)):
        return None
    return Gap(file, hole, file.document.visible_text(start, end), (start, end), function)


def _in_file(kind: str, file: SourceFile, hole: Hole, function: Function | None = None) -> Place | None:
    gap = find_gap(file, file.document, hole, function)
    return Place(kind, file, file.document, (gap,)) if gap else None


def draw_lines(file: SourceFile, drawn: random.Random) -> Iterator[Place]:
    lines = file.document.lines
    for number in drawn.sample(range(len(lines)), len(lines)):
        first, last = lines.first_char(number), lines.end(number)
        has_words = re.search(rb"\w", file.data[first:last])
        if has_words and not any(start <= first < end or start < last < end for start, end in file.parts.opaque):
            if place := _in_file("line", file, hole_at_range(file.document, first, last)):
                yield place


def draw_parts(file: SourceFile, drawn: random.Random) -> Iterator[Place]:
    """Parts of lines between tokens; one of two ends before a closing bracket or quote, if there is one."""
    rows: dict[int, list[Span]] = {}
    lines = file.document.lines
    for span in file.parts.tokens:
        if lines.at(span[0]) == lines.at(max(span[0], span[1] - 1)):
            rows.setdefault(lines.at(span[0]), []).append(span)
    for row in drawn.sample(list(rows), len(rows)):
        tokens = rows[row]
        ends = list(range(1, len(tokens)))
        if drawn.random() < 0.5:
            ends = [end for end in ends if file.data[tokens[end][0]] in _CLOSERS] or ends
        if not ends:
            continue
        end = drawn.choice(ends)
        start = drawn.randrange(max(0, end - MOST_TOKENS), end)
        span = tokens[start][0], tokens[end - 1][1]
        if file.data[slice(*span)].strip() and not any(a <= span[0] and span[1] <= b for a, b in file.parts.opaque):
            if place := _in_file("inside", file, hole_at_range(file.document, *span)):
                yield place


def _statement_lines(file: SourceFile, first: tree_sitter.Node, last: tree_sitter.Node) -> Span | None:
    """The bytes from one statement to another if they have their lines for themselves."""
    lines, data = file.document.lines, file.data
    start, end = first.start_byte, last.end_byte
    line_end = lines.end(lines.at(max(start, end - 1)))
    rest = data[end:line_end].rstrip() if end <= line_end else b""
    if start != lines.first_char(lines.at(start)) or rest not in (b"", b";", b","):
        return None
    if any(a < start < b or a < end < b for a, b in file.parts.strings):
        return None
    end = min(end, line_end) if rest == b"" else end + len(rest)
    return start, start + len(data[start:end].rstrip())


def _num_lines(file: SourceFile, span: Span) -> int:
    return file.data.count(b"\n", *span) + 1


def draw_selections(file: SourceFile, drawn: random.Random) -> Iterator[Place]:
    blocks = [block for block in file.parts.blocks if block]
    for block in drawn.sample(blocks, len(blocks)):
        first = drawn.randrange(len(block))
        runs = [(block[first], last) for last in block[first : first + MOST_SELECTED_LINES]]
        spans = [span for run in runs if (span := _statement_lines(file, *run))]
        fit = [span for span in spans if 2 <= _num_lines(file, span) <= MOST_SELECTED_LINES]
        if fit and not _is_opaque(file, block[first]):
            if place := _in_file("selection", file, hole_at_range(file.document, *drawn.choice(fit))):
                yield place


def _is_opaque(file: SourceFile, node: tree_sitter.Node) -> bool:
    """True for a comment or a docstring."""
    start, end = node.start_byte, len(file.data[: node.end_byte].rstrip(b" ;\r\n"))
    return any(a <= start and end <= b for a, b in file.parts.opaque)


def _find_body(document: Document, header: int, start: int, end: int) -> Hole | None:
    """The hole of the function at a byte, if its body lies in the given bytes of `document`."""
    try:
        hole = body_at(document, header)
    except MidfillError:
        return None
    return hole if hole.is_body and start <= hole.start_byte and hole.end_byte <= end else None


def _list_bodies(file: SourceFile, drawn: random.Random) -> Iterator[Gap]:
    """Bodies as they stand in the file, on lines of their own."""
    for function in drawn.sample(file.parts.functions, len(file.parts.functions)):
        hole = _find_body(file.document, function.start, *function.body)
        if hole is None or hole.kind != "body" or hole.lead or hole.tail:
            continue
        gap = find_gap(file, file.document, hole, function)
        if gap and _num_lines(file, gap.span) <= MOST_BODY_LINES and not _is_comment(gap):
            yield gap


def draw_bodies(file: SourceFile, drawn: random.Random) -> Iterator[Place]:
    for gap in _list_bodies(file, drawn):
        if place := _with_drafts("body", file, [gap]):
            yield place


def _with_drafts(kind: str, file: SourceFile, gaps: Sequence[Gap]) -> Place | None:
    """The place of gaps that are in the file, once another text stands in those that are bodies."""
    draft = DRAFTS.get(file.language, b"return draft();")
    edits = [Edit(*gap.span, draft) for gap in gaps if gap.function and gap.truth.encode() != draft]
    patch = Patch.of(edits)
    document = Document(patch.apply(file.data), file.language, file.document.path)
    placed = []
    for gap in gaps:
        start, end = patch.shift(gap.span[0]), patch.shift(gap.span[1])
        header: int | None = None
        if gap.function is None:
            hole: Hole | None = hole_at_range(document, start, end)
        else:
            header = patch.shift(gap.function.start)
            hole = _find_body(document, header, start, end)
        if hole is None or hole.kind == "stub" or (hole.start_byte, hole.end_byte) != (start, end):
            return None
        placed.append(replace(gap, hole=hole, header=header))
    return Place(kind, file, document, tuple(placed))


def _is_comment(gap: Gap) -> bool:
    start, end = gap.span
    covered = [file_span for file_span in gap.file.parts.opaque if start <= file_span[0] < end]
    return sum(b - a for a, b in covered) >= len(gap.file.data[start:end].strip())


def draw_stubs(file: SourceFile, drawn: random.Random) -> Iterator[Place]:
    """Bodies replaced by a placeholder, or by nothing, wherever the hole of what is left can give the file."""
    for gap in _list_bodies(file, drawn):
        (start, end), function = gap.span, gap.function
        assert function is not None
        for before, text, behind in _leave_stubs(file, start, end, drawn):
            data = before + text + behind
            document = Document(data, file.language, file.document.path)
            last = function.body[1] + len(data) - len(file.data)
            hole = _find_body(document, function.start, function.body[0] - 1, last + 1)
            if hole is None:
                continue
            stub = find_gap(file, document, hole, function)
            # A hole with an indent of its own begins where the file's text does, and no hole ends with a blank line.
            if stub and not stub.own and stub.truth == stub.truth.rstrip():
                yield Place("stub", file, document, (replace(stub, header=function.start),))
                break


def _leave_stubs(file: SourceFile, start: int, end: int, drawn: random.Random) -> list[tuple[bytes, bytes, bytes]]:
    """What may be left of a file around the body from `start` to `end`, in an order drawn by chance."""
    before, behind = file.data[:start], file.data[end:]
    stubs = [(before, text.encode(), behind) for text in PLACEHOLDERS[file.language]]
    short = before.rstrip()
    if short.endswith(b"{") and behind.lstrip().startswith(b"}"):
        stubs.append((short, b"", behind.lstrip()))
        stubs.append((short, b"", behind))
    elif file.language == "python" and short.endswith((b'"""', b"'''")):
        stubs.append((short, b"", behind))
    drawn.shuffle(stubs)
    return stubs


def draw_blanks(file: SourceFile, drawn: random.Random) -> Iterator[Place]:
    """Statements deleted so that a blank line is left, with the indentation or without any, in turn."""
    lines = file.document.lines
    statements = [node for block in file.parts.blocks for node in block if not _is_opaque(file, node)]
    for node in drawn.sample(statements, len(statements)):
        span = _statement_lines(file, node, node)
        if span is None or _num_lines(file, span) > MOST_BLANK_LINES:
            continue
        start, end = lines.start(lines.at(span[0])), lines.end(lines.at(span[1] - 1))
        if file.data[span[1] : end].strip():
            continue
        indent = lines.indent(lines.at(start)) if drawn.random() < 0.5 else b""
        document = Document(file.data[:start] + indent + file.data[end:], file.language, file.document.path)
        gap = find_gap(file, document, hole_at_cursor(document, start + len(indent)))
        if gap and gap.span[1] == end:
            yield Place("blank", file, document, (gap,))


def draw_joint(file: SourceFile, drawn: random.Random) -> Iterator[Place]:
    """Two or three lines, selections and bodies of one file that do not touch."""
    ranges = [(place.gaps[0] for place in draw(file, drawn)) for draw in (draw_lines, draw_selections)]
    sources = [*ranges, _list_bodies(file, drawn)]
    while True:
        gaps: list[Gap] = []
        for _ in range(drawn.randint(2, MOST_JOINT)):
            gap = next(drawn.choice(sources), None)
            if gap and all(_are_apart(gap.span, other.span) for other in gaps):
                gaps.append(gap)
        if len(gaps) < 2:
            return
        if place := _with_drafts("joint", file, sorted(gaps, key=lambda gap: gap.span)):
            yield place


def _are_apart(one: Span, other: Span) -> bool:
    return one[1] + 1 < other[0] or other[1] + 1 < one[0]


Draw = Callable[[SourceFile, random.Random], Iterator[Place]]
KINDS: Final[dict[str, Draw]] = {
    "line": draw_lines,
    "inside": draw_parts,
    "selection": draw_selections,
    "body": draw_bodies,
    "stub": draw_stubs,
    "joint": draw_joint,
    "blank": draw_blanks,
}


def protected_lines(file: SourceFile, span: Span) -> frozenset[int]:
    """The lines of a span, from 0, that begin inside a string, so that no indentation of code is theirs."""
    lines = file.document.lines
    first = lines.at(span[0])
    numbers = range(first + 1, lines.at(span[1]) + 1)
    return frozenset(
        number - first for number in numbers if any(a < lines.start(number) < b for a, b in file.parts.strings)
    )


def draw_places(file: SourceFile, kind: str, most: int, seed: int) -> Sequence[Place]:
    """At most `most` places of a kind, the same for the same seed."""
    drawn = random.Random(f"{seed} {kind} {file.document.path and file.document.path.name}")
    places: list[Place] = []
    for place in KINDS[kind](file, drawn):
        places.append(place)
        if len(places) == most:
            break
    return places
