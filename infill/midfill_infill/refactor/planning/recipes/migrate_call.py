"""Rewrites calls of a function, as calls of another one if it is named: `migrate-call=old.load:new.api.read`."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from midfill_infill.refactor.planning.calls import LANGUAGES, CallSite, find_calls, plain, read_imports
from midfill_infill.refactor.planning.recipes.recipe import Recipe
from midfill_infill.syntax.holes import hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

_BETWEEN: Final = re.compile(r"(?<!:):(?!:)")
_CREATIONS: Final = ("new_expression", "object_creation_expression")
_SCRIPTS: Final = ("javascript", "typescript", "tsx")
_MAX_NOTE: Final = 200


def find(document: Document, word: str) -> Iterator[Hole]:
    """The whole call, from the function's name to the closing bracket. Of nested calls only the outer one is a hole.

    Imports are resolved: `old.api.load` also matches `load(x)` after `from old.api import load`. The model sees the old
    call as a comment. If the new function is named, the model writes only the arguments.
    """
    old, *new = _BETWEEN.split(word, maxsplit=1)
    calls = [call for call in find_calls(document) if call.calls(old) and not call.is_broken]
    callee, imports = _spell(document, new[0]) if calls and new else ("", ())
    for call in calls:
        hole = hole_at_range(document, document.to_raw(call.start), document.to_raw(call.end))
        text = " ".join(document.source[call.start : call.end].decode("utf-8", "replace").split())
        if not callee:
            yield replace(hole, note=f"instead of {text}"[:_MAX_NOTE])
            continue
        lead, tail = _frame(call, callee)
        note = f"{lead}...{tail} instead of {text}"[:_MAX_NOTE]
        yield replace(hole, lead=lead, tail=tail, note=note, imports=imports)


def _frame(call: CallSite, callee: str) -> tuple[str, str]:
    """The text around the arguments of the new call. A capitalized name is a class if the old one was."""
    name = re.split(r"\W+", callee.rstrip("!"))[-1]
    if call.kind == "composite_literal" and not name.startswith("New"):
        return f"{callee}{{", "}"
    chain = "?." if call.is_optional else ""
    return ("new " if call.kind in _CREATIONS and name[:1].isupper() else "") + f"{callee}{chain}(", ")"


def _spell(document: Document, new: str) -> tuple[str, tuple[str, ...]]:
    """Returns the new function's name as the document spells it, and the (Python) imports that this needs."""
    dotted, separator = plain(new), "::" if "::" in new or document.language == "rust" else "."
    if (known := read_imports(document).spell(dotted)) is not None:
        return known.replace(".", separator), ()
    parts = dotted.split(".")
    if document.language == "python" and len(parts) > 1:
        cut = next((place for place, part in enumerate(parts) if place and part[:1].isupper()), len(parts) - 1)
        module, rest = ".".join(parts[:cut]), parts[cut:]
        if re.search(rb"\b%b\b" % rest[0].encode(), document.source):
            return dotted, (f"import {module}",)
        return ".".join(rest), (f"from {module} import {rest[0]}",)
    known_by = {"go": 2, **dict.fromkeys(_SCRIPTS, 1)}.get(document.language or "", 0) if "/" in new else 0
    return separator.join(parts[-known_by:]), ()


RECIPE = Recipe(
    name="migrate-call",
    title="write the calls of a function anew",
    languages=LANGUAGES,
    find=find,
    word="the function's name, with * and ?, and :NEW for the one to call",
)
