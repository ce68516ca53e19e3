"""Fills holes in one call, for Python programs, with the `midfill` command's engine and settings (docs/python.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from midfill_infill.engines.notes import note
from midfill_infill.engines.supervise import EngineSettings
from midfill_infill.filling.fill import Filled
from midfill_infill.filling.fill import fill as fill_jointly
from midfill_infill.filling.opening import open_engine, read_options
from midfill_infill.filling.targets import HoleOptions, choose_holes, open_source, parse_target


@dataclass(frozen=True)
class Filling:
    """One way to fill the holes: their `texts` in the order of the file, and the content of the `file` with them.

    `certainty` is the probability that the least certain text is right, None if neither the engine nor a measurement
    gives one. `new_errors` counts the syntax errors that the texts add.
    """

    texts: tuple[str, ...]
    file: bytes
    certainty: float | None
    new_errors: int


def fill(
    place: str | Path,
    data: bytes | None = None,
    *,
    function: str | Sequence[str] = (),
    hole: str | Sequence[str] = (),
    stubs: bool = False,
    language: str | None = None,
    model: str | None = None,
    device: str = "auto",
    n: int = 1,
    seed: int = 0,
) -> list[Filling]:
    """Fills holes of a file jointly. Returns up to `n` ways to fill them, the best first. Writes nothing.

    `place` is FILE, FILE:LINE or FILE:LINE:COL. `data`, if given, is used in place of what the file holds. `function`,
    `hole` ("L:C-L:C") and `stubs` choose holes as the options of `midfill fill` do. Starts an engine if none runs,
    unless the setting `engine` or MIDFILL_ENGINE_URL names one. Raises MidfillError, with a `code` and a `next_step`.
    """
    source = open_source(parse_target(str(place)), language, data=data)
    choice = HoleOptions(_to_tuple(function), _to_tuple(hole), stubs)
    holes = choose_holes(source.document, source.target, choice)
    settings = EngineSettings(model=model, device=device, project=Path.cwd())
    with open_engine(source.document, settings, read_options(seed=seed, n=n), note) as (client, options):
        events = fill_jointly(source.document, holes, options, client)
        filled = next(event for event in events if isinstance(event, Filled))
    fillings: list[Filling] = []
    for candidate in (filled.best, *filled.alternatives):
        texts = tuple(placed.text for placed in candidate.fills)
        file = source.document.apply(candidate.patch)
        fillings.append(Filling(texts, file, candidate.certainty, candidate.new_errors))
    return fillings


def _to_tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)
