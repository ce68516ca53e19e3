"""The interface of a recipe: name, languages, and how it finds holes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole


@dataclass(frozen=True)
class Recipe:
    """A named way to find holes. `find(document, WORD)` yields the holes of a document in any order, where WORD is what
    the user writes in "NAME=WORD"; `word` describes it for the user, and `form` matches it, "" if there is none.
    `list_unfollowed(document, WORD)` yields what is not made a hole although it may have to change: a byte of the
    source, and the reason. `languages` is empty if the recipe takes all.
    """

    name: str
    title: str
    languages: tuple[str, ...]
    find: Callable[[Document, str], Iterable[Hole]]
    word: str = ""
    form: str = ""
    list_unfollowed: Callable[[Document, str], Iterable[tuple[int, str]]] = lambda *_: ()
