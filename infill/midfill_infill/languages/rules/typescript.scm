(formal_parameters (required_parameter pattern: (rest_pattern)) . (_) @misplaced)
(formal_parameters (optional_parameter !value) . (required_parameter pattern: [(identifier) (object_pattern) (array_pattern)] !value) @misplaced)
(formal_parameters (_ pattern: [(identifier) @once (rest_pattern (identifier) @once)]))
(formal_parameters (_ pattern: (object_pattern (shorthand_property_identifier_pattern) @once)))
[(function_type) (method_signature) (function_signature) (abstract_method_signature) (construct_signature) (call_signature)
 (constructor_type)] @function
(formal_parameters (_ pattern: [(member_expression) (subscript_expression)] @misplaced))
