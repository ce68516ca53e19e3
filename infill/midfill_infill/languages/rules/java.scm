; What the grammar accepts and no compiler does.
[(method_declaration) (constructor_declaration) (lambda_expression)] @function
[(while_statement) (do_statement) (for_statement) (enhanced_for_statement)] @loop
[(while_statement) (do_statement) (for_statement) (enhanced_for_statement) (switch_expression) (labeled_statement)] @breakable

(continue_statement) @in.loop
(break_statement) @in.breakable

(formal_parameters (spread_parameter) . (_) @misplaced)
(formal_parameter name: (identifier) @once)
