"""How a function is spelled at a call: by an import that holds there, or by one that is added at the top."""

import re
from collections.abc import Iterator

from midfill_infill.refactor.planning.bindings import SCRIPTS, Binding
from midfill_infill.refactor.planning.calls import CallSite, space_of
from midfill_infill.refactor.planning.imported import plain
from midfill_infill.refactor.planning.scopes import Meaning, read_scopes
from midfill_infill.text.document import Document

Spelling = tuple[str, tuple[str, ...]]
"""A name as a document writes it, and the (Python) imports that this needs."""


def spell(document: Document, new: str, call: CallSite) -> Spelling | None:
    """How to call `new` in place of a call; None if every name for it is bound to something else there."""
    separator = "::" if "::" in new or document.language == "rust" else "."
    dotted = plain(new)
    known = [name.replace(".", separator) for name in _list_known(document, dotted, call.start)]
    fitting = [name for name in known if _is(document, name, dotted, call)]
    if fitting:
        return min(fitting, key=len), ()
    if known and document.language in ("go", *SCRIPTS):
        return None  # without an import no name means it
    parts = dotted.split(".")
    if document.language == "python" and len(parts) > 1:
        return _import(document, dotted)
    written = parts
    if "/" in new:
        known_by = {"go": 2, **dict.fromkeys(SCRIPTS, 1)}.get(document.language or "", 0)
        written = parts[-known_by:]
    meaning = _resolve(document, separator.join(written), call, len(written) > 1)
    is_taken = meaning.is_local
    if len(written) == 1 < len(parts):
        is_taken = meaning.is_other or bool(meaning.paths)
    if is_taken:
        return None
    return separator.join(written), ()


def _list_known(document: Document, dotted: str, at: int) -> Iterator[str]:
    """The names that the imports that hold at a byte give a path."""
    for binding in read_scopes(document).imports:
        path = binding.path
        if binding.written.startswith(f"{path}."):
            path = binding.written
        if path is None or not _holds(document, binding, at):
            continue
        known = next((part for part in _list_ends(document, path) if _leads(part, dotted)), None)
        if known is not None:
            yield binding.written + dotted[len(known) :]


def _list_ends(document: Document, path: str) -> Iterator[str]:
    """A path and its ends: but in Python the path of an import may be longer than the one that is asked for."""
    yield path
    while document.language != "python" and "." in path:
        path = path.partition(".")[2]
        yield path


def _holds(document: Document, binding: Binding, at: int) -> bool:
    """True if what binds a name has run before a byte does."""
    if not binding.start <= at < binding.end:
        return False
    scopes = read_scopes(document)
    is_same = scopes.level(at) == scopes.level_of(binding)
    return (binding.effect <= at or not is_same) and scopes.runs_before(binding, at)


def _is(document: Document, written: str, dotted: str, call: CallSite) -> bool:
    """True if a name certainly stands for a path in place of a call."""
    meaning = _resolve(document, written, call)
    return not meaning.doubt and len(meaning.paths) == 1 and dotted in _list_ends(document, meaning.paths[0])


def _resolve(document: Document, written: str, call: CallSite, is_first: bool = False) -> Meaning:
    """What a name, or its first part, means in place of a call."""
    space = space_of(call.kind, written, document.language or "")
    name = plain(written)
    if is_first:
        name, _, _ = name.partition(".")
    return read_scopes(document).resolve(name, call.start, space)


def _import(document: Document, dotted: str) -> Spelling:
    """An import for the top of a Python file that binds no name that the file knows otherwise."""
    parts = dotted.split(".")
    cut = 1
    while cut < len(parts) - 1 and not parts[cut][:1].isupper():
        cut += 1
    module = ".".join(parts[:cut])
    first = parts[cut]
    rest = ".".join(parts[cut:])
    if not _says(document, first):
        return rest, (f"from {module} import {first}",)
    bindings = read_scopes(document).bindings.get(parts[0], ())
    if all(binding.path == parts[0] for binding in bindings):
        return dotted, (f"import {module}",)
    alias = module.replace(".", "_").strip("_")
    while _says(document, alias):
        alias += "_"
    return f"{alias}.{rest}", (f"import {module} as {alias}",)


def _says(document: Document, name: str) -> bool:
    return re.search(rb"\b%b\b" % name.encode(), document.source) is not None


def _leads(start: str, path: str) -> bool:
    """True if `path` equals `start` or is inside it."""
    if path == start:
        return True
    first, _, rest = path[len(start) + 1 :].partition(".")
    return path.startswith(f"{start}.") and (not rest or first[:1].isupper())
