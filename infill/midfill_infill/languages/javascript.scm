(field_definition property: (_) @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)] @function)

(formal_parameters [(identifier) @bound (assignment_pattern left: (identifier) @bound)])
