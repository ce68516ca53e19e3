"""Makes what ships of a run: the better of its last and its averaged weights, and the table of its sources."""

import json
from dataclasses import replace
from pathlib import Path

from midfill_engine import checkpoint
from training.data.pack import read_pack
from training.snapshots import LOG, read_progress


def export(run: Path, out: Path, name: str, max_context: int | None = None) -> str:
    """Writes `out` as int8 and returns which snapshot it is. Raises ValueError where the run has saved none yet."""
    chosen, record = choose_snapshot(run)
    loaded = checkpoint.load(run / chosen)
    progress = read_progress(run / chosen)
    training = {**record, "seconds": round(progress.seconds), **progress.record}
    config = replace(loaded.config, name=name, training=training, max_context=max_context or loaded.config.max_context)
    loaded.model.config = config
    checkpoint.save(out, loaded.model, loaded.tokenizer, "int8")
    return chosen


def choose_snapshot(run: Path) -> tuple[str, dict[str, object]]:
    """The folder with the lower validation loss at the last save, and what the log says of it."""
    log = run / LOG
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    saved = [row for row in rows if "saved" in row]
    if not saved:
        raise ValueError(f"The run in {run} has saved no snapshot yet.")
    last = saved[-1]
    is_average = last["validation_nats_average"] < last["validation_nats"]
    chosen = last["saved"] + ("-average" if is_average else "")
    nats = min(last["validation_nats_average"], last["validation_nats"])
    return chosen, {"snapshot": chosen, "steps": last["step"], "tokens": last["tokens"], "validation_nats": nats}


def write_sources(sources: Path, pack: Path, out: Path) -> int:
    """Copies the rows of a corpus's `sources.tsv` whose package is in the training split. Returns how many.

    Raises ValueError where a package of the split has no row: nothing may ship without its source and licence.
    """
    packages = set(read_pack(pack, "train").package_names)
    header, *rows = sources.read_text(encoding="utf-8").splitlines()
    kept = [row for row in rows if row.split("\t")[0] in packages]
    missing = packages - {row.split("\t")[0] for row in kept}
    if missing:
        raise ValueError(f"{sources} names no source of {', '.join(sorted(missing))}.")
    out.write_text("\n".join([header, *kept]) + "\n", encoding="utf-8")
    return len(kept)
