"""Add the docstrings that public functions lack."""

from collections.abc import Iterator

from midfill_infill.refactor.planning.recipes.recipe import Example, Recipe
from midfill_infill.syntax.extent import find_header_end
from midfill_infill.syntax.outline import outline
from midfill_infill.syntax.stubs import is_stub
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole


def find(document: Document, word: str) -> Iterator[Hole]:
    """An empty hole between quotes below each header; stubs, private and broken functions are left alone."""
    lines = document.source_lines
    for function in outline(document).functions:
        if function.keep or function.is_broken or not function.path or function.path[-1].startswith("_"):
            continue
        header_end = find_header_end(lines, function)
        first = lines.at(function.body[0])
        if is_stub(document, function) or first == lines.at(header_end):
            continue
        indent = lines.indent(first).replace(b"\f", b"").decode("ascii")
        place = document.to_raw(lines.end(lines.at(header_end)))
        yield Hole(place, place, kind="cursor", name=function.name, lead=f'\n{indent}"""', tail='"""', indent=indent)


RECIPE = Recipe(
    name="add-docstrings",
    title="describe public functions that have no docstring",
    languages=("python",),
    find=find,
    examples=(
        Example(
            "python",
            "def area(w, h):  # of a room\n    return w * h\n\n\ndef _own():\n    return 1\n",
            ("The area of a room.",),
            'def area(w, h):  # of a room\n    """The area of a room."""\n    return w * h\n\n\n'
            "def _own():\n    return 1\n",
        ),
    ),
)
