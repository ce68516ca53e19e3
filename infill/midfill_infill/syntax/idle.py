"""Finds fills that do nothing: only comments, a placeholder, or a call of the function itself. Knows no candidate."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

import tree_sitter

from midfill_infill.languages import Language
from midfill_infill.syntax.captures import list_statements
from midfill_infill.syntax.problems import Span, captures

_SELF: Final = frozenset((b"self", b"cls", b"this", b"Self"))
_REPEATING: Final = ("comprehension", "generator_expression")
_JOINTS: Final = (b".", b"->", b"::")


def is_idle(language: Language, tree: tree_sitter.Tree, span: Span) -> bool:
    """True if the body at `span` has only docstrings and placeholders, or calls its own function unconditionally. The
    call has the function's own arguments or, in Python, which has no overloads, any arguments.
    """
    start, end = span
    function = _find_innermost(captures(language, tree, span, "function"), 0, start - 1, end)
    if function is None or start >= end:
        return False
    body = _find_innermost(captures(language, tree, span, "body"), function.start_byte, start, end)
    if body is None:
        return False
    statements = [statement for statement in list_statements(body) if start <= statement.start_byte < end]
    empty = {node.byte_range for node in captures(language, tree, span, "stub", "keep")}
    if all(statement.byte_range in empty for statement in statements):
        return True
    blocks = [node.byte_range for node in captures(language, tree, span, "block") if node != body]
    is_decorated = function.parent is None or "decorated" in function.parent.type
    is_only = language.has_indented_blocks and not is_decorated
    for statement in statements:
        if any(statement.start_byte <= first and last <= statement.end_byte for first, last in blocks):
            return False  # it may return before
        for call in _calls_in(statement):
            if _calls(function, call, with_any=is_only and not _is_conditional(call, statement)):
                return True
    return False


def _find_innermost(nodes: Sequence[tree_sitter.Node], first: int, last: int, end: int) -> tree_sitter.Node | None:
    """The last of the nodes that begin from `first` to `last` and go to `end` at least."""
    around = [node for node in nodes if first <= node.start_byte <= last and end <= node.end_byte]
    return max(around, key=attrgetter("start_byte"), default=None)


def does_nothing(language: Language, tree: tree_sitter.Tree, span: Span) -> bool:
    """True if the only statement at `span` is a placeholder, or a literal beside other statements."""
    start, end = span
    for node in captures(language, tree, span, "stub", "literal"):
        if node.parent is None:
            continue
        block = list(list_statements(node.parent))
        inside = [statement for statement in block if start <= statement.start_byte < end]
        if len(block) > 1 and inside == [node]:
            return True
    return False


def is_comment(tree: tree_sitter.Tree, span: Span) -> bool:
    """True if the text at `span` is only comments. False for text inside a comment that starts before it."""
    start, end = span
    pending = [tree.root_node]
    has_comment = False
    while pending:
        node = pending.pop()
        if node.end_byte <= start or end <= node.start_byte:
            continue
        if node.children and not node.is_extra:
            pending.extend(node.children)
        elif (node.text or b"").strip():  # in some grammars a line end is a node
            if not node.is_extra or node.start_byte < start:
                return False
            has_comment = True
    return has_comment


def _calls_in(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The calls of a statement, without those in functions that it defines."""
    pending = [node]
    while pending:
        node = pending.pop()
        if node.child_by_field_name("arguments"):
            yield node
        if "lambda" not in node.type and "function" not in node.type and "closure" not in node.type:
            pending.extend(node.named_children)


def _is_conditional(node: tree_sitter.Node, statement: tree_sitter.Node) -> bool:
    """True if Python may skip this part when it runs the statement."""
    while node != statement and node.parent is not None:
        node = node.parent
        if node.type in ("boolean_operator", "conditional_expression") or node.type.endswith(_REPEATING):
            return True
    return False


def _calls(function: tree_sitter.Node, call: tree_sitter.Node, *, with_any: bool) -> bool:
    """True if a call in a function calls the function itself, with its own arguments or, if `with_any`, any."""
    arguments = call.child_by_field_name("arguments")
    assert arguments is not None and call.text is not None
    callee = b"".join(call.text[: arguments.start_byte - call.start_byte].split())
    parameters = _parameters(function)
    has_self = parameters[:1] in ([b"self"], [b"cls"])
    receiver = function.child_by_field_name("receiver")
    owners = set(_SELF)
    if receiver is not None:
        owners.update(_names(receiver)[:1])
    name = _name(function)
    callees = {owner + joint + name for owner in owners for joint in _JOINTS}
    if receiver is None and not has_self and function.type != "method_definition":
        callees.add(name)
    if callee not in callees:
        return False
    if with_any:
        return True
    if has_self:
        del parameters[0]
    given: list[bytes] = []
    for argument in arguments.named_children:
        if not argument.is_extra:
            value = argument.child_by_field_name("value") or argument
            given.append((value.text or b"").strip(b"*. "))
    return given == parameters


def _name(function: tree_sitter.Node) -> bytes:
    """The last part of a function's name; for an anonymous function, of the variable it is assigned to."""
    node: tree_sitter.Node | None = function
    name: tree_sitter.Node | None = None
    while node is not None and name is None:
        name = node.child_by_field_name("name")
        if name is None:
            above = node.parent if "function" in node.type else None
            node = node.child_by_field_name("declarator") or above
            if node is not None and node.type.endswith("identifier"):
                name = node
    if name is None or name.text is None:
        return b""
    return name.text.rpartition(b"::")[2].rpartition(b".")[2]


def _parameters(function: tree_sitter.Node) -> list[bytes]:
    node: tree_sitter.Node | None = function
    while node is not None:
        parameters = node.child_by_field_name("parameters") or node.child_by_field_name("parameter")
        if parameters is not None:
            if parameters.type == "identifier":
                return [parameters.text or b""]
            return _names(parameters)
        node = node.child_by_field_name("declarator")
    return []


def _names(node: tree_sitter.Node) -> list[bytes]:
    """The names that a list of parameters binds, in order."""
    if node.type in ("identifier", "self", "shorthand_property_identifier_pattern"):
        return [node.text or b""]
    names: list[bytes] = []
    for number, child in enumerate(node.children):
        if node.field_name_for_child(number) not in ("type", "value", "right", "return_type"):
            names += _names(child)
    return names
