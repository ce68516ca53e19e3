; What the grammars of C and C++ accept and no compiler does.
(function_definition) @function
[(while_statement) (do_statement) (for_statement)] @loop
[(while_statement) (do_statement) (for_statement) (switch_statement)] @breakable

(continue_statement) @in.loop
(break_statement) @in.breakable
[(function_declarator) (abstract_function_declarator)] @function
(parameter_declaration declarator: [(identifier) @once (pointer_declarator declarator: (identifier) @once)])
