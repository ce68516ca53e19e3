"""Says which functions wait to be written, and which are only meant to look so. Knows words and classes, no grammar."""

import re
from functools import lru_cache
from typing import Final

from midfill_infill.syntax.captures import Function
from midfill_infill.syntax.outline import outline, require_syntax
from midfill_infill.text.document import Document

TODO: Final = re.compile(rb"(?i)\b(todo|fixme|(?<!not )implement|your code|fill (this|me) in)\b")

_NOOP_NAME: Final = re.compile(r"(?i)_*(no_?op(_\w+)?|(\w+_)?nothing|blank)")
# Where `raise NotImplementedError` is what a class says to those that derive from it.
_BASE_NAME: Final = re.compile(r"_*(Abstract|Base)(?=\w)|(?<=\w)(Base|Mixin|Interface|ABC|Abstract|Listener)$")
_BASE_FILE: Final = re.compile(r"_*(abc|abstract|bases?|\w+_base|interfaces?|protocols?)\.py$")
_TYPES_FILE: Final = re.compile(r"_*(typing|protocols?|interfaces?)\.py$")
_TEST_FILE: Final = re.compile(r"(^|/)((\w*_)?tests?/|test_\w*\.py$|\w+_test\.py$|conftest\.py$)")
# Where nothing is to be done: `NullFile.close`, `LifespanOff.startup`.
_IDLE_NAME: Final = re.compile(
    r"_*(Null|No(?=[A-Z])|Disabled|Dummy|Empty|Fake|Mock|Stub|Nothing)|(Null|Off|Dummy|Stub|Mock|Mixin)$"
)
_HOOK_NAME: Final = re.compile(
    r"__\w+__|_?on_\w+|a?close|flush|(un)?register|(before|after|pre|post|setup|set_up|teardown|tear_down|visit|model_post)_\w+|setup"
    r"|setUp\w*|tearDown\w*|teardown|a?shutdown|(up|down)grade|ignore_\w+|_?default_\w+_\w+|\w*(dummy|fake|stub|placeholder|hook)\w*"
)
# What holds other commands of a command line has a docstring for its help and no code.
_COMMAND_GROUP: Final = re.compile(rb"@[\w.]*\.?(group|callback)\b")
# Decorators that find the code elsewhere, or expect the error.
_CODE_ELSEWHERE: Final = re.compile(rb"@[\w.]*(dispatch|\bbuiltin|\bextern(al)?)\b|\braises=NotImplementedError\b")
_FOR_OTHERS: Final = re.compile(
    rb"(?i)\bsub-?class|\boverrid|\bderived class|\bdo(es)? nothing|\bno-?op\b|\bby default\b|\bhook\b|\bplaceholder\b"
    rb"|\b(called|invoked) (when|if|by|before|after|once|each|every)\b|\b(left|is) empty\b"
    rb"|\bnot (supported|needed|required|applicable|possible|be (called|invoked|used))\b|\bimplemented by\b|\bcannot\b"
    rb"|\bno (longer )?(\w+ )?(need(ed)?|necessary|required|action)\b|\bunsupported\b|\bdoes(n't| not)\b|\bnothing to\b"
    rb"|\b(delegated|ignored?|intentionally|deprecated)\b|#\s*no\b"
)
_UNWRITTEN: Final = re.compile(
    rb"(?i)not[ _]?(yet[ _]?)?implemented( yet)?\W*$|unimplemented|todo|fixme|^\W*implement|^\W*$|\blater\b|\bsoon\b"
    rb"|\bnot (done|ready|written|finished|available)\b|\bnot yet\b|\byet to\b|\bwork in progress\b|\bwip\b"
)
# A message made for who derives: it names the class that has not got the method.
_SAYS_CLASS: Final = re.compile(rb"type\(self\)|__class__|\bcls\b|\bself\b")
_RAISE: Final = re.compile(rb"raise\s+NotImplemented\w*\s*(?:\((?P<said>.*)\))?", re.DOTALL)
_TYPES_ONLY: Final = re.compile(rb"\bif\s+(typing\.|t\.)?TYPE_CHECKING\s*:")
_NO_COVER: Final = re.compile(rb"#\s*(pragma:\s*)?no cov")
# A class with so many methods that only raise, or with so many that have code, has decided about the others.
_DECIDED: Final = 3
_REMARK_LINE: Final = re.compile(rb"(?m)^[ \t]*#[^\n]*\n?")
_REMARK: Final = re.compile(rb"[ \t]*(?:#|//|/\*)[^\n]*")
_LINT: Final = re.compile(rb"#\s*(noqa|(type|pyright|pylint|mypy):)[^\n]*")
_REMARK_BEHIND: Final = re.compile(rb"\S[ \t]*#")
_STRING: Final = re.compile(rb"""\"(?:\\.|[^"\\])*\"|'(?:\\.|[^'\\])*'""")
# Docstrings that say what kind of class it is; the kind is listed among its base classes.
_OPENED: Final = rb"""\s*[rRuU]?(\"{3}|'{3})"""
_KINDS: Final = {
    "Interface": re.compile(_OPENED + rb"\s*(\w+\s+){0,2}(?i:interface|protocol)\s+(for|of|to|that)\b"),
    "Null": re.compile(_OPENED + rb"\s*(\w+\s+)?(?i:no-?op|placeholder|dummy)\b"),
}
_CHECKED_ONLY: Final = re.compile(
    rb"(?im)^\s*#.*\b(signatures? only|only for typ(es|ing)|(satisfy|for) (mypy|pyright|the type checker))\b"
)
# Uses of a function's signature, annotations or code object; `{0}` is its name.
_SIGNATURE_USE: Final = r"{0}\.__(annotations|code|signature)__|Signal\({0}\)"
_DECORATOR: Final = re.compile(rb"(?m)^[ \t]*@((?:[A-Z]\w*\.)*\w+)\b(?!\.)")
# Decorators of functions that users write.
_PLAIN: Final = frozenset(
    b"property classmethod staticmethod cached_property contextmanager asynccontextmanager cache lru_cache fixture"
    b" tool task flow step node job component validator field_validator login_required receiver command".split()
)
_MANY: Final = 5
_CLASS: Final = re.compile(
    rb"\bclass\s+(?P<name>\w+)(?:<[^<>{}]*>)?\s*(?:\((?P<python>[^()]*(?:\([^()]*\)[^()]*)*)\)\s*:"
    rb"|(?P<others>(?:extends|implements|:)[^{};=]+)\{|:(?=\s*[rRuU]?\"{3}))"
)


def is_stub(document: Document, function: Function) -> bool:
    """Whether a function waits to be written.

    Its body is one placeholder (`...`, `pass`, `raise NotImplementedError`, `todo!()`, a throw of "not implemented"),
    or nothing, or a comment with TODO alone. Never a stub: what is abstract, overloads and Protocol methods, what a
    file of declarations (.pyi) holds, an empty constructor or callback, a function called noop, and an empty body whose
    comment says no TODO. Nor is, unless a TODO says so, what a class leaves to those that derive from it (see
    `_is_for_others`) and, in Python, a body without any code where there may well be none (`_may_be_empty`).
    """
    language = require_syntax(document)
    if function.is_deliberate or language.is_interface(document.name):
        return False
    if function.statements and not function.is_stub:
        return False
    inside = _inside(document, function)
    if language.has_indented_blocks:
        return bool(TODO.search(_code_and_notes(document, function))) or not _is_meant(document, function, inside)
    if function.statements:
        return bool(TODO.search(inside)) or not _is_overridden(document, function)
    if function.is_trivial or (function.path and _NOOP_NAME.fullmatch(function.path[-1])):
        return False
    note = inside[1:-1].strip()
    return not note or bool(TODO.search(note))


def _decorators(document: Document, function: Function) -> bytes:
    return document.source[function.start : function.head]


def _inside(document: Document, function: Function) -> bytes:
    start = function.keep[1] if function.keep else function.body[0]
    return document.source[start : max(start, function.body[1])].strip()


def _code_and_notes(document: Document, function: Function) -> bytes:
    """The body without its docstring, and the comments before and behind it, which its node may not hold."""
    start = function.keep[1] if function.keep else function.head
    lines = document.source_lines
    text = document.source[start : lines.end(lines.at(max(start, function.end - 1)))]
    return b"\n".join(_REMARK.findall(_LINT.sub(b"", text)))


def _is_meant(document: Document, function: Function, inside: bytes) -> bool:
    """Whether a body of Python with a placeholder, or nothing, is as its author wants it."""
    code = _REMARK_LINE.sub(b"", inside).strip()
    raised = _RAISE.match(code)
    said = raised["said"] if raised else None
    if said:
        is_overridden = b"yet" not in said and _is_overridden(document, function)
        return is_overridden or not _UNWRITTEN.search(said) or bool(_SAYS_CLASS.search(said))
    if _is_covered(document, function, code) or _is_for_types(document, function):
        return True
    if _is_written_by_decorator(document, function) or _is_signature_source(document, function):
        return True
    if function.path and _NOOP_NAME.fullmatch(function.path[-1]):
        return True
    if code.startswith(b"..."):
        return _is_signature(document, function)
    if raised and _is_test_file(document) and _is_dummy(document, function):
        return True
    is_alone = bool(raised) and len(function.path) < 2  # no class, so nobody who derives
    if (not is_alone and _is_for_others(document, function)) or _has_remark(document, function):
        return True
    return _refuses(document, function) if raised else _may_be_empty(document, function)


def _is_signature(document: Document, function: Function) -> bool:
    """Whether `...` is all that was wanted: a method of an interface, and in a test file a dummy, or one of many."""
    if "Interface" in _bases_of(document, function):  # named so, or by the docstring of the class
        return True
    if len(function.path) > 1 and (_TYPES_FILE.fullmatch(document.name) or _has_signatures(document, function)):
        return True
    is_nested = bool(_functions_around(document, function))
    if not _is_test_file(document) or (not is_nested and function.path and function.path[-1].startswith("test")):
        return False
    alike = [each for each in outline(document).functions if len(each.path) == 1 and each.is_stub]
    return is_nested or (len(function.path) == 1 and len(alike) >= _DECIDED)


def _has_signatures(document: Document, function: Function) -> bool:
    """True if its class has signatures only: nothing but overloads, or a comment above says so."""
    owner, methods = function.path[-2], _methods(document, function)
    if len(methods) > 1 and all(each.path == function.path for each in methods):
        return True
    scopes = [start for (start, end), name in outline(document).scopes if name == owner and start < function.head < end]
    return any(_CHECKED_ONLY.search(document.source, start, function.head) for start in scopes)


def _is_signature_source(document: Document, function: Function) -> bool:
    """True if later code reads its signature, annotations or code object."""
    if not function.path:
        return False
    use = re.compile(_SIGNATURE_USE.format(re.escape(function.path[-1])).encode())
    end = max((each.end for each in _functions_around(document, function)), default=len(document.source))
    return bool(use.search(document.source, function.end, end))


def _is_written_by_decorator(document: Document, function: Function) -> bool:
    """True if its decorator dispatches, or decorates at least five functions of the file, all of them without code."""
    decorators = _decorators(document, function)
    if _CODE_ELSEWHERE.search(decorators):
        return True
    for name in {*_DECORATOR.findall(decorators)} - _PLAIN:
        same = [f for f in outline(document).functions if name in _DECORATOR.findall(_decorators(document, f))]
        if len(same) >= _MANY and not any(f.statements and not f.is_stub for f in same):
            return True
    return False


def _is_dummy(document: Document, function: Function) -> bool:
    """Whether it stands in a function, or in a class that is no class of tests."""
    is_method = len(function.path) > 1 and not function.path[-2].startswith("Test")
    return is_method or bool(_functions_around(document, function))


def _functions_around(document: Document, function: Function) -> list[Function]:
    return [f for f in outline(document).functions if f.head < function.head and function.end <= f.end]


def _is_test_file(document: Document) -> bool:
    return bool(_TEST_FILE.search(document.path.as_posix() if document.path else ""))


def _is_covered(document: Document, function: Function, code: bytes) -> bool:
    """Whether a pragma says that no test is to run it: what waits to be written has none."""
    lines = document.source_lines
    last = lines.at(max(function.head, function.end - 1))
    start = lines.start(last) if code.startswith(b"...") else function.head
    return bool(_NO_COVER.search(document.source[start : lines.end(last)]))


def _is_for_types(document: Document, function: Function) -> bool:
    """Whether it stands under `if TYPE_CHECKING:`, where signatures alone count."""
    lines = document.source_lines
    line = lines.at(function.head)
    columns = lines.columns(line)
    for number in range(line - 1, -1, -1):
        if not columns:
            return False
        if not lines.is_blank(number) and lines.columns(number) < columns:
            columns = lines.columns(number)
            if _TYPES_ONLY.search(lines.content(number)):
                return True
    return False


def _is_for_others(document: Document, function: Function) -> bool:
    """Whether others are to write it, or nobody: docstring and remarks say so; of a method a class of the file
    overrides it, or the name of its class or of its file says that others derive.
    """
    doc = document.source[slice(*function.keep)] if function.keep else b""
    if _FOR_OTHERS.search(doc) or _FOR_OTHERS.search(_code_and_notes(document, function)):
        return True
    if len(function.path) < 2:
        return False
    if (
        _BASE_NAME.search(function.path[-2])
        or _BASE_FILE.fullmatch(document.name)
        or _is_overridden(document, function)
    ):
        return True
    is_abstract = "ABC" in _bases_of(document, function)  # it says otherwise what is abstract, where it says so at all
    return is_abstract and not any(each.is_deliberate for each in _methods(document, function))


def _refuses(document: Document, function: Function) -> bool:
    """Whether a method that raises refuses what its class has inherited: from a base class, or as others beside it."""
    if len(function.path) < 2:
        return False
    bases = _bases_of(document, function)
    if any(_IDLE_NAME.search(name) for name in (function.path[-2], *bases & {"Null"})) or any(
        map(_BASE_NAME.search, bases)
    ):
        return True
    raising = sum(bool(_RAISE.match(_inside(document, each))) for each in _methods(document, function))
    is_interface = function.path[-2].startswith("_") or bool(bases)
    is_generic = "Generic" in bases and raising == len(_methods(document, function))
    return b"@override" in _decorators(document, function) or is_generic or (is_interface and raising >= _DECIDED)


def _may_be_empty(document: Document, function: Function) -> bool:
    """A hook, a group of commands, a method that a class with code inherits, a method of a class that does nothing, or
    a dummy: in a test, or decorated in another function.
    """
    name, owner = (function.path[-1:] or ("",))[0], function.path[-2] if len(function.path) > 1 else ""
    if _HOOK_NAME.fullmatch(name) or _IDLE_NAME.search(owner) or "Null" in _bases_of(document, function):
        return True
    decorators = _decorators(document, function)
    if _COMMAND_GROUP.search(decorators) or _is_test_file(document):
        return True
    written = sum(bool(each.statements) and not each.is_stub for each in _methods(document, function))
    if owner and _bases_of(document, function) and written:
        return True
    if len(function.path) > 1 and not function.statements and _TYPES_FILE.fullmatch(document.name):
        return True
    around = _functions_around(document, function)
    return any(bool(decorators) or (f.path and f.path[-1].startswith("test")) for f in around)


def _methods(document: Document, function: Function) -> list[Function]:
    """Those of its class, itself among them."""
    owner = function.path[:-1]
    return [each for each in outline(document).functions if owner and each.path[:-1] == owner]


def _bases_of(document: Document, function: Function) -> frozenset[str]:
    named = (bases for name, bases in _bases(document) if function.path[-2:-1] == (name,))
    return frozenset().union(*named) - {"object"}


def _has_remark(document: Document, function: Function) -> bool:
    """Whether a comment stands behind the placeholder, on its line: somebody has thought about it."""
    lines = document.source_lines
    last = lines.content(lines.at(max(function.head, function.end - 1)))
    return bool(function.statements) and bool(_REMARK_BEHIND.search(_STRING.sub(b"", last)))


def _is_overridden(document: Document, function: Function) -> bool:
    """Whether a class that derives from its own has a function of that name, in this file."""
    if len(function.path) < 2:
        return False
    owner, name = function.path[-2:]
    return any(path[-2:] == (derived, name) for derived in _derived(document, owner) for path in _paths(document))


@lru_cache(maxsize=8)
def _paths(document: Document) -> tuple[tuple[str, ...], ...]:
    return tuple(function.path for function in outline(document).functions)


def _derived(document: Document, owner: str) -> set[str]:
    """The classes of the file that derive from `owner`, through others too."""
    found, size = {owner}, 0
    while len(found) > size:
        size = len(found)
        found |= {name for name, bases in _bases(document) if bases & found}
    return found - {owner}


@lru_cache(maxsize=8)
def _bases(document: Document) -> tuple[tuple[str, frozenset[str]], ...]:
    """Each class of the file with the words that stand where its bases do."""
    return tuple(
        (
            match["name"].decode(),
            frozenset(re.findall(r"\w+", (match["python"] or match["others"] or b"").decode("utf-8", "replace")))
            | {kind for kind, doc in _KINDS.items() if doc.match(document.source, match.end())},
        )
        for match in _CLASS.finditer(document.source)
    )
