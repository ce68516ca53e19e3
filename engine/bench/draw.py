"""Draws a record of `bench.embedded` or `bench.steps` as SVG: a roofline, and a step's time against context and gap.

    PYTHONPATH=engine:kernels python -m bench.draw RECORD [OUT.svg]

Bytes and operations are the least a step must move and compute, so a point's height is what was done of what is needed.
"""

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import matplotlib
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.shapes import SHAPES, step_floor

# Text stays text, and the same record draws the same bytes.
SETTINGS: Final[dict[Any, Any]] = {"svg.fonttype": "none", "svg.hashsalt": "midfill", "font.size": 9}


@dataclass(frozen=True)
class Point:
    """A measured step of one series. `floor_s` is the time its bytes and operations need at the machine's ceilings."""

    series: str
    context: int
    gap: int
    seconds: float
    bytes: float
    flops: float
    floor_s: float


def read_points(record: dict[str, Any]) -> list[Point]:
    """The steps of a record, single requests only. Raises ValueError where it has none."""
    copy, rates = record["ceilings"]["copy_bytes_per_s"], record["ceilings"]["product_flops_per_s"]
    points = []
    for each in record.get("points", ()):
        floor_s = max(each["bytes"] / copy, each["flops"] / rates[record["machine"]["dtype"]])
        seconds = each["timing"]["median_s"]
        points.append(Point("embedded", each["context"], each["gap"], seconds, each["bytes"], each["flops"], floor_s))
    for each in record.get("steps", ()):
        load = each["load"]
        if load["batch"] != 1:
            continue
        floor = step_floor(SHAPES[each["shape"]], each["precision"], 1, load["context"], load["gap"])
        series, seconds = f"{each['shape']} {each['precision']}", each["step"]["median_s"]
        size = (load["context"], load["gap"])
        points.append(Point(series, *size, seconds, floor.total_bytes, floor.total_flops, each["floor_s"]))
    if not points:
        raise ValueError("The record has no steps of a single request.")
    return points


def draw(record: dict[str, Any], out: Path) -> None:
    """Writes the picture of a record."""
    points, machine = read_points(record), record["machine"]
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(12, 4.2), layout="constrained")
        roofline, by_context, by_gap = figure.subplots(1, 3)
        _draw_roofline(roofline, points, record["ceilings"])
        _draw_times(by_context, points, along="context", fixed="gap")
        _draw_times(by_gap, points, along="gap", fixed="context")
        interpreted = ", interpreted: times mean nothing" if machine["interpreted"] else ""
        figure.suptitle(f"A denoise step on {machine['device']}, {machine['date']}, {machine['commit']}{interpreted}")
        figure.savefig(out, format="svg", metadata={"Date": None})


def _draw_roofline(axes: Axes, points: list[Point], ceilings: dict[str, Any]) -> None:
    copy = ceilings["copy_bytes_per_s"]
    intensities = [point.flops / point.bytes for point in points]
    low, high = min(intensities) / 2, max(intensities) * 4
    best = max(ceilings["product_flops_per_s"].values())
    for name, rate in ceilings["product_flops_per_s"].items():
        if rate > best / 10:
            ridge = rate / copy
            axes.plot([min(low, ridge / 2), ridge, max(high, ridge * 4)], [min(low, ridge / 2) * copy, rate, rate])
            axes.annotate(f"{name} products", (max(high, ridge * 4), rate), ha="right", va="bottom")
    for series, own in _grouped(points, "series").items():
        axes.scatter([p.flops / p.bytes for p in own], [p.flops / p.seconds for p in own], s=14, label=series, zorder=3)
    axes.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="operations a second", title="roofline")
    axes.legend(frameon=False, loc="lower right")


def _draw_times(axes: Axes, points: list[Point], *, along: str, fixed: str) -> None:
    """One line for each series and value of `fixed` that has several points; its floor is dashed."""
    for series, own in _grouped(points, "series").items():
        for value, line in _grouped(own, fixed).items():
            line.sort(key=lambda point: int(getattr(point, along)))
            if len(line) < 2:
                continue
            places = [getattr(point, along) for point in line]
            times = [point.seconds * 1e3 for point in line]
            (drawn,) = axes.plot(places, times, marker="o", markersize=3, label=f"{series}, {fixed} {value}")
            axes.plot(places, [p.floor_s * 1e3 for p in line], color=drawn.get_color(), linestyle="--", linewidth=0.8)
    axes.set(xlabel=f"{along}, tokens", ylabel="ms (dashed: at the ceilings)", title=f"time by {along}")
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter("{x:.0f}")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)


def _grouped(points: list[Point], name: str) -> dict[Any, list[Point]]:
    groups: dict[Any, list[Point]] = defaultdict(list)
    for point in points:
        groups[getattr(point, name)].append(point)
    return dict(groups)


def main(
    record: Annotated[Path, typer.Argument(help="JSON of bench.embedded or bench.steps")],
    out: Annotated[Path | None, typer.Argument(help="the SVG; beside the record if not given")] = None,
) -> None:
    """Draws what was measured."""
    draw(json.loads(record.read_text(encoding="utf-8")), out or record.with_suffix(".svg"))


if __name__ == "__main__":
    typer.run(main)
