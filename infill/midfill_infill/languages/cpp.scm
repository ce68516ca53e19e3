(function_definition
  declarator: (reference_declarator (function_declarator declarator: (_) @name))
  body: (compound_statement) @body) @function

; Functions with a try block for a body: `int f() try { } catch (...) { }`. A constructor's has its initializers too.
(function_definition
  declarator: (function_declarator declarator: (_) @name)
  (try_statement body: (compound_statement) @body)) @function
(function_definition
  declarator: (pointer_declarator declarator: (function_declarator declarator: (_) @name))
  (try_statement body: (compound_statement) @body)) @function
(function_definition
  declarator: (reference_declarator (function_declarator declarator: (_) @name))
  (try_statement body: (compound_statement) @body)) @function

; Lambdas have no name, so only their position finds them. An empty one is no stub.
(lambda_expression body: (compound_statement) @body) @function

(template_declaration (function_definition)) @whole

; Constructors and destructors may be empty: `A() {}`, `A() : x(0) {}` and `~A() {}` are no stubs.
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
