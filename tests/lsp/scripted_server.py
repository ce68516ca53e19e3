"""The real server with a filler that follows a script, not an engine: `model` names the script, `steps` its length."""

import time
from collections.abc import Generator, Sequence

from midfill_engine.wire import Stats
from midfill_infill.document import Document
from midfill_infill.errors import MidfillError
from midfill_infill.fill import Candidate, Filled, FilledHole, HolePreview, Preview
from midfill_infill.spans import Hole
from midfill_infill.splice import splice
from midfill_lsp.__main__ import main
from midfill_lsp.engine import Say
from midfill_lsp.server import MidfillServer
from midfill_lsp.settings import Settings

STEP_S = 0.03
FILL = "return 'ß😀'"


def follow_script(
    document: Document, holes: Sequence[Hole], settings: Settings, say: Say
) -> Generator[Preview | Filled, None, None]:
    say("starting the engine")
    num_steps = settings.steps or 3
    for step in range(num_steps + 1):
        masked = 10 - 10 * step // num_steps
        yield Preview(step, num_steps, tuple(HolePreview("guess", (), masked) for _ in holes))
        if settings.model == "dies" and step == 1:
            raise MidfillError("engine_died", "the engine ended in the middle of the fill")
        if settings.model == "breaks" and step == 1:
            raise RuntimeError(document.text)
        time.sleep(STEP_S)
    spliced = splice(document, holes, [FILL for _ in holes])
    fills = tuple(FilledHole(hole, FILL, ((0, len(FILL)),), (0.5,)) for hole in holes)
    yield Filled(
        Candidate(spliced.patch, fills, spliced.new_errors), (), Stats(steps=3, forwards=3, tokens=4, ms=9.0), "script"
    )


if __name__ == "__main__":
    main(MidfillServer(follow_script))
