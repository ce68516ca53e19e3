"""Migrations of one call in each language."""

from midfill_infill.refactor.planning.selection import Selection
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

WORDS = {
    "rust": "old::api::load:fresh::api::read",
    "cpp": "old::api::load:fresh::api::read",
    "java": "old.api.Loader.load:fresh.api.Reader.read",
    "go": "old/api.Load:fresh/api.Read",
    "c": "old_load:new_read",
}


def find(language: str, code: str, word: str = "") -> list[Hole]:
    recipe = f"migrate-call={word or WORDS.get(language, 'old.api.load:fresh.api.read')}"
    return list(Selection(recipe=recipe).find(Document(code.encode(), language), "m"))
