"""The interface of a recipe: name, languages, how it finds holes, and examples that run as tests."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole


@dataclass(frozen=True)
class RecipeExample:
    """`before` becomes `after` when `fills[i]` goes into the i-th hole. `word` is the recipe's own."""

    language: str
    before: str
    fills: tuple[str, ...]
    after: str
    word: str = ""


@dataclass(frozen=True)
class Recipe:
    """`find(document, word)` yields holes in any order. `word` describes the text after `NAME=`, "" for none."""

    name: str
    title: str
    languages: tuple[str, ...]
    find: Callable[[Document, str], Iterable[Hole]]
    examples: tuple[RecipeExample, ...]
    word: str = ""
