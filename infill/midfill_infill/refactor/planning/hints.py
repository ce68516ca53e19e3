"""Tells without parsing that a Python file has no stub, or no missing docstring. Errs only towards "maybe".

Parsing dominates planning, and most files need none. Other languages are always parsed.
"""

import codecs
import re
from typing import Final

_PAIRS: Final = ((b"(", b")"), (b"[", b"]"), (b"{", b"}"))
# "def" as a part of other words, in a multi-line header.
_MAX_LOOKS: Final = 1000
_BLANKS: Final = rb"(?:[ \t\f]*(?:#[^\n]*)?\r?\n)*"
_HEADER_END: Final = re.compile(rb":[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z)" + _BLANKS + rb"([ \t\f]*)")
_OTHER_BLOCK: Final = re.compile(rb"[ \t\f]*(?:#|(?:except|else|if|elif|for|while|try|with|finally|case|class)\b)")
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


_PUBLIC: Final = re.compile(rb"\bdef[ \t\f\\]+(?:(?!_)|__new__|__call__)")
_PLAIN_HEADER: Final = re.compile(rb"[^\n#'\"]*:[ \t]*(?:#[^\n]*)?\r?\n" + _BLANKS + rb"[ \t\f]*")


def may_lack_docstring(data: bytes) -> bool:
    """Whether a public function may lack a docstring: false only if every header is one plain line above a string."""
    return any(not _is_documented(data, match.end()) for match in _PUBLIC.finditer(data))


def _is_documented(data: bytes, name: int) -> bool:
    header = _PLAIN_HEADER.match(data, name)
    return header is not None and _STRING.match(data, header.end()) is not None


def may_have_python_stub(data: bytes) -> bool:
    """Whether a function body may be only a placeholder or docstring, or empty."""
    if b"def" not in data:
        return False
    data = data.removeprefix(codecs.BOM_UTF8)
    if b"\r" in data and b"\r" in data.replace(b"\r\n", b""):
        return True
    return any(_may_be_bare(data, match) for match in _HEADER_END.finditer(data)) or any(
        _may_be_stub(data, match) for match in _ONE_LINE.finditer(data)
    )


def _may_be_stub(data: bytes, one_line: re.Match[bytes]) -> bool:
    line = data.rfind(b"\n", 0, one_line.start()) + 1
    if _OTHER_BLOCK.match(data, line):
        return False
    definition = _DEFINITION.match(data, line) or _find_open_definition(data, line)
    return definition is None or not _is_marked(data, definition)


def _find_open_definition(data: bytes, line: int) -> re.Match[bytes] | None:
    """The last `def` at a line start before `line` whose header may continue there."""
    end = line
    for _ in range(_MAX_LOOKS):
        start = data.rfind(b"def", 0, end)
        if start < 0:
            return None
        end = data.rfind(b"\n", 0, start) + 1
        if (found := _DEFINITION.match(data, end)) is not None:
            return None if _is_whole_header(data[end : data.find(b"\n", start)]) else found
    return None


def _is_whole_header(line: bytes) -> bool:
    """Whether a header certainly ends on its first line: balanced brackets, and no string or comment."""
    if not line.rstrip().endswith(b":") or any(mark in line for mark in (b"'", b'"', b"#")):
        return False
    return all(line.count(first) == line.count(last) for first, last in _PAIRS)


def _may_be_bare(data: bytes, header: re.Match[bytes]) -> bool:
    """Whether the text after a header is hardly a body."""
    line = data.rfind(b"\n", 0, header.start()) + 1
    if _OTHER_BLOCK.match(data, line):
        return False
    definition = _DEFINITION.match(data, line)
    if definition is None:  # the last line of a multi-line header
        definition = _find_open_definition(data, line)
        if definition is None:
            return False
    if _is_marked(data, definition):
        return False
    depth, body = len(definition.group(1)), header.end()
    if len(header.group(1)) <= depth or body >= len(data):
        return True
    if _PLACEHOLDER.match(data, body):
        return not _is_empty_protocol_method(data, definition, body)
    if not data.startswith((b'"', b"'", b"r", b"R", b"u", b"U"), body):
        return False
    string = _STRING.match(data, body)
    if string is None:
        return data[body : body + 1] in b"\"'"
    rest = string.end()
    return len(string.group(2)) <= depth or rest >= len(data) or _PLACEHOLDER.match(data, rest) is not None


def _is_empty_protocol_method(data: bytes, definition: re.Match[bytes], body: int) -> bool:
    """Whether it is a `__method__` with only `pass`, which is never a stub."""
    name = definition.group(2)
    if not (name.startswith(b"__") and name.endswith(b"__") and len(name) > 4 and data.startswith(b"pass", body)):
        return False
    return data[body + 4 : body + 6].strip(b"\r\n") == b""


def _is_marked(data: bytes, definition: re.Match[bytes]) -> bool:
    """Whether a decorator directly above says abstract or overload: such functions are never stubs."""
    end = definition.start() - 1
    decorator = data[data.rfind(b"\n", 0, end) + 1 : end] if end > 0 else b""
    return decorator.startswith(definition.group(1) + b"@") and _DELIBERATE.match(decorator) is not None
