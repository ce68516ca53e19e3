"""The registry of recipes. A recipe finds the holes of one kind of task; each is in its own module here."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.planning.recipes import docstrings, migrate_call, placeholders, todos, type_hints
from midfill_infill.refactor.planning.recipes.recipe import Recipe

_RECIPES: Final = (
    placeholders.STUBS,
    todos.RECIPE,
    docstrings.RECIPE,
    type_hints.RECIPE,
    placeholders.MATCH_ARMS,
    migrate_call.RECIPE,
)
REGISTRY: Final[Mapping[str, Recipe]] = MappingProxyType({recipe.name: recipe for recipe in _RECIPES})


def get_recipe(text: str) -> tuple[Recipe, str]:
    """The recipe of "NAME" or "NAME=WORD", and the word or "". Raises `bad_recipe`, which says what is known."""
    name, _, word = text.partition("=")
    if name not in REGISTRY:
        raise MidfillError("bad_recipe", f"there is no recipe {name!r}", f"known are {', '.join(REGISTRY)}")
    recipe = REGISTRY[name]
    if re.fullmatch(recipe.form, word) is None:
        written = f"{name}=..." if recipe.word else f"--recipe {name}"
        raise MidfillError("bad_recipe", f"the recipe {name} wants {recipe.word or 'no word'}", f"write {written}")
    return recipe, word
