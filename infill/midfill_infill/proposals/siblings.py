"""Proposes bodies for a function: those of similar functions of the file or of related files, with names replaced as
the two headers differ. Knows no model.
"""

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

MAX_LINES: Final = 30  # of a body
NUM_BODIES: Final = 3
MAX_DOCSTRING_TOKENS: Final = 500  # of a docstring; comparing takes quadratic time
MAX_SIBLINGS: Final = 1000
# Lowers the likeness of a body that reads a parameter which the function lacks: none of 65 such bodies was right.
LOST_PARAMETER_PENALTY: Final = 0.15

_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
_BEFORE_PARAMETER: Final = frozenset("(,*&")
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_TOKEN: Final = re.compile(r"[^\W\d]\w*|\d+|[^\w\s]")
_NAME: Final = re.compile(r"[^\W\d]\w*")
_OWN_NAME: Final = re.compile(r"(?<![.\w])[^\W\d]\w*")  # not an attribute


@dataclass(frozen=True)
class _FunctionText:
    """What is compared of a function, and its body: the words of its name, the tokens of its header and docstring."""

    path: str
    name: tuple[str, ...]
    header: tuple[str, ...]
    docstring: tuple[str, ...]
    body: str

    @property
    def is_test(self) -> bool:
        return self.name[:1] == ("test",)

    def likeness(self, other: "_FunctionText", ratio: Callable[[Sequence[str], Sequence[str]], float]) -> float:
        """Similarity, at most 1. `ratio` compares two sequences of tokens."""
        names = ratio(self.name, other.name)
        headers = ratio(self.header, other.header)
        if self.docstring and other.docstring:
            docstrings = ratio(self.docstring, other.docstring)
            return 0.4 * names + 0.35 * headers + 0.25 * docstrings
        only_one_has_docstring = bool(self.docstring) != bool(other.docstring)
        return 0.5 * names + 0.5 * headers - 0.05 * only_one_has_docstring


def propose_siblings(around: Surroundings, index: int) -> list[Proposal]:
    """At most three bodies with the hole's indentation, the most similar function's first; none if it is no body."""
    hole = around.holes[index]
    if not hole.is_body:
        return []
    proposals: list[Proposal] = []
    for rank, (body, likeness, sibling) in enumerate(find_siblings(around, index), 1):
        lines = body.split("\n")
        for number, line in enumerate(lines[1:], 1):
            if line.strip():
                lines[number] = hole.indent + line
        certainty = shipped_weights().of_sibling(likeness) / rank
        proposals.append(Proposal("\n".join(lines), certainty, f"like `{sibling.path}`"))
    return proposals


def find_siblings(around: Surroundings, index: int) -> list[tuple[str, float, "_FunctionText"]]:
    """Bodies of similar functions, the most similar first, each with its likeness and its function. Names in a body are
    replaced only by names that are in sight of the hole.
    """
    document = around.document
    own_function = find_own(document, around.holes[index])
    if own_function is None or own_function.name is None or document.syntax is None:
        return []
    target = _read_function(document.source, own_function)
    siblings = _read_near(document, own_function)
    for reference in around.references:
        siblings += _read_reference(document.syntax, to_source(reference.text))
    best: dict[str, tuple[float, _FunctionText]] = {}
    lowest_likeness = -1.0  # of the kept bodies; no others may enter once there are NUM_BODIES
    for sibling in siblings:
        if sibling.is_test != target.is_test:
            continue
        if target.likeness(sibling, _ratio_bound) <= lowest_likeness:
            continue
        likeness = target.likeness(sibling, _ratio)
        if likeness <= lowest_likeness:
            continue
        body = _rename(sibling, target, around.sight.has)
        lost_parameters = _parameter_names(sibling.header) - set(target.header)
        if not lost_parameters.isdisjoint(_OWN_NAME.findall(body)):
            likeness -= LOST_PARAMETER_PENALTY
        if likeness <= lowest_likeness or (body in best and likeness <= best[body][0]):
            continue
        best[body] = likeness, sibling
        ranked = sorted(best.items(), key=lambda item: -item[1][0])[:NUM_BODIES]
        best = dict(ranked)
        if len(ranked) == NUM_BODIES:
            _, (lowest_likeness, _) = ranked[-1]
    return [(body, likeness, sibling) for body, (likeness, sibling) in best.items()]


def _read_function(source: bytes, function: Function) -> _FunctionText:
    body_start, body_end = function.body
    keep_start, keep_end = function.docstring or (body_start, body_start)
    header = source[function.head : body_start].decode("utf-8", "replace")
    docstring = source[keep_start:keep_end].decode("utf-8", "replace")
    return _FunctionText(
        path=".".join(function.path),
        name=_split_words(function.path[-1]),
        header=_split_tokens(header),
        docstring=_split_tokens(docstring)[:MAX_DOCSTRING_TOKENS],
        body=_unwrap(source, keep_end, body_end),
    )


def _unwrap(source: bytes, start: int, end: int) -> str:
    """The body at bytes `start` to `end` without its braces, and without its first line's indentation in any line."""
    text = source[start:end].strip()
    if text.startswith(b"{") and text.endswith(b"}"):
        start = source.index(b"{", start) + 1
        text = text[1:-1].strip()
    first_line, *lines = text.split(b"\n")
    text_start = source.find(first_line, start)
    line_start = source.rfind(b"\n", 0, text_start) + 1
    indentation = source[line_start:text_start]
    if not indentation.strip():
        lines = [line.removeprefix(indentation) for line in lines]
    body = b"\n".join([first_line, *lines])
    return body.decode("utf-8", "replace").replace("\r\n", "\n")


def _read_near(document: Document, own: Function) -> list[_FunctionText]:
    """The MAX_SIBLINGS functions of a document that are nearest to `own` and do not overlap it, in document order."""
    functions = [
        function for function in outline(document).functions if function.end <= own.start or own.end <= function.start
    ]
    functions.sort(key=lambda function: abs(function.start - own.start))
    near = functions[:MAX_SIBLINGS]
    return _read_usable(document.source, sorted(near, key=lambda function: function.start))


@lru_cache(maxsize=64)
def _read_reference(language: Language, source: bytes) -> tuple[_FunctionText, ...]:
    """The usable functions of a related file."""
    return tuple(_read_usable(source, read_outline(language, source).functions))


def _read_usable(source: bytes, functions: Sequence[Function]) -> list[_FunctionText]:
    """Those of `functions` with a name, no syntax error, and at most MAX_LINES lines of statements that are no stub."""
    texts: list[_FunctionText] = []
    for function in functions:
        if function.is_placeholder or function.is_broken or function.is_expression:
            continue
        if not function.path or not function.statements:
            continue
        text = _read_function(source, function)
        if text.body and text.body.count("\n") < MAX_LINES:
            texts.append(text)
    return texts


def _rename(sibling: _FunctionText, target: _FunctionText, is_in_sight: Callable[[str], bool]) -> str:
    """The body of a sibling with its names replaced as the header and docstring of `target` differ from the sibling's.
    Other names have words replaced in the same way. A new name that is not in sight replaces nothing.
    """
    old_tokens = sibling.header + sibling.docstring
    new_tokens = target.header + target.docstring
    changes = list(_find_changes(old_tokens, new_tokens))
    changes.reverse()  # so that the first of two changes of a name stays in the dictionaries
    names = dict(changes)
    words: dict[str, str] = {}
    for old, new in changes:
        words |= _find_changes(_split_words(old), _split_words(new))

    def change(match: re.Match[str]) -> str:
        old_name = match[0]
        new_name = names.get(old_name) or _WORD.sub(partial(_change_word, words), old_name)
        return new_name if is_in_sight(new_name) else old_name

    return _NAME.sub(change, sibling.body)


def _parameter_names(header: Sequence[str]) -> set[str]:
    """The first word of each of a header's parameters, and words behind `*` and `&`: names, or types in C and Java."""
    parameters: set[str] = set()
    depth = 0
    for before, token in pairwise(header):
        if before in _OPENING:
            depth += 1
        elif before in _CLOSING:
            depth -= 1
        if depth == 1 and before in _BEFORE_PARAMETER and _NAME.fullmatch(token):
            parameters.add(token)
    return parameters


def _find_changes(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of different names that have the same place in two token sequences."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag != "replace" or old_end - old_start != new_end - new_start:
            continue
        for old_token, new_token in zip(old[old_start:old_end], new[new_start:new_end], strict=True):
            if _NAME.fullmatch(old_token) and _NAME.fullmatch(new_token):
                yield old_token, new_token


def _change_word(words: dict[str, str], match: re.Match[str]) -> str:
    """The new word for the matched one, in the same case: upper, capitalized or as `words` has it."""
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


def _ratio_bound(first: Sequence[str], second: Sequence[str]) -> float:
    """An upper bound of `_ratio`, 20 times as fast to compute."""
    second_counts = _count_tokens(second)
    num_shared = 0
    for token, count in _count_tokens(first).items():
        num_shared += min(count, second_counts[token])
    return 2 * num_shared / max(1, len(first) + len(second))


@lru_cache(maxsize=4096)
def _count_tokens(tokens: Sequence[str]) -> Counter[str]:
    return Counter(tokens)


def _split_tokens(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(text))


def _split_words(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case: those of `readHTTPBody` are `read`, `http` and `body`."""
    return tuple(word.lower() for word in _WORD.findall(name))
