"""Says for each language what binds names: tree-sitter queries, and which nodes are scopes. Knows no document.

The name of a capture in `Binders.binds` says where the names are known that its node binds:

- `function`: in the nearest function. `block`: in the nearest block or function.
- `after` and `here`: as `block`, but only after the statement around the node, or after the node.
- `own`: in the function, loop, clause or comprehension that the node is a part of.
- `loose`: nowhere new, because the names belong to scopes further out: `loose.global` and `loose.nonlocal` are Python's
  declarations, `loose.again` is an assignment to names that are declared elsewhere.

After the dot of any other capture follows the space of names (values, types, macros) that its names are in. One name
can mean a different thing in each space.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import tree_sitter


@dataclass(frozen=True)
class Binders:
    """Queries for what binds names in a language, and the types of the nodes that are scopes."""

    imports: str = ""
    binds: str = ""
    functions: frozenset[str] = frozenset()
    blocks: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    """Those of `functions` that are classes: functions inside of them do not see their names."""
    walls: frozenset[str] = frozenset()
    """Scopes that see no name from outside."""
    owners: frozenset[str] = frozenset()
    """Further scopes, for captures `own` alone."""
    namespaces: frozenset[str] = frozenset()
    """Nodes that add a name to the path of what they hold, and know every name of this path."""
    hoists: frozenset[str] = field(default=frozenset(("import_statement",)))
    """Statements that bind from the start of their scope on, wherever they stand in it."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PYTHON: Final = Binders(
    imports="[(import_statement) (import_from_statement)] @import",
    binds="""
    (parameters) @own (lambda_parameters) @own (for_in_clause left: (_) @own) 
    (function_definition type_parameters: (type_parameter (type (identifier) @own)))
    (class_definition type_parameters: (type_parameter (type (identifier) @own)))
    (assignment left: (_) @function) (augmented_assignment left: (_) @function) (named_expression name: (_) @function)
    (for_statement left: (_) @function) (as_pattern_target) @function (delete_statement (_) @function)
    (case_clause (case_pattern) @function)
    (function_definition name: (_) @function) (class_definition name: (_) @function)
    (type_alias_statement left: (type (identifier) @function))
    (global_statement (identifier) @loose.global) (nonlocal_statement (identifier) @loose.nonlocal)
    """,
    functions=_words("function_definition lambda class_definition"),
    blocks=_words("list_comprehension set_comprehension dictionary_comprehension generator_expression"),
    classes=_words("class_definition"),
    hoists=frozenset(),
)
_SCRIPT: Final = """
    (variable_declaration (variable_declarator name: (_) @function))
    (lexical_declaration (variable_declarator name: (_) @block))
    (function_declaration name: (_) @block) (generator_function_declaration name: (_) @block)
    (class_declaration name: (_) @block)
    (function_expression name: (_) @own) (generator_function name: (_) @own) (class name: (_) @own)
    (formal_parameters) @own (arrow_function parameter: (_) @own) (catch_clause parameter: (_) @own)
    (for_in_statement kind: ["let" "const"] left: (_) @own) (for_in_statement kind: "var" left: (_) @function)
    (assignment_expression left: [(identifier) (array_pattern) (object_pattern)] @loose.again)
    (for_in_statement !kind left: (_) @loose.again)
"""
_SCRIPT_IMPORTS: Final = """
    (import_statement) @import (variable_declarator name: (_) @pattern value: (_) @value)
    (call_expression function: (member_expression object: (_) @value property: (property_identifier) @_then)
      arguments: (arguments . [(arrow_function parameter: (_) @pattern)
        (arrow_function parameters: (formal_parameters . (_) @pattern))
        (function_expression parameters: (formal_parameters . (_) @pattern))]) (#eq? @_then "then"))
"""
_ECMASCRIPT: Final = Binders(
    imports=_SCRIPT_IMPORTS,
    binds=_SCRIPT,
    functions=_words(
        "function_declaration generator_function_declaration function_expression generator_function arrow_function"
        " method_definition class_static_block"
    ),
    blocks=_words("statement_block for_statement for_in_statement switch_body catch_clause class"),
)
_TYPESCRIPT: Final = Binders(
    imports=_SCRIPT_IMPORTS + "(import_alias) @import",
    binds=_SCRIPT + "(enum_declaration name: (_) @block) (abstract_class_declaration name: (_) @block)"
    "(internal_module name: (identifier) @block)",
    functions=_ECMASCRIPT.functions,
    blocks=_ECMASCRIPT.blocks,
)
_GO: Final = Binders(
    imports="(import_declaration) @import",
    binds="""
    (short_var_declaration left: (_) @after) (var_spec name: (_) @after) (const_spec name: (_) @after)
    (type_spec name: (_) @here) (function_declaration name: (_) @block)
    (parameter_declaration name: (_) @own) (variadic_parameter_declaration name: (_) @own)
    (range_clause left: (_) @own ":=") (receive_statement left: (_) @own ":=")
    (type_switch_statement alias: (_) @own) (type_parameter_declaration name: (_) @own)
    """,
    functions=_words("function_declaration method_declaration func_literal"),
    blocks=_words(
        "block for_statement if_statement expression_switch_statement type_switch_statement select_statement"
        " communication_case expression_case type_case default_case"
    ),
)
_RUST: Final = Binders(
    imports="(use_declaration) @import",
    binds="""
    (parameters) @own.value (closure_parameters) @own.value (let_declaration pattern: (_) @after.value)
    (let_condition pattern: (_) @after.value) (for_expression pattern: (_) @own.value)
    (match_arm pattern: (_) @own.value) (type_parameter name: (_) @own.type)
    (function_item name: (_) @block.value) (const_item name: (_) @block.value) (static_item name: (_) @block.value)
    (struct_item name: (_) @block) (enum_item name: (_) @block.type) (union_item name: (_) @block.type)
    (mod_item name: (_) @block.type) (trait_item name: (_) @block.type) (type_item name: (_) @block.type)
    (macro_definition name: (_) @block.macro)
    """,
    functions=_words("function_item closure_expression"),
    blocks=_words("block match_arm for_expression if_expression while_expression mod_item impl_item trait_item"),
    walls=_words("mod_item"),
)
_C: Final = """
    (declaration declarator: (_) @here) (parameter_declaration declarator: (_) @own)
    (function_definition declarator: (_) @here) (type_definition declarator: (_) @here.type)
    (struct_specifier name: (_) @here.tag)
"""
_C_BLOCKS: Final = "compound_statement for_statement"
_CPP: Final = Binders(
    imports="(using_declaration) @import (namespace_alias_definition) @import",
    binds="""
    (declaration declarator: (_) @here.value) (parameter_declaration declarator: (_) @own.value)
    (optional_parameter_declaration declarator: (_) @own.value)
    (variadic_parameter_declaration declarator: (_) @own.value)
    (function_definition declarator: (_) @here.value) (field_declaration declarator: (_) @block.value)
    (for_range_loop declarator: (_) @own.value) (lambda_capture_initializer left: (_) @own.value)
    (type_parameter_declaration (type_identifier) @own.type) (alias_declaration name: (_) @here.type)
    (class_specifier name: (type_identifier) @here.type body: (_))
    (struct_specifier name: (type_identifier) @here.type body: (_))
    """,
    functions=_words("function_definition lambda_expression"),
    owners=_words("template_declaration"),
    namespaces=_words("namespace_definition"),
    blocks=_words(
        f"{_C_BLOCKS} for_range_loop if_statement while_statement switch_statement catch_clause declaration_list"
        " field_declaration_list"
    ),
)
_JAVA: Final = Binders(
    imports="(import_declaration) @import",
    binds="""
    (local_variable_declaration declarator: (_) @here.value) (field_declaration declarator: (_) @block.value)
    (formal_parameters) @own.value (lambda_expression parameters: (identifier) @own.value)
    (inferred_parameters) @own.value (enhanced_for_statement name: (_) @own.value)
    (catch_formal_parameter name: (_) @own.value) (resource name: (_) @here.value)
    (instanceof_expression name: (_) @here.value) (type_pattern (identifier) @own.value)
    (method_declaration name: (_) @block.method) (class_declaration name: (_) @block.type)
    (interface_declaration name: (_) @block.type) (enum_declaration name: (_) @block.type)
    (record_declaration name: (_) @block.type) (type_parameter (type_identifier) @own.type)
    """,
    functions=_words("method_declaration constructor_declaration compact_constructor_declaration lambda_expression"),
    blocks=_words(
        "block for_statement enhanced_for_statement catch_clause try_with_resources_statement switch_rule"
        " switch_block_statement_group class_body interface_body enum_body record_declaration constructor_body"
    ),
)
BINDERS: Final = {
    "python": _PYTHON,
    "javascript": _ECMASCRIPT,
    "typescript": _TYPESCRIPT,
    "tsx": _TYPESCRIPT,
    "go": _GO,
    "rust": _RUST,
    "java": _JAVA,
    "cpp": _CPP,
    "c": Binders(binds=_C, functions=_words("function_definition"), blocks=_words(_C_BLOCKS)),
}

_NAME_TYPES: Final = _words(
    "identifier shorthand_property_identifier_pattern shorthand_field_identifier type_identifier field_identifier"
)
_OPAQUE_TYPES: Final = _words(
    "attribute subscript member_expression subscript_expression selector_expression index_expression type"
    " type_annotation scoped_identifier qualified_identifier range_pattern call parameter_list string decorator"
    " modifiers"
)
_NOT_BOUND_FIELDS: Final = _words("type right default_value return_type key size parameters body condition")
_VALUE_BINDS: Final = _words("pair_pattern dict_pattern as_pattern")  # types whose field `value` binds names


def list_names(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The nodes of the names that a target, a pattern, a declarator or a list of parameters binds."""
    if node.type in _NAME_TYPES:
        yield node
        return
    if node.type in _OPAQUE_TYPES or (node.type == "dotted_name" and node.named_child_count > 1):
        return
    if node.type == "field_pattern":
        pattern = node.child_by_field_name("pattern")
        if pattern is not None:
            yield from list_names(pattern)
            return
    children = list(enumerate(node.children))
    if node.type in ("class_pattern", "keyword_pattern"):
        children = [(index, child) for index, child in children if child.is_named][1:]  # the first is what is matched
    for index, child in children:
        role = node.field_name_for_child(index)
        is_unbound = role in _NOT_BOUND_FIELDS or (role == "value" and node.type not in _VALUE_BINDS)
        if child.is_named and child.type not in _OPAQUE_TYPES and not is_unbound:
            yield from list_names(child)
