(function_definition
  declarator: (function_declarator declarator: (_) @name)
  body: (compound_statement) @body) @function
(function_definition
  declarator: (pointer_declarator declarator: (function_declarator declarator: (_) @name))
  body: (compound_statement) @body) @function
(function_definition
  declarator: (pointer_declarator
    declarator: (pointer_declarator declarator: (function_declarator declarator: (_) @name)))
  body: (compound_statement) @body) @function
; A function whose declarator a macro hides has no name, so only its position finds it. A node without parentheses may
; be a class, so it is no function.
((function_definition declarator: (_) @_declarator body: (compound_statement) @body) @function
  (#match? @_declarator "\\("))

[(preproc_include) (preproc_def)] @import

((expression_statement (call_expression)) @stub
  (#match? @stub "(?i)^(abort|assert|panic|fatal|exit|\\w*error\\w*|\\w*unimplemented\\w*|TODO)\\s*\\(")
  (#match? @stub "(?i)not[ _]?(yet[ _]?)?implemented|unimplemented|\\btodo\\b"))

(compound_statement) @block
