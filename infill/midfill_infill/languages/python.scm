(function_definition name: (identifier) @name body: (block) @body) @function
(function_definition body: (block (expression_statement [(string) (concatenated_string)]) @keep))

(decorated_definition definition: (function_definition)) @whole

(class_definition name: (identifier) @scope.name) @scope

(module [(import_statement) (import_from_statement) (future_import_statement)] @import)

(expression_statement (ellipsis)) @stub
(pass_statement) @stub
(expression_statement [(integer) (float) (list) (tuple) (dictionary) (set) (true) (false) (none)]) @literal
((raise_statement) @stub (#match? @stub "^raise\\s+NotImplemented"))

(decorated_definition
  (decorator) @_decorator
  definition: (function_definition body: (block) @deliberate)
  (#match? @_decorator "^@\\s*([A-Za-z_]\\w*\\.)*(abstract(class|static)?method|abstractproperty|_?overload)\\b"))
(class_definition
  superclasses: (argument_list) @_bases
  body: (block [
    (function_definition body: (block) @deliberate)
    (decorated_definition definition: (function_definition body: (block) @deliberate))
  ])
  (#match? @_bases "\\bProtocol\\b"))
((decorated_definition
  (decorator) @_decorator
  definition: (class_definition body: (block [
    (function_definition body: (block . (expression_statement (string)) .) @deliberate)
    (decorated_definition
      definition: (function_definition body: (block . (expression_statement (string)) .) @deliberate))
  ])))
  (#not-match? @_decorator
    "^@\\s*([A-Za-z_]\\w*\\.)*(\\w*dataclass\\w*|define|mutable|frozen|attrs|attrib|s|total_ordering|final|runtime_checkable|unique|dataclass_transform|deprecated|skip\\w*|usefixtures|parametrize|typechecked)\\b"))

(string) @verbatim
(block) @block
(module) @block

(try_statement) @unfinished
(try_statement [(except_clause) (finally_clause)]) @finished
((string (string_start) @_quote) @unfinished (#eq? @_quote "`"))

(parameters [
  (identifier) @bound
  (default_parameter name: (identifier) @bound)
  (typed_parameter . (identifier) @bound)
  (typed_default_parameter name: (identifier) @bound)
])
(assignment left: (identifier) @bound)
(for_statement left: (identifier) @bound)
(pattern_list (identifier) @bound)
(tuple_pattern (identifier) @bound)
(as_pattern_target (identifier) @bound)
(named_expression name: (identifier) @bound)
