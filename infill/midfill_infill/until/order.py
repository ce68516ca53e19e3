"""A queue of candidates, the best first. Those that would probably fail like earlier ones come last. Runs nothing."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

import tree_sitter

from midfill_infill.filling.candidates import Alternative
from midfill_infill.sandbox.failures import Failure
from midfill_infill.sandbox.runner import Ran
from midfill_infill.text.document import Document
from midfill_infill.until.anew import Fault

_MISSING: Final = re.compile(
    r"has no attribute '(?P<attribute>\w+)'|name '(?P<name>\w+)' is not defined|No module named '(?P<module>[\w.]+)'"
    r"|cannot import name '(?P<imported>\w+)'|unexpected keyword argument '(?P<keyword>\w+)'"
    r"|\b(?P<called>\w+) is not a function|undefined: (?P<undefined>\w+)|\b(?P<unbound>\w+) is not defined"
)
# As pytest prints a comparison, then as unittest does.
_COMPARED: Final = re.compile(
    r"assert (?P<got>.+?) (?:==|is) (?P<wanted>.+)|^(?P<got2>.+?) != (?P<wanted2>.+)", re.MULTILINE
)
_QUOTED: Final = re.compile(r"""\"{3}(?:(?!\"{3}).)*\"{3}|'{3}(?:(?!'{3}).)*'{3}""", re.DOTALL)
_RETURN: Final = re.compile(r"^\s*return\b[ \t]*(?P<value>.*)$|^\s*(?P<yielded>yield)\b", re.MULTILINE)
# Of 32,077 bodies of Python packages whose file has no other assertion, 27 begin with one; drafts do it more often,
# because the assertions of tests stand above the hole as examples.
_ASSERTION: Final = re.compile(r"^[ \t]*assert\b", re.MULTILINE)
# Guesses the type of an expression or a printed value by how it begins.
_KINDS: Final = (
    ("none", re.compile(r"None$|$")),
    ("bool", re.compile(r"(True|False)$|not |(any|all|bool|isinstance)\(|[^=(\[{]+ (==|!=|<=|>=|<|>|in) [^=]+$")),
    ("text", re.compile(r"""[rbf]?["']|str\(|"".join""")),
    ("list", re.compile(r"\[|list\(|sorted\(")),
    ("dict", re.compile(r"\{[^}]*:|dict\(|\{\}$")),
    ("set", re.compile(r"\{|set\(")),
    ("tuple", re.compile(r"\(.*,|tuple\(")),
    ("number", re.compile(r"-?\d[\d._e+-]*$|(len|int|float|sum|round|abs)\(")),
)  # fmt: skip


class Queue:
    """Holds each candidate once; candidates that differ only in white space or comments count as equal."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._seen: set[str] = set()
        self._waiting: list[Alternative] = []
        # What the candidates that failed probably failed for; see `learn`.
        self._faulty_lines: set[str] = set()
        self._missing_names: set[str] = set()
        self._wrong_kinds: set[str] = set()  # of returned values
        self._has_assertions = _ASSERTION.search(document.text) is not None
        self.first: Alternative  # the first that was ever added, even if it is never tried

    def add(self, candidates: Iterable[Alternative]) -> int:
        """Queues candidates that are worth a try. Returns how many were new, with those that are worth none."""
        before = len(self._seen)
        for candidate in candidates:
            if not self._seen:
                self.first = candidate
            key = self._key(candidate)
            if key not in self._seen:
                self._seen.add(key)
                if not (candidate.is_blank or candidate.is_idle or _is_test_or_docstring(candidate)):
                    self._waiting.append(candidate)
        return len(self._seen) - before

    def take(self) -> Alternative | None:
        """Takes the best candidate out of the queue; None if it is empty."""
        if not self._waiting:
            return None
        # Of equal ones `min` takes that which was added first: the engine's order.
        best = min(self._waiting, key=lambda candidate: (candidate.new_errors, self.count_doubts(candidate)))
        self._waiting.remove(best)
        return best

    def learn(self, candidate: Alternative, ran: Ran, fault: Fault | None) -> None:
        """Remembers what `candidate` probably failed for. `fault` is the line of it that a failure points at."""
        if ran.failures:
            self._learn_from(ran.failures[0])
        # An assertion fails where a value is compared, not in the line that made it wrong; a missing name is remembered
        # by itself.
        if fault is not None and fault.failure.kind not in ("AssertionError", ""):
            if not _MISSING.search(fault.failure.message):
                self._faulty_lines.add(fault.line)
        if ran.code is None:  # too slow: any of its loops may be endless
            loops = [line for line in _list_lines(candidate) if line.startswith(("while ", "for "))]
            self._faulty_lines.update(loops)

    def _learn_from(self, failure: Failure) -> None:
        for match in _MISSING.finditer(failure.message):
            self._missing_names.update(filter(None, match.groups()))
        compared = _COMPARED.search(failure.message)
        if compared is not None:
            got = _kind(compared["got"] or compared["got2"] or "")
            wanted = _kind(compared["wanted"] or compared["wanted2"] or "")
            if got and wanted and got != wanted:
                self._wrong_kinds.add(got)

    def count_doubts(self, candidate: Alternative) -> int:
        """How many reasons there are to expect that `candidate` fails."""
        is_foreign = any(_ASSERTION.match(fill.text) for fill in candidate.fills) and not self._has_assertions
        return self.count_repeats(candidate) + is_foreign

    def count_repeats(self, candidate: Alternative) -> int:
        """How many of the remembered reasons to fail `candidate` shares."""
        text = "\n".join(fill.text for fill in candidate.fills)
        num_repeats = sum(line in self._faulty_lines for line in _list_lines(candidate))
        for name in self._missing_names:
            if re.search(rf"\b{re.escape(name)}\b", text):
                num_repeats += 1
        returned_kinds = ["" if match["yielded"] else _kind(match["value"]) for match in _RETURN.finditer(text)]
        # Every return must have a wrong kind; "", a kind that does not show, is not one. Without a return it is None.
        if self._wrong_kinds and all(kind in self._wrong_kinds for kind in returned_kinds or ["none"]):
            num_repeats += 1
        return num_repeats

    def _key(self, candidate: Alternative) -> str:
        """The text of a candidate without white space and comments: equal candidates have the same."""
        texts = [fill.text for fill in candidate.fills]
        syntax = self._document.syntax
        if syntax is None:
            return repr([text.split() for text in texts])
        trees = [syntax.parse(text.encode("utf-8", "replace")) for text in texts]
        return repr([list(_leaves(tree.root_node)) for tree in trees])


def _is_test_or_docstring(candidate: Alternative) -> bool:
    """True if a body is a test of its own function, or a docstring alone."""
    for fill in candidate.fills:
        name = re.escape((fill.hole.name or "").rpartition(".")[2])
        is_test = name and re.search(rf"\bassert\b.*\b{name}\(", fill.text)
        if fill.hole.is_body and (is_test or _QUOTED.fullmatch(fill.text.strip())):
            return True
    return False


def _kind(value: str) -> str:
    """The type of an expression or a printed value, as far as it shows; "" if it does not."""
    return next((kind for kind, pattern in _KINDS if pattern.match(value.strip())), "")


def _list_lines(candidate: Alternative) -> Iterator[str]:
    """The lines of a candidate that are not blank, stripped."""
    for fill in candidate.fills:
        yield from filter(None, map(str.strip, fill.text.split("\n")))


def _leaves(root: tree_sitter.Node) -> Iterator[tuple[str, int, bytes | None]]:
    """Yields the tokens of a text with their depth in the tree, without comments."""
    pending = [(root, 0)]
    while pending:
        node, depth = pending.pop()
        if "comment" in node.type:
            continue
        if not node.child_count:
            yield node.type, depth, node.text
        pending += [(child, depth + 1) for child in reversed(node.children)]
