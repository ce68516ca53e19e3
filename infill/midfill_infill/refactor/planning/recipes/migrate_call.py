"""Rewrites calls of a function, as calls of another one if it is named: `migrate-call=old.load:new.api.read`."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from midfill_infill.refactor.planning.calls import LANGUAGES, CallSite, find_calls
from midfill_infill.refactor.planning.mentions import find_mentions, may_call
from midfill_infill.refactor.planning.recipes.recipe import Recipe
from midfill_infill.refactor.planning.spelling import Spelling, spell
from midfill_infill.syntax.holes import hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

_BETWEEN: Final = re.compile(r"(?<!:):(?!:)")
_CREATIONS: Final = ("new_expression", "object_creation_expression")
_MAX_NOTE: Final = 200


def find(document: Document, word: str) -> Iterator[Hole]:
    """The whole call, from the function's name to the closing bracket. Of nested calls only the outer one is a hole.

    Names are resolved where they stand: `old.api.load` also matches `load(x)` after `from old.api import load`. The
    model sees the old call as a comment. If the new function is named, the model writes only the arguments.
    """
    for call, spelling in _list_calls(document, word):
        if isinstance(spelling, str):
            continue
        hole = hole_at_range(document, document.to_raw(call.start), document.to_raw(call.end))
        text = " ".join(document.source[call.start : call.end].decode("utf-8", "replace").split())
        callee, imports = spelling
        if not callee:
            yield replace(hole, note=f"instead of {text}"[:_MAX_NOTE])
            continue
        lead, tail = _frame(call, callee)
        note = f"{lead}...{tail} instead of {text}"[:_MAX_NOTE]
        yield replace(hole, lead=lead, tail=tail, note=note, imports=imports)


def list_left(document: Document, word: str) -> Iterator[tuple[int, str]]:
    """The calls and other uses of the function that are not written anew, each with the reason."""
    taken = list[tuple[int, int]]()
    for call, spelling in _list_calls(document, word):
        if isinstance(spelling, str):
            yield call.start, f"{call.name} {spelling}"
        elif any(start <= call.start < end for start, end in taken):
            yield call.start, f"{call.name} is called within a call that is written anew"
        else:
            taken.append((call.start, call.end))
    yield from find_mentions(document, _BETWEEN.split(word, maxsplit=1)[0])


@lru_cache(maxsize=2)
def _list_calls(document: Document, word: str) -> tuple[tuple[CallSite, Spelling | str], ...]:
    return tuple(_find_calls(document, word))


def _find_calls(document: Document, word: str) -> Iterator[tuple[CallSite, Spelling | str]]:
    """The calls of the old function, each with the new one's name there, or with why it is left as it is."""
    old, *new = _BETWEEN.split(word, maxsplit=1)
    for call in find_calls(document) if may_call(document, old) else ():
        if not call.may_call(old):
            continue
        if call.is_broken or call.is_template:
            yield call, "is called with a syntax error" if call.is_broken else "is called with a template"
        elif call.meaning.doubt:
            yield call, f"may be another function: {call.meaning.doubt}"
        else:
            spelling = spell(document, new[0], call) if new else ("", ())
            yield call, spelling or f"is called where {new[0]} is something else"


def _frame(call: CallSite, callee: str) -> tuple[str, str]:
    """The text around the arguments of the new call. A capitalized name is a class if the old one was."""
    name = re.split(r"\W+", callee.rstrip("!"))[-1]
    if call.kind == "composite_literal" and not name.startswith("New"):
        return f"{callee}{{", "}"
    if call.kind in _CREATIONS and name[:1].isupper():
        return f"new {callee}(", ")"
    parts = [callee]
    if any(call.chain):
        parts = callee.split(".")
    opening = "("
    if call.is_optional or any(call.chain[len(parts) - 1 :]):
        opening = "?.("
    for index, is_chained in zip(range(len(parts) - 1, 0, -1), call.chain, strict=False):
        sign = "?." if is_chained else "."
        parts[index] = sign + parts[index]
    return "".join(parts) + opening, ")"


RECIPE = Recipe(
    name="migrate-call",
    title="write the calls of a function anew",
    languages=LANGUAGES,
    find=find,
    list_left=list_left,
    word="the function's name, with * and ?, and :NEW for the one to call",
)
