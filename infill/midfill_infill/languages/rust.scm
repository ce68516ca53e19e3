(function_item name: (_) @name body: (block) @body) @function

; Closures have no name, so only their position finds them. An empty one is no stub.
(closure_expression body: (_) @body) @function

(impl_item type: (_) @scope.name) @scope
(trait_item name: (_) @scope.name) @scope
(mod_item name: (_) @scope.name body: (_)) @scope

(source_file [(use_declaration) (extern_crate_declaration)] @import)

((macro_invocation macro: (_) @_macro) @stub (#any-of? @_macro "todo" "unimplemented"))
((expression_statement (macro_invocation macro: (_) @_macro)) @stub (#any-of? @_macro "todo" "unimplemented"))
([(macro_invocation macro: (_) @_macro) (expression_statement (macro_invocation macro: (_) @_macro))] @stub
  (#eq? @_macro "panic")
  (#match? @stub "(?i)not[ _]?(yet[ _]?)?implemented|unimplemented|\\btodo\\b"))

[(string_literal) (raw_string_literal)] @verbatim
(block) @block
