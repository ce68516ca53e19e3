; What the grammars of JavaScript, TypeScript and TSX accept and no compiler does.
[(function_declaration) (function_expression) (arrow_function) (method_definition)
 (generator_function_declaration) (generator_function) (class_static_block)] @function
(function_declaration "async") @async
(function_expression "async") @async
(arrow_function "async") @async
(method_definition "async") @async
(generator_function_declaration "async") @async
(generator_function "async") @async
[(generator_function_declaration) (generator_function)] @generator
(method_definition "*") @generator
[(for_statement) (for_in_statement) (while_statement) (do_statement)] @loop
[(for_statement) (for_in_statement) (while_statement) (do_statement) (switch_statement) (labeled_statement)] @breakable

(await_expression) @in.async
(yield_expression) @in.generator
(continue_statement) @in.loop
(break_statement) @in.breakable
(return_statement) @in.function

(array_pattern (rest_pattern) . (_) @misplaced)
(object_pattern (rest_pattern) . (_) @misplaced)
(program (lexical_declaration kind: "const" (variable_declarator !value) @misplaced))
(statement_block (lexical_declaration kind: "const" (variable_declarator !value) @misplaced))
(export_statement declaration: (lexical_declaration kind: "const" (variable_declarator !value) @misplaced))
(expression_statement (assignment_expression left: (object_pattern) @misplaced))
(expression_statement (object (_)) @misplaced)
(assignment_expression left: (parenthesized_expression [
  (sequence_expression) (assignment_expression) (binary_expression) (call_expression) (unary_expression) (object) (array)
] @misplaced))
(expression_statement (sequence_expression . [(class) (function_expression) (object)] @misplaced))
(lexical_declaration (variable_declarator name: [(array_pattern) (object_pattern)] !value) @misplaced)
(update_expression argument: [
  (array) (assignment_expression) (arrow_function) (await_expression) (binary_expression) (call_expression) (function_expression) (new_expression)
  (number) (object) (string) (template_string) (this) (unary_expression) (update_expression)
  (parenthesized_expression [(assignment_expression) (binary_expression) (call_expression)])
] @misplaced)
(assignment_expression left: (member_expression [(optional_chain) (member_expression (optional_chain))]) @misplaced)
(augmented_assignment_expression left: (member_expression [(optional_chain) (member_expression (optional_chain))]) @misplaced)
(update_expression argument: (member_expression [(optional_chain) (member_expression (optional_chain))]) @misplaced)
(for_in_statement operator: "of" right: (sequence_expression) @misplaced)
(new_expression constructor: (arrow_function) @misplaced)
(member_expression object: (arrow_function) @misplaced)
(subscript_expression object: (arrow_function) @misplaced)
(call_expression function: (arrow_function) @misplaced)
(binary_expression left: (arrow_function) @misplaced)
(ternary_expression condition: (arrow_function) @misplaced)
(call_expression function: (identifier) @misplaced (#any-of? @misplaced "await" "yield"))
(new_expression constructor: (member_expression [(optional_chain) (member_expression (optional_chain))]) @misplaced)
(arguments ["(" ","] . "," @misplaced)
(object ["{" ","] . "," @misplaced)
(object_pattern ["{" ","] . "," @misplaced)
(unary_expression operator: "delete" argument: (identifier) @misplaced)
(unary_expression argument: [(assignment_expression) (augmented_assignment_expression)] @misplaced)
(await_expression [(assignment_expression) (augmented_assignment_expression)] @misplaced)
(binary_expression right: [(assignment_expression) (augmented_assignment_expression)] @misplaced)

[(program) (statement_block) (switch_body) (for_statement) (for_in_statement)] @region
(lexical_declaration (variable_declarator name: (identifier) @once))
(lexical_declaration (variable_declarator name: (array_pattern (identifier) @once)))
(lexical_declaration (variable_declarator name: (object_pattern (shorthand_property_identifier_pattern) @once)))
(lexical_declaration (variable_declarator name: (object_pattern (pair_pattern value: (identifier) @once))))
(for_in_statement kind: ["let" "const"] left: (identifier) @once)
(import_clause (identifier) @once)
(import_specifier !alias name: (identifier) @once)
(import_specifier alias: (identifier) @once)
(namespace_import (identifier) @once)
(function_declaration name: (identifier) @once)
([(shorthand_property_identifier) (shorthand_property_identifier_pattern)] @misplaced (#any-of? @misplaced
  "break" "case" "catch" "class" "const" "continue" "default" "delete" "do" "else" "export" "extends" "false" "finally"
  "for" "function" "if" "import" "in" "instanceof" "new" "null" "return" "super" "switch" "this" "throw" "true" "try"
  "typeof" "var" "void" "while" "with"))
