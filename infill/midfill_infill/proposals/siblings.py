"""Proposes bodies of similar functions of the file or its references, renamed to fit the header. Knows no model."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache, partial
from itertools import pairwise
from typing import Final

from midfill_infill.languages import Language
from midfill_infill.proposals.base import Proposal, Surroundings
from midfill_infill.proposals.weights import shipped_weights
from midfill_infill.syntax.captures import Function, read_outline
from midfill_infill.syntax.outline import find_own, outline
from midfill_infill.text.document import Document
from midfill_infill.text.encoding import to_source

MAX_LINES: Final = 30
NUM_BODIES: Final = 3
MAX_SIBLINGS: Final = 1000
# Off the similarity of a body that reads a parameter which the wanted function lacks: none of 65 such was right.
LOST: Final = 0.15

_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
_BEGINNING: Final = frozenset("(,*&")
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_TOKEN: Final = re.compile(r"[^\W\d]\w*|\d+|[^\w\s]")
_NAME: Final = re.compile(r"[^\W\d]\w*")
_OWN_NAME: Final = re.compile(r"(?<![.\w])[^\W\d]\w*")  # not an attribute


@dataclass(frozen=True)
class _FunctionText:
    """A function's header and docstring, and its body."""

    path: str
    name: tuple[str, ...]
    header: tuple[str, ...]
    docstring: tuple[str, ...]
    body: str

    @property
    def is_test(self) -> bool:
        return self.name[:1] == ("test",)

    def likeness(self, other: "_FunctionText", ratio: Callable[[Sequence[str], Sequence[str]], float]) -> float:
        """Similarity from 0 to 1."""
        names = ratio(self.name, other.name)
        headers = ratio(self.header, other.header)
        if self.docstring and other.docstring:
            docstrings = ratio(self.docstring, other.docstring)
            return 0.4 * names + 0.35 * headers + 0.25 * docstrings
        has_one_docstring = bool(self.docstring) != bool(other.docstring)
        return 0.5 * names + 0.5 * headers - 0.05 * has_one_docstring


def propose_siblings(around: Surroundings, index: int) -> list[Proposal]:
    """At most three different bodies for a body hole."""
    hole = around.holes[index]
    if not hole.is_body:
        return []
    proposals: list[Proposal] = []
    for rank, (text, likeness, other) in enumerate(find_siblings(around, index), 1):
        lines = text.split("\n")
        for number, line in enumerate(lines[1:], 1):
            if line.strip():
                lines[number] = hole.indent + line
        certainty = shipped_weights().of_sibling(likeness) / rank
        proposals.append(Proposal("\n".join(lines), certainty, f"like `{other.path}`"))
    return proposals


def find_siblings(around: Surroundings, index: int) -> list[tuple[str, float, "_FunctionText"]]:
    """Bodies of the most similar functions, their similarity, and the functions; renames only to names in sight."""
    document = around.document
    own = find_own(document, around.holes[index])
    if own is None or own.name is None or document.syntax is None:
        return []
    wanted = _read(document.source, own)
    others = _read_around(document, own)
    for reference in around.references:
        others += _read_all(document.syntax, to_source(reference.text))
    best: dict[str, tuple[float, _FunctionText]] = {}
    least = -1.0
    for other in others:
        if other.is_test != wanted.is_test:
            continue
        if wanted.likeness(other, _bound) <= least:
            continue
        likeness = wanted.likeness(other, _ratio)
        if likeness <= least:
            continue
        body = _rename(other, wanted, around.sight.has)
        lost = _parameters(other.header) - set(wanted.header)
        if not lost.isdisjoint(_OWN_NAME.findall(body)):
            likeness -= LOST
        if likeness <= least or (body in best and likeness <= best[body][0]):
            continue
        best[body] = likeness, other
        ranked = sorted(best.items(), key=lambda item: -item[1][0])[:NUM_BODIES]
        best = dict(ranked)
        if len(ranked) == NUM_BODIES:
            _, (least, _) = ranked[-1]
    return [(body, likeness, other) for body, (likeness, other) in best.items()]


def _read(source: bytes, function: Function) -> _FunctionText:
    """What is compared of a function."""
    body_start, body_end = function.body
    keep_start, keep_end = function.keep or (body_start, body_start)
    header = source[function.head : body_start].decode("utf-8", "replace")
    docstring = source[keep_start:keep_end].decode("utf-8", "replace")
    return _FunctionText(
        path=".".join(function.path),
        name=_words(function.path[-1]),
        header=_tokens(header),
        docstring=_tokens(docstring),
        body=_unwrap(source, keep_end, body_end),
    )


def _unwrap(source: bytes, start: int, end: int) -> str:
    """A body without its braces and without the indentation that all its lines share."""
    text = source[start:end].strip()
    if text.startswith(b"{") and text.endswith(b"}"):
        text = text[1:-1].strip()
    first, *lines = text.split(b"\n")
    at = source.find(first, start)
    line_start = source.rfind(b"\n", 0, at) + 1
    margin = source[line_start:at]
    if not margin.strip():
        lines = [line.removeprefix(margin) for line in lines]
    body = b"\n".join([first, *lines])
    return body.decode("utf-8", "replace").replace("\r\n", "\n")


def _read_around(document: Document, own: Function) -> list[_FunctionText]:
    """Functions near a function of its document, nearest first."""
    functions = [
        function for function in outline(document).functions if function.end <= own.start or own.end <= function.start
    ]
    functions.sort(key=lambda function: abs(function.start - own.start))
    near = functions[:MAX_SIBLINGS]
    return _read_each(document.source, sorted(near, key=lambda function: function.start))


@lru_cache(maxsize=64)
def _read_all(language: Language, source: bytes) -> tuple[_FunctionText, ...]:
    """The functions of a related file."""
    return tuple(_read_each(source, read_outline(language, source).functions))


def _read_each(source: bytes, functions: Sequence[Function]) -> list[_FunctionText]:
    """The sound functions that have a body, of at most MAX_LINES lines."""
    texts: list[_FunctionText] = []
    for function in functions:
        if function.is_stub or function.is_broken or function.is_expression:
            continue
        if not function.path or not function.statements:
            continue
        text = _read(source, function)
        if text.body and text.body.count("\n") < MAX_LINES:
            texts.append(text)
    return texts


def _rename(sibling: _FunctionText, wanted: _FunctionText, is_seen: Callable[[str], bool]) -> str:
    """The body of a sibling with the names and words that its header would have, where these are in sight."""
    old_tokens = sibling.header + sibling.docstring
    new_tokens = wanted.header + wanted.docstring
    changes = list(_changes(old_tokens, new_tokens))
    changes.reverse()  # the first of two changes of a name holds
    names = dict(changes)
    words: dict[str, str] = {}
    for old, new in changes:
        words |= _changes(_words(old), _words(new))

    def change(match: re.Match[str]) -> str:
        name = match[0]
        new = names.get(name) or _WORD.sub(partial(_change_word, words), name)
        return new if is_seen(new) else name

    return _NAME.sub(change, sibling.body)


def _parameters(header: Sequence[str]) -> set[str]:
    """Parameter names without types and defaults."""
    parameters: set[str] = set()
    depth = 0
    for before, token in pairwise(header):
        if before in _OPENING:
            depth += 1
        elif before in _CLOSING:
            depth -= 1
        if depth == 1 and before in _BEGINNING and _NAME.fullmatch(token):
            parameters.add(token)
    return parameters


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of names that correspond to each other in two token sequences."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, start, end, begin, stop in matcher.get_opcodes():
        if tag != "replace" or end - start != stop - begin:
            continue
        for old_token, new_token in zip(old[start:end], new[begin:stop], strict=True):
            if _NAME.fullmatch(old_token) and _NAME.fullmatch(new_token):
                yield old_token, new_token


def _change_word(words: dict[str, str], match: re.Match[str]) -> str:
    """The word that another one became, spelled as that one is."""
    word = match[0]
    new = words.get(word.lower(), word)
    if word.isupper() and len(word) > 1:
        return new.upper()
    if word[0].isupper():
        return new.capitalize()
    return new


def _ratio(first: Sequence[str], second: Sequence[str]) -> float:
    """The similarity of two sequences of tokens, from 0 to 1."""
    if not first and not second:
        return 0.0
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


def _bound(first: Sequence[str], second: Sequence[str]) -> float:
    """An upper bound of the ratio, 20 times as fast to compute."""
    counts = _count(second)
    num_shared = 0
    for word, times in _count(first).items():
        num_shared += min(times, counts[word])
    return 2 * num_shared / max(1, len(first) + len(second))


@lru_cache(maxsize=4096)
def _count(words: Sequence[str]) -> Counter[str]:
    return Counter(words)


def _tokens(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(text))


def _words(name: str) -> tuple[str, ...]:
    """The words in lower case that a name is made of."""
    return tuple(word.lower() for word in _WORD.findall(name))
