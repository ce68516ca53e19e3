"""Go. A method is named outside of its type: the receiver tells the owner."""

from midfill_infill.languages.language import Language

LANGUAGE = Language(
    id="go",
    title="Go",
    extensions=(".go",),
    grammar="tree_sitter_go:language",
    queries=("go.scm",),
    indent="\t",
    statement="midfill()",
)
