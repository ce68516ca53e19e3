"""Finds holes of a document: a range, a cursor, a function body, every stub. Knows no model."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import tree_sitter

from midfill_infill.errors import MidfillError
from midfill_infill.languages import Language
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.captures import Function
from midfill_infill.syntax.idle import is_comment
from midfill_infill.syntax.margins import is_at_level, tells_indent
from midfill_infill.syntax.outline import outline, require_syntax
from midfill_infill.syntax.problems import Span, captures
from midfill_infill.syntax.stubs import is_stub
from midfill_infill.text.document import Document
from midfill_infill.text.lines import Lines
from midfill_infill.text.spans import Hole

_PLACEHOLDER = re.compile(rb"(?<![.\w])\.\.\.(?![.\w])")
_NEAR = 3
MANY_LINES: Final = 40
# A tenth of a file is large only above this many lines: in a short file every function is a tenth.
SOME_LINES: Final = 10
LARGE_SHARE: Final = 0.1
_OPENERS = (b":", b"(", b"[", b"{", b"\\")


def hole_at_range(document: Document, start_byte: int, end_byte: int) -> Hole:
    """The hole of a selection without white space at its ends, or a cursor. Raises MidfillError `position_outside`."""
    if start_byte > end_byte:
        raise MidfillError("position_outside", f"the hole ends at byte {end_byte}, before it starts at {start_byte}")
    start, end = document.snap(start_byte), document.snap(end_byte)
    selected = document.data[start:end]
    if not selected.strip():
        return hole_at_cursor(document, start)
    end -= len(selected) - len(selected.rstrip())
    start += len(selected) - len(selected.lstrip())
    inner = _indent_of_code(document, start, end)
    return Hole(start, end, indent=_indent_at(document, start) if inner is None else inner, lead=inner or "")


def _indent_of_code(document: Document, start_byte: int, end_byte: int) -> str | None:
    """The indentation of the code in a selection whose first line is a comment, a directive or a label at the margin;
    None for other selections.
    """
    lines, language, first = document.lines, document.syntax, document.lines.at(start_byte)
    if language is None or lines.start(first) != start_byte or tells_indent(language, lines.content(first)):
        return None
    inside = (lines.content(number) for number in range(first + 1, lines.at(end_byte) + 1))
    code = next((content for content in inside if content.strip() and tells_indent(language, content)), b"")
    return code[: len(code) - len(code.lstrip(b" \t"))].decode("ascii") or None


def hole_at_cursor(document: Document, byte: int) -> Hole:
    """An empty hole at a cursor. On a blank line it takes the line, and without an indent there the fill starts with
    one. Raises MidfillError `position_outside`.
    """
    byte = document.snap(byte)
    line = document.lines.at(byte)
    start, end = max(document.lines.start(line), len(document.bom)), document.lines.end(line)
    if document.data[start:end].strip():
        return Hole(byte, byte, kind="cursor", indent=_indent_at(document, byte))
    indent = document.decode(start, byte).replace("\f", "") or _expected_indent(document, line)
    return Hole(byte, end, kind="line" if byte == start else "cursor", indent=indent)


def _indent_at(document: Document, byte: int) -> str:
    """The part of the line's indentation that is before `byte`."""
    line = document.lines.at(byte)
    return document.lines.indent(line)[: byte - document.lines.start(line)].decode("ascii").replace("\f", "")


def _expected_indent(document: Document, line: int) -> str:
    """The likely indentation of a blank line: the deeper of its neighbors', or one level more than a line above that
    opens a block. Where indentation is syntax, none below two blank lines.
    """
    lines = document.lines
    nearest = next((n for n in range(line - 1, -1, -1) if not lines.is_blank(n)), None)
    above, below = _find_neighbours(document, line)
    first, second = (b"" if n is None else lines.indent(n) for n in (above, below))
    found = max(first, second, key=len)
    is_syntax = document.syntax is not None and document.syntax.has_indented_blocks
    if nearest is not None and is_syntax and line - nearest > 2:
        found = b""
    elif above is not None and lines.content(above).rstrip().endswith(_OPENERS):
        inner = first + document.indent_unit.encode()
        opens_below = is_syntax and len(second) > len(inner) and lines.content(above).rstrip().endswith(b":")
        found = inner if len(second) <= len(first) or opens_below else second
    elif above is not None and below is not None and is_syntax:
        found = _level_over(lines, above, second)
    return found.decode("ascii").replace("\f", "")


def _find_neighbours(document: Document, line: int) -> tuple[int | None, int | None]:
    """The lines above and below a blank line that tell its indentation: no directives, no labels, and above no comment
    left of the block around it.
    """
    lines, language = document.lines, document.syntax

    def search(numbers: Iterable[int], takes: Callable[[Language, bytes], bool]) -> int | None:
        filled = (number for number in numbers if not lines.is_blank(number))
        return next((n for n in filled if language is None or takes(language, lines.content(n))), None)

    up, down = range(line - 1, -1, -1), range(line + 1, len(lines))
    above, below = search(up, is_at_level), search(down, is_at_level)
    code_above, code_below = search(up, tells_indent), search(down, tells_indent)
    if above is not None and code_above is not None and above != code_above:
        opens = lines.content(code_above).rstrip().endswith(_OPENERS)
        around = [lines.columns(code_above) + 1] * opens + [lines.columns(n) for n in (code_below,) if n is not None]
        if lines.columns(above) < max(around, default=0):
            above = code_above
    return above, below


def _level_over(lines: Lines, above: int, below: bytes) -> bytes:
    """The indent of `above` if its blocks include the one of `below`; otherwise that of the block around `below`."""
    level = first = lines.indent(above)
    for number in range(above, -1, -1):
        if len(below) >= len(level):
            break
        if not lines.is_blank(number):
            level = min(level, lines.indent(number), key=len)
    return first if len(below) == len(level) or len(level) == len(first) else level


def body_at(document: Document, byte: int, outer: int = 0) -> Hole:
    """The body of the innermost function at a byte, lambdas included; `outer` is the number of functions to go out.

    The start of a line counts as inside the function that begins on it. Outside of functions a blank line and a `...`
    are holes. Raises MidfillError `no_hole` if there is neither, `position_outside`, and `unknown_language`.
    """
    byte = document.snap(byte)
    line, (number, _) = document.lines.at(byte), document.position_at(byte)
    if document.syntax is not None:
        around = _functions_at(document, byte)
        if outer < len(around):
            return body_hole(document, around[outer])
        if around:
            message = f"line {number} of {document.name} is in {len(around)} function{'s' * (len(around) > 1)}"
            raise MidfillError("no_hole", message, "give --outer less often")
    if document.lines.is_blank(line):
        return hole_at_cursor(document, byte)
    if placeholder := _PLACEHOLDER.search(document.lines.content(line)):
        start = document.lines.start(line) + placeholder.start()
        return hole_at_range(document, start, start + len(placeholder.group()))
    require_syntax(document)
    raise MidfillError("no_hole", f"line {number} of {document.name} is in no function and holds no `...`")


def hole_at_place(document: Document, byte: int, outer: int = 0) -> Hole:
    """Like `body_at`, but a blank line in a function's code is a hole of its own, unless `outer` is given."""
    hole = body_at(document, byte, outer)
    has_code = hole.kind == "body" and hole.end_byte > hole.start_byte
    if outer or not has_code or not document.lines.is_blank(document.lines.at(document.snap(byte))):
        return hole
    return hole_at_cursor(document, byte)


def _functions_at(document: Document, byte: int) -> list[Function]:
    """The functions that contain a byte, innermost first."""
    lines, position = document.source_lines, document.to_source(byte)
    line = lines.at(position)
    first_char, line_end, margin = lines.first_char(line), lines.end(line), _last_at_margin(lines, line)
    near = [each for each in outline(document).functions if each.end >= margin or each.is_broken]
    functions = sorted(near, key=attrgetter("start", "head"), reverse=True)
    headed = [function for function in functions if position <= first_char < function.start <= line_end]
    opened = [function for function in headed if lines.at(function.end) > line][:1]
    found = opened + [each for each in functions if _holds(document, lines, each, max(position, first_char))]
    return found or headed[-1:]


def _last_at_margin(lines: Lines, line: int) -> int:
    """The start of the last line above `line` that is not indented: functions that end before it do not matter."""
    starts = map(lines.start, range(line - 1, -1, -1))
    return next((start for start in starts if lines.data[start : start + 1].strip()), 0)


def _holds(document: Document, lines: Lines, function: Function, position: int) -> bool:
    if position < function.start:
        return False
    if position <= function.end:
        return True
    if not function.is_broken and not require_syntax(document).has_indented_blocks:
        return False
    hole = body_hole(document, function)
    if position <= document.to_source(hole.end_byte):
        return True
    line = lines.at(position)
    columns = lines.columns(lines.at(function.head))
    is_open = lines.is_blank(line) and lines.columns(line) > columns
    return is_open and not lines.data[document.to_source(hole.end_byte) : lines.end(line)].strip()


def body_named(document: Document, name: str) -> Hole:
    """The body of the function `name`, `Class.name` or `Class::name`. Raises MidfillError `no_function`, which names
    similar ones, `ambiguous_function`, which names all with their lines, and `unknown_language`.
    """
    path = tuple(name.strip().removesuffix("()").replace("::", ".").split("."))
    named = [function for function in outline(document).functions if function.path]
    found = [function for function in named if function.path[-len(path) :] == path]
    exact = [function for function in found if function.path == path]
    found = exact if len(exact) == 1 else found
    if not found:
        raise MidfillError("no_function", f"{document.name} has no function {name!r}{_suggest(name, named)}")
    if len(found) > 1:
        places = ", ".join(
            f"{function.name} in line {document.lines.at(document.to_raw(function.head)) + 1}" for function in found
        )
        raise MidfillError("ambiguous_function", f"{document.name} has {len(found)} functions {name!r}: {places}")
    return body_hole(document, found[0])


def _suggest(name: str, functions: list[Function]) -> str:
    known = {function.name or "": None for function in functions} | {function.path[-1]: None for function in functions}
    import difflib  # only for this message

    near = difflib.get_close_matches(name, list(known), n=_NEAR)
    if near:
        return f", did you mean {' or '.join(near)}?"
    return f", it has {', '.join(list(known)[:8])}" if known else ", nor any other"


def find_stubs(document: Document) -> tuple[Hole, ...]:
    """The holes of all stubs, in document order. Raises MidfillError `unknown_language`."""
    holes: list[Hole] = []
    for function in outline(document).functions:
        if is_stub(document, function):
            hole = body_hole(document, function)
            if not holes or hole.start_byte >= holes[-1].end_byte:
                holes.append(hole)
    return tuple(holes)


def sort_holes(document: Document, holes: tuple[Hole, ...] | list[Hole]) -> tuple[Hole, ...]:
    """The holes in document order. Raises MidfillError `overlapping_holes` for two that share bytes or a place."""
    ordered = sorted(holes, key=lambda hole: (hole.start_byte, hole.end_byte))
    for first, second in zip(ordered, ordered[1:], strict=False):
        same_place = first.start_byte == second.start_byte
        if second.start_byte < first.end_byte or same_place:
            line, column = document.position_at(second.start_byte)
            raise MidfillError("overlapping_holes", f"two holes share line {line}, column {column} of {document.name}")
    return tuple(ordered)


@dataclass(frozen=True)
class Taken:
    """The number of lines that a hole replaces (0 for a blank hole), and the number of lines of the document."""

    num_lines: int
    of_lines: int

    @property
    def is_large(self) -> bool:
        is_a_tenth = self.num_lines > SOME_LINES and self.num_lines > LARGE_SHARE * self.of_lines
        return self.num_lines > MANY_LINES or is_a_tenth


def measure(document: Document, hole: Hole) -> Taken:
    first = document.lines.at(hole.start_byte)
    last = document.lines.at(max(hole.start_byte, hole.end_byte - 1))
    has_text = bool(document.data[hole.start_byte : hole.end_byte].strip())
    num_lines = last - first + 1 if has_text else 0
    return Taken(num_lines, document.num_lines - document.lines.is_blank(document.num_lines - 1))


def find_large(document: Document, holes: Sequence[Hole]) -> tuple[Hole, ...]:
    """The large bodies among `holes`: users must confirm to replace these. A selected range is never large."""
    return tuple(hole for hole in holes if hole.is_body and measure(document, hole).is_large)


def is_line_of_code(document: Document, hole: Hole) -> bool:
    """True if a selection in a line is code, which one line replaces; several may replace a comment or placeholder."""
    text = document.show(hole.start_byte, hole.end_byte)
    if hole.kind != "range" or not text.strip() or "\n" in text:
        return False
    if document.syntax is None:
        return True
    tree = document.syntax.parse_once(document.source)
    span = document.to_source(hole.start_byte), document.to_source(hole.end_byte)
    stubs = captures(document.syntax, tree, span, "stub")
    return not is_comment(tree, span) and all(node.end_byte <= span[0] or span[1] <= node.start_byte for node in stubs)


def list_holes(document: Document, start_byte: int, end_byte: int) -> list[Span]:
    """Byte ranges around the given one, innermost first: statements, blocks, bodies. Empty without a grammar."""
    if document.syntax is None:
        return []
    lines, first = document.lines, document.snap(start_byte)
    line = lines.at(first)
    first = first if lines.is_blank(line) else max(first, min(lines.first_char(line), lines.end(line)))
    last = max(first, document.snap(end_byte))
    bodies = (body_hole(document, function) for function in _functions_at(document, first))
    found = {*_blocks(document, document.to_source(first), document.to_source(last))}
    found |= {(body.start_byte, body.end_byte) for body in bodies}
    held = sorted((span for span in found if span[0] <= first and last <= span[1]), key=lambda span: span[1] - span[0])
    nested: list[Span] = []
    for start, end in held:
        if start < end and (not nested or (start <= nested[-1][0] and nested[-1][1] <= end)):
            nested.append((start, end))
    return nested


def _blocks(document: Document, first: int, last: int) -> Iterator[Span]:
    """The statements and blocks around a range of the source."""
    assert document.syntax is not None
    tree = document.syntax.parse_once(document.source)
    blocks = {node.id for node in captures(document.syntax, tree, (first, last), "block")}
    node: tree_sitter.Node | None = tree.root_node.descendant_for_byte_range(first, last)
    while node is not None and node.parent is not None:
        children = node.named_children if node.id in blocks else []
        if children:
            yield document.to_raw(children[0].start_byte), document.to_raw(children[-1].end_byte)
        if node.parent.parent is None or node.parent.id in blocks:
            yield document.to_raw(node.start_byte), document.to_raw(node.end_byte)
        node = node.parent
