"""Finds fills that do nothing: only comments, a placeholder, or a call of the function itself. Knows no candidate."""

from collections.abc import Iterator
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
    around = [node for node in captures(language, tree, span, "function") if node.end_byte >= span[1]]
    function = max((node for node in around if node.start_byte < span[0]), key=attrgetter("start_byte"), default=None)
    start = span[0] if function is None else function.start_byte
    bodies = [node for node in captures(language, tree, span, "body") if start <= node.start_byte <= span[0]]
    body = max((node for node in bodies if span[1] <= node.end_byte), key=attrgetter("start_byte"), default=None)
    if function is None or body is None or span[0] >= span[1]:
        return False
    inside = [node for node in list_statements(body) if span[0] <= node.start_byte < span[1]]
    empty = {node.byte_range for node in captures(language, tree, span, "stub", "keep")}
    if all(node.byte_range in empty for node in inside):
        return True
    blocks = [node.byte_range for node in captures(language, tree, span, "block") if node != body]
    is_only = language.has_indented_blocks and function.parent is not None and "decorated" not in function.parent.type
    for statement in inside:
        if any(statement.start_byte <= start and end <= statement.end_byte for start, end in blocks):
            return False  # it may return before
        for call in _calls_in(statement):
            if _calls(function, call, with_any=is_only and not _is_conditional(call, statement)):
                return True
    return False


def does_nothing(language: Language, tree: tree_sitter.Tree, span: Span) -> bool:
    """True if the only statement at `span` is a placeholder, or a literal beside other statements."""
    for node in captures(language, tree, span, "stub", "literal"):
        block = list(list_statements(node.parent)) if node.parent else []
        if len(block) > 1 and [each for each in block if span[0] <= each.start_byte < span[1]] == [node]:
            return True
    return False


def is_comment(tree: tree_sitter.Tree, span: Span) -> bool:
    """True if the text at `span` is only comments. False for text inside a comment that starts before it."""
    pending, found = [tree.root_node], False
    while pending:
        node = pending.pop()
        if node.end_byte <= span[0] or span[1] <= node.start_byte:
            continue
        if node.is_extra or not node.children:
            if not (node.text or b"").strip():  # a line end, in some grammars
                continue
            if not node.is_extra or node.start_byte < span[0]:
                return False
            found = True
        else:
            pending.extend(node.children)
    return found


def _calls_in(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
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
    own = _parameters(function)
    receiver = function.child_by_field_name("receiver")
    is_method = receiver is not None or own[:1] in ([b"self"], [b"cls"]) or function.type == "method_definition"
    owners = _SELF | ({_names(receiver)[0]} if receiver is not None and _names(receiver) else set())
    joined = {owner + joint + _name(function) for owner in owners for joint in _JOINTS}
    if callee not in (joined if is_method else joined | {_name(function)}):
        return False
    if with_any:
        return True
    own = own[1:] if own[:1] in ([b"self"], [b"cls"]) else own
    given = [each.child_by_field_name("value") or each for each in arguments.named_children if not each.is_extra]
    return [(each.text or b"").strip(b"*. ") for each in given] == own


def _name(function: tree_sitter.Node) -> bytes:
    """The last part of a function's name; for an anonymous function, of the variable it is assigned to."""
    node: tree_sitter.Node | None = function
    while node is not None and not (named := node.child_by_field_name("name")):
        node = node.child_by_field_name("declarator") or (node.parent if "function" in node.type else None)
        if node is not None and node.type.endswith("identifier"):
            named = node
            break
    text = (named.text or b"") if node is not None and named is not None else b""
    return text.rpartition(b"::")[2].rpartition(b".")[2]


def _parameters(function: tree_sitter.Node) -> list[bytes]:
    node: tree_sitter.Node | None = function
    while node is not None:
        if found := node.child_by_field_name("parameters") or node.child_by_field_name("parameter"):
            return [found.text or b""] if found.type == "identifier" else _names(found)
        node = node.child_by_field_name("declarator")
    return []


def _names(node: tree_sitter.Node) -> list[bytes]:
    """The names that a list of parameters binds, in order."""
    if node.type in ("identifier", "self", "shorthand_property_identifier_pattern"):
        return [node.text or b""]
    skipped = ("type", "value", "right", "return_type")
    children = [child for number, child in enumerate(node.children) if node.field_name_for_child(number) not in skipped]
    return [name for child in children for name in _names(child)]
