"""The results of a measurement: its origin, a JSON record, a table. Knows neither engine nor tasks."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.quality.measure import Difference, Row
from bench.quality.score import NUM_DRAWS, Share
from bench.quality.suite import Suite
from midfill_engine.wire import ModelInfo

ROOT: Final = Path(__file__).parents[2]
SHIPPED: Final = ROOT / "engine/midfill_engine/weights"
NUM_DIGITS: Final = 1
WIDTH: Final = 150  # characters of a table in a file


@dataclass(frozen=True)
class Origin:
    """The facts without which a number means nothing. `is_modified`: the code differed from the commit."""

    date: str
    commit: str
    is_modified: bool
    machine: str
    weights_sha256: str | None
    wall: str
    quality: float


@dataclass(frozen=True)
class Report:
    suite: Suite
    model: ModelInfo
    origin: Origin
    rows: tuple[Row, ...]
    differences: tuple[Difference, ...]


def find_origin(weights: Path | None, wall: str, quality: float) -> Origin:
    """The origin of a measurement; `weights` is the checkpoint's folder, if it is local."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "engine", "infill", "kernels")
    return Origin(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=commit or "unknown",
        is_modified=bool(changed),
        machine=f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        weights_sha256=None if weights is None else hash_weights(weights),
        wall=wall,
        quality=quality,
    )


def open_paper() -> Console:
    """Where tables are printed, as wide as they are where there is no terminal."""
    return Console(width=None if Console().is_terminal else WIDTH)


def find_weights(model: str) -> Path | None:
    """The folder of a model's weights, if it is local."""
    return next((path for path in (Path(model), SHIPPED / model) if path.is_dir()), None)


def hash_weights(folder: Path) -> str:
    """The hash of all files in a checkpoint's folder that affect its output."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")]):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def to_json(report: Report) -> str:
    """The record, which has only the number of the tasks and the suite's hash."""
    record: dict[str, Any] = {
        "suite": report.suite.summary,
        "model": report.model.model_dump(mode="json"),
        "decoding": {"temperature": 0, "quality": report.origin.quality},
        "interval": f"95 %, {NUM_DRAWS} bootstrap draws over problems; Wilson over problems where all tasks agree",
        **asdict(report.origin),
        "rows": [asdict(row) for row in report.rows],
        "differences": [asdict(row) for row in report.differences],
    }
    return json.dumps(record, indent=1) + "\n"


def tables(report: Report) -> list[Table]:
    """The table of rows, with the conditions of the measurement in the title, and the table of differences."""
    rows = Table(title=_title(report), title_justify="left")
    for heading in ("", "length", "suffix", "pass@1 %", "exact %", "similar %", "parses %", "token ECE", "ms"):
        rows.add_column(heading, no_wrap=True)
    for row in report.rows:
        rows.add_row(
            f"floor: {row.name}" if row.is_floor else "model",
            row.length,
            "yes" if row.sees_suffix else "no",
            show(row.pass_at_1),
            show(row.exact_match),
            show(row.edit_similarity),
            show(row.parses),
            f"{row.token_calibration.error:.2f}" if row.token_calibration else "-",
            "-" if row.median_ms is None else f"{row.median_ms:.0f}",
        )
    differences = Table(title="Paired differences in points; under 3 is no gain", title_justify="left")
    for heading in ("", "metric", "points"):
        differences.add_column(heading)
    for pair in report.differences:
        differences.add_row(f"{pair.first} - {pair.second}", pair.metric, show(pair.points))
    return [rows, differences] if report.differences else [rows]


def _title(report: Report) -> str:
    origin = report.origin
    return (
        f"{report.model.id} on {report.suite.title}\n"
        f"greedy, quality {origin.quality:g}; 95 % intervals over problems; tests behind {origin.wall}\n"
        f"{origin.date}, commit {origin.commit}{' with changes' if origin.is_modified else ''}"
    )


def show(value: Share | None) -> str:
    if value is None:
        return "-"
    return f"{value.percent:.{NUM_DIGITS}f} ({value.low:.{NUM_DIGITS}f} to {value.high:.{NUM_DIGITS}f})"


def refused(rows: Sequence[Row]) -> str:
    """A note about gaps that were too large for the model; empty if there were none."""
    worst = max((row.num_refused for row in rows), default=0)
    if not worst:
        return ""
    return f"up to {worst} gaps were larger than the model fills at once, and count as failures"
