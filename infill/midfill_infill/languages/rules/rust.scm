; What the grammar accepts and no compiler does.
[(function_item) (closure_expression) (async_block)] @function
(function_item (function_modifiers "async")) @async
(closure_expression "async") @async
(async_block) @async

(await_expression) @in.async

(field_initializer_list (base_field_initializer) . (_) @misplaced)
(field_initializer_list (base_field_initializer) . "," . "}" @misplaced)
(struct_pattern (remaining_field_pattern) . (_) @misplaced)
(parameter pattern: (identifier) @once)
(function_signature_item) @function
