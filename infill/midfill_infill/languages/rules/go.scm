; What the grammar accepts and no compiler does.
[(function_declaration) (method_declaration) (func_literal)] @function
(for_statement) @loop
[(for_statement) (expression_switch_statement) (type_switch_statement) (select_statement) (labeled_statement)] @breakable

(continue_statement) @in.loop
(break_statement) @in.breakable

(source_file [
  (expression_statement) (short_var_declaration) (assignment_statement) (inc_statement) (dec_statement) (send_statement)
  (if_statement) (for_statement) (return_statement) (go_statement) (defer_statement) (block) (labeled_statement)
  (expression_switch_statement) (type_switch_statement) (select_statement)
] @misplaced)
(argument_list (variadic_argument) . (_) @misplaced)
(parameter_list (variadic_parameter_declaration) . (_) @misplaced)
(parameter_list (parameter_declaration name: (identifier)) [(parameter_declaration !name) (variadic_parameter_declaration !name)] @misplaced)
(parameter_list (parameter_declaration !name) @misplaced [
  (parameter_declaration name: (identifier)) (variadic_parameter_declaration name: (identifier))
])
(method_declaration receiver: (parameter_list (_) (_) @misplaced))
((import_spec path: (interpreted_string_literal) @misplaced) (#match? @misplaced "[ ()]"))
[(method_elem) (function_type)] @function
((parameter_declaration name: (identifier) @once) (#not-eq? @once "_"))
