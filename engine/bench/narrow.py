"""What int8 weights change in the fills of the model that ships: lines hidden in a folder's Python files, filled twice.

    PYTHONPATH=engine:kernels python -m bench.narrow FOLDER [--lines 200] [--json FILE]

Each line that says something is hidden with the file around it in view, and filled greedily, without experts, with the
weights as stored in fp32 and in int8. "Same" is the share of fills with the same text; "right" of those that are the
hidden line. The two are compared on the same lines, so the interval is of their difference (bootstrap, 95 %).
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import torch
import typer

from bench.green import stop_unless_green
from bench.measure import describe, write_record
from midfill_engine.denoising.denoise import denoise, drain
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.wire import InfillRequest

AROUND: Final = 600  # characters on each side
WAYS: Final = ("stored", "int8")


@dataclass(frozen=True)
class Line:
    before: str
    text: str
    after: str


@dataclass(frozen=True)
class Found:
    lines: int
    same: float
    right_stored: float
    right_int8: float
    difference: tuple[float, float]


def draw_lines(folder: Path, number: int, seed: int = 0) -> list[Line]:
    """One line of each of `number` files, of 8 to 80 characters and with a letter in it."""
    files = sorted(folder.rglob("*.py"))
    chance, found = random.Random(seed), []
    for file in chance.sample(files, len(files)):
        lines = file.read_text(encoding="utf-8", errors="ignore").splitlines(keepends=True)
        fit = [place for place, line in enumerate(lines) if 8 <= len(line.strip()) <= 80 and line.strip()[0].isalpha()]
        if fit:
            place = chance.choice(fit)
            text = lines[place].strip()
            indent = lines[place][: lines[place].index(text[0])]
            before = ("".join(lines[:place]) + indent)[-AROUND:]
            found.append(Line(before, text, "\n" + "".join(lines[place + 1 :])[:AROUND]))
        if len(found) == number:
            break
    return found


def fill_line(runtime: Runtime, line: Line) -> str:
    segments = [{"text": line.before}, {"hole": {"max_tokens": 48, "forbid": ["\n"]}}, {"text": line.after}]
    request = InfillRequest.model_validate({"segments": segments, "tag": "python", "experts": []})
    return drain(denoise(runtime, request)).holes[0].text


def measure(lines: list[Line], model: str = "embedded") -> Found:
    texts = {}
    for weights in WAYS:
        runtime = load_runtime(model, "cpu", dtype="fp32", weights=weights)
        texts[weights] = [fill_line(runtime, line).strip() for line in lines]
    right = {
        name: np.array([text == line.text for text, line in zip(texts[name], lines, strict=True)]) for name in WAYS
    }
    same = np.mean([one == other for one, other in zip(texts["stored"], texts["int8"], strict=True)])
    gain = right["int8"].astype(float) - right["stored"]
    draws = np.random.default_rng(0).choice(gain, (2000, len(gain))).mean(axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return Found(
        len(lines), float(same), float(right["stored"].mean()), float(right["int8"].mean()), (float(low), float(high))
    )


def main(
    folder: Annotated[Path, typer.Argument(help="where the Python files are")],
    lines: Annotated[int, typer.Option(help="how many, one a file")] = 200,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """Fills with weights as stored and in int8, side by side."""
    stop_unless_green("test_laptop.py", folder="bench")
    torch.set_num_threads(1)
    found = measure(draw_lines(folder, lines))
    print(found)
    if json_file is not None:
        write_record(json_file, {"machine": describe(torch.device("cpu")), "results": found})


if __name__ == "__main__":
    typer.run(main)
