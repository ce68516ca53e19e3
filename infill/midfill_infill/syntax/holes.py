"""Finds holes of a document: a range, a cursor, a function body, every stub. Knows no model."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Final

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
_TEMPLATE_ARGUMENTS = re.compile(r"(?<=\w)<(?!=).*>$")  # but `operator<=>` is a name
_MAX_SIMILAR = 3  # similar names in a message
# More than LARGE_SHARE of a file is large above SOME_LINES only, because in a short file every function is that much.
MANY_LINES: Final = 40
SOME_LINES: Final = 10
LARGE_SHARE: Final = 0.1
_OPEN_TAG = re.compile(rb"(?:(?!</).)*(?<!/)>")  # a line that ends an opening tag
_OPENERS = (b":", b"(", b"[", b"{", b"\\")


def hole_at_range(document: Document, start_byte: int, end_byte: int) -> Hole:
    """The hole of a selection without white space at its ends; the hole at a cursor if the selection is blank. Raises
    MidfillError `position_outside`.
    """
    if start_byte > end_byte:
        start_line, end_line = (":".join(map(str, document.position_at(byte))) for byte in (start_byte, end_byte))
        raise MidfillError("position_outside", f"the hole ends at {end_line}, before it starts at {start_line}")
    start = document.snap(start_byte)
    end = document.snap(end_byte)
    selected = document.data[start:end]
    if not selected.strip():
        return hole_at_cursor(document, start)
    start += len(selected) - len(selected.lstrip())
    end -= len(selected) - len(selected.rstrip())
    code_indent = _indent_of_code(document, start, end)
    if code_indent is None:
        return Hole(start, end, indent=_indent_at(document, start))
    return Hole(start, end, indent=code_indent, lead=code_indent)


def _indent_of_code(document: Document, start_byte: int, end_byte: int) -> str | None:
    """The indentation of the first code in a selection that begins at column 0 with a comment, directive or label; None
    for other selections, and if that code is not indented.
    """
    lines = document.lines
    language = document.syntax
    first = lines.at(start_byte)
    if language is None or lines.start(first) != start_byte or tells_indent(language, lines.content(first)):
        return None
    for number in range(first + 1, lines.at(end_byte) + 1):
        content = lines.content(number)
        if content.strip() and tells_indent(language, content):
            indent = content[: len(content) - len(content.lstrip(b" \t"))]
            return indent.decode("ascii") or None
    return None


def hole_at_cursor(document: Document, byte: int) -> Hole:
    """The hole at a cursor. It is empty on a line with text and takes the rest of a blank line. If the cursor stands at
    the start of a blank line, the fill begins with the likely indentation. Raises MidfillError `position_outside`.
    """
    offset = document.snap(byte)
    line = document.lines.at(offset)
    start = document.lines.start(line)
    end = document.lines.end(line)
    if document.data[start:end].strip():
        return Hole(offset, offset, kind="cursor", indent=_indent_at(document, offset))
    indent = document.decode(start, offset).replace("\f", "") or _expected_indent(document, line)
    return Hole(offset, end, kind="line" if offset == start else "cursor", indent=indent)


def _indent_at(document: Document, byte: int) -> str:
    """The part of the line's indentation that is before `byte`."""
    line = document.lines.at(byte)
    column = byte - document.lines.start(line)
    return _decode_indent(document.lines.indent(line)[:column])


def _decode_indent(white: bytes) -> str:
    """White space as text, without form feeds."""
    return white.decode("ascii").replace("\f", "")


def _expected_indent(document: Document, line: int) -> str:
    """The likely indentation of a blank line: that of its deeper neighbor, or one level more than a line above that
    opens a block. Where indentation is syntax, none below two blank lines, and a line below that is indented less may
    tell how many levels have ended.
    """
    lines = document.lines
    is_syntax = document.syntax is not None and document.syntax.has_indented_blocks
    nearest = next((number for number in range(line - 1, -1, -1) if not lines.is_blank(number)), line)
    if is_syntax and line - nearest > 2:
        return ""
    above, below = _find_neighbors(document, line)
    indent_below = b"" if below is None else lines.indent(below)
    if above is None:
        return _decode_indent(indent_below)
    indent_above = lines.indent(above)
    indent = max(indent_above, indent_below, key=len)
    opening = lines.content(above).rstrip()
    closes_tag = below is not None and indent_below == indent_above and lines.content(below).lstrip().startswith(b"</")
    if opening.endswith(_OPENERS) or (closes_tag and _OPEN_TAG.fullmatch(opening)):
        block_indent = indent_above + document.indent_unit.encode()
        is_below_too_deep = is_syntax and len(indent_below) > len(block_indent) and opening.endswith(b":")
        indent = indent_below
        if len(indent_below) <= len(indent_above) or is_below_too_deep:
            indent = block_indent
    elif below is not None and is_syntax:
        indent = _level_over(lines, above, indent_below)
    return _decode_indent(indent)


def _find_neighbors(document: Document, line: int) -> tuple[int | None, int | None]:
    """The lines above and below a blank line that tell its indentation; None if there is none. Directives and labels do
    not count, nor does a comment above that is left of the block around the blank line.
    """
    lines = document.lines
    up = range(line - 1, -1, -1)
    down = range(line + 1, len(lines))
    above = _find_line(document, up, is_at_level)
    below = _find_line(document, down, is_at_level)
    code_above = _find_line(document, up, tells_indent)
    if above is None or code_above is None or above == code_above:
        return above, below
    block_columns = 0
    if lines.content(code_above).rstrip().endswith(_OPENERS):
        block_columns = lines.columns(code_above) + 1
    code_below = _find_line(document, down, tells_indent)
    if code_below is not None:
        block_columns = max(block_columns, lines.columns(code_below))
    if lines.columns(above) < block_columns:
        above = code_above
    return above, below


def _find_line(document: Document, numbers: range, accepts: Callable[[Language, bytes], bool]) -> int | None:
    """The first of the lines `numbers` that is filled and that `accepts`; without a grammar, the first filled one."""
    lines = document.lines
    for number in numbers:
        if lines.is_blank(number):
            continue
        if document.syntax is None or accepts(document.syntax, lines.content(number)):
            return number
    return None


def _level_over(lines: Lines, above: int, indent_below: bytes) -> bytes:
    """The indentation of line `above` if a block around it is indented by `indent_below`; otherwise the first one, from
    this line up, that is not deeper than `indent_below`.
    """
    indent_above = lines.indent(above)
    level = indent_above
    for number in range(above, -1, -1):
        if len(indent_below) >= len(level):
            break
        if not lines.is_blank(number):
            level = min(level, lines.indent(number), key=len)
    if len(indent_below) == len(level):
        return indent_above
    return level


def body_at(document: Document, byte: int, outer: int = 0) -> Hole:
    """The body of the innermost function at a byte, lambdas included; `outer` is the number of functions to go out.

    The start of a line counts as inside the function that begins on it. Outside of functions a blank line and a `...`
    are holes. Raises MidfillError `no_hole` if there is neither, `position_outside`, and `unknown_language`.
    """
    offset = document.snap(byte)
    line = document.lines.at(offset)
    number, _ = document.position_at(offset)
    if document.syntax is not None:
        around = _functions_at(document, offset)
        if outer < len(around):
            return body_hole(document, around[outer])
        if around:
            message = f"line {number} of {document.name} is in {len(around)} function{'s' * (len(around) > 1)}"
            raise MidfillError("no_hole", message, "give --outer less often")
    if document.lines.is_blank(line):
        return hole_at_cursor(document, offset)
    placeholder = _PLACEHOLDER.search(document.lines.content(line))
    if placeholder is not None:
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
    """The functions that contain a byte, innermost first. The start of a line is also in the last function that begins
    there and has more lines; if it is in no function, then in the first one that begins there.
    """
    lines = document.source_lines
    position = document.to_source(byte)
    line = lines.at(position)
    first_char = lines.first_char(line)
    margin = _last_at_margin(lines, line)
    near = [function for function in outline(document).functions if function.end >= margin or function.is_broken]
    near.sort(key=attrgetter("start", "head"), reverse=True)
    begun: list[Function] = []
    if position <= first_char:
        begun = [function for function in near if first_char < function.start <= lines.end(line)]
    last_begun = next((function for function in begun if lines.at(function.end) > line), None)
    around = [] if last_begun is None else [last_begun]
    inside = max(position, first_char)
    around += [function for function in near if _contains(document, lines, function, inside)]
    return around or begun[-1:]


def _last_at_margin(lines: Lines, line: int) -> int:
    """The start of the last unindented line above `line`, or 0; no function that ends before it contains `line`."""
    for above in range(line - 1, -1, -1):
        start = lines.start(above)
        if lines.data[start : start + 1].strip():
            return start
    return 0


def _contains(document: Document, lines: Lines, function: Function, position: int) -> bool:
    """True if a position is in a function, or on a blank line that continues its body."""
    if position < function.start:
        return False
    if position <= function.end:
        return True
    if not function.is_broken and not require_syntax(document).has_indented_blocks:
        return False
    body_end = document.to_source(body_hole(document, function).end_byte)
    if position <= body_end:
        return True
    line = lines.at(position)
    head_columns = lines.columns(lines.at(function.head))
    if not lines.is_blank(line) or lines.columns(line) <= head_columns:
        return False
    return not lines.data[body_end : lines.end(line)].strip()


def body_named(document: Document, name: str) -> Hole:
    """The body of the function `name`, `Class.name` or `Class::name`. Raises MidfillError `no_function` with similar
    names, `ambiguous_function` with all functions that match and their lines, and `unknown_language`.
    """
    path = tuple(name.strip().removesuffix("()").replace("::", ".").split("."))
    named = [function for function in outline(document).functions if function.path]
    matches = [
        function for function in named if path in (function.path[-len(path) :], _bare_path(function)[-len(path) :])
    ]
    exact = [function for function in matches if function.path == path]
    if len(exact) == 1:
        matches = exact
    if not matches and outline(document).has_error:
        matches = [function for function in named if _may_be_named(document, function, path)]
    if not matches:
        raise MidfillError("no_function", f"{document.name} has no function {name!r}{_suggest(name, named)}")
    if len(matches) > 1:
        lines = ", ".join(_name_with_line(document, function) for function in matches)
        raise MidfillError("ambiguous_function", f"{document.name} has {len(matches)} functions {name!r}: {lines}")
    return body_hole(document, matches[0])


def _bare_path(function: Function) -> tuple[str, ...]:
    """The path of a function without arguments of templates."""
    return tuple(_TEMPLATE_ARGUMENTS.sub("", name) for name in function.path)


def _may_be_named(document: Document, function: Function, path: tuple[str, ...]) -> bool:
    """True if a function may have a path although a syntax error hides a name of it, or adds one."""
    if function.path[-1] != path[-1]:
        return False
    lines = document.source_lines
    is_within = lines.columns(lines.at(function.head)) > 0
    return _is_within(path, function.path) or (is_within and _is_within(function.path, path))


def _is_within(path: tuple[str, ...], longer: tuple[str, ...]) -> bool:
    """True if the names of a path are in a longer one, in this order."""
    names = iter(longer)
    return all(name in names for name in path)


def _name_with_line(document: Document, function: Function) -> str:
    """A function's name and line, for a message."""
    line = document.lines.at(document.to_data(function.head))
    return f"{function.name} in line {line + 1}"


def _suggest(name: str, functions: list[Function]) -> str:
    """The end of the message about a name that no function has: similar names, else the document's first names."""
    import difflib  # only for this message

    full_names = [function.name or "" for function in functions]
    own_names = [function.path[-1] for function in functions]
    names = list(dict.fromkeys(full_names + own_names))
    similar = difflib.get_close_matches(name, names, n=_MAX_SIMILAR)
    if similar:
        return f", did you mean {' or '.join(similar)}?"
    if names:
        return f", it has {', '.join(names[:8])}"
    return ", nor any other"


def find_stubs(document: Document) -> tuple[Hole, ...]:
    """The holes of all outermost stubs, in document order. Raises MidfillError `unknown_language`."""
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
    for hole, following in pairwise(ordered):
        start = following.start_byte
        if start < hole.end_byte or start == hole.start_byte:
            line, column = document.position_at(start)
            raise MidfillError("overlapping_holes", f"two holes share line {line}, column {column} of {document.name}")
    return tuple(ordered)


@dataclass(frozen=True)
class Taken:
    """How much a hole takes of its document: lines that a fill replaces (0 for a blank hole), and all lines."""

    num_lines: int
    of_lines: int

    @property
    def is_large(self) -> bool:
        """True if users must confirm to replace so much."""
        is_a_tenth = self.num_lines > SOME_LINES and self.num_lines > LARGE_SHARE * self.of_lines
        return self.num_lines > MANY_LINES or is_a_tenth


def measure(document: Document, hole: Hole) -> Taken:
    """How many lines a hole takes of its document. A blank last line does not count."""
    num_lines = 0
    if document.data[hole.start_byte : hole.end_byte].strip():
        first = document.lines.at(hole.start_byte)
        last = document.lines.at(hole.end_byte - 1)
        num_lines = last - first + 1
    of_lines = document.num_lines
    if document.lines.is_blank(of_lines - 1):
        of_lines -= 1
    return Taken(num_lines, of_lines)


def find_large(document: Document, holes: Sequence[Hole]) -> tuple[Hole, ...]:
    """The large bodies among `holes`, which users must confirm to replace. A selected range is never large."""
    return tuple(hole for hole in holes if hole.is_body and measure(document, hole).is_large)


def is_line_of_code(document: Document, hole: Hole) -> bool:
    """True if a hole is a selection of code in one line; a comment or placeholder may become several lines."""
    text = document.visible_text(hole.start_byte, hole.end_byte)
    if hole.kind != "range" or not text.strip() or "\n" in text:
        return False
    if document.syntax is None:
        return True
    tree = document.syntax.parse_once(document.source)
    start = document.to_source(hole.start_byte)
    end = document.to_source(hole.end_byte)
    if is_comment(tree, (start, end)):
        return False
    stubs = captures(document.syntax, tree, (start, end), "stub")
    return all(stub.end_byte <= start or end <= stub.start_byte for stub in stubs)


def list_holes(document: Document, start_byte: int, end_byte: int) -> list[Span]:
    """Byte ranges that contain the given one, each in the next: statements, blocks, bodies. Empty without a grammar."""
    if document.syntax is None:
        return []
    lines = document.lines
    first = document.snap(start_byte)
    line = lines.at(first)
    if not lines.is_blank(line):
        first = max(first, min(lines.first_char(line), lines.end(line)))
    last = max(first, document.snap(end_byte))
    spans = set(_list_blocks(document, document.to_source(first), document.to_source(last)))
    for function in _functions_at(document, first):
        body = body_hole(document, function)
        spans.add((body.start_byte, body.end_byte))
    nested: list[Span] = []
    for start, end in sorted(spans, key=lambda span: span[1] - span[0]):
        if start == end or first < start or end < last:
            continue
        inner_start, inner_end = nested[-1] if nested else (first, last)
        if start <= inner_start and inner_end <= end:
            nested.append((start, end))
    return nested


def _list_blocks(document: Document, first: int, last: int) -> Iterator[Span]:
    """The statements and the contents of blocks around a range of the source, innermost first, in document bytes."""
    assert document.syntax is not None
    tree = document.syntax.parse_once(document.source)
    block_ids = {block.id for block in captures(document.syntax, tree, (first, last), "block")}
    node = tree.root_node.descendant_for_byte_range(first, last)
    while node is not None and node.parent is not None:
        statements = node.named_children
        if node.id in block_ids and statements:
            yield document.to_data(statements[0].start_byte), document.to_data(statements[-1].end_byte)
        above = node.parent
        if above.parent is None or above.id in block_ids:
            yield document.to_data(node.start_byte), document.to_data(node.end_byte)
        node = above
