"""Hands holes to `infill` with the user's settings. Knows which calls to make, not what an engine does."""

from collections.abc import Callable, Generator, Sequence

from midfill_infill.client import EngineClient
from midfill_infill.document import Document
from midfill_infill.fill import Filled, Options, Preview, fill
from midfill_infill.spans import Hole
from midfill_infill.supervise import EngineSettings, ensure_engine
from midfill_lsp.settings import Settings

Say = Callable[[str], None]
Filler = Callable[[Document, Sequence[Hole], Settings, Say], Generator[Preview | Filled, None, None]]


def fill_with_engine(
    document: Document, holes: Sequence[Hole], settings: Settings, say: Say
) -> Generator[Preview | Filled, None, None]:
    """Starts the engine if there is none, then fills. Blocks; raises MidfillError; closing it stops the work."""
    endpoint = ensure_engine(EngineSettings(settings.model, settings.device), say)
    options = Options(seed=settings.seed, steps=settings.steps, max_tokens=settings.max_hole_tokens)
    with EngineClient(endpoint) as client:
        yield from fill(document, holes, options, client)
