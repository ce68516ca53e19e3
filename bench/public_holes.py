"""Asks for the holes of functions in folders of sources, and counts right, wrong and missing ones by language.

    python -m bench public_holes DIR... [--most N] [--show]

Each DIR is one repository. The functions come from other code than the code that finds holes: from the grammar's node
types, and in C and C++, whose trees macros break, from a reader of braces. The cursor is on the first line that belongs
to the function alone. A hole is right if it covers the innermost function's body except comments and a docstring, and
if putting its own text in again leaves the file's tree unchanged.
"""

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import tree_sitter

from midfill_infill.errors import MidfillError
from midfill_infill.languages import find_language, get_language
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import body_at
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

_ECMASCRIPT: Final = (
    "function_declaration", "generator_function_declaration", "method_definition", "arrow_function",
    "function_expression", "generator_function",
)  # fmt: skip
NODE_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "python": ("function_definition",),
    "javascript": _ECMASCRIPT,
    "typescript": _ECMASCRIPT,
    "tsx": _ECMASCRIPT,
    "go": ("function_declaration", "method_declaration", "func_literal"),
    "rust": ("function_item", "closure_expression"),
    "java": ("method_declaration", "constructor_declaration", "compact_constructor_declaration", "lambda_expression"),
}
NODE_TYPES["vue"] = NODE_TYPES["svelte"] = _ECMASCRIPT
BY_BRACES: Final = ("c", "cpp")
LARGEST_BYTES: Final = 256 * 1024  # inserting a text into a megabyte that does not parse takes seconds
SKIPPED: Final = ("node_modules", "vendor", "third_party", "deps", "dist", "build", ".git")
Span = tuple[int, int]

_TOKEN: Final = re.compile(
    rb'//[^\n]*|/\*.*?\*/|R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    rb"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n]){1,4}'|^[ \t]*#(?:[^\n\\]|\\\r?\n|\\.)*|[{}();]",
    re.DOTALL | re.MULTILINE,
)
_CONTROL: Final = frozenset(
    (b"if", b"for", b"while", b"switch", b"catch", b"constexpr", b"return", b"requires", b"defined")
)
_QUALIFIER: Final = re.compile(rb"(?:\b(?:const|noexcept|override|final|mutable|volatile|try)|&&?|->[\s\w:<>,*&]+)\s*$")
_NAME: Final = re.compile(rb"(operator\s*(?:\(\)|[^\s\w(]+|\w+)|[\w~]+)(?:<[^<>]*>)?\s*$")
_LAMBDA: Final = re.compile(rb"\[[^\[\]]*\]\s*$")
_MADE_BY_MACRO: Final = re.compile(rb"[A-Z][A-Z0-9_]+")
_LONGEST_HEAD: Final = 2000
_NO_CODE: Final = re.compile(
    rb'[rRuU]?"""(?s:.*?)"""|\'\'\'(?s:.*?)\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|#[^\n]*|/\*(?s:.*?)\*/|[\s;]'
)


@dataclass(frozen=True)
class Found:
    """A function-like construct: its start, decorators included, and the range of its body without braces."""

    start: int
    body: Span
    is_expression: bool = False


def read_nodes(document: Document) -> list[Found]:
    """Every function-like node that the grammar knows and that holds no error."""
    assert document.language is not None
    types, functions = NODE_TYPES[document.language], []
    language, source = get_language(document.language), document.source
    if language.read_within is not None:
        language, source = get_language("typescript"), read_scripts(source)
    pending = [language.parse(source).root_node]
    while pending:
        node = pending.pop()
        body = node.child_by_field_name("body")
        if node.type in types and body is not None and not node.has_error:
            functions.append(_without_braces(node, body))
        pending.extend(node.children)
    return functions


class _Scripts(HTMLParser):
    """The scripts of a component at their offsets, all else blank, by the standard library's HTML parser."""

    def __init__(self, source: bytes) -> None:
        super().__init__(convert_charrefs=False)
        self._lines = source.decode().splitlines(keepends=True)
        self.text = [re.sub(r"[^\r\n]", " ", line) for line in self._lines]
        self._inside = False
        self.feed(source.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        line, column = self.getpos()
        if not self._inside:
            return
        for number, part in enumerate(data.splitlines(keepends=True)):
            start = 0 if number else column
            row = self.text[line - 1 + number]
            self.text[line - 1 + number] = row[:start] + part + row[start + len(part) :]


def read_scripts(source: bytes) -> bytes:
    return "".join(_Scripts(source).text).encode() if source.isascii() else b""


def _without_braces(node: tree_sitter.Node, body: tree_sitter.Node) -> Found:
    has_braces = bool(body.children) and body.children[0].type == "{" and body.children[-1].type == "}"
    edge = int(has_braces)
    is_expression = not has_braces and body.type != "block"
    whole = node
    if node.parent and node.parent.type == "decorated_definition":
        whole = node.parent
    return Found(whole.start_byte, (body.start_byte + edge, body.end_byte - edge), is_expression)


def read_braces(source: bytes) -> list[Found]:
    """Function bodies of C and C++, by the text before their braces; reads one branch of preprocessor conditions."""
    functions: list[Found] = []
    opened: list[tuple[int, int, bool]] = []
    head, skipped = 0, 0
    branches: list[bool] = []
    clean = bytearray(source)
    for token in _TOKEN.finditer(source):
        text = token.group()
        if text not in b"{}();":
            clean[token.start() : token.end()] = b" " * len(text)
            skipped = _branch(text.strip(), branches, skipped)
            continue
        if skipped:
            continue
        if text == b"{":
            opened.append((head, token.end(), is_function(bytes(clean[head : token.start()]))))
        elif text == b"}" and opened:
            first, start, is_one = opened.pop()
            if is_one:
                functions.append(Found(first, (start, token.start())))
        if text in b"{};":
            head = token.end()
    return functions if not opened else []


def _branch(text: bytes, branches: list[bool], skipped: int) -> int:
    word = re.match(rb"#\s*(\w+)", text)
    kind = word.group(1) if word else b""
    if kind in (b"if", b"ifdef", b"ifndef"):
        branches.append(False)
    elif kind in (b"else", b"elif") and branches:
        skipped += not branches[-1]
        branches[-1] = True
    elif kind == b"endif" and branches:
        skipped -= branches.pop()
    return skipped


def is_function(head: bytes) -> bool:
    """True if `{` behind `head` opens a function: it ends in a name, or a capture, with parentheses."""
    rest = head[-_LONGEST_HEAD:].rstrip()
    while rest:
        if _LAMBDA.search(rest):
            return True
        if qualifier := _QUALIFIER.search(rest):
            rest = rest[: qualifier.start()].rstrip()
            continue
        opening = _find_opening(rest)
        if opening is None:
            return False
        rest = rest[:opening].rstrip()
        if _LAMBDA.search(rest):
            return True
        name = _NAME.search(rest)
        if not name or name.group(1) in _CONTROL or b"=" in rest.rpartition(b"\n")[2]:
            return False
        before = rest[: name.start()].rstrip()
        if name.group(1) == b"noexcept":
            rest = before
        elif before.endswith(b",") or (before.endswith(b":") and not before.endswith(b"::")):
            rest = before[:-1].rstrip()  # a member in the list of a constructor
        else:
            return not _MADE_BY_MACRO.fullmatch(name.group(1))
    return False


def _find_opening(text: bytes) -> int | None:
    """The offset of the parenthesis that the last one of `text` closes."""
    depth = 0
    for offset in range(len(text) - 1, -1, -1):
        depth += (text[offset] == 0x29) - (text[offset] == 0x28)
        if depth <= 0:
            return offset if text.endswith(b")") else None
    return None


def own_offset(source: bytes, function: Found, others: list[Found]) -> int | None:
    """The offset of the first code in the body's first line without code of an inner or outer function."""
    start, end = function.body
    inner = [(other.start, other.body[1]) for other in others if start <= other.body[0] and other.body[1] <= end]
    inner = [(_line_start(source, a), b) for a, b in inner if (a, b) != (function.start, end)]
    for match in re.finditer(rb"\S", source[start:end]):
        offset = start + match.start()
        is_first = not source[_line_start(source, offset) : offset].strip()
        if (is_first or function.is_expression) and not any(a <= offset <= b for a, b in inner):
            return offset
    return None


def _line_start(source: bytes, offset: int) -> int:
    return source.rfind(b"\n", 0, offset) + 1


def is_right(document: Document, hole: Hole, function: Found) -> bool:
    start, end = document.to_source(hole.start_byte), document.to_source(hole.end_byte)
    inside = function.start < start and end <= function.body[1]
    parts = sorted((function.body[0], start)), (end, function.body[1])  # comments stand before a block of Python
    return inside and not any(_NO_CODE.sub(b"", document.source[slice(*part)]) for part in parts)


def comes_back(document: Document, hole: Hole) -> bool:
    """True if the file's tree stays the same when the hole's own text is put in as a fill."""
    assert document.syntax is not None
    text = document.decode(hole.start_byte, hole.end_byte).replace("\r\n", "\n")
    after = splice(document, [hole], [text]).patch.apply(document.data)
    if after == document.data:
        return True
    changed = Document(after, document.language, document.path, document.stored_as)
    return str(document.syntax.parse(changed.source).root_node) == str(document.syntax.parse(document.source).root_node)


def judge(document: Document, functions: list[Found], sample: list[Found]) -> Iterator[tuple[str, int]]:
    """For each function of `sample` the outcome (right, wrong, none or not back) and its place."""
    for function in sample:
        offset = own_offset(document.source, function, functions)
        if offset is None:
            continue
        try:
            hole = body_at(document, document.to_data(offset))
            verdict = "right"
            if not is_right(document, hole, function):
                verdict = "wrong"
            elif hole.start_byte < hole.end_byte and not comes_back(document, hole):
                verdict = "not back"
        except MidfillError as error:
            verdict = "none" if error.code == "no_hole" else error.code
        yield verdict, offset


def find_sources(folder: Path) -> Iterator[Document]:
    for path in sorted(folder.rglob("*")):
        if not find_language(path) or any(part in SKIPPED for part in path.relative_to(folder).parts):
            continue
        if path.is_file() and path.stat().st_size <= LARGEST_BYTES:
            try:
                document = Document.read(path)
                if not document.name.endswith((".min.js", ".d.ts")):
                    yield document
            except MidfillError:
                continue


def read_functions(document: Document) -> list[Found]:
    if document.language in BY_BRACES:
        return read_braces(document.source)
    return read_nodes(document)


def count_repository(folder: Path, most: int, show: bool) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    documents = [(document, read_functions(document)) for document in find_sources(folder)]
    places = [(index, function) for index, (_, functions) in enumerate(documents) for function in functions]
    chosen: dict[int, list[Found]] = {}
    for index, function in random.Random(0).sample(places, min(most, len(places))):
        chosen.setdefault(index, []).append(function)
    for index, sample in sorted(chosen.items()):
        document, functions = documents[index]
        for verdict, offset in judge(document, functions, sample):
            counts.setdefault(document.language or "", Counter())[verdict] += 1
            if show and verdict != "right":
                print(f"{verdict}: {document.path}:{document.source.count(b'%s' % bytes([10]), 0, offset) + 1}")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--most", type=int, default=400, help="functions of a repository, drawn by chance")
    parser.add_argument("--show", action="store_true", help="print where a hole is not right")
    options = parser.parse_args()
    totals: dict[str, Counter[str]] = {}
    for folder in options.folders:
        for language, counts in sorted(count_repository(folder, options.most, options.show).items()):
            print(f"| {folder.name} | {language} | {row(counts)}", flush=True)
            totals.setdefault(language, Counter()).update(counts)
    for language, counts in sorted(totals.items()):
        print(f"| all | {language} | {row(counts)}")


def row(counts: Counter[str]) -> str:
    kinds = ("right", "wrong", "none", "not back")
    return " | ".join(str(counts[kind]) for kind in kinds) + f" | {100 * counts['right'] / counts.total():.1f} % |"


if __name__ == "__main__":
    main()
