"""Java. Abstract and interface methods have no body and do not count as functions."""

from midfill_infill.languages.language import Language

LANGUAGE = Language(
    id="java",
    title="Java",
    extensions=(".java",),
    grammar="tree_sitter_java:language",
    queries=("java.scm",),
    heads=("midfill; midfill", "midfill midfill", "midfill midfill : midfill", "midfill -> midfill"),
    rules=("rules/java.scm",),
)
