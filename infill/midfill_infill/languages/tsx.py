"""TSX: TypeScript with JSX, which has its own grammar."""

from dataclasses import replace

from midfill_infill.languages import typescript

LANGUAGE = replace(
    typescript.LANGUAGE,
    id="tsx",
    title="TSX",
    extensions=(".tsx",),
    grammar="tree_sitter_typescript:language_tsx",
    interfaces=(),
    may_loop=True,  # on `<a {{b:>c:d(e f)`, https://github.com/tree-sitter/tree-sitter-typescript/issues/323
)
