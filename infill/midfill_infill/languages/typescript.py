"""TypeScript. Signatures without a body, such as overloads and abstract methods, do not count as functions."""

from dataclasses import replace

from midfill_infill.languages import javascript

LANGUAGE = replace(
    javascript.LANGUAGE,
    id="typescript",
    title="TypeScript",
    extensions=(".ts", ".mts", ".cts"),
    grammar="tree_sitter_typescript:language_typescript",
    queries=("ecmascript.scm", "typescript.scm"),
    interfaces=(".d.ts", ".d.mts", ".d.cts"),
    rules=("rules/ecmascript.scm", "rules/typescript.scm"),
)
