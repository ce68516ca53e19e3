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
from midfill_infill.text.encoding import UTF8_BOM
from midfill_infill.text.spans import Edit

# The longest line that a name is added to; a name that does not fit gets its own statement.
_MAX_LINE: Final = 88
_FORM: Final = re.compile(r"(?:from (?P<module>[\w.]+) )?import (?P<name>[\w.]+)(?: as (?P<alias>\w+))?")
_NEVER_UNDEFINED: Final = frozenset((*dir(builtins), "__file__", "__path__", "__builtins__", "__annotations__"))
# With this statement `symtable` leaves out the names in annotations.
_FUTURE_ANNOTATIONS: Final = re.compile(r"^from __future__ import annotations\b", re.MULTILINE)
_STAR_IMPORT: Final = re.compile(r"^\s*from\s+\S+\s+import\s+\*", re.MULTILINE)
# What may follow a statement on its line.
_MAY_FOLLOW: Final = (b"", b"#")
_IMPORT_TYPES: Final = ("import_statement", "import_from_statement", "future_import_statement")
_DEFINITIONS: Final = ("function_definition", "class_definition", "decorated_definition")


@dataclass(frozen=True)
class _Import:
    """A statement that has its lines to itself, from byte `start` to `end`. `module` is its module, the first one of
    `import a, b`; `names` are as written. `takes_names`: names can be added to it.
    """

    start: int
    end: int
    module: str
    is_from: bool
    names: tuple[tree_sitter.Node, ...]
    takes_names: bool

    @property
    def order(self) -> tuple[int, bool, str]:
        """The key by which statements are sorted."""
        return _section(self.module), self.is_from, self.module.lower()

    def find(self, form: re.Match[str]) -> tree_sitter.Node | None:
        """The node of the name here that the statement `form` would import; None if it is not here."""
        if self.is_from != bool(form["module"]) or (self.is_from and self.module != form["module"]):
            return None
        written = form.group().partition("import ")[2]
        return next((node for node in self.names if _text(node) == written), None)


@lru_cache(maxsize=64)
def find_undefined(source: bytes) -> frozenset[str] | None:
    """The names that a module uses and does not bind; None for source with a syntax error or a wildcard import."""
    text = source.removeprefix(UTF8_BOM).decode("utf-8", "replace")
    try:
        module = symtable.symtable(_FUTURE_ANNOTATIONS.sub("pass", text), "?", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return None
    if _STAR_IMPORT.search(text):
        return None
    used: set[str] = set()
    bound = {table.get_name() for table in module.get_children()}
    pending = [module]
    while pending:
        table = pending.pop()
        pending += table.get_children()
        # `lookup` looks at all children: for each of the module's functions, too, it would take quadratic time.
        names = set(table.get_identifiers()).difference(bound if table is module else ())
        for symbol in map(table.lookup, names):
            is_bound = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
            if is_bound and (table is module or symbol.is_declared_global()):
                bound.add(symbol.get_name())
            elif table is module or symbol.is_global():
                used.add(symbol.get_name())
    return frozenset(used - bound - _NEVER_UNDEFINED)


def bound_name(statement: str) -> str:
    """The name that an import statement binds; "" if it is no statement of the three forms."""
    form = _FORM.fullmatch(statement)
    if form is None:
        return ""
    return form["alias"] or form["name"].partition(".")[0]


def has_import(document: Document, statement: str) -> bool:
    """True if the document has an import statement at its top level."""
    form = _FORM.fullmatch(statement)
    return form is not None and _find_import(_read_imports(document), form) is not None


def put_in(document: Document, statement: str) -> Edit | None:
    """The edit that adds a statement; None if the document has that already, or if its encoding lacks a character."""
    form = _FORM.fullmatch(statement)
    present = _read_imports(document)
    if form is None or document.language != "python" or _find_import(present, form) is not None:
        return None
    at, text = _join(form, present) or _insert(document, form, present)
    if at == len(document.source) and not _ends_with_newline(document) and text.endswith("\n"):
        text = text.rstrip("\n")
        if at:
            text = "\n" + text
    start = document.to_data(at)
    try:
        return Edit(start, start, document.encode(text))
    except MidfillError:
        return None


def _find_import(present: list[_Import], form: re.Match[str]) -> _Import | None:
    """The statement of the document that imports what the statement `form` would import."""
    return next((statement for statement in present if statement.find(form) is not None), None)


def _ends_with_newline(document: Document) -> bool:
    return document.source.endswith((b"\n", b"\r"))


def take_out(document: Document, statement: str) -> Edit | None:
    """The edit that removes a statement and what `put_in` added around it; None if it is not on lines of its own."""
    form = _FORM.fullmatch(statement)
    if form is None:
        return None
    present = _read_imports(document)
    taken = _find_import(present, form)
    if taken is None:
        return None
    if len(taken.names) > 1:
        start, end = _name_span(taken, form)
    else:
        start, end = _lines_span(document, taken, present)
        if start and end == len(document.source) and not _ends_with_newline(document):
            lines = document.source_lines
            start = lines.end(lines.at(start) - 1)
    return Edit(document.to_data(start), document.to_data(end), b"")


def weave(document: Document, regions: Regions, wanted: Collection[str], unwanted: Collection[str] = ()) -> Regions:
    """Adds the wanted import statements to `regions`, the document's new bytes, and removes the unwanted ones. Skips a
    wanted one that would make a readable module unreadable, and an unwanted one whose name is still used.
    """
    for statement in sorted(wanted):
        edit = put_in(replace(document, data=regions.data), statement)
        if edit is not None:
            after = regions.edit(edit)
            if _find_undefined_in(document, after) is not None or _find_undefined_in(document, regions) is None:
                regions = after
    for statement in sorted(set(unwanted) - set(wanted), reverse=True):
        edit = take_out(replace(document, data=regions.data), statement)
        if edit is not None:
            after = regions.edit(edit)
            if not _uses(replace(document, data=after.data).source, bound_name(statement)):
                regions = after
    return regions


def _uses(source: bytes, name: str) -> bool:
    """True if a module uses a name that it does not bind, and if it mentions it where that cannot be told."""
    undefined = find_undefined(source)
    if undefined is None:
        return re.search(rb"\b%b\b" % name.encode(), source) is not None
    return name in undefined


def _find_undefined_in(document: Document, regions: Regions) -> frozenset[str] | None:
    """As `find_undefined`, for the bytes of `regions` in the encoding of the document."""
    return find_undefined(replace(document, data=regions.data).source)


def _read_imports(document: Document) -> list[_Import]:
    """The import statements at the top level that have their lines to themselves, in document order."""
    if document.language != "python" or document.syntax is None:
        return []
    lines = document.source_lines
    statements: list[_Import] = []
    for node in document.syntax.parse(document.source).root_node.children:
        if node.type not in _IMPORT_TYPES or node.has_error:
            continue
        start = _line_start(document, lines.at(node.start_byte))
        end = _line_start(document, lines.at(node.end_byte - 1) + 1)
        before = document.source[start : node.start_byte]
        behind = document.source[node.end_byte : end].lstrip()
        if before.strip() or behind[:1] not in _MAY_FOLLOW:
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
    """The module of an import statement, the first one of `import a, b`."""
    module = node.child_by_field_name("module_name")
    if module is not None:
        return _text(module)
    if node.type != "import_statement":
        return "__future__"
    return _text(names[0]).partition(" ")[0]


def _line_start(document: Document, line: int) -> int:
    """The byte at which a line begins, behind a byte order mark; after the last line the end of the source."""
    if line < len(document.source_lines):
        return document.source_lines.start(line)
    return len(document.source)


def _text(node: tree_sitter.Node) -> str:
    """The text of a node with single spaces."""
    return " ".join((node.text or b"").decode("utf-8", "replace").split())


def _section(module: str) -> int:
    """The section that a module is sorted into: 0 `__future__`, 1 standard library, 2 other packages, 3 relative."""
    top = module.partition(".")[0]
    if top == "__future__":
        return 0
    if top in sys.stdlib_module_names:
        return 1
    return 2 if top else 3


def _sort_key(name: str) -> tuple[int, str]:
    """The key that sorts imported names as isort does: constants, then classes, then others."""
    if name.isupper() and len(name) > 1:
        return 0, name
    if name[:1].isupper():
        return 1, name
    return 2, name


def _join(form: re.Match[str], present: list[_Import]) -> tuple[int, str] | None:
    """The byte and the text that add a name to a statement `from m import n` of its module; None if none takes it."""
    name = form["name"]
    for statement in present:
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
            if _sort_key(_text(node)) > _sort_key(name):
                return node.start_byte, f"{name},{gap}"
        return last.end_byte, f",{gap}{name}"
    return None


def _name_span(statement: _Import, form: re.Match[str]) -> tuple[int, int]:
    """The span of a name in a statement with several names, with a comma."""
    node = statement.find(form)
    assert node is not None
    index = statement.names.index(node)
    if index + 1 < len(statement.names):
        return node.start_byte, statement.names[index + 1].start_byte
    return statement.names[index - 1].end_byte, node.end_byte


def _insert(document: Document, form: re.Match[str], present: list[_Import]) -> tuple[int, str]:
    """The byte and the text of a new statement with blank lines, beside those of its package or of its section."""
    line = form.group() + "\n"
    if not present:
        return _insert_first(document, line)
    module = form["module"] or form["name"]
    section = _section(module)
    order = (section, bool(form["module"]), module.lower())
    top = module.partition(".")[0]
    related = [statement for statement in present if top and statement.module.partition(".")[0] == top]
    if not related:
        related = [statement for statement in present if _section(statement.module) == section]
    if related:
        block = _block(present, related[0])
        before = [statement for statement in block if statement.order <= order]
        return (before[-1].end if before else block[0].start), line
    earlier_sections = [statement for statement in present if _section(statement.module) < section]
    if earlier_sections:
        last = earlier_sections[-1]
        is_followed = _block(present, last)[-1] is not last  # sections stand together here, without blank lines
        return last.end, line if is_followed else "\n" + line
    return present[0].start, line + "\n"


def _block(present: list[_Import], statement: _Import) -> list[_Import]:
    """A statement and those above and below it, up to the first line between them that is no import."""
    first = last = present.index(statement)
    while first and present[first - 1].end == present[first].start:
        first -= 1
    while last + 1 < len(present) and present[last].end == present[last + 1].start:
        last += 1
    return present[first : last + 1]


def _insert_first(document: Document, line: str) -> tuple[int, str]:
    """The byte and the text of a file's first import: below its docstring, otherwise above its first statement."""
    docstring, first_statement = _find_head(document)
    lines = document.source_lines
    if docstring is not None:
        below = lines.at(docstring.end_byte - 1) + 1
        return _line_start(document, below), "\n" + line
    text = line + "\n" * _count_blanks_before(first_statement)
    if first_statement is None:
        return len(document.source), text
    return _line_start(document, lines.at(first_statement.start_byte)), text


def _find_head(document: Document) -> tuple[tree_sitter.Node | None, tree_sitter.Node | None]:
    """A file's docstring, and its first statement that is neither that nor an import; None for what it lacks."""
    assert document.syntax is not None
    children = document.syntax.parse(document.source).root_node.children
    nodes = [node for node in children if node.type != "comment"]
    docstring = None
    if nodes and nodes[0].type == "expression_statement" and nodes[0].children[0].type == "string":
        docstring = nodes.pop(0)
    statements = (node for node in nodes if node.type not in _IMPORT_TYPES)
    return docstring, next(statements, None)


def _count_blanks_before(node: tree_sitter.Node | None) -> int:
    """The number of blank lines between imports and the first statement of a file."""
    if node is None:
        return 0
    return 2 if node.type in _DEFINITIONS else 1


def _lines_span(document: Document, statement: _Import, present: list[_Import]) -> tuple[int, int]:
    """The span of a statement's lines, with the blank lines that `put_in` adds to separate it."""
    lines = document.source_lines
    start, end = statement.start, statement.end
    if len(_block(present, statement)) > 1:
        return start, end
    docstring, first_statement = _find_head(document)
    is_alone = len(present) == 1
    if statement is not present[0] or (is_alone and docstring is not None):
        above = lines.at(start) - 1
        if above >= 0 and lines.is_blank(above):
            start = lines.start(above)
        return start, end
    num_blank = _count_blanks_before(first_statement) if is_alone else 1
    for _ in range(num_blank):
        below = lines.at(end)
        if end < len(document.source) and lines.is_blank(below) and below + 1 < len(lines):
            end = lines.start(below + 1)
    return start, end
