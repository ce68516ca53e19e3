"""Tells how to write a function's name at a call: by an import that is known there, or one to add at the top."""

import re
from collections.abc import Iterator

from midfill_infill.refactor.planning.bindings import SCRIPTS, Binding
from midfill_infill.refactor.planning.calls import CallSite, space_of
from midfill_infill.refactor.planning.imported import plain
from midfill_infill.refactor.planning.scopes import Meaning, read_scopes
from midfill_infill.text.document import Document

Spelling = tuple[str, tuple[str, ...]]
"""A name as a document writes it, and the Python import statements that must be added for it."""


def spell(document: Document, new: str, call: CallSite) -> Spelling | None:
    """How to write the function `new` in place of a call; None if each name for it means something else there."""
    separator = "::" if "::" in new or document.language == "rust" else "."
    dotted = plain(new)
    imported = [
        name.replace(".", separator)
        for binding, name in document.derive(_list_importing, dotted)
        if _is_bound_before(document, binding, call.start)
    ]
    fitting = [name for name in imported if _certainly_means(document, name, dotted, call)]
    if fitting:
        return min(fitting, key=len), ()
    if imported and document.language in ("go", *SCRIPTS):
        return None  # these languages know only imported names, and each is bound to something else here
    parts = dotted.split(".")
    if document.language == "python" and len(parts) > 1:
        return document.derive(_add_import, dotted)
    written = parts
    if "/" in new:
        num_written = {"go": 2, **dict.fromkeys(SCRIPTS, 1)}.get(document.language or "", 0)
        written = parts[-num_written:]
    meaning = _resolve(document, separator.join(written), call, only_first=len(written) > 1)
    is_taken = meaning.is_local
    if len(written) == 1 < len(parts):
        is_taken = meaning.is_other or bool(meaning.paths)
    if is_taken:
        return None
    return separator.join(written), ()


def _list_importing(document: Document, dotted: str) -> list[tuple[Binding, str]]:
    """The imports of the path `dotted` or of what that is a member of, each with the name that it gives to the path."""
    importing: list[tuple[Binding, str]] = []
    for binding in read_scopes(document).imports:
        path = binding.path or ""
        if binding.written.startswith(f"{path}."):
            path = binding.written
        prefix = next((end for end in _list_ends(document, path) if _is_prefix(end, dotted)), None)
        if prefix is not None:
            importing.append((binding, binding.written + dotted[len(prefix) :]))
    return importing


def _list_ends(document: Document, path: str) -> Iterator[str]:
    """A path; except in Python also its ends, the longest first, because a user may leave out the first names."""
    yield path
    while document.language != "python" and "." in path:
        path = path.partition(".")[2]
        yield path


def _is_bound_before(document: Document, binding: Binding, at: int) -> bool:
    """True if a binding is known at a byte, and has certainly run when the code there runs."""
    if not binding.start <= at < binding.end:
        return False
    scopes = read_scopes(document)
    is_same = scopes.level(at) == scopes.level_of(binding)
    return (binding.effect <= at or not is_same) and scopes.runs_before(binding, at)


def _certainly_means(document: Document, written: str, dotted: str, call: CallSite) -> bool:
    """True if a name, written in place of a call, can only stand for the path `dotted`."""
    meaning = _resolve(document, written, call)
    return not meaning.doubt and len(meaning.paths) == 1 and dotted in _list_ends(document, meaning.paths[0])


def _resolve(document: Document, written: str, call: CallSite, *, only_first: bool = False) -> Meaning:
    """What a name means, written in place of a call. With `only_first` what its first part means."""
    space = space_of(call.kind, written, document.language or "")
    name = plain(written)
    if only_first:
        name, _, _ = name.partition(".")
    return read_scopes(document).resolve(name, call.start, space)


def _add_import(document: Document, dotted: str) -> Spelling:
    """The spelling of `dotted` by a new import at the top of a Python file, which binds no name that the file uses."""
    parts = dotted.split(".")
    cut = 1
    while cut < len(parts) - 1 and not parts[cut][:1].isupper():
        cut += 1
    module = ".".join(parts[:cut])
    imported = parts[cut]
    member = ".".join(parts[cut:])
    if not _has_word(document, imported):
        return member, (f"from {module} import {imported}",)
    bindings = read_scopes(document).bindings.get(parts[0], ())
    if all(binding.path == parts[0] for binding in bindings):
        return dotted, (f"import {module}",)
    alias = module.replace(".", "_").strip("_")
    while _has_word(document, alias):
        alias += "_"
    return f"{alias}.{member}", (f"import {module} as {alias}",)


def _has_word(document: Document, name: str) -> bool:
    return re.search(rb"\b%b\b" % name.encode(), document.source) is not None


def _is_prefix(prefix: str, path: str) -> bool:
    """True if `path` equals `prefix`, is a member of that, or a member of a class (a capitalized name) in that."""
    if path == prefix:
        return True
    first, _, further = path[len(prefix) + 1 :].partition(".")
    return path.startswith(f"{prefix}.") and (not further or first[:1].isupper())
