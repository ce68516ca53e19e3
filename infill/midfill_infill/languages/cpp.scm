(function_definition
  declarator: (reference_declarator (function_declarator declarator: (_) @name))
  body: (compound_statement) @body) @function

; Function-try-blocks: `int f() try { } catch (...) { }`; of a constructor with its initializers.
(function_definition
  declarator: (function_declarator declarator: (_) @name)
  (try_statement body: (compound_statement) @body)) @function
(function_definition
  declarator: (pointer_declarator declarator: (function_declarator declarator: (_) @name))
  (try_statement body: (compound_statement) @body)) @function
(function_definition
  declarator: (reference_declarator (function_declarator declarator: (_) @name))
  (try_statement body: (compound_statement) @body)) @function

; Lambdas: found by position only, and empty by choice.
(lambda_expression body: (compound_statement) @body) @function

(template_declaration (function_definition)) @whole

; `A() {}`, `A() : x(0) {}` and `~A() {}` are whole.
(function_definition declarator: (function_declarator declarator: (destructor_name)) body: (_) @trivial)
(function_definition
  declarator: (function_declarator declarator: (qualified_identifier name: (destructor_name))) body: (_) @trivial)
(function_definition !type body: (compound_statement) @trivial)
(function_definition !type (try_statement body: (compound_statement) @trivial))

(class_specifier name: (_) @scope.name body: (_)) @scope
(struct_specifier name: (_) @scope.name body: (_)) @scope
(namespace_definition name: (_) @scope.name) @scope

(translation_unit [(using_declaration) (alias_declaration)] @import)

((throw_statement) @stub
  (#match? @stub "(?i)not[ _]?(yet[ _]?)?implemented|unimplemented|\\btodo\\b"))

(raw_string_literal) @verbatim
