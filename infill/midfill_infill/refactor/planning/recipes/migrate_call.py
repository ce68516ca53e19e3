"""Finds calls of a function to write anew, or as calls of another: `migrate-call=old.load:new.api.read`."""

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

_FORM: Final = r"(?:[^\s:]|::)+(?::(?:[^\s:*?\[]|::)+)?"
_COLON: Final = re.compile(r"(?<!:):(?!:)")
_CREATIONS: Final = ("new_expression", "object_creation_expression")
_MAX_NOTE: Final = 200


def find(document: Document, word: str) -> Iterator[Hole]:
    """Yields each whole call, from the function's name to the closing bracket. The selection drops nested ones.

    Names are resolved where they are used: `old.api.load` also matches `load(x)` after `from old.api import load`. The
    model sees the old call as a comment. If the user names a new function, the model writes only the arguments.
    """
    for call, spelling in _list_calls(document, word):
        if isinstance(spelling, str):  # the reason why it is left
            continue
        hole = hole_at_range(document, document.to_data(call.start), document.to_data(call.end))
        text = " ".join(document.source[call.start : call.end].decode("utf-8", "replace").split())
        callee, imports = spelling
        if not callee:
            yield replace(hole, note=f"instead of {text}"[:_MAX_NOTE])
            continue
        lead, tail = _frame(call, callee)
        note = f"{lead}...{tail} instead of {text}"[:_MAX_NOTE]
        yield replace(hole, lead=lead, tail=tail, note=note, imports=imports)


def list_unfollowed(document: Document, word: str) -> Iterator[tuple[int, str]]:
    """The calls and other uses of the function that are not written anew: a byte of the source, and the reason."""
    rewritten_end = 0  # of the outer calls that are written anew, so far
    for call, spelling in _list_calls(document, word):
        if isinstance(spelling, str):
            yield call.start, f"{call.name} {spelling}"
        elif call.start < rewritten_end:
            yield call.start, f"{call.name} is called within a call that is written anew"
        else:
            rewritten_end = call.end
    yield from find_mentions(document, read_word(word)[0])


def read_word(word: str) -> tuple[str, str]:
    """The old function, and the new one, which is "" if the user names none."""
    old, *new = _COLON.split(word, maxsplit=1)
    return old, "".join(new)


@lru_cache(maxsize=2)
def _list_calls(document: Document, word: str) -> tuple[tuple[CallSite, Spelling | str], ...]:
    return tuple(_find_calls(document, word))


def _find_calls(document: Document, word: str) -> Iterator[tuple[CallSite, Spelling | str]]:
    """The calls of the old function, each with how the new one is spelled there ("" without a new one), or with the
    reason why it is left as it is.
    """
    old, new = read_word(word)
    if not may_call(document, old):
        return
    for call in find_calls(document):
        if not call.may_call(old):
            if call.may_be_method(old):
                yield call, "is called on a value, whose type is not followed"
            continue
        if call.is_broken:
            yield call, "is called with a syntax error"
        elif call.is_template:
            yield call, "is called with a template"
        elif call.meaning.doubt:
            yield call, f"may be another function: {call.meaning.doubt}"
        elif not new:
            yield call, ("", ())
        else:
            yield call, spell(document, new, call) or f"is called where {new} is something else"


def _frame(call: CallSite, callee: str) -> tuple[str, str]:
    """The text before and after the new call's arguments. A capitalized name is a class if the old one was."""
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
    for index, is_optional in zip(range(len(parts) - 1, 0, -1), call.chain, strict=False):
        dot = "?." if is_optional else "."
        parts[index] = dot + parts[index]
    return "".join(parts) + opening, ")"


RECIPE = Recipe(
    name="migrate-call",
    title="write the calls of a function anew",
    languages=LANGUAGES,
    find=find,
    list_unfollowed=list_unfollowed,
    word="the function's name, with * and ?, and :NEW for the one to call",
    form=_FORM,
)
