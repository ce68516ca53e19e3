"""The pages on models, samplers and caches name what the registries hold, with the numbers that they state."""

import re
from pathlib import Path

import pytest

from midfill_engine.caches import CACHES
from midfill_engine.families import FAMILIES
from midfill_engine.lengths import LENGTHS
from midfill_engine.loading.catalog import list_models
from midfill_engine.registry import Registry
from midfill_engine.samplers import SAMPLERS
from midfill_engine.samplers.base import Sampler

DOCS = Path(__file__).parent.parent.parent / "docs"


def first_cells(page: str, section: str) -> str:
    """The first cells of all rows of the tables between a heading and the next."""
    text = (DOCS / page).read_text(encoding="utf-8").split(f"{section}\n", 1)[1].split("\n## ", 1)[0]
    return "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("|"))


@pytest.mark.parametrize(
    ("page", "section", "registry"),
    [
        ("samplers.md", "# Samplers and lengths", SAMPLERS),
        ("samplers.md", "## Lengths", LENGTHS),
        ("caches.md", "# Caches", CACHES),
        ("lab/models.md", "## The families", FAMILIES),
    ],
)
def test_a_page_names_every_variant(page: str, section: str, registry: Registry[type[Sampler]]) -> None:
    named = set(re.findall(r"[\w.-]+", first_cells(page, section)))
    assert set(registry) <= named


def test_the_published_models_are_listed_as_the_command_lists_them() -> None:
    page = (DOCS / "lab/models.md").read_text(encoding="utf-8").split("## Every model that loads", 1)[1]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    stated = {row[0]: row[1:5] for row in rows}
    for entry in list_models():
        memory, size = f"{entry.memory_gib:g} GiB", f"{entry.parameters:g}B"
        assert stated[entry.hub_id] == [f"`{entry.family}`", size, entry.licence, memory]


def test_the_families_state_their_own_default_of_the_dial() -> None:
    page = (DOCS / "samplers.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| `([\w.-]+)` \| `[\w-]+` \| ([\d.]+) \|", page, flags=re.MULTILINE))
    for name in FAMILIES:
        assert float(table.get(name, 0.8)) == pytest.approx(FAMILIES.find(name).quality, abs=0.005)
