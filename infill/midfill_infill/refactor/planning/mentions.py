"""Finds uses of a function that are no calls: as a value, in a string, in a macro, in an import for others."""

import re
from collections.abc import Iterator
from typing import Final

import tree_sitter

from midfill_infill.refactor.planning.bindings import SCRIPTS, list_above
from midfill_infill.refactor.planning.calls import matches, stands_for
from midfill_infill.refactor.planning.imported import plain, read_import
from midfill_infill.refactor.planning.scopes import Meaning, read_scopes
from midfill_infill.syntax.captures import text_of
from midfill_infill.text.document import Document

Mention = tuple[int, str]
"""A byte of the source, and a remark that says how the function is used there."""

_WILD: Final = re.compile(r"[*?\[]")  # of a pattern
# Types of syntax nodes in all languages. Names with several parts:
_QUALIFIED: Final = (
    "attribute", "member_expression", "scoped_identifier", "scoped_type_identifier", "selector_expression",
    "qualified_identifier", "field_expression", "field_access", "nested_identifier", "method_reference",
    "template_function", "generic_function", "generic_type",
)  # fmt: skip
_NAME_TYPES: Final = ("identifier", "type_identifier", "shorthand_property_identifier")
_CALLEE_FIELDS: Final = ("function", "constructor", "macro")
# Calls that name what they call in the field `name` or `type`:
_OTHER_CALLS: Final = ("method_invocation", "object_creation_expression", "composite_literal", "new_expression")
_IMPORTS: Final = (
    "import_statement", "import_from_statement", "import_declaration", "use_declaration", "using_declaration",
    "namespace_alias_definition", "import_alias", "package_declaration", "namespace_definition",
)  # fmt: skip
_PREFIXED: Final = ("unary_expression", "await_expression", "list_splat", "dictionary_splat")  # see `_is_callee`
_NAMESPACE_CALLS: Final = ("globals()", "locals()", "vars()")
_MACROS: Final = ("preproc_arg", "token_tree", "macro_rule")
_STRINGS: Final = (  # with their quotes
    "string", "string_literal", "interpreted_string_literal", "raw_string_literal", "template_string"
)  # fmt: skip
_QUOTES: Final = re.compile(r"^[A-Za-z]{0,3}(?:\"\"\"|'''|[\"'`])|(?:\"\"\"|'''|[\"'`])$")
# An import by a call is followed if it is in one of these nodes, or in wrappers there, and assigned to such a target.
_FOLLOWED_PARENTS: Final = ("variable_declarator", "assignment_expression", "expression_statement", "call_expression")
_FOLLOWED_TARGETS: Final = ("identifier", "object_pattern")
_WRAPPERS: Final = ("await_expression", "parenthesized_expression", "non_null_expression", "member_expression")
_ARGUMENT_LISTS: Final = ("arguments", "argument_list", "subscript", "subscript_expression")


def may_call(document: Document, pattern: str) -> bool:
    """A cheap check for calls: False if the function's last name is nowhere in a document."""
    last = plain(pattern).rpartition(".")[2].rstrip("!")
    return bool(_WILD.search(last)) or last.encode() in document.source


def find_mentions(document: Document, pattern: str) -> Iterator[Mention]:
    """The uses of a function other than calls, in text order; none if one of the last two names of `pattern` has a
    wildcard, because then no name can be searched for.
    """
    function = plain(pattern)
    last_names = function.rsplit(".", 2)[-2:]
    if not _WILD.search("".join(last_names)) and any(name.encode() in document.source for name in last_names):
        yield from _Mentions(document, function).find()


class _Mentions:
    """Looks for one function, given as a dotted path, in one document."""

    def __init__(self, document: Document, function: str) -> None:
        self._document = document
        self._scopes = read_scopes(document)
        self._function = function
        self._module, _, self._last_name = function.rpartition(".")
        self._local_names = {self._last_name}
        self._binding_starts: set[int] = set()
        for bindings in self._scopes.bindings.values():
            for binding in bindings:
                self._binding_starts.add(binding.node.start_byte)
                is_alias = binding.path is not None and stands_for((binding.path,), function)
                if is_alias and binding.name not in ("*", "."):
                    self._local_names.add(binding.name)

    def find(self) -> Iterator[Mention]:
        """The mentions in text order, without those that repeat a remark on the same line. Looks at each word that is a
        name of the function in this document, or the last name of its module, which a string may import.
        """
        words = self._local_names | {self._module.rpartition(".")[2] or self._last_name}
        alternatives = b"|".join(re.escape(word.encode()) for word in sorted(words))
        pattern = re.compile(rb"(?<![\w$])(?:%b)(?![\w$])" % alternatives)
        lines = self._document.source_lines
        seen: set[tuple[int, str]] = set()
        for match in pattern.finditer(self._document.source):
            remark = self._read(match.group().decode(), *match.span())
            line = lines.at(match.start())
            if remark is not None and (line, remark) not in seen:
                seen.add((line, remark))
                yield match.start(), remark

    def _read(self, word: str, start: int, end: int) -> str | None:
        """The remark on a word of the source; None for calls, bindings and words that mean something else."""
        node = self._scopes.root.descendant_for_byte_range(start, end)
        if node is None or "comment" in node.type:
            return None
        around = list(_self_and_above(node))
        for possible_string in around[:2]:  # the text of a string is a node inside of it
            if possible_string.type in _STRINGS:
                return self._read_string(possible_string)
        statement = next((outer for outer in around if outer.type in _IMPORTS), None)
        if statement is not None and statement.type != "namespace_definition":
            return self._read_import(statement)
        if word not in self._local_names:
            return None
        if any(outer.type in _MACROS for outer in around[:4]):
            return self._read_macro(word, start)
        return self._read_name(node, start)

    def _read_macro(self, word: str, start: int) -> str | None:
        """The remark on a word in a macro, whose text has no syntax tree; the path before the word is read too."""
        before = self._document.source[max(start - 200, 0) : start].decode("utf-8", "replace")
        prefix = re.search(r"[\w:.]*$", before)
        name = plain((prefix[0] if prefix else "") + word)
        if not self._may_mean_function(name, start):
            return None
        return f"{name} stands in a macro"

    def _read_name(self, node: tree_sitter.Node, start: int) -> str | None:
        """The remark on a name in code."""
        above = node.parent
        if above is None:
            return None
        if above.type == "export_specifier":
            return self._read_export(node, above, start)
        if start in self._binding_starts and above.type != "object_pattern":
            return None
        destructured = _find_destructured(node)
        if destructured is not None:
            name = f"{plain(text_of(destructured))}.{text_of(node)}"
            return f"{name} is taken out of its module" if self._may_mean_function(name, start) else None
        whole = node
        while whole.parent is not None and whole.parent.type in _QUALIFIED and _is_last(whole):
            whole = whole.parent
        is_name = node.type in _NAME_TYPES or whole is not node
        if not is_name or _is_callee(whole) or _is_label(node):
            return None
        name = plain(text_of(whole))
        if not self._may_mean_function(name, start):
            return None
        kind = whole.parent.type if whole.parent is not None else ""
        if kind == "decorator":
            return f"{name} is used as a decorator"
        if kind == "export_statement":
            return f"{name} is exported again"
        return f"{name} is used, not called"

    def _read_export(self, node: tree_sitter.Node, specifier: tree_sitter.Node, start: int) -> str | None:
        """The remark on a name in the braces of JavaScript's `export {...}`."""
        written = text_of(node)
        statement = next((outer for outer in _self_and_above(specifier) if outer.type == "export_statement"), specifier)
        path = statement.child_by_field_name("source")
        if path is None:
            is_function = self._may_mean_function(written, start)
        else:
            is_function = stands_for((f"{plain(_strip(path))}.{written}",), self._function)
        if not is_function or specifier.child_by_field_name("name") != node:
            return None
        return f"{written} is exported again"

    def _may_mean_function(self, name: str, start: int) -> bool:
        """True if a name, which begins at the byte `start`, may mean the function there."""
        return matches(self._function, name, self._scopes.resolve(name, start))

    def _read_import(self, statement: tree_sitter.Node) -> str | None:
        """The remark on an import statement that offers the function to others; None for any other one."""
        text = text_of(statement)
        language = self._document.language or ""
        for name, path in read_import(statement, language):
            # `import x as x` tells that others may import x from here.
            is_named_again = re.search(rf"\b{re.escape(name)}\s+as\s+{re.escape(name)}\b", text) is not None
            if not is_named_again and not self._is_offered(statement):
                continue
            if language == "rust" and path.startswith("super."):
                path = next(iter(self._scopes.resolve(path, statement.start_byte).paths), path)
            is_all = name == "*" and stands_for((f"{path}.{self._last_name}",), self._function)
            if is_all or stands_for((path,), self._function):
                return f"{self._last_name} is exported again"
        return None

    def _is_offered(self, statement: tree_sitter.Node) -> bool:
        """True for an import whose names are there for others: they can import them from this file."""
        if self._document.path is not None and self._document.path.name == "__init__.py":
            return True
        if statement.type == "use_declaration":
            return statement.children[0].type == "visibility_modifier"
        return statement.type == "using_declaration" and _is_in_named_namespace(statement)

    def _read_string(self, node: tree_sitter.Node) -> str | None:
        """The remark on a string that names the function or its module."""
        text = _strip(node)
        path = plain(text.replace(":", "."))
        if "." in self._function and stands_for((path,), self._function):
            is_imported = any(outer.type in (*_IMPORTS, "export_statement") for outer in _self_and_above(node))
            if not is_imported and not _is_required(node):
                return f"{text} is named in a string"
        above = node.parent
        if above is None:
            return None
        if text in self._local_names and self._is_in_all(node):
            return f"{text} is exported again"
        is_key = above.type == "subscript" and text_of(above.named_children[0]) in _NAMESPACE_CALLS
        if text in self._local_names and is_key and self._may_mean_function(text, node.start_byte):
            return f"{text} is looked up by its name"
        if text == self._last_name and any(map(self._is_module, _list_siblings(node))):
            return f"{text} is looked up by its name"
        if not self._module or not f".{path}".endswith((f".{self._module}", f".{self._function}")):
            return None
        return self._read_module(node, text)

    def _is_in_all(self, node: tree_sitter.Node) -> bool:
        """True for a string in `__all__` if the name that it lists means the function at the end of the file."""
        meaning = self._scopes.resolve(_strip(node), len(self._document.source))
        for outer in _self_and_above(node):
            is_statement = outer.type in ("assignment", "augmented_assignment", "call")
            if is_statement and text_of(outer).startswith("__all__"):
                return stands_for(meaning.paths, self._function)
        return False

    def _is_module(self, node: tree_sitter.Node) -> bool:
        """True if a node means the module of the function."""
        if not self._module:
            return False
        name = plain(text_of(node)) if node.child_count < 8 else ""
        meaning = self._scopes.resolve(name, node.start_byte) if name else Meaning(is_other=True)
        return matches(self._module, name, meaning)

    def _read_module(self, node: tree_sitter.Node, text: str) -> str | None:
        """The remark on a string that names the module of the function."""
        above = node.parent
        if above is None or above.type in (*_IMPORTS, "import_require_clause"):
            return None
        if above.type == "export_statement":
            is_all = above.child_by_field_name("declaration") is None and "*" in text_of(above)
            return f"all of {text} is exported again" if is_all else None
        if above.type not in _ARGUMENT_LISTS:
            return None
        if self._document.language not in SCRIPTS:
            return f"{text} is imported by its name"
        if not _is_required(node) or _is_followed(above.parent):
            return None
        return f"{text} is imported in a way that is not followed"


def _is_followed(call: tree_sitter.Node | None) -> bool:
    """True if the module that a `call` of JavaScript imports is dropped, or only bound to names that are followed."""
    while call is not None and call.parent is not None and call.parent.type in _WRAPPERS:
        call = call.parent
    above = call.parent if call is not None else None
    if above is None or above.type not in _FOLLOWED_PARENTS:
        return False
    left = above.child_by_field_name("left")
    return left is None or left.type in _FOLLOWED_TARGETS


def _self_and_above(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    yield node
    yield from list_above(node)


def _list_siblings(node: tree_sitter.Node) -> list[tree_sitter.Node]:
    """The other arguments of the call, or other parts of the subscript, that a string is in."""
    above = node.parent
    if above is None or above.type not in _ARGUMENT_LISTS:
        return []
    return [part for part in above.named_children if part != node]


def _second_above(node: tree_sitter.Node) -> tree_sitter.Node | None:
    if node.parent is None:
        return None
    return node.parent.parent


def _is_in_named_namespace(node: tree_sitter.Node) -> bool:
    above = _second_above(node)
    return above is not None and above.type == "namespace_definition" and bool(above.child_by_field_name("name"))


def _is_required(node: tree_sitter.Node) -> bool:
    """True for an argument of `require(...)` or `import(...)`."""
    call = _second_above(node)
    if call is None:
        return False
    name = call.child_by_field_name("function")
    return name is not None and text_of(name) in ("require", "import")


def _find_destructured(node: tree_sitter.Node) -> tree_sitter.Node | None:
    """The object out of which JavaScript takes a name, such as `api` for `load` in `const { load } = api`."""
    pattern = node.parent if node.type.endswith("pattern") else _second_above(node)
    if pattern is None or pattern.type != "object_pattern" or pattern.parent is None:
        return None
    return pattern.parent.child_by_field_name("value")


def _is_last(node: tree_sitter.Node) -> bool:
    """True if a node is the last part of the name around it."""
    above = node.parent
    if above is None:
        return False
    if above.type in ("template_function", "generic_function", "generic_type"):
        return above.named_children[0] == node
    return above.end_byte == node.end_byte


def _is_callee(node: tree_sitter.Node) -> bool:
    """True for what a call calls. Some grammars take an operator before the call for a part of what it calls."""
    callee, above = node, node.parent
    while above is not None and above.type in _PREFIXED:
        callee, above = above, above.parent
    if above is None:
        return False
    if any(above.child_by_field_name(field) == callee for field in _CALLEE_FIELDS):
        return True
    is_other_call = above.type in _OTHER_CALLS
    return is_other_call and callee in (above.child_by_field_name("name"), above.child_by_field_name("type"))


def _is_label(node: tree_sitter.Node) -> bool:
    """True for a name that is no use of a function: of an argument, of a label, or of what is defined there."""
    above = node.parent
    if above is None:
        return False
    if above.type in ("global_statement", "nonlocal_statement", "labeled_statement", "goto_statement"):
        return True
    if above.type in ("keyword_argument", "keyed_element") and above.named_children[0] == node:
        return True
    return above.type not in _QUALIFIED and node in map(above.child_by_field_name, ("name", "declarator", "pattern"))


def _strip(node: tree_sitter.Node) -> str:
    """The text of a string without its quotes, and without `./`, `../` and `@` at its start."""
    return _QUOTES.sub("", text_of(node)).lstrip("./@")
