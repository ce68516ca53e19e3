"""What joint fills, rerolls, repairs, early ends and lengths do: `python lsp/bench/beyond.py [FILES] [--out FILE]`.

Fills bodies of functions of the standard library by the shipped model on this machine. It measures the mechanisms, not
how good the model is: what stays, what it costs, how many syntax errors go.
"""

import argparse
import json
import os
import signal
import statistics
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midfill_infill.candidates import Candidate
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.supervise import EngineSettings, ensure_engine
from midfill_infill.fill import Filled, Options, Preview, fill, finish
from midfill_infill.reroll import keep_ranges, put_drafts
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

NAMES = (
    "bisect", "calendar", "colorsys", "copy", "fnmatch", "graphlib", "heapq", "queue", "sched", "shlex", "statistics",
    "string", "textwrap", "timeit", "trace", "zipapp",
)  # fmt: skip
MAX_BODY_BYTES = 300
MAX_TOKENS = 48


@dataclass(frozen=True)
class Case:
    document: Document
    holes: tuple[Hole, ...]


def find_cases(num_files: int) -> list[Case]:
    """Three short bodies a file, apart from each other."""
    cases = []
    for name in NAMES[:num_files]:
        document = Document.read(Path(sysconfig.get_path("stdlib")) / f"{name}.py")
        holes: list[Hole] = []
        for function in outline(document).functions:
            hole = body_hole(document, function)
            if 0 < hole.end_byte - hole.start_byte <= MAX_BODY_BYTES and (
                not holes or hole.start_byte > holes[-1].end_byte
            ):
                holes.append(hole)
        if len(holes) >= 3:
            cases.append(Case(document, tuple(holes[:3])))
    return cases


def run(client: EngineClient, document: Document, holes: Sequence[Hole], **options: Any) -> Filled:
    with closing(fill(document, tuple(holes), Options(**{"max_tokens": MAX_TOKENS, **options}), client)) as events:
        for event in events:
            if isinstance(event, Filled):
                return event
    raise AssertionError("a fill ends with Filled")


def end_early(client: EngineClient, case: Case) -> tuple[float, float, int]:
    """Seconds that a whole fill takes, those from the wish to end a fill halfway to its end, and new errors."""
    started_s = time.monotonic()
    whole = run(client, case.document, case.holes[:1], repair=False)
    whole_s = time.monotonic() - started_s
    half = max(1, whole.stats.steps // 2)
    with closing(fill(case.document, case.holes[:1], Options(repair=False, max_tokens=MAX_TOKENS), client)) as events:
        for event in events:
            if isinstance(event, Filled) or event.step >= half:
                break
    started_s = time.monotonic()
    if isinstance(event, Preview):
        event = finish(case.document, case.holes[:1], event)
    return whole_s, time.monotonic() - started_s, event.new_errors


def reroll(client: EngineClient, case: Case, best: Candidate, typed: str) -> tuple[float, Filled, bool]:
    """The share of the text kept, the new fill, and whether all that was kept and typed stands in the new fill."""
    first = best.fills[0]
    text = first.text + typed
    keep = keep_ranges(first.text, first.tokens, first.confidence, text, 0.5)
    drafted, holes = put_drafts(case.document, case.holes[:1], [(text, keep)])
    again = run(client, drafted, holes, seed=1, repair=False)
    kept = [text[start:end] for start, end in keep]
    position = 0
    for part in kept:
        position = again.fills[0].text.find(part.strip(), position)
        if position < 0:
            return 0.0, again, False
    return sum(map(len, kept)) / max(1, len(text)), again, True


def num_tokens(filled: Filled) -> int:
    return len(filled.fills[0].tokens)


def measure(client: EngineClient, cases: list[Case]) -> dict[str, Any]:
    run(client, cases[0].document, cases[0].holes[:1])
    seen: dict[str, list[float]] = {}

    def note(**values: float) -> None:
        for name, value in values.items():
            seen.setdefault(name, []).append(value)

    for case in cases:
        jointly = run(client, case.document, case.holes, repair=False)
        alone = [run(client, case.document, [hole], repair=False) for hole in case.holes]
        mended = run(client, case.document, case.holes)
        note(joint_steps=jointly.stats.steps, one_by_one_steps=sum(each.stats.steps for each in alone))
        note(errors=jointly.new_errors, errors_after_repair=mended.new_errors, repaired_fills=bool(jointly.new_errors))
        note(repair_steps=mended.stats.steps - jointly.stats.steps)
        first = alone[0]
        share, again, stays = reroll(client, case, first.best, "\n# typed")
        note(kept_share=share, kept_stays=stays, reroll_steps=again.stats.steps, fresh_steps=first.stats.steps)
        whole_s, end_s, _ = end_early(client, case)
        note(whole_s=whole_s, end_s=end_s)
        size = max(1, num_tokens(first))
        most, least = max(1, round(0.6 * size)), round(1.6 * size)
        shorter = run(client, case.document, case.holes[:1], seed=1, max_tokens=most, repair=False)
        lengths = {"min_tokens": least, "max_tokens": max(least, MAX_TOKENS)}
        longer = run(client, case.document, case.holes[:1], seed=1, repair=False, **lengths)
        note(shorter=num_tokens(shorter) / size, longer=num_tokens(longer) / size)
    counted = {
        name: sum(values) for name, values in seen.items() if name.startswith(("errors", "repaired", "kept_stays"))
    }
    return {
        "cases": len(cases),
        **{name: round(statistics.median(values), 3) for name, values in seen.items() if name not in counted},
        **{name: int(value) for name, value in counted.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=int, nargs="?", default=len(NAMES))
    parser.add_argument("--out", type=Path, help="where the numbers go as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["MIDFILL_RUNTIME_DIR"] = name
        try:
            with EngineClient(ensure_engine(EngineSettings(), lambda phrase: None)) as client:
                result = measure(client, find_cases(options.files))
        finally:
            for lock in Path(name).glob("*.lock"):
                os.kill(int(lock.read_text()), signal.SIGTERM)
    print(json.dumps(result, indent=2))
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
