(lambda_expression) @function
(for_range_loop) @loop @breakable

(parameter_list (optional_parameter_declaration) . (parameter_declaration) @misplaced)
(parameter_list "..." . (_) @misplaced)
