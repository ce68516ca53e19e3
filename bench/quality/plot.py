"""Draws a record as SVG: pass@1 under every condition beside the floors, and how far confidences can be trusted."""

from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

MODEL_COLOUR: Final = "#3b6ea5"
FLOOR_COLOUR: Final = "#b0b0b0"
# Text stays text, and the same record draws the same bytes.
SETTINGS: Final[dict[Any, Any]] = {"svg.fonttype": "none", "svg.hashsalt": "midfill", "font.size": 9}


def draw(record: dict[str, Any], path: Path) -> None:
    """Writes an SVG of a record as `report.to_json` makes it."""
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(10, 4.6), layout="constrained")
        shares, reliability = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_shares(shares, record)
        _draw_reliability(reliability, record)
        suite = record["suite"]
        changed = " with changes" if record["is_modified"] else ""
        figure.suptitle(
            f"{record['model']['id']} on {suite['name']}: {suite['tasks']} gaps of {suite['problems']} problems\n"
            f"greedy, {record['date']}, commit {record['commit']}{changed}, 95 % intervals over problems",
            fontsize=9,
        )
        figure.savefig(path, format="svg", metadata={"Date": None})


def _bar(axes: Axes, place: float, share: dict[str, float], colour: str) -> None:
    """A bar with its interval."""
    percent = share["percent"]
    below, above = percent - share["low"], share["high"] - percent
    axes.barh(place, percent, color=colour, xerr=[[below], [above]], ecolor="#444444", capsize=2)


def _draw_shares(axes: Axes, record: dict[str, Any]) -> None:
    rows = record["rows"][::-1]
    has_tests = all(row["pass_at_1"] for row in rows)
    labels = []
    for place, row in enumerate(rows):
        colour, label = MODEL_COLOUR, row["name"]
        if row["is_floor"]:
            colour, label = FLOOR_COLOUR, f"floor: {label}"
        labels.append(label)
        _bar(axes, place, row["pass_at_1"] if has_tests else row["exact_match"], colour)
    axes.set_yticks(range(len(rows)), labels)
    axes.set_xlabel("pass@1, %" if has_tests else "exact match, %")
    axes.set_xlim(left=0)


def _draw_reliability(axes: Axes, record: dict[str, Any]) -> None:
    axes.plot([0, 1], [0, 1], color=FLOOR_COLOUR, linewidth=1)
    for row in record["rows"]:
        calibration = row["token_calibration"]
        if row["name"] in ("own", "oracle") and calibration:
            confidence = [bin["confidence"] for bin in calibration["bins"]]
            right = [bin["right"] for bin in calibration["bins"]]
            label = f"{row['name']} length: ECE {calibration['error']:.2f}, {calibration['count']} tokens"
            axes.plot(confidence, right, marker="o", markersize=3, label=label)
    axes.set(xlabel="confidence of a settled token", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", frameon=False)
