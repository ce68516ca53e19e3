(function_declaration name: (identifier) @name body: (block) @body) @function
(method_declaration
  receiver: (parameter_list (parameter_declaration type: (_) @owner))
  name: (field_identifier) @name
  body: (block) @body) @function

; Function literals have no name, so only their position finds them. An empty one is no stub.
(func_literal body: (block) @body) @function

(package_clause) @import
(import_declaration) @import

((expression_statement (call_expression function: (identifier) @_panic)) @stub
  (#eq? @_panic "panic")
  (#match? @stub "(?i)not[ _]?(yet[ _]?)?implemented|unimplemented|\\btodo\\b"))

(raw_string_literal) @verbatim
(block) @block
