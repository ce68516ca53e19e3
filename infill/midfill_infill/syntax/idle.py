"""Recognizes code that does nothing: only comments, a placeholder, or a call of its own function. Knows no fill."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

import tree_sitter

from midfill_infill.languages import Language
from midfill_infill.syntax.captures import list_statements
from midfill_infill.syntax.problems import Span, captures

_SELF: Final = frozenset((b"self", b"cls", b"this", b"Self"))
_REPEATING: Final = ("comprehension", "generator_expression")
_MEMBER_ACCESS: Final = (b".", b"->", b"::")


def is_idle_body(language: Language, tree: tree_sitter.Tree, span: Span) -> bool:
    """True if the body at `span` has only docstrings and placeholders, or calls its own function before it may return.
    The call passes the function's own parameters. In a Python function without decorators, which has no overloads, an
    unconditional call may pass any arguments.
    """
    start, end = span
    function = _find_innermost(captures(language, tree, span, "function"), 0, start - 1, end)
    if function is None or start >= end:
        return False
    body = _find_innermost(captures(language, tree, span, "body"), function.start_byte, start, end)
    if body is None:
        return False
    statements = [statement for statement in list_statements(body) if start <= statement.start_byte < end]
    idle_spans = {node.byte_range for node in captures(language, tree, span, "stub", "keep")}
    if all(statement.byte_range in idle_spans for statement in statements):
        return True
    blocks = [node.byte_range for node in captures(language, tree, span, "block") if node != body]
    is_decorated = function.parent is None or "decorated" in function.parent.type
    has_no_overloads = language.has_indented_blocks and not is_decorated
    for statement in statements:
        if any(statement.start_byte <= first and last <= statement.end_byte for first, last in blocks):
            return False  # a statement with a block may return before a call
        for call in _list_calls(statement):
            takes_any = has_no_overloads and not _is_conditional(call, statement)
            if _calls_itself(function, call, with_any_arguments=takes_any):
                return True
    return False


def _find_innermost(nodes: Sequence[tree_sitter.Node], first: int, last: int, end: int) -> tree_sitter.Node | None:
    """The node that begins last of those that begin at `first` to `last` and end at `end` or later."""
    around = [node for node in nodes if first <= node.start_byte <= last and end <= node.end_byte]
    return max(around, key=attrgetter("start_byte"), default=None)


def is_idle_statement(language: Language, tree: tree_sitter.Tree, span: Span) -> bool:
    """True if the only statement at `span` is a placeholder or a literal, and its block has other statements."""
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
    """True if the text at `span` has only comments, at least one. False inside a comment that starts before `span`."""
    start, end = span
    pending = [tree.root_node]
    has_comment = False
    while pending:
        node = pending.pop()
        if node.end_byte <= start or end <= node.start_byte:
            continue
        if node.children and not node.is_extra:
            pending.extend(node.children)
        elif (node.text or b"").strip():  # in some grammars a line end is a node, which does not count
            if not node.is_extra or node.start_byte < start:
                return False
            has_comment = True
    return has_comment


def _list_calls(statement: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The calls of a statement, without those in functions that it defines."""
    pending = [statement]
    while pending:
        node = pending.pop()
        if node.child_by_field_name("arguments"):
            yield node
        if "lambda" not in node.type and "function" not in node.type and "closure" not in node.type:
            pending.extend(node.named_children)


def _is_conditional(node: tree_sitter.Node, statement: tree_sitter.Node) -> bool:
    """True if Python may skip the part `node` of a statement when it runs the statement."""
    part = node
    while part != statement and part.parent is not None:
        part = part.parent
        if part.type in ("boolean_operator", "conditional_expression") or part.type.endswith(_REPEATING):
            return True
    return False


def _calls_itself(function: tree_sitter.Node, call: tree_sitter.Node, *, with_any_arguments: bool) -> bool:
    """True if a call in a function calls that function with its own parameters in order, or `with_any_arguments`."""
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
    callees = {owner + access + name for owner in owners for access in _MEMBER_ACCESS}
    if receiver is None and not has_self and function.type != "method_definition":
        callees.add(name)
    if callee not in callees:
        return False
    if with_any_arguments:
        return True
    if has_self:
        del parameters[0]
    values: list[bytes] = []
    for argument in arguments.named_children:
        if not argument.is_extra:
            value = argument.child_by_field_name("value") or argument
            values.append((value.text or b"").strip(b"*. "))
    return values == parameters


def _name(function: tree_sitter.Node) -> bytes:
    """The last part of a function's name; for an anonymous function, of the variable that it is assigned to."""
    node: tree_sitter.Node | None = function
    name: tree_sitter.Node | None = None
    while node is not None and name is None:
        name = node.child_by_field_name("name")
        if name is None:
            above = node.parent if node == function and "function" in node.type else None
            node = node.child_by_field_name("declarator") or above
            if node is not None and node.type.endswith("identifier"):
                name = node
    if name is None or name.text is None:
        return b""
    return name.text.rpartition(b"::")[2].rpartition(b".")[2]


def _parameters(function: tree_sitter.Node) -> list[bytes]:
    """The names of a function's parameters, in order."""
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
    """The names that a node of parameters binds, in order."""
    if node.type in ("identifier", "self", "shorthand_property_identifier_pattern"):
        return [node.text or b""]
    names: list[bytes] = []
    for number, child in enumerate(node.children):
        if node.field_name_for_child(number) not in ("type", "value", "right", "return_type"):
            names += _names(child)
    return names
