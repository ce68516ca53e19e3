"""Rust. A body is an expression, so its last line may have no semicolon."""

from midfill_infill.languages.language import Language

LANGUAGE = Language(
    id="rust",
    title="Rust",
    extensions=(".rs",),
    grammar="tree_sitter_rust:language",
    queries=("rust.scm",),
    statement="midfill()",
    heads=("midfill in midfill", "midfill = midfill"),
    header=rb'[ \t]*(?:[\w()"]+[ \t]+)*?fn[ \t]+(\w+)',
    scope_header=rb'[ \t]*(?:[\w()"]+[ \t]+)*?(?:fn|mod|trait|impl(?:<[^{]*>)?(?:[^{]*[ \t]for)?)[ \t]+(\w+)',
    rules=("rules/rust.scm",),
)
