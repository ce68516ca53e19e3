"""Adds Python import statements at the top of a document, sorted, and removes them again. Knows no files.

A statement is `import m`, `import m as a` or `from m import n`. `take_out` exactly reverts `put_in`.
"""

import builtins
import re
import symtable
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import tree_sitter

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.writing.edits import Regions
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit

# Longest line; a name that does not fit gets its own statement.
_MAX_LINE: Final = 88
_FORM: Final = re.compile(r"(?:from (?P<module>[\w.]+) )?import (?P<name>[\w.]+)(?: as (?P<alias>\w+))?")
_EVERYWHERE: Final = frozenset((*dir(builtins), "__file__", "__path__", "__builtins__", "__annotations__"))
_FUTURE: Final = re.compile(r"^from __future__ import annotations\b", re.MULTILINE)
_STAR: Final = re.compile(r"^\s*from\s+\S+\s+import\s+\*", re.MULTILINE)
# What may follow a statement on its line.
_REST: Final = (b"", b"#")
_TYPES: Final = ("import_statement", "import_from_statement", "future_import_statement")
_DEFINITIONS: Final = ("function_definition", "class_definition", "decorated_definition")


@dataclass(frozen=True)
class _Import:
    """A statement that has its lines to itself. `names` are as written."""

    start: int
    end: int
    module: str
    is_from: bool
    names: tuple[tree_sitter.Node, ...]
    takes_names: bool

    @property
    def order(self) -> tuple[int, bool, str]:
        return _section(self.module), self.is_from, self.module.lower()

    def find(self, form: re.Match[str]) -> tree_sitter.Node | None:
        """The node of the name that the statement `form` would import."""
        written = form["name"]
        if form["module"]:
            fits = self.is_from and self.module == form["module"]
        else:
            fits = not self.is_from
            if form["alias"]:
                written += f" as {form['alias']}"
        if not fits:
            return None
        return next((node for node in self.names if _text(node) == written), None)


@lru_cache(maxsize=64)
def find_undefined(source: bytes) -> frozenset[str] | None:
    """Names that a module uses and does not bind; None if that cannot be told."""
    text = source.decode("utf-8", "replace")
    try:
        module = symtable.symtable(_FUTURE.sub("pass", text), "?", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return None
    if _STAR.search(text):
        return None
    used: set[str] = set()
    bound: set[str] = set()
    pending = [module]
    while pending:
        table = pending.pop()
        pending += table.get_children()
        for symbol in table.get_symbols():
            is_bound = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
            if is_bound and (table is module or symbol.is_declared_global()):
                bound.add(symbol.get_name())
            elif table is module or symbol.is_global():
                used.add(symbol.get_name())
    return frozenset(used - bound - _EVERYWHERE)


def bound_name(statement: str) -> str:
    form = _FORM.fullmatch(statement)
    if form is None:
        return ""
    return form["alias"] or form["name"].partition(".")[0]


def put_in(document: Document, statement: str) -> Edit | None:
    """The edit that adds a statement; None if it exists, or if the document's encoding lacks a name."""
    form = _FORM.fullmatch(statement)
    known = _read(document)
    if form is None or document.language != "python" or _find_import(known, form) is not None:
        return None
    at, text = _join(form, known) or _insert(document, form, known)
    if at == len(document.source) and not _ends_line(document) and text.endswith("\n"):
        text = text.rstrip("\n")
        if at:
            text = "\n" + text
    raw = document.to_raw(at)
    try:
        return Edit(raw, raw, document.encode(text))
    except MidfillError:
        return None


def _find_import(known: list[_Import], form: re.Match[str]) -> _Import | None:
    """The statement that imports what the statement `form` would import."""
    return next((statement for statement in known if statement.find(form) is not None), None)


def _ends_line(document: Document) -> bool:
    return document.source.endswith((b"\n", b"\r"))


def take_out(document: Document, statement: str) -> Edit | None:
    """The edit that removes a statement and what `put_in` added around it; None if it is not separate."""
    form = _FORM.fullmatch(statement)
    if form is None:
        return None
    known = _read(document)
    found = _find_import(known, form)
    if found is None:
        return None
    if len(found.names) > 1:
        start, end = _own_part(found, form)
    else:
        start, end = _own_lines(document, found, known)
        if start and end == len(document.source) and not _ends_line(document):
            lines = document.source_lines
            start = lines.end(lines.at(start) - 1)
    return Edit(document.to_raw(start), document.to_raw(end), b"")


def weave(document: Document, regions: Regions, wanted: Collection[str], unwanted: Collection[str] = ()) -> Regions:
    """The document's new bytes, `regions`, with the wanted statements and without the unwanted ones. An unwanted
    statement stays while its name is used; a wanted one is skipped if it does not fit.
    """
    for statement in sorted(wanted):
        edit = put_in(replace(document, data=regions.data), statement)
        if edit is not None:
            after = regions.edit(edit)
            if _undefined(document, after) is not None or _undefined(document, regions) is None:
                regions = after
    for statement in sorted(set(unwanted) - set(wanted), reverse=True):
        edit = take_out(replace(document, data=regions.data), statement)
        if edit is not None:
            after = regions.edit(edit)
            if bound_name(statement) not in (_undefined(document, after) or ()):
                regions = after
    return regions


def _undefined(document: Document, regions: Regions) -> frozenset[str] | None:
    return find_undefined(replace(document, data=regions.data).source)


def _read(document: Document) -> list[_Import]:
    """The top-level import statements."""
    if document.language != "python" or document.syntax is None:
        return []
    lines = document.source_lines
    statements: list[_Import] = []
    for node in document.syntax.parse(document.source).root_node.children:
        if node.type not in _TYPES or node.has_error:
            continue
        start = lines.start(lines.at(node.start_byte))
        end = _line_start(document, lines.at(node.end_byte - 1) + 1)
        before = document.source[start : node.start_byte]
        behind = document.source[node.end_byte : end].lstrip()
        if before.strip() or behind[:1] not in _REST:
            continue
        names = tuple(node.children_by_field_name("name"))
        is_from = node.type != "import_statement"
        in_brackets = any(child.type == "(" for child in node.children)
        is_short = node.start_point.row == node.end_point.row
        statements.append(
            _Import(
                start=start,
                end=end,
                module=_find_module(node, names),
                is_from=is_from,
                names=names,
                takes_names=is_from and bool(names) and (in_brackets or is_short),
            )
        )
    return statements


def _find_module(node: tree_sitter.Node, names: Sequence[tree_sitter.Node]) -> str:
    """The module of an import statement; the first one of several."""
    module = node.child_by_field_name("module_name")
    if module is not None:
        return _text(module)
    if node.type != "import_statement":
        return "__future__"
    return _text(names[0]).partition(" ")[0]


def _line_start(document: Document, line: int) -> int:
    """Where a line begins; behind the last one the end of the document."""
    if line < len(document.source_lines):
        return document.source_lines.start(line)
    return len(document.source)


def _text(node: tree_sitter.Node) -> str:
    return " ".join((node.text or b"").decode("utf-8", "replace").split())


def _section(module: str) -> int:
    """`__future__`, standard library, third party, or local."""
    top = module.partition(".")[0]
    if top == "__future__":
        return 0
    if top in sys.stdlib_module_names:
        return 1
    return 2 if top else 3


def _rank(name: str) -> tuple[int, str]:
    """Constants, then classes, then others, as isort sorts."""
    if name.isupper() and len(name) > 1:
        return 0, name
    if name[:1].isupper():
        return 1, name
    return 2, name


def _join(form: re.Match[str], known: list[_Import]) -> tuple[int, str] | None:
    """Returns the position and text that add a name to an existing statement for its module."""
    name = form["name"]
    for statement in known:
        if not form["module"] or not statement.takes_names or statement.module != form["module"]:
            continue
        first, last = statement.names[0], statement.names[-1]
        gap = " "
        if first.start_point.row != last.start_point.row:
            gap = "\n" + " " * last.start_point.column
        size = statement.end - statement.start + len(name) + 2
        if first.start_point.row == last.end_point.row and size > _MAX_LINE:
            continue
        for node in statement.names:
            if _rank(_text(node)) > _rank(name):
                return node.start_byte, f"{name},{gap}"
        return last.end_byte, f",{gap}{name}"
    return None


def _own_part(statement: _Import, form: re.Match[str]) -> tuple[int, int]:
    """A name in a longer statement, with its comma."""
    node = statement.find(form)
    assert node is not None
    index = statement.names.index(node)
    if index + 1 < len(statement.names):
        return node.start_byte, statement.names[index + 1].start_byte
    return statement.names[index - 1].end_byte, node.end_byte


def _insert(document: Document, form: re.Match[str], known: list[_Import]) -> tuple[int, str]:
    """Position and text of a new statement, with blank lines."""
    line = form.group() + "\n"
    if not known:
        return _open(document, line)
    module = form["module"] or form["name"]
    section = _section(module)
    order = (section, bool(form["module"]), module.lower())
    top = module.partition(".")[0]
    beside = [statement for statement in known if top and statement.module.partition(".")[0] == top]
    if not beside:
        beside = [statement for statement in known if _section(statement.module) == section]
    if beside:
        block = _block(known, beside[0])
        before = [statement for statement in block if statement.order <= order]
        return (before[-1].end if before else block[0].start), line
    lower = [statement for statement in known if _section(statement.module) < section]
    if lower:
        return lower[-1].end, "\n" + line
    return known[0].start, line + "\n"


def _block(known: list[_Import], statement: _Import) -> list[_Import]:
    """Statements adjacent to one, without blank lines between."""
    first = last = known.index(statement)
    while first and known[first - 1].end == known[first].start:
        first -= 1
    while last + 1 < len(known) and known[last].end == known[last + 1].start:
        last += 1
    return known[first : last + 1]


def _open(document: Document, line: str) -> tuple[int, str]:
    """Returns the place of a file's first import: below its docstring, otherwise above its first statement."""
    docstring, rest = _head(document)
    lines = document.source_lines
    if docstring is not None:
        below = lines.at(docstring.end_byte - 1) + 1
        return _line_start(document, below), "\n" + line
    text = line + "\n" * _blanks_before(rest)
    if rest is None:
        return len(document.source), text
    return lines.start(lines.at(rest.start_byte)), text


def _head(document: Document) -> tuple[tree_sitter.Node | None, tree_sitter.Node | None]:
    """A file's docstring, and its first other statement that is not an import."""
    assert document.syntax is not None
    children = document.syntax.parse(document.source).root_node.children
    nodes = [node for node in children if node.type != "comment"]
    docstring = None
    if nodes and nodes[0].type == "expression_statement" and nodes[0].children[0].type == "string":
        docstring = nodes.pop(0)
    rest = (node for node in nodes if node.type not in _TYPES)
    return docstring, next(rest, None)


def _blanks_before(node: tree_sitter.Node | None) -> int:
    if node is None:
        return 0
    return 2 if node.type in _DEFINITIONS else 1


def _own_lines(document: Document, statement: _Import, known: list[_Import]) -> tuple[int, int]:
    """A statement's lines, with the blank lines that separated it."""
    lines = document.source_lines
    start, end = statement.start, statement.end
    if len(_block(known, statement)) > 1:
        return start, end
    docstring, rest = _head(document)
    is_alone = len(known) == 1
    if statement is not known[0] or (is_alone and docstring is not None):
        above = lines.at(start) - 1
        if above >= 0 and lines.is_blank(above):
            start = lines.start(above)
        return start, end
    num_blank = _blanks_before(rest) if is_alone else 1
    for _ in range(num_blank):
        below = lines.at(end)
        if end < len(document.source) and lines.is_blank(below) and below + 1 < len(lines):
            end = lines.start(below + 1)
    return start, end
