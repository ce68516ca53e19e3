"""Go. A method is declared outside its type; its receiver names the type."""

from midfill_infill.languages.language import Language

LANGUAGE = Language(
    id="go",
    title="Go",
    extensions=(".go",),
    grammar="tree_sitter_go:language",
    queries=("go.scm",),
    indent="\t",
    statement="midfill()",
    heads=("midfill.(type)", "midfill midfill"),
    header=rb"func[ \t]+(?:\([^()]*\)[ \t]*)?(\w+)",
    scope_header=rb"func[ \t]+(?:\([^()]*\)[ \t]*)?(\w+)",
    rules=("rules/go.scm",),
    line_end=rb"""(?:[\w"'`)\]}]|\+\+|--)\n""",
)
