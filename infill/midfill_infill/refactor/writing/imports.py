"""Adds Python import statements at the top of a document, sorted, and removes them again. Knows no files.

A statement is `import m`, `import m as a` or `from m import n`. `take_out` exactly reverts `put_in`.
"""

import builtins
import re
import symtable
import sys
from collections.abc import Collection
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
        if form["module"]:
            written, fits = form["name"], self.is_from and self.module == form["module"]
        else:
            written, fits = form["name"] + (f" as {form['alias']}" if form["alias"] else ""), not self.is_from
        return next((node for node in self.names if fits and _text(node) == written), None)


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
    used, bound, pending = set[str](), set[str](), [module]
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
    """The name that a statement binds."""
    form = _FORM.fullmatch(statement)
    return (form["alias"] or form["name"].partition(".")[0]) if form else ""


def put_in(document: Document, statement: str) -> Edit | None:
    """The edit that adds a statement; None if it exists, or if the document's encoding lacks a name."""
    form, found = _FORM.fullmatch(statement), _read(document)
    if form is None or document.language != "python" or any(each.find(form) is not None for each in found):
        return None
    at, text = _join(form, found) or _insert(document, form, found)
    if at == len(document.source) and not document.source.endswith((b"\n", b"\r")) and text.endswith("\n"):
        text = "\n" * bool(at) + text.rstrip("\n")
    raw = document.to_raw(at)
    try:
        return Edit(raw, raw, document.encode(text))
    except MidfillError:
        return None


def take_out(document: Document, statement: str) -> Edit | None:
    """The edit that removes a statement and what `put_in` added around it; None if it is not separate."""
    form, found = _FORM.fullmatch(statement), _read(document)
    each = next((each for each in found if form and each.find(form) is not None), None)
    if form is None or each is None:
        return None
    start, end = _own_lines(document, each, found) if len(each.names) == 1 else _own_part(each, form)
    if start and len(each.names) == 1 and end == len(document.source) and not document.source.endswith((b"\n", b"\r")):
        start = document.source_lines.end(document.source_lines.at(start) - 1)
    return Edit(document.to_raw(start), document.to_raw(end), b"")


def weave(document: Document, regions: Regions, wanted: Collection[str], unwanted: Collection[str] = ()) -> Regions:
    """The document's new bytes, `regions`, with the wanted statements and without the unwanted ones. An unwanted
    statement stays while its name is used; a wanted one is skipped if it does not fit.
    """
    for statement in sorted(wanted):
        if (edit := put_in(replace(document, data=regions.data), statement)) is not None:
            after = regions.edit(edit)
            if _undefined(document, after) is not None or _undefined(document, regions) is None:
                regions = after
    for statement in sorted(set(unwanted) - set(wanted), reverse=True):
        if (edit := take_out(replace(document, data=regions.data), statement)) is not None:
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
    found = []
    for node in document.syntax.parse(document.source).root_node.children:
        if node.type not in _TYPES or node.has_error:
            continue
        start, last = lines.start(lines.at(node.start_byte)), lines.at(node.end_byte - 1)
        end = lines.start(last + 1) if last + 1 < len(lines) else len(document.source)
        if (
            document.source[start : node.start_byte].strip()
            or document.source[node.end_byte : end].lstrip()[:1] not in _REST
        ):
            continue
        module = node.child_by_field_name("module_name")
        names = tuple(node.children_by_field_name("name"))
        is_from = node.type != "import_statement"
        in_brackets = any(child.type == "(" for child in node.children)
        is_short = node.start_point.row == node.end_point.row
        named = _text(module) if module else "__future__" if is_from else _text(names[0]).partition(" ")[0]
        found.append(_Import(start, end, named, is_from, names, is_from and bool(names) and (in_brackets or is_short)))
    return found


def _text(node: tree_sitter.Node) -> str:
    return " ".join((node.text or b"").decode("utf-8", "replace").split())


def _section(module: str) -> int:
    """`__future__`, standard library, third party, or local."""
    top = module.partition(".")[0]
    return 0 if top == "__future__" else 3 if not top else 1 if top in sys.stdlib_module_names else 2


def _rank(name: str) -> tuple[int, str]:
    """Constants, then classes, then others, as isort sorts."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2), name


def _join(form: re.Match[str], found: list[_Import]) -> tuple[int, str] | None:
    """Returns the position and text that add a name to an existing statement for its module."""
    for each in found:
        if not form["module"] or not each.takes_names or each.module != form["module"]:
            continue
        first, last = each.names[0], each.names[-1]
        if first.start_point.row == last.end_point.row and each.end - each.start + len(form["name"]) + 2 > _MAX_LINE:
            continue
        after = next((node for node in each.names if _rank(_text(node)) > _rank(form["name"])), None)
        gap = "\n" + " " * last.start_point.column if last.start_point.row != first.start_point.row else " "
        return (
            (last.end_byte, f",{gap}{form['name']}") if after is None else (after.start_byte, f"{form['name']},{gap}")
        )
    return None


def _own_part(each: _Import, form: re.Match[str]) -> tuple[int, int]:
    """A name in a longer statement, with its comma."""
    place = next(place for place, node in enumerate(each.names) if node == each.find(form))
    node = each.names[place]
    if place + 1 < len(each.names):
        return node.start_byte, each.names[place + 1].start_byte
    return each.names[place - 1].end_byte, node.end_byte


def _insert(document: Document, form: re.Match[str], found: list[_Import]) -> tuple[int, str]:
    """Position and text of a new statement, with blank lines."""
    line = form.group() + "\n"
    if not found:
        return _open(document, line)
    module = form["module"] or form["name"]
    order = (_section(module), bool(form["module"]), module.lower())
    kin = [each for each in found if each.module.partition(".")[0] == module.partition(".")[0] != ""]
    for beside in [each for each in found if each.order[0] == order[0]] if not kin else [*kin]:
        block = _block(found, beside)
        before = [each for each in block if each.order <= order]
        return (before[-1].end, line) if before else (block[0].start, line)
    lower = [each for each in found if each.order[0] < order[0]]
    return (lower[-1].end, "\n" + line) if lower else (found[0].start, line + "\n")


def _block(found: list[_Import], one: _Import) -> list[_Import]:
    """Statements adjacent to one, without blank lines between."""
    first = last = found.index(one)
    while first and found[first - 1].end == found[first].start:
        first -= 1
    while last + 1 < len(found) and found[last].end == found[last + 1].start:
        last += 1
    return found[first : last + 1]


def _open(document: Document, line: str) -> tuple[int, str]:
    """Returns the place of a file's first import: below its docstring, otherwise above its first statement."""
    doc, rest = _head(document)
    lines = document.source_lines
    if doc is not None:
        below = lines.at(doc.end_byte - 1) + 1
        return (lines.start(below) if below < len(lines) else len(document.source)), "\n" + line
    at = len(document.source) if rest is None else lines.start(lines.at(rest.start_byte))
    return at, line + "\n" * _blanks_before(rest)


def _head(document: Document) -> tuple[tree_sitter.Node | None, tree_sitter.Node | None]:
    """A file's docstring, and its first other statement that is not an import."""
    assert document.syntax is not None
    nodes = [node for node in document.syntax.parse(document.source).root_node.children if node.type != "comment"]
    is_doc = bool(nodes) and nodes[0].type == "expression_statement" and nodes[0].children[0].type == "string"
    rest = (node for node in nodes[is_doc:] if node.type not in _TYPES)
    return (nodes[0] if is_doc else None), next(rest, None)


def _blanks_before(node: tree_sitter.Node | None) -> int:
    return 0 if node is None else 2 if node.type in _DEFINITIONS else 1


def _own_lines(document: Document, each: _Import, found: list[_Import]) -> tuple[int, int]:
    """A statement's lines, with the blank lines that separated it."""
    source, lines = document.source, document.source_lines
    start, end = each.start, each.end
    if len(_block(found, each)) > 1:
        return start, end
    doc, rest = _head(document)
    is_first = each is found[0]
    if not is_first or (len(found) == 1 and doc is not None):
        above = lines.at(start) - 1
        start = lines.start(above) if above >= 0 and lines.is_blank(above) else start
        return start, end
    for _ in range(1 if len(found) > 1 else _blanks_before(rest)):
        below = lines.at(end)
        if end < len(source) and lines.is_blank(below) and below + 1 < len(lines):
            end = lines.start(below + 1)
    return start, end
