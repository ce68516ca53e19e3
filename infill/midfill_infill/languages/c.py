"""C. A function's name lies inside its declarator, as deep as its pointers."""

from midfill_infill.languages.language import Language
from midfill_infill.languages.macros import blank_alternatives, blank_macros

LANGUAGE = Language(
    id="c",
    title="C",
    extensions=(".c", ".h"),
    grammar="tree_sitter_c:language",
    queries=("c.scm",),
    heads=("midfill; midfill", "midfill; midfill; midfill"),
    readings=(blank_macros, blank_alternatives),
    rules=("rules/c.scm",),
)
