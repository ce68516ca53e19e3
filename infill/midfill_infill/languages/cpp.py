"""C++: C plus classes, namespaces and exceptions."""

from midfill_infill.languages.language import Language
from midfill_infill.languages.macros import blank_alternatives, blank_macros

LANGUAGE = Language(
    id="cpp",
    title="C++",
    extensions=(".cpp", ".cc", ".cxx", ".C", ".hpp", ".hh", ".hxx", ".H", ".ipp", ".tpp"),
    grammar="tree_sitter_cpp:language",
    queries=("c.scm", "cpp.scm"),
    heads=("midfill; midfill", "midfill midfill : midfill", "midfill()"),
    readings=(blank_macros, blank_alternatives),
    rules=("rules/c.scm", "rules/cpp.scm"),
)
