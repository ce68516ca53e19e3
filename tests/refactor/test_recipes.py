"""Every recipe does what its examples say."""

import pytest
from tests.refactor.recipe_examples import EXAMPLES, RecipeExample

from midfill_engine.wire import HoleSegment
from midfill_infill.context.segments import build_segments
from midfill_infill.errors import MidfillError
from midfill_infill.refactor.planning.recipes import REGISTRY, Recipe, get_recipe
from midfill_infill.splicing.splice import splice
from midfill_infill.text.document import Document

CASES = [(recipe, example) for name, recipe in REGISTRY.items() for example in EXAMPLES[name]]


@pytest.mark.parametrize(("recipe", "example"), CASES, ids=[f"{r.name}-{e.language}" for r, e in CASES])
def test_each_example_of_a_recipe_becomes_what_it_shows(recipe: Recipe, example: RecipeExample) -> None:
    document = Document(example.before.encode(), example.language)
    holes = sorted(recipe.find(document, example.word), key=lambda hole: hole.start_byte)
    assert len(holes) == len(example.fills)
    spliced = splice(document, holes, example.fills)
    assert spliced.patch.apply(document.data).decode() == example.after
    assert spliced.new_errors == 0
    assert recipe.languages == () or example.language in recipe.languages


def test_every_example_is_of_a_recipe() -> None:
    assert EXAMPLES.keys() == REGISTRY.keys()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nope", "known are"),
        ("migrate-call", "="),
        ("migrate-call=load:", "="),
        ("migrate-call=:read", "="),
        ("migrate-call=old.load:new.read:x", "="),
        ("migrate-call=old.load:new read", "="),
        ("migrate-call=old.*:new.*", "="),
        ("fill-stubs=x", "--recipe"),
    ],
)
def test_a_recipe_that_is_not_understood(text: str, says: str) -> None:
    with pytest.raises(MidfillError) as raised:
        get_recipe(text)
    assert raised.value.code == "bad_recipe" and says in raised.value.next_step


@pytest.mark.parametrize(
    ("signature", "known"),
    [
        ("(text, times=2)", ["text: ", ", times: ", " = 2) -> ", ":"]),
        ("(self, *args, key: int = 1, **rest) -> str", ["self, *args: ", ", key: int = 1, **rest: ", ") -> str:"]),
        ("(key: int)", ["key: int) -> ", ":"]),
        ("()", [") -> ", ":"]),
        ("(a,  # one\n b = (1, 2))", ["a: ", ",  # one\n b: ", " = (1, 2)) -> ", ":"]),
    ],
)
def test_a_model_writes_nothing_of_a_signature_but_types(signature: str, known: list[str]) -> None:
    document = Document(f"def run{signature}:\n    pass\n".encode(), "python")
    (hole,) = REGISTRY["add-type-hints"].find(document, "")
    (spec,) = (each.hole for each in build_segments(document, [hole], 4000).in_turn if isinstance(each, HoleSegment))
    assert [spec.draft[start:end] for start, end in spec.keep] == known
    assert set(spec.forbid) > set("=():")
