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


def draw_versus(record: dict[str, Any], path: Path) -> None:
    """Writes an SVG of a record as `versus.to_json` makes it: quality, time a fill, bits per byte."""
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        quality, times, bits = figure.subplots(1, 3, width_ratios=(3, 2, 2))
        rows = record["rows"][::-1]
        names, places = [f"{row['name']}, {row['length']}" for row in rows], range(len(rows))
        metric = "pass_at_1" if all(row["pass_at_1"] for row in rows) else "exact_match"
        colours = [FLOOR_COLOUR if row["name"] == record["rows"][-1]["name"] else MODEL_COLOUR for row in rows]
        for place, row, colour in zip(places, rows, colours, strict=True):
            _bar(quality, place, row[metric], "percent", colour)
        quality.set_yticks(places, names)
        quality.set_xlabel(f"{metric.replace('_at_', '@').replace('_', ' ')}, %")
        times.barh(places, [row["median_ms"] for row in rows], color=colours)
        times.set_yticks(places, [""] * len(rows))
        times.set_xlabel("ms a fill, median")
        for place, found in enumerate(record["bits"][::-1]):
            _bar(bits, 3 * place + 1, found["with_suffix"], "value", MODEL_COLOUR if place else FLOOR_COLOUR)
            _bar(bits, 3 * place, found["without_suffix"], "value", "#dddddd")
        labels = [label for found in record["bits"][::-1] for label in ("no suffix", found["name"])]
        bits.set_yticks([0, 1, 3, 4], labels)
        bits.set_xlabel("bits per byte, length known")
        for axes in (quality, times, bits):
            axes.set_xlim(left=0)
        suite, changed = record["suite"], " with changes" if record["is_modified"] else ""
        figure.suptitle(
            f"{suite['name']} {suite['split'] or ''} {suite['kind'] or ''}: {suite['tasks']} gaps, greedy, "
            f"{record['torch_threads']} thread(s), 95 % intervals\n"
            f"{record['date']}, commit {record['commit']}{changed}",
            fontsize=9,
        )
        figure.savefig(path, format="svg", metadata={"Date": None})


def _bar(axes: Axes, place: float, value: dict[str, float], key: str, colour: str) -> None:
    """A bar with its interval."""
    below, above = value[key] - value["low"], value["high"] - value[key]
    axes.barh(place, value[key], color=colour, xerr=[[below], [above]], ecolor="#444444", capsize=2)


def _draw_shares(axes: Axes, record: dict[str, Any]) -> None:
    metric = "pass_at_1" if all(row["pass_at_1"] for row in record["rows"]) else "exact_match"
    rows = record["rows"][::-1]
    for place, row in enumerate(rows):
        _bar(axes, place, row[metric], "percent", FLOOR_COLOUR if row["is_floor"] else MODEL_COLOUR)
    axes.set_yticks(range(len(rows)), [f"floor: {row['name']}" if row["is_floor"] else row["name"] for row in rows])
    axes.set_xlabel(f"{metric.replace('_at_', '@').replace('_', ' ')}, %")
    axes.set_xlim(left=0)


def _draw_reliability(axes: Axes, record: dict[str, Any]) -> None:
    axes.plot([0, 1], [0, 1], color=FLOOR_COLOUR, linewidth=1)
    for row in record["rows"]:
        calibration = row["token_calibration"]
        if row["name"] in ("own", "oracle") and calibration:
            places = [each["confidence"] for each in calibration["bins"]]
            right = [each["right"] for each in calibration["bins"]]
            label = f"{row['name']} length: ECE {calibration['error']:.2f}, {calibration['count']} tokens"
            axes.plot(places, right, marker="o", markersize=3, label=label)
    axes.set(xlabel="confidence of a settled token", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", frameon=False)
