; The captures that JavaScript, TypeScript and TSX share.
(function_declaration name: (_) @name body: (statement_block) @body) @function
(generator_function_declaration name: (_) @name body: (statement_block) @body) @function
(method_definition name: (_) @name body: (statement_block) @body) @function

(variable_declarator name: (identifier) @name
  value: [
    (arrow_function body: (_) @body)
    (function_expression body: (_) @body)
    (generator_function body: (_) @body)
  ] @function)
(pair key: (_) @name
  value: [
    (arrow_function body: (_) @body)
    (function_expression body: (_) @body)
    (generator_function body: (_) @body)
  ] @function)
(assignment_expression left: [(identifier) (member_expression)] @name
  right: [
    (arrow_function body: (_) @body)
    (function_expression body: (_) @body)
    (generator_function body: (_) @body)
  ] @function)

; Callbacks have no name, so only their position finds them. An empty one is no stub.
(arrow_function body: (_) @body) @function
(function_expression body: (statement_block) @body) @function
(generator_function body: (statement_block) @body) @function
(class_static_block body: (statement_block) @body) @function

(export_statement declaration: (_)) @whole
(method_definition name: (_) @_name body: (statement_block) @trivial (#eq? @_name "constructor"))

(statement_block (expression_statement (string)) @keep)

(class_declaration name: (_) @scope.name) @scope
(class name: (_) @scope.name) @scope
(variable_declarator name: (identifier) @scope.name value: [(object) (class)]) @scope

(program (import_statement) @import)
(program (export_statement source: (_)) @import)
(program ([(lexical_declaration) (variable_declaration)] @import
  (#match? @import "^(const|let|var)\\s[^=]*=\\s*require\\s*\\([^\\n]*$")))

((throw_statement) @stub (#match? @stub "(?i)not[ _]?(yet[ _]?)?implemented|unimplemented|\\btodo\\b"))
(expression_statement [(number) (array) (true) (false) (null)]) @literal

(template_string) @verbatim
(statement_block) @block

(variable_declarator name: [
  (identifier) @bound
  (array_pattern (identifier) @bound)
  (object_pattern (shorthand_property_identifier_pattern) @bound)
  (object_pattern (pair_pattern value: (identifier) @bound))
])
(for_in_statement left: (identifier) @bound)
(arrow_function parameter: (identifier) @bound)
(catch_clause parameter: (identifier) @bound)
