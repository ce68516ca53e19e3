"""JavaScript, JSX included: one grammar reads both."""

from midfill_infill.languages.ecmascript import GLOBALS, HEADER, HEADS, LINE_END, NAMES, SCOPE_HEADER
from midfill_infill.languages.language import Language

LANGUAGE = Language(
    id="javascript",
    title="JavaScript",
    extensions=(".js", ".jsx", ".mjs", ".cjs"),
    grammar="tree_sitter_javascript:language",
    queries=("ecmascript.scm", "javascript.scm"),
    indent="  ",
    heads=HEADS,
    finds_unbound=True,
    globals=GLOBALS,
    names=NAMES,
    rules=("rules/ecmascript.scm", "rules/javascript.scm"),
    header=HEADER,
    scope_header=SCOPE_HEADER,
    line_end=LINE_END,
    joining_brackets=(b"(", b"["),
)
