"""Finds where a function is named but not called in a way that can be followed: as a value, in a string, in a macro."""

import re
from collections.abc import Iterator
from typing import Final

import tree_sitter

from midfill_infill.refactor.planning.bindings import SCRIPTS, list_above
from midfill_infill.refactor.planning.calls import matches, stands_for
from midfill_infill.refactor.planning.imported import READERS, plain
from midfill_infill.refactor.planning.scopes import Meaning, read_scopes
from midfill_infill.syntax.captures import text_of
from midfill_infill.text.document import Document

Mention = tuple[int, str]
"""A byte of the source, and what stands there."""

_WILD: Final = re.compile(r"[*?\[]")
_MEMBERS: Final = (
    "attribute", "member_expression", "scoped_identifier", "scoped_type_identifier", "selector_expression",
    "qualified_identifier", "field_expression", "field_access", "nested_identifier", "method_reference",
    "template_function", "generic_function", "generic_type",
)  # fmt: skip
_NAMES: Final = ("identifier", "type_identifier", "shorthand_property_identifier")
_CALLEES: Final = ("function", "constructor", "macro")
_CALLS: Final = ("method_invocation", "object_creation_expression", "composite_literal", "new_expression")
_IMPORTS: Final = (
    "import_statement", "import_from_statement", "import_declaration", "use_declaration", "using_declaration",
    "namespace_alias_definition", "import_alias", "package_declaration", "namespace_definition",
)  # fmt: skip
_OWN_NAMES: Final = ("globals()", "locals()", "vars()")
_MACROS: Final = ("preproc_arg", "token_tree", "macro_rule")
_QUOTES: Final = re.compile(r"^[A-Za-z]{0,3}(?:\"\"\"|'''|[\"'`])|(?:\"\"\"|'''|[\"'`])$")
_FOLLOWED: Final = ("variable_declarator", "assignment_expression", "expression_statement", "call_expression")
_SIGNS: Final = ("unary_expression", "await_expression", "list_splat", "dictionary_splat")
_TARGETS: Final = ("identifier", "object_pattern")
_WRAPPERS: Final = ("await_expression", "parenthesized_expression", "non_null_expression", "member_expression")


def may_call(document: Document, pattern: str) -> bool:
    """A cheap check: False only if the function's name is nowhere in a document."""
    last = plain(pattern).rpartition(".")[2].rstrip("!")
    return bool(_WILD.search(last)) or last.encode() in document.source


def find_mentions(document: Document, pattern: str) -> Iterator[Mention]:
    """Uses that no call of the function is found for, in text order. None for a pattern whose last name is wild."""
    wanted = plain(pattern)
    names = wanted.rsplit(".", 2)[-2:]
    if not _WILD.search("".join(names)) and any(name.encode() in document.source for name in names):
        yield from _Mentions(document, wanted).find()


class _Mentions:
    def __init__(self, document: Document, wanted: str) -> None:
        self._document, self._scopes, self._wanted = document, read_scopes(document), wanted
        self._module, _, self._last = wanted.rpartition(".")
        bindings = [each for named in self._scopes.bindings.values() for each in named]
        aliases = (each.name for each in bindings if each.path is not None and stands_for((each.path,), wanted))
        self._names = {self._last, *(name for name in aliases if name not in ("*", "."))}
        self._bound = {each.node.start_byte for each in bindings}

    def find(self) -> Iterator[Mention]:
        words = sorted({*self._names, self._module.rpartition(".")[2] or self._last})
        pattern = re.compile(rb"(?<![\w$])(?:%b)(?![\w$])" % b"|".join(re.escape(word.encode()) for word in words))
        lines = self._document.source_lines
        seen = set[tuple[int, str]]()
        for match in pattern.finditer(self._document.source):
            said = self._read(match.group().decode(), *match.span())
            if said is not None and (lines.at(match.start()), said) not in seen:
                seen.add((lines.at(match.start()), said))
                yield match.start(), said

    def _read(self, word: str, start: int, end: int) -> str | None:
        """What stands at a word; None if that is followed, or is something else."""
        root = self._scopes.root
        node = root.descendant_for_byte_range(start, end)
        if node is None or "comment" in node.type:
            return None
        around = list(_list_around(node))
        kinds = [each.type for each in around]
        if (text := next((each for each in around[:2] if _is_string(each)), None)) is not None:
            return self._read_string(text, word)
        statement = next((each for each in around if each.type in _IMPORTS), None)
        if statement is not None and statement.type != "namespace_definition":
            return self._read_import(statement)
        if word not in self._names:
            return None
        if any(kind in _MACROS for kind in kinds[:4]):
            before = self._document.source[max(start - 200, 0) : start].decode("utf-8", "replace")
            prefix = re.search(r"[\w:.]*$", before)
            name = plain((prefix[0] if prefix else "") + word)
            return f"{name} stands in a macro" if self._is_old(name, start) else None
        return self._read_name(node, start)

    def _read_name(self, node: tree_sitter.Node, start: int) -> str | None:
        above = node.parent
        if above is None:
            return None
        if above.type == "export_specifier":
            source = next((each for each in _list_around(above) if each.type == "export_statement"), above)
            path = source.child_by_field_name("source")
            written = text_of(node)
            name = f"{plain(_strip(path))}.{written}" if path is not None else written
            is_old = stands_for((name,), self._wanted) if path is not None else self._is_old(name, start)
            is_first = above.child_by_field_name("name") == node
            return f"{written} is exported again" if is_old and is_first else None
        if start in self._bound and above.type != "object_pattern":
            return None
        taken = _find_object(node)
        if taken is not None:
            name = f"{plain(text_of(taken))}.{text_of(node)}"
            return f"{name} is taken out of its module" if self._is_old(name, start) else None
        whole = node
        while whole.parent is not None and whole.parent.type in _MEMBERS and _is_last(whole):
            whole = whole.parent
        is_name = node.type in _NAMES or whole is not node
        if not is_name or _is_callee(whole) or _is_label(node):
            return None
        name = plain(text_of(whole))
        if not self._is_old(name, start):
            return None
        kind = whole.parent.type if whole.parent is not None else ""
        if kind == "decorator":
            return f"{name} is used as a decorator"
        return f"{name} is exported again" if kind == "export_statement" else f"{name} is used, not called"

    def _is_old(self, name: str, at: int) -> bool:
        return matches(self._wanted, name, self._scopes.resolve(name, at))

    def _read_import(self, statement: tree_sitter.Node) -> str | None:
        """An import that offers the function to others."""
        text, language = text_of(statement), self._document.language or ""
        path = self._document.path
        is_public = statement.type == "use_declaration" and statement.children[0].type == "visibility_modifier"
        is_public |= statement.type == "using_declaration" and _is_namespace(statement)
        is_package = path is not None and path.name == "__init__.py"
        for name, full in READERS[language](text):
            is_again = re.search(rf"\b{re.escape(name)}\s+as\s+{re.escape(name)}\b", text) is not None
            if language == "rust" and full.startswith("super."):
                full = next(iter(self._scopes.resolve(full, statement.start_byte).paths), full)
            is_all = name == "*" and stands_for((f"{full}.{self._last}",), self._wanted)
            if (is_public or is_package or is_again) and (is_all or stands_for((full,), self._wanted)):
                return f"{self._last} is exported again"
        return None

    def _read_string(self, node: tree_sitter.Node, word: str) -> str | None:
        text = _strip(node)
        path = plain(text.replace(":", "."))
        is_imported = any(each.type in (*_IMPORTS, "export_statement") for each in _list_around(node))
        if "." in self._wanted and stands_for((path,), self._wanted) and not is_imported and not _is_required(node):
            return f"{text} is named in a string"
        above = node.parent
        if above is None:
            return None
        if text in self._names and self._is_listed(node):
            return f"{text} is exported again"
        is_own = above.type == "subscript" and text_of(above.named_children[0]) in _OWN_NAMES
        if text in self._names and is_own and self._is_old(text, node.start_byte):
            return f"{text} is looked up by its name"
        if text == self._last and any(self._is_module(each) for each in _list_beside(node)):
            return f"{text} is looked up by its name"
        is_module = bool(self._module) and any(f".{path}".endswith(f".{each}") for each in (self._module, self._wanted))
        return self._read_module(node, text) if is_module else None

    def _is_listed(self, node: tree_sitter.Node) -> bool:
        """True in an `__all__` of a file that knows the function."""
        meaning = self._scopes.resolve(_strip(node), len(self._document.source))
        around = (each for each in _list_around(node) if each.type in ("assignment", "augmented_assignment", "call"))
        is_all = any(text_of(each).startswith("__all__") for each in around)
        return is_all and stands_for(meaning.paths, self._wanted)

    def _is_module(self, node: tree_sitter.Node) -> bool:
        name = plain(text_of(node)) if node.child_count < 8 else ""
        found = self._scopes.resolve(name, node.start_byte) if name else Meaning(is_other=True)
        return bool(self._module) and matches(self._module, name, found)

    def _read_module(self, node: tree_sitter.Node, text: str) -> str | None:
        above = node.parent
        if above is None or above.type in (*_IMPORTS, "import_require_clause"):
            return None
        if above.type == "export_statement":
            is_all = above.child_by_field_name("declaration") is None and "*" in text_of(above)
            return f"all of {text} is exported again" if is_all else None
        if above.type not in ("arguments", "argument_list", "subscript", "subscript_expression"):
            return None
        if self._document.language in SCRIPTS:
            whole = above.parent
            if not _is_required(node):
                return None
            while whole is not None and whole.parent is not None and whole.parent.type in _WRAPPERS:
                whole = whole.parent
            above = whole.parent if whole is not None else None
            left = above.child_by_field_name("left") if above is not None else None
            is_kept = above is not None and above.type in _FOLLOWED and (left is None or left.type in _TARGETS)
            return None if is_kept else f"{text} is imported in a way that is not followed"
        return f"{text} is imported by its name"


def _list_around(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """A node and those around it."""
    yield node
    yield from list_above(node)


def _list_beside(node: tree_sitter.Node) -> list[tree_sitter.Node]:
    """The other parts of the call or the subscript that a string is in."""
    above = node.parent
    if above is None or above.type not in ("arguments", "argument_list", "subscript", "subscript_expression"):
        return []
    return [each for each in above.named_children if each != node]


def _is_namespace(node: tree_sitter.Node) -> bool:
    above = node.parent.parent if node.parent is not None else None
    return above is not None and above.type == "namespace_definition" and bool(above.child_by_field_name("name"))


def _is_required(node: tree_sitter.Node) -> bool:
    call = node.parent.parent if node.parent is not None else None
    name = call.child_by_field_name("function") if call is not None else None
    return name is not None and text_of(name) in ("require", "import")


def _find_object(node: tree_sitter.Node) -> tree_sitter.Node | None:
    """What JavaScript takes a name out of, as `const { load } = api` does."""
    pattern = node.parent if node.type.endswith("pattern") else node.parent and node.parent.parent
    if pattern is None or pattern.type != "object_pattern" or pattern.parent is None:
        return None
    return pattern.parent.child_by_field_name("value")


def _is_last(node: tree_sitter.Node) -> bool:
    above = node.parent
    if above is None:
        return False
    if above.type in ("template_function", "generic_function", "generic_type"):
        return above.named_children[0] == node
    return above.end_byte == node.end_byte


def _is_callee(node: tree_sitter.Node) -> bool:
    above = node.parent
    while above is not None and above.type in _SIGNS:
        node, above = above, above.parent
    if above is None:
        return False
    if any(above.child_by_field_name(field) == node for field in _CALLEES):
        return True
    return above.type in _CALLS and node in (above.child_by_field_name("name"), above.child_by_field_name("type"))


def _is_label(node: tree_sitter.Node) -> bool:
    """True for the name of an argument or of a member that is defined."""
    above = node.parent
    return above is not None and (
        (above.type in ("keyword_argument", "keyed_element") and above.named_children[0] == node)
        or (above.type not in _MEMBERS and node in map(above.child_by_field_name, ("name", "declarator", "pattern")))
        or above.type in ("global_statement", "nonlocal_statement", "labeled_statement", "goto_statement")
    )


def _is_string(node: tree_sitter.Node) -> bool:
    return node.type in (
        "string",
        "string_literal",
        "interpreted_string_literal",
        "raw_string_literal",
        "template_string",
    )


def _strip(node: tree_sitter.Node) -> str:
    return _QUOTES.sub("", text_of(node)).lstrip("./@")
