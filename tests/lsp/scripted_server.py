"""The real server with a filler that follows a script, not an engine: `model` names the script, `steps` its length.

What it was asked for comes back as the answer's model. A hole with anchors is filled with them and `+ new`, twice where
that is what it holds. The model `gate:FOLDER`, or a text that begins with `# gate:FOLDER`, waits before every step but
the first until the folder has a file of the step's number, or `open`; `sure:0.3` is so sure of its fills, and
`writes:TEXT` writes that.
"""

import re
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from midfill_engine.wire import HoleState, ModelInfo, Stats
from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import Alternative, PlacedFill
from midfill_infill.filling.fill import Filled, Options, Preview
from midfill_infill.splicing.splice import splice
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_lsp.__main__ import main
from midfill_lsp.engine import Say
from midfill_lsp.server import MidfillServer
from midfill_lsp.settings import Settings

STEP_S = 0.03
GATE = "gate:"
SURE = "sure:"
WRITES = "writes:"
FILL = "return 'ß😀'"
GUESS = "return '😀ß' or x"
GUESSED = ((0, 6), (6, 9), (9, 11), (11, 14), (14, 16))
CONFIDENCE = (0.9, 0.8, 0.7, 0.3, 0.2)
DIES = "# the engine dies here"
GROWS = "# every step guesses another length"
MODEL = ModelInfo(
    id="scripted",
    family="scripted",
    parameters=1,
    device="cpu",
    dtype="fp32",
    max_context_tokens=2048,
    max_hole_tokens=512,
)


def follow_script(
    document: Document, holes: Sequence[Hole], options: Options, settings: Settings, say: Say
) -> Generator[Preview | Filled, None, None]:
    say("starting the engine")
    if settings.model == "fails":
        raise MidfillError("engine_failed", "the engine does not start")
    num_steps = options.steps or 3
    gate = find_gate(document.text, settings.model or "")
    for step in range(num_steps + 1):
        if gate and step:
            wait_at(gate, step)
        masked = 10 - 10 * step // num_steps
        settled = [(0, 9)] if step else []
        guess = GUESS[: 9 + step % 8] if GROWS in document.text else GUESS
        tokens = [(start, min(end, len(guess))) for start, end in GUESSED if start < len(guess)]
        confidence = list(CONFIDENCE[: len(tokens)])
        shown = HoleState(text=guess, settled=settled, masked=masked, tokens=tokens, confidence=confidence)
        yield Preview(step, num_steps, [shown] * len(holes), model=MODEL)
        if (settings.model == "dies" or DIES in document.text) and step == 1:
            raise MidfillError("engine_died", "the engine ended in the middle of the fill")
        if settings.model == "breaks" and step == 1:
            raise RuntimeError(document.text)
        time.sleep(0.0 if gate or settings.model == "fast" else STEP_S)
    says = (settings.model or "").startswith(SURE)
    certainty = float(str(settings.model).removeprefix(SURE)) if says else None
    is_empty = settings.model == "empty"
    written = str(settings.model).removeprefix(WRITES) if str(settings.model).startswith(WRITES) else FILL
    rows = [make_row(document, holes, number, certainty, written, is_empty=is_empty) for number in range(options.n)]
    asked = f"seed {options.seed} min {options.min_tokens} max {options.max_tokens} line {options.single_line}"
    asked += f" {options.length} than {options.sizes}"
    if options.shown is not None:
        asked += f" shown {list(options.shown.texts)}"
        options.shown.texts = (document.text[:9],)
    counted = " | ".join(f"{reference.kind} {reference.text}" for reference in options.references)
    stats = Stats(steps=3, forwards=3, tokens=4, ms=9.0)
    yield Filled(rows[0], tuple(rows[1:]), stats, f"{asked} counted {counted} text {document.text}", "tokens")


def find_gate(text: str, model: str) -> Path | None:
    found = re.search(rf"^{GATE}(\S+)", model) or re.search(rf"^# {GATE}(\S+)", text)
    return Path(found[1]) if found else None


def wait_at(folder: Path, step: int) -> None:
    while not ((folder / "open").exists() or (folder / str(step)).exists()):
        time.sleep(0.002)


def make_row(
    document: Document, holes: Sequence[Hole], number: int, certainty: float | None = None, written: str = FILL,
    *, is_empty: bool = False,
) -> Alternative:  # fmt: skip
    """Row 0 is `written` or empty, others say their number. Words are tokens, each less sure than the one before."""
    texts = ["" if is_empty and not hole.anchors else _text(document, hole, number, written) for hole in holes]
    spliced = splice(document, holes, texts)
    fills = []
    for hole, text in zip(holes, texts, strict=True):
        starts = [0, *(index + 1 for index, char in enumerate(text) if char == " ")]
        tokens = tuple(zip(starts, [*(start - 1 for start in starts[1:]), len(text)], strict=True))
        confidence = tuple(0.9 / (1 + index) for index in range(len(tokens)))
        fills.append(PlacedFill(hole, text, tokens, confidence, certainty=certainty))
    return Alternative(spliced.patch, tuple(fills), spliced.new_errors)


def _text(document: Document, hole: Hole, number: int, written: str) -> str:
    if hole.anchors:
        kept = [document.decode(anchor.start_byte, anchor.end_byte) for anchor in hole.anchors]
        text = "".join(kept) + " + new"
        return text if text != document.decode(hole.start_byte, hole.end_byte) else text + " + new"
    return written if not number else f"return {number}"


if __name__ == "__main__":
    main(MidfillServer(follow_script))
