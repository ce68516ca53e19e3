"""The published checkpoints that the engine's families can load, as a list for people. Loads no weights."""

from dataclasses import dataclass
from typing import Final

from midfill_engine.families import FAMILIES

GIB: Final = 2**30
BYTES_A_PARAMETER: Final = 2  # bf16
WORKSPACE_BYTES: Final = 2**29  # KV caches, states and logits of a fill or two


@dataclass(frozen=True)
class CatalogEntry:
    """A row of the list. `parameters` in billions, `context_tokens` of a request, `memory_gib` that bf16 needs."""

    hub_id: str
    family: str
    parameters: float
    licence: str
    context_tokens: int
    memory_gib: float
    sees_suffix: bool
    changes_length: bool


def list_models() -> list[CatalogEntry]:
    """First models that see the suffix and find the length, then other models that see the suffix, then the others."""
    entries = [
        CatalogEntry(
            hub_id=known.hub_id,
            family=family.name,
            parameters=known.parameters,
            licence=known.licence,
            context_tokens=family.context_window,
            memory_gib=round((known.parameters * 1e9 * BYTES_A_PARAMETER + WORKSPACE_BYTES) / GIB, 1),
            sees_suffix=family.sees_suffix,
            changes_length=family.lengths == "expand",
        )
        for family in FAMILIES.values()
        for known in family.known
    ]
    return sorted(entries, key=lambda entry: (not entry.changes_length, not entry.sees_suffix))


def as_table(entries: list[CatalogEntry]) -> list[str]:
    """One line per model in aligned columns, with a header."""
    rows = [("model", "family", "size", "licence", "context", "memory", "sees the suffix")]
    for entry in entries:
        sees_suffix = "yes" if entry.sees_suffix else "in the prompt only"
        if entry.changes_length:
            sees_suffix = "yes, and finds the length"
        size, memory = f"{entry.parameters:g}B", f"{entry.memory_gib:g} GiB"
        rows.append((entry.hub_id, entry.family, size, entry.licence, str(entry.context_tokens), memory, sees_suffix))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
