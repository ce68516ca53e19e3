"""The interface of a recipe: name, languages, and how it finds holes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole


@dataclass(frozen=True)
class Recipe:
    """`find(document, word)` yields holes in any order; `list_left` what they leave out although it may
    belong to them, as bytes of the source and reasons. `word` describes the text after `NAME=`, "" for none.
    """

    name: str
    title: str
    languages: tuple[str, ...]
    find: Callable[[Document, str], Iterable[Hole]]
    word: str = ""
    list_left: Callable[[Document, str], Iterable[tuple[int, str]]] = lambda *_: ()
