(method_declaration name: (_) @name body: (block) @body) @function
(constructor_declaration name: (_) @name body: (constructor_body) @body) @function
[(constructor_declaration body: (_) @trivial) (compact_constructor_declaration body: (_) @trivial)]
(compact_constructor_declaration name: (_) @name body: (block) @body) @function

; Lambdas and initializers have no name, so only their position finds them. An empty one is no stub.
(lambda_expression body: (_) @body) @function
(static_initializer (block) @body) @function

(class_declaration name: (_) @scope.name) @scope
(interface_declaration name: (_) @scope.name) @scope
(enum_declaration name: (_) @scope.name) @scope
(record_declaration name: (_) @scope.name) @scope

(program [(package_declaration) (import_declaration)] @import)

((throw_statement) @stub
  (#match? @stub "(?i)UnsupportedOperationException|not[ _]?(yet[ _]?)?implemented|unimplemented|\\btodo\\b"))

(string_literal) @verbatim
[(block) (constructor_body)] @block
