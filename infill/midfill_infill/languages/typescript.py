"""TypeScript. Signatures without a body, such as overloads and abstract methods, do not count as functions."""

from midfill_infill.languages.ecmascript import GLOBALS, HEADER, HEADS, LINE_END, NAMES, SCOPE_HEADER
from midfill_infill.languages.language import Language

LANGUAGE = Language(
    id="typescript",
    title="TypeScript",
    extensions=(".ts", ".mts", ".cts"),
    grammar="tree_sitter_typescript:language_typescript",
    queries=("ecmascript.scm", "typescript.scm"),
    indent="  ",
    heads=HEADS,
    interfaces=(".d.ts", ".d.mts", ".d.cts"),
    finds_unbound=True,
    globals=GLOBALS,
    names=NAMES,
    rules=("rules/ecmascript.scm", "rules/typescript.scm"),
    header=HEADER,
    scope_header=SCOPE_HEADER,
    line_end=LINE_END,
    joining_brackets=(b"(", b"["),
)
