"""Decides which functions are stubs and which only look like one. Knows words and classes, no grammar."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from midfill_infill.syntax.captures import Function
from midfill_infill.syntax.classes import Kin, find_bases, find_kin, find_overridden
from midfill_infill.syntax.outline import outline, require_syntax
from midfill_infill.text.document import Document

TODO: Final = re.compile(
    rb"(?i)\b(todo|fixme|(?<!not )implement|your code|fill (this|me) in|not yet|coming soon|wip)\b|\blater\W*$"
)

_NOOP_NAME: Final = re.compile(r"(?i)_*(no_?op?(_\w+)?|\w+_no_?op|(\w+_)?nothing|blank|empty(_\w+)?|ignore|\w+_doc)")
# Names of classes in which `raise NotImplementedError` addresses the authors of subclasses.
_BASE_NAME: Final = re.compile(r"_*(Abstract|Base)(?=\w)|(?<=\w)(Base|Mixin|Interface|ABC|Abstract|Listener)$")
_TYPES_FILE: Final = re.compile(r"_*(typing|protocols?|interfaces?)\.py$")
_TEST_FILE: Final = re.compile(r"(^|/)((\w*_)?tests?/|test_\w*\.py$|\w+_test\.py$|conftest\.py$)")
# Names of classes that do nothing: `NullFile`, `LifespanOff`.
_IDLE_NAME: Final = re.compile(
    r"_*(Null|No(?=[A-Z])|No[oO]?p|Drop|Skip|PassThrough|Disabled|[Dd]ummy|Empty|Fake|Mock|Stub|Nothing)|(Null|Off|Dummy|Stub|Mock|Mixin)$"
)
_HOOK_NAME: Final = re.compile(
    r"__\w+__|_*(async_)?(on|before|after|pre|post|setup|set_up|teardown|tear_down|visit|model_post)_\w+|a?close|flush|(un)?register|setup"
    r"|setUp\w*|tearDown\w*|teardown|a?shutdown|(up|down)grade|ignore_\w+|_?default_\w+_\w+|\w*(dummy|fake|stub|placeholder|hook)\w*"
)
# Command groups have a docstring for their help text and no code.
_COMMAND_GROUP: Final = re.compile(rb"@[\w.]*\.?(group|callback)\b")
# Decorators of functions that may have no code, or may raise NotImplementedError to refuse the call.
_MAY_REFUSE: Final = re.compile(rb"@[\w.]*\b(register\w*|deprecated|fixture|override)\b")
# Decorators that find the code elsewhere, or expect the error.
_CODE_ELSEWHERE: Final = re.compile(
    rb"@[\w.]*(dispatch(method)?|\bbuiltin|\bextern(al)?|cpp_method|stub_function)\b|\braises=NotImplementedError\b"
)
_FOR_OTHERS: Final = re.compile(
    rb"(?i)\bsub-?class|\boverrid|\bderived class|\bdo(es)? nothing|\bno-?op\b|\bby default\b|\bhook\b|\bplaceholder\b"
    rb"|\b(called|invoked) (when|if|by|before|after|once|each|every)\b|\b(left|is) empty\b"
    rb"|\bnot (supported|needed|required|necessary|applicable|possible|be (called|invoked|used))\b|\bcannot\b"
    rb"|\bno (\w+ ){0,4}(need(ed)?|necessary|required|action)\b|\bunsupported\b|\bdoes(n't| not)\b|\bnothing to\b"
    rb"|\b(abstract|delegated|deprecated|dummy|fake|ignored?|implemented by|intentionally|mock\w*|unused)\b"
    rb"|\bonly makes sense\b|#\s*no\b"
)
_UNWRITTEN: Final = re.compile(
    rb"(?i)not[ _]?(yet[ _]?)?implemented( yet)?\W*$|unimplemented|todo|fixme|^\W*implement|^\W*$|\blater\b|\bsoon\b"
    rb"|\bnot (done|ready|written|finished)\b|\bnot yet\b|\byet to\b|\bwork in progress\b|\bwip\b"
)
# Messages for authors of subclasses: they name the class that lacks the method.
_SAYS_CLASS: Final = re.compile(rb"(?i)type\(self\)|__class__|\bcls\b|\bself\b|\bsub-?class|\boverrid|\binstead\b")
_PROMISE: Final = re.compile(rb"(?i)\b(yet|later|soon|todo|fixme|wip)\b")
_RAISE: Final = re.compile(rb"raise\s+NotImplemented\w*\s*(?:\((?P<message>.*)\))?", re.DOTALL)
_TYPES_ONLY: Final = re.compile(rb"\bif\b.*(?<!not )\b(typing\.|t\.)?TYPE_CHECKING\s*:")
_BRANCH: Final = re.compile(rb"\s*(if|elif|else|except)\b")
_NO_COVER: Final = re.compile(rb"#\s*(pragma:\s*)?no cov")
# If this many functions look alike, such as methods that only raise, their author has decided so.
_ALIKE_ON_PURPOSE: Final = 3
_COMMENT_LINE: Final = re.compile(rb"(?m)^[ \t]*#[^\n]*\n?")
_COMMENT: Final = re.compile(rb"[ \t]*(?:#|//|/\*)[^\n]*")
_LINTER_COMMENT: Final = re.compile(rb"#\s*(noqa|(type|pyright|pylint|mypy):)[^\n]*")
_CHECKED_ONLY: Final = re.compile(
    rb"(?im)^[ \t\f]*#.*\b(signatures? only|only for typ(es|ing)|(satisfy|for) (mypy|pyright|the type checker))\b"
)
_NAME: Final = rb"[\w\x80-\xff]+"
# Code that reads a function's signature, annotations or code object, or passes it to a decorator.
_SIGNATURE_USE: Final = re.compile(
    rb"(?<![\w\x80-\xff])(%b)\.__(?:annotations|code|signature)__|Signal\((%b)\)|(?m:^[ \t]*@[\w.]+\((?=(%b)))"
    % (_NAME, _NAME, _NAME)
)
# The first part of a method's name to which code adds the rest, as in `"do_" + name`.
_DISPATCHED: Final = re.compile(rb"""["']([^\s"'{%]+_)(?=["'{%])""")
_DECORATOR: Final = re.compile(rb"(?m)^[ \t]*@((?:[A-Z]\w*\.)*\w+)\b(?!\.)")
# Decorators of functions whose code users write, however many functions have them.
_ORDINARY_DECORATORS: Final = frozenset(
    b"property classmethod staticmethod cached_property contextmanager asynccontextmanager cache lru_cache fixture"
    b" tool task flow step node job component validator field_validator login_required receiver command".split()
)
_MANY_DECORATED: Final = 5


def is_stub(document: Document, function: Function) -> bool:
    """True if a function is not written yet.

    Its body is a single placeholder (`...`, `pass`, `raise NotImplementedError`, `todo!()`, a throw of "not
    implemented"), empty, or only a TODO comment. Never stubs are abstract methods, overloads and Protocol methods,
    functions of declaration files (.pyi), empty constructors and callbacks, functions called noop, and empty bodies
    with a comment without TODO. Without a TODO, methods that subclasses override are no stubs either, nor, in Python,
    bodies that their author means so (`is_meant`).
    """
    language = require_syntax(document)
    if function.is_deliberate or language.is_interface(document.name):
        return False
    if function.statements and not function.is_placeholder:
        return False
    unwritten = _Unwritten(document, function)
    if language.has_indented_blocks:
        return bool(TODO.search(unwritten.comments)) or not unwritten.is_meant()
    if function.statements:
        return bool(TODO.search(_inside(document, function))) or unwritten.name not in unwritten.owner.overridden
    if function.is_trivial or _NOOP_NAME.fullmatch(unwritten.name):
        return False
    comment = _inside(document, function)[1:-1].strip()
    return not comment or bool(TODO.search(comment))


def _inside(document: Document, function: Function) -> bytes:
    """The text of a body without its docstring, with comments and braces."""
    start, end = function.body
    if function.docstring:
        _, start = function.docstring
    return document.source[start : max(start, end)].strip()


def _decorators(document: Document, function: Function) -> bytes:
    """The text between a function's start and its definition."""
    return document.source[function.start : function.head]


def _has_code(function: Function) -> bool:
    """True for a function that has more than a placeholder."""
    return bool(function.statements) and not function.is_placeholder


@dataclass(frozen=True)
class _Owner:
    """The class or function at `path` in which functions are defined, or the module, whose path is empty, and what its
    file says about it. A document has one for each path.
    """

    document: Document
    path: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path[-1] if self.path else ""

    @cached_property
    def functions(self) -> Sequence[Function]:
        """The named functions that are defined in it."""
        return self.document.derive(_group_by_owner)[self.path]

    @cached_property
    def bases(self) -> frozenset[str]:
        """The names of the class's bases, and "Interface" or "Null" if the class's docstring says that it is one."""
        return find_bases(self.document, self.name)

    @cached_property
    def overridden(self) -> frozenset[str]:
        """The methods that subclasses in this file have."""
        return find_overridden(self.document, self.name) if self.path else frozenset()

    @cached_property
    def kin(self) -> Kin:
        """The relatives of the class in the package."""
        return find_kin(self.document, self.name) if self.path else Kin()

    @cached_property
    def has_code(self) -> bool:
        return any(map(_has_code, self.functions))

    @cached_property
    def num_empty(self) -> Counter[bool]:
        """How many functions without code raise an error, and how many do not."""
        empty = (function for function in self.functions if not _has_code(function))
        return Counter(_RAISE.match(_inside(self.document, function)) is not None for function in empty)


def _group_by_owner(document: Document) -> Mapping[tuple[str, ...], list[Function]]:
    """The named functions of a document by the path of what they are defined in."""
    groups: dict[tuple[str, ...], list[Function]] = defaultdict(list)
    for function in outline(document).functions:
        if function.path:
            groups[function.path[:-1]].append(function)
    return groups


def _list_around(document: Document) -> Mapping[Function, list[Function]]:
    """For each function of a document those that it is defined in, outermost first."""
    around: dict[Function, list[Function]] = {}
    open_functions: list[Function] = []
    for function in outline(document).functions:
        open_functions = [outer for outer in open_functions if outer.end > function.head]
        around[function] = [
            outer for outer in open_functions if outer.head < function.head and function.end <= outer.end
        ]
        open_functions.append(function)
    return around


def _find_all(document: Document, pattern: re.Pattern[bytes]) -> Sequence[re.Match[bytes]]:
    """All matches of `pattern` in a document, found once."""
    return list(pattern.finditer(document.source))


def _find_marks(document: Document) -> frozenset[bytes]:
    """The decorators that decorate five or more functions of a document, all without code."""
    num_decorated: Counter[bytes] = Counter()
    ordinary = set(_ORDINARY_DECORATORS)
    for function in outline(document).functions:
        names = set(_DECORATOR.findall(_decorators(document, function)))
        num_decorated.update(names)
        if _has_code(function):
            ordinary |= names
    return frozenset(name for name, count in num_decorated.items() if count >= _MANY_DECORATED) - ordinary


@dataclass(frozen=True)
class _Unwritten:
    """A function whose body has at most a placeholder, and what its file says about it. "It" below is the function."""

    document: Document
    function: Function

    @property
    def name(self) -> str:
        """Its own name; empty for an anonymous function."""
        return self.function.path[-1] if self.function.path else ""

    @cached_property
    def owner(self) -> _Owner:
        return self.document.derive(_Owner, self.function.path[:-1])

    @property
    def decorators(self) -> bytes:
        return _decorators(self.document, self.function)

    @property
    def comments(self) -> bytes:
        """The comments in the body and on its lines, without those for linters. The tree may end the function before
        the comment on its last line.
        """
        start = self.function.docstring[1] if self.function.docstring else self.function.head
        code = _LINTER_COMMENT.sub(b"", self.document.source[start : self.end])
        return b"\n".join(_COMMENT.findall(code))

    @cached_property
    def end(self) -> int:
        """The end of its last line, which may be behind the function's own end."""
        lines = self.document.source_lines
        return lines.end(lines.at(max(self.function.head, self.function.end - 1)))

    @cached_property
    def around(self) -> Sequence[Function]:
        """The functions that it is defined in, outermost first."""
        return self.document.derive(_list_around)[self.function]

    @property
    def is_in_tests(self) -> bool:
        """True if its file is a test, by the path."""
        if self.document.path is None:
            return False
        return bool(_TEST_FILE.search(self.document.path.as_posix()))

    def is_meant(self) -> bool:
        """True if the author of a Python body that is empty or a placeholder means it so, as the signs below say."""
        code = _COMMENT_LINE.sub(b"", _inside(self.document, self.function)).strip()
        raised = _RAISE.match(code)
        if raised is not None and raised["message"]:
            return self.is_message_meant(raised["message"])
        if self.has_no_cover(code) or self.is_for_types or self.is_written_by_decorator or self.is_signature_source:
            return True
        if _NOOP_NAME.fullmatch(self.name):
            return True
        if code.startswith(b"..."):
            return self.is_signature()
        is_in_dummy = self.around or (self.owner.name and not self.owner.name.startswith("Test"))
        if raised and self.is_in_tests and is_in_dummy:
            return True
        if (self.owner.name or not raised) and self.is_for_others():
            return True
        if any(map(_BRANCH.match, self.openers)) or self.is_dispatched or self.is_one_of_many(raises=bool(raised)):
            return True
        if _MAY_REFUSE.search(self.decorators):
            return True
        is_allowed = self.may_refuse() if raised else self.may_be_empty()
        if is_allowed:
            return True
        return self.owner.kin.is_base or self.name in self.owner.kin.inherited

    def is_message_meant(self, message: bytes) -> bool:
        """True if the message of its error does not say that code is to come."""
        if not _UNWRITTEN.search(message) or _SAYS_CLASS.search(message):
            return True
        if _PROMISE.search(message):
            return False
        return self.name in self.owner.overridden | self.owner.kin.derived or self.is_written_by_decorator

    @property
    def is_dispatched(self) -> bool:
        """True if the file builds method names from the first part of its name, as in `"do_" + name`."""
        prefixes = {self.name[: match.end()].encode() for match in re.finditer(r"(?<=[^_])_", self.name)}
        return bool(self.owner.path) and any(use[1] in prefixes for use in self.document.derive(_find_all, _DISPATCHED))

    def is_one_of_many(self, *, raises: bool) -> bool:
        """True if its class is derived or private, and three or more methods of the class have no code either and, as
        `raises` says of this one, raise or do not.
        """
        if not self.owner.bases and not self.owner.name.startswith("_"):
            return False
        return self.owner.num_empty[raises] >= _ALIKE_ON_PURPOSE

    def is_signature(self) -> bool:
        """True if `...` suffices, because it is an interface's method or, in a test file, a dummy or one of many."""
        if "Interface" in self.owner.bases or self.has_signatures:
            return True
        if self.owner.name and _TYPES_FILE.fullmatch(self.document.name):
            return True
        if not self.is_in_tests or (self.name.startswith("test") and not self.around):
            return False
        if self.around or self.owner.path:
            return bool(self.around)
        return sum(function.is_placeholder for function in self.owner.functions) >= _ALIKE_ON_PURPOSE

    @property
    def has_signatures(self) -> bool:
        """True if its class has signatures only: all methods are one's overloads, or a comment in the class says so."""
        methods = self.owner.functions if self.owner.path else ()
        if len(methods) > 1 and all(method.path == self.function.path for method in methods):
            return True
        head = self.function.head
        for comment in self.document.derive(_find_all, _CHECKED_ONLY):
            for (start, end), name in outline(self.document).scopes:
                if name == self.owner.name and start < comment.end() <= head < end:
                    return True
        return False

    @property
    def is_signature_source(self) -> bool:
        """True if later code reads its signature, annotations or code object, or passes it to a decorator."""
        scope_end = max((outer.end for outer in self.around), default=len(self.document.source))
        name = self.name.encode()
        uses = (use for use in self.document.derive(_find_all, _SIGNATURE_USE) if name in use.groups())
        return any(self.function.end <= use.start() and use.end() <= scope_end for use in uses)

    @property
    def is_written_by_decorator(self) -> bool:
        """True if its decorator finds the code elsewhere, or decorates five or more functions of the file, all without
        code.
        """
        if _CODE_ELSEWHERE.search(self.decorators):
            return True
        return not self.document.derive(_find_marks).isdisjoint(_DECORATOR.findall(self.decorators))

    def has_no_cover(self, code: bytes) -> bool:
        """True if a pragma excludes it from coverage, as no unwritten code is; for `...`, on the last line."""
        start = self.function.head
        if code.startswith(b"..."):
            lines = self.document.source_lines
            start = lines.start(lines.at(self.end))
        return _NO_COVER.search(self.document.source[start : self.end]) is not None

    @property
    def is_for_types(self) -> bool:
        """True if it is under `if TYPE_CHECKING:`, or a comment tells a type checker that its body is empty."""
        source = self.document.source[self.function.head : self.end]
        return b"[empty-body]" in source or any(map(_TYPES_ONLY.search, self.openers))

    @cached_property
    def openers(self) -> list[bytes]:
        """The lines that open the blocks around it, innermost first."""
        lines = self.document.source_lines
        line = lines.at(self.function.head)
        return list(map(lines.content, lines.list_openers(line, lines.columns(line))))

    def is_for_others(self) -> bool:
        """True if its docstring or a comment says that it needs no code, or its class is meant to be derived from."""
        if _FOR_OTHERS.search(self.docstring) or _FOR_OTHERS.search(self.comments):
            return True
        if "Interface" in self.owner.bases or _BASE_NAME.search(self.owner.name):
            return True
        # An ABC that marks some methods as abstract has decided about the others.
        return "ABC" in self.owner.bases and not any(method.is_deliberate for method in self.owner.functions)

    @property
    def docstring(self) -> bytes:
        """Its docstring with the quotes; empty without one."""
        if self.function.docstring is None:
            return b""
        start, end = self.function.docstring
        return self.document.source[start:end]

    def may_refuse(self) -> bool:
        """True for a method whose class does nothing or has an abstract base: it may raise to refuse the call."""
        return self.is_idle or any(map(_BASE_NAME.search, self.owner.bases))

    @property
    def is_idle(self) -> bool:
        """True if its class does nothing, as the name or the docstring of the class says."""
        return bool(_IDLE_NAME.search(self.owner.name)) or "Null" in self.owner.bases

    def may_be_empty(self) -> bool:
        """True for a hook, for a command group, for a function in a test or with a decorator inside another function,
        and for a method of a class that does nothing or that derives from another and has code.
        """
        if _HOOK_NAME.fullmatch(self.name) or self.is_idle or self.is_in_tests:
            return True
        if _COMMAND_GROUP.search(self.decorators) or (self.decorators and self.around):
            return True
        if any(outer.path and outer.path[-1].startswith("test") for outer in self.around):
            return True
        return bool(self.owner.bases) and self.owner.has_code
