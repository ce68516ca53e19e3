"""Python. Indentation is syntax, a comment may name the encoding, and a docstring opens a body."""

from midfill_infill.languages.language import Language

LANGUAGE = Language(
    id="python",
    title="Python",
    extensions=(".py", ".pyi", ".pyw"),
    grammar="tree_sitter_python:language",
    queries=("python.scm",),
    indent="    ",
    comment="#",
    statement="pass",
    has_indented_blocks=True,
    has_coding_cookie=True,
    header=r"[ \t\f]*(?:async[ \t]+)?def[ \t]+(\w+)",
    scope_header=r"[ \t\f]*(?:class|(?:async[ \t]+)?def)[ \t]+(\w+)",
    interfaces=(".pyi",),
)
