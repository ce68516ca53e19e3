(public_field_definition name: (_) @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)] @function)

(abstract_class_declaration name: (_) @scope.name) @scope
(internal_module name: (_) @scope.name) @scope
(module name: (_) @scope.name) @scope

(program (import_alias) @import)

(formal_parameters (_ pattern: (identifier) @bound))
