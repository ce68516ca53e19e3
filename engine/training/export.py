"""Makes what ships of a run: the better of its last and its averaged weights, and the table of its sources."""

from dataclasses import replace
from pathlib import Path

from midfill_engine.loading import checkpoint
from training.data.pack import read_pack
from training.snapshots import STATE, Progress, read_progress


def export(run: Path, out: Path, name: str, max_context: int | None = None) -> str:
    """Writes `out` as int8 and returns which snapshot it is. Raises ValueError where the run has saved none yet."""
    chosen, progress = choose_snapshot(run)
    loaded = checkpoint.load(run / chosen)
    training: dict[str, object] = {"snapshot": chosen, "steps": progress.step, "tokens": progress.tokens}
    training |= {"validation_nats": progress.validation_nats, "seconds": round(progress.seconds), **progress.record}
    config = replace(loaded.config, name=name, training=training, max_context=max_context or loaded.config.max_context)
    loaded.model.config = config
    checkpoint.save(out, loaded.model, loaded.tokenizer, "int8")
    return chosen


def choose_snapshot(run: Path) -> tuple[str, Progress]:
    """Of `snapshot` and `snapshot-average`, as far as they are there, the one with the lower validation loss."""
    names = [name for name in ("snapshot", "snapshot-average") if (run / name / STATE).exists()]
    found = {name: read_progress(run / name) for name in names}
    losses = {name: progress.validation_nats for name, progress in found.items()}
    known = {name: loss for name, loss in losses.items() if loss is not None}
    if not known:
        raise ValueError(f"The run in {run} has saved no snapshot yet.")
    chosen = min(known, key=known.__getitem__)
    return chosen, found[chosen]


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
