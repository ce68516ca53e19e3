"""Tells without parsing that a Python file has no stub. May say "perhaps" too often, never "no" to a file with one.

Parsing is what planning costs, and most files need none of it. Other languages are always parsed.
"""

import codecs
import re
from typing import Final

_BLANKS: Final = rb"(?:[ \t\f]*(?:#[^\n]*)?\r?\n)*"
_HEADER_END: Final = re.compile(rb":[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z)" + _BLANKS + rb"([ \t\f]*)")
_OTHER_BLOCK: Final = re.compile(rb"[ \t\f]*(?:except|else|if|elif|for|while|try|with|finally|case|class)\b")
_DEFINITION: Final = re.compile(rb"([ \t\f]*)(?:async[ \t]+)?def\b[ \t]*(\w*)")
_DELIBERATE: Final = re.compile(
    rb"[ \t]*@[ \t]*(?:\w+\.)*(?:abstract(?:class|static)?method|abstractproperty|overload)[ \t]*\r?$"
)
_PLACEHOLDER: Final = re.compile(rb"#|\.\.\.|pass\b|raise\b(?:[ \t]*\\|[ \t]+NotImplemented)")
_STRING: Final = re.compile(
    rb"[rRuU]?(?:(\"{3}|'{3})(?s:.*?)\1|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z)"
    + _BLANKS
    + rb"([ \t\f]*)"
)
_ONE_LINE: Final = re.compile(
    rb"def[ \t][^\n]*:[ \t]*(?:\.\.\.|pass\b|raise\b|[rRuU]?[\"'])|[):;][ \t]*(?:\.\.\.|pass\b)[ \t]*(?:#|\r?\n|\Z)"
)


def may_have_python_stub(data: bytes) -> bool:
    """Whether the body of a function may be nothing but a placeholder, a docstring or nothing."""
    if b"def" not in data:
        return False
    data = data.removeprefix(codecs.BOM_UTF8)
    if b"\r" in data and b"\r" in data.replace(b"\r\n", b""):
        return True
    return any(_may_be_bare(data, match) for match in _HEADER_END.finditer(data)) or any(
        not _OTHER_BLOCK.match(data, data.rfind(b"\n", 0, match.start()) + 1) for match in _ONE_LINE.finditer(data)
    )


def _may_be_bare(data: bytes, header: re.Match[bytes]) -> bool:
    """Whether what follows the end of a header is no body to speak of."""
    line = data.rfind(b"\n", 0, header.start()) + 1
    if _OTHER_BLOCK.match(data, line):
        return False
    definition = _DEFINITION.match(data, line)
    if definition is None:  # the last line of a header of several
        start = data.rfind(b"def", 0, line)
        definition = _DEFINITION.match(data, data.rfind(b"\n", 0, start) + 1) if start >= 0 else None
        if definition is None:
            return False
    depth, body = len(definition.group(1)), header.end()
    if len(header.group(1)) <= depth or body >= len(data):
        return True
    if _PLACEHOLDER.match(data, body):
        return not _is_deliberate(data, definition, body)
    if not data.startswith((b'"', b"'", b"r", b"R", b"u", b"U"), body):
        return False
    string = _STRING.match(data, body)
    if string is None:
        return data[body : body + 1] in b"\"'"
    rest = string.end()
    return len(string.group(2)) <= depth or rest >= len(data) or _PLACEHOLDER.match(data, rest) is not None


def _is_deliberate(data: bytes, definition: re.Match[bytes], body: int) -> bool:
    """Whether a function is abstract or an overload, or a `__method__` with `pass`: none of these is ever a stub."""
    name = definition.group(2)
    if name.startswith(b"__") and name.endswith(b"__") and len(name) > 4 and data.startswith(b"pass", body):
        return data[body + 4 : body + 6].strip(b"\r\n") == b""
    end = definition.start() - 1
    decorator = data[data.rfind(b"\n", 0, end) + 1 : end] if end > 0 else b""
    return decorator.startswith(definition.group(1) + b"@") and _DELIBERATE.match(decorator) is not None
