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
class _Told:
    """A function's header and docstring, and its body."""

    path: str
    name: tuple[str, ...]
    header: tuple[str, ...]
    docstring: tuple[str, ...]
    body: str

    @property
    def is_test(self) -> bool:
        return self.name[:1] == ("test",)

    def likeness(self, other: "_Told", ratio: Callable[[Sequence[str], Sequence[str]], float]) -> float:
        """Similarity from 0 to 1."""
        names, headers = ratio(self.name, other.name), ratio(self.header, other.header)
        if self.docstring and other.docstring:
            return 0.4 * names + 0.35 * headers + 0.25 * ratio(self.docstring, other.docstring)
        return 0.5 * names + 0.5 * headers - 0.05 * (bool(self.docstring) != bool(other.docstring))


def propose_siblings(around: Surroundings, index: int) -> list[Proposal]:
    """At most three different bodies for a body hole."""
    hole = around.holes[index]
    if not hole.is_body:
        return []
    found = []
    for place, (text, likeness, other) in enumerate(find_siblings(around, index), 1):
        first, *lines = text.split("\n")
        body = "\n".join([first, *(hole.indent + line if line.strip() else line for line in lines)])
        found.append(Proposal(body, shipped_weights().of_sibling(likeness) / place, f"like `{other.path}`"))
    return found


def find_siblings(around: Surroundings, index: int) -> list[tuple[str, float, "_Told"]]:
    """Bodies of the most similar functions, their similarity, and the functions; renames only to names in sight."""
    document = around.document
    own = find_own(document, around.holes[index])
    if own is None or own.name is None or document.syntax is None:
        return []
    wanted = _tell(document.source, own)
    others = _tell_around(document, own)
    others += [told for each in around.references for told in _tell_all(document.syntax, to_source(each.text))]
    best: dict[str, tuple[float, _Told]] = {}
    least = -1.0
    for other in (each for each in others if each.is_test == wanted.is_test):
        if wanted.likeness(other, _bound) > least and (found := wanted.likeness(other, _ratio)) > least:
            body = _rename(other, wanted, around.sight.has)
            lost = _parameters(other.header) - set(wanted.header)
            found -= LOST * (not lost.isdisjoint(_OWN_NAME.findall(body)))
            if found > least and (body not in best or found > best[body][0]):
                best[body] = found, other
                ranked = sorted(best.items(), key=lambda item: -item[1][0])[:NUM_BODIES]
                best, least = dict(ranked), ranked[-1][1][0] if len(ranked) == NUM_BODIES else -1.0
    return [(body, likeness, other) for body, (likeness, other) in best.items()]


def _tell(source: bytes, function: Function) -> _Told:
    keep = function.keep or (function.body[0], function.body[0])
    header, docstring = (
        source[start:end].decode("utf-8", "replace") for start, end in ((function.head, function.body[0]), keep)
    )
    body = _unwrap(source, keep[1], function.body[1])
    return _Told(".".join(function.path), _words(function.path[-1]), _tokens(header), _tokens(docstring), body)


def _unwrap(source: bytes, start: int, end: int) -> str:
    """A body without its braces and without the indentation that all its lines share."""
    text = source[start:end].strip()
    if text.startswith(b"{") and text.endswith(b"}"):
        text = text[1:-1].strip()
    first, *rest = text.split(b"\n")
    at = source.find(first, start)
    margin = source[source.rfind(b"\n", 0, at) + 1 : at]
    lines = rest if margin.strip() else [line.removeprefix(margin) for line in rest]
    return b"\n".join([first, *lines]).decode("utf-8", "replace").replace("\r\n", "\n")


def _tell_around(document: Document, own: Function) -> list[_Told]:
    """Functions near a function of its document, nearest first."""
    functions = [each for each in outline(document).functions if each.end <= own.start or own.end <= each.start]
    near = sorted(functions, key=lambda each: abs(each.start - own.start))[:MAX_SIBLINGS]
    return _tell_each(document.source, sorted(near, key=lambda each: each.start))


@lru_cache(maxsize=64)
def _tell_all(language: Language, source: bytes) -> tuple[_Told, ...]:
    return tuple(_tell_each(source, read_outline(language, source).functions))


def _tell_each(source: bytes, functions: Sequence[Function]) -> list[_Told]:
    """The sound functions that have a body, of at most MAX_LINES lines."""
    sound = (each for each in functions if not (each.is_stub or each.is_broken or each.is_expression))
    told = [_tell(source, each) for each in sound if each.path and each.statements]
    return [each for each in told if each.body and each.body.count("\n") < MAX_LINES]


def _rename(sibling: _Told, wanted: _Told, is_seen: Callable[[str], bool]) -> str:
    pairs = list(_changes(sibling.header + sibling.docstring, wanted.header + wanted.docstring))
    names = dict(reversed(pairs))
    words = dict(pair for old, new in reversed(pairs) for pair in _changes(_words(old), _words(new)))

    def change(match: re.Match[str]) -> str:
        new = names.get(match[0]) or _WORD.sub(partial(_change_word, words), match[0])
        return new if is_seen(new) else match[0]

    return _NAME.sub(change, sibling.body)


def _parameters(header: Sequence[str]) -> set[str]:
    """Parameter names without types and defaults."""
    found, depth = set(), 0
    for before, token in pairwise(header):
        depth += (before in _OPENING) - (before in _CLOSING)
        if depth == 1 and before in _BEGINNING and _NAME.fullmatch(token):
            found.add(token)
    return found


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of names that correspond to each other in two token sequences."""
    for tag, start, end, begin, stop in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "replace" and end - start == stop - begin:
            pairs = zip(old[start:end], new[begin:stop], strict=True)
            yield from ((a, b) for a, b in pairs if _NAME.fullmatch(a) and _NAME.fullmatch(b))


def _change_word(words: dict[str, str], match: re.Match[str]) -> str:
    word = match[0]
    new = words.get(word.lower(), word)
    return new.upper() if word.isupper() and len(word) > 1 else new.capitalize() if word[0].isupper() else new


def _ratio(first: Sequence[str], second: Sequence[str]) -> float:
    return SequenceMatcher(None, first, second, autojunk=False).ratio() if first or second else 0.0


def _bound(first: Sequence[str], second: Sequence[str]) -> float:
    """An upper bound of the ratio, 20 times as fast to compute."""
    counts = _count(second)
    shared = sum(min(times, counts[word]) for word, times in _count(first).items())
    return 2 * shared / max(1, len(first) + len(second))


@lru_cache(maxsize=4096)
def _count(words: Sequence[str]) -> Counter[str]:
    return Counter(words)


def _tokens(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(text))


def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(name))
