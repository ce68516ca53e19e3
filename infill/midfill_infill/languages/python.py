"""Python. Indentation is syntax, a comment may name the encoding, and a docstring opens a body."""

import builtins
import warnings

from midfill_infill.languages.language import Language

_TYPES = (str, bytes, int, float, list, dict, set, tuple, BaseException, OSError, type, property, type(id))
GLOBALS = frozenset((*dir(builtins), "self", "cls", "args", "kwargs"))
NAMES = GLOBALS.union(*map(dir, _TYPES), ("read", "write", "readline", "readlines", "seek", "flush"))
_OPENINGS = (
    "midfill,", "midfill: midfill,", "if midfill:", "try:", "except midfill:", "else:", "midfill(", "midfill = [",
    "midfill = {", ")", "]", "}",
)  # fmt: skip


def compiles(source: str) -> bool:
    """True if the Python that runs Midfill compiles `source`, which is not run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(source, "<source>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
            return False
    return True


LANGUAGE = Language(
    id="python",
    title="Python",
    extensions=(".py", ".pyi", ".pyw"),
    grammar="tree_sitter_python:language",
    queries=("python.scm",),
    comment="#",
    statement="pass",
    openings=_OPENINGS,
    globals=GLOBALS,
    finds_unbound=True,
    has_indented_blocks=True,
    has_coding_cookie=True,
    header=rb"[ \t\f]*(?:async[ \t]+)?def[ \t]+(\w+)",
    scope_header=rb"[ \t\f]*(?:class|(?:async[ \t]+)?def)[ \t]+(\w+)",
    interfaces=(".pyi",),
    names=NAMES,
    compiles=compiles,
    line_end=rb"[^\\]\n",
    joining_brackets=(b"(", b"[", b"{"),
)
