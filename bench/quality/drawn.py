"""A suite without its text: which lines of which published archives it has. Fetches archives by pip and npm.

`drawn.jsonl` has a row an archive; `python -m bench quality.drawn SUITE ARCHIVES...` prints those of a suite that
`bench.quality.lines` drew. Knows no model.
"""

import hashlib
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer

from bench.quality.lines import File, Span, read_archive, read_packages, write_rows
from bench.quality.suite import SuiteError

DRAWN: Final = Path(__file__).with_name("drawn.jsonl")
FOLDER: Final = Path(".eval")  # archives, suites and fills


def rebuild(language: str, drawn: Path = DRAWN, folder: Path = FOLDER) -> Path:
    """The suite in `folder` of the lines that were drawn in a language. Raises SuiteError."""
    out = folder / f"{language}.jsonl"
    archives = [row for row in map(json.loads, drawn.read_text().splitlines()) if row["language"] == language]
    if out.exists() or not archives:
        if not archives:
            raise SuiteError(f"No lines were drawn in {language!r}.")
        return out
    folder.mkdir(exist_ok=True)
    part = out.with_suffix(".part")
    with part.open("w", encoding="utf-8") as rows:
        for row in archives:
            ((package, files),) = read_packages(fetch(row, folder), np.random.default_rng(0), 1.0)
            write_rows(rows, package, files, find(files, row["lines"]))
    return part.rename(out)


def find(files: list[File], places: dict[str, list[Span]]) -> Iterator[tuple[File, Span]]:
    known = {file[0]: file for file in files}
    for path, spans in places.items():
        yield from ((known[path], (start, end)) for start, end in spans)


def fetch(row: dict[str, Any], folder: Path) -> Path:
    """The archive of a row. Building a source archive's metadata may run its code. Raises SuiteError."""
    path = folder / str(row["archive"])
    if not path.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:", "--dest"]
        npm = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination"]
        wanted = f"{row['name']}@{row['version']}" if path.suffix == ".tgz" else f"{row['name']}=={row['version']}"
        subprocess.run([*(npm if path.suffix == ".tgz" else pip), str(folder), wanted], check=True)
    if hashlib.sha256(path.read_bytes()).hexdigest() != row["sha256"]:
        raise SuiteError(f"{path} is not the archive that was drawn from: its SHA-256 differs.")
    return path


def main(suite: Annotated[Path, typer.Argument()], archives: Annotated[list[Path], typer.Argument()]) -> None:
    """Prints the rows of `drawn.jsonl` for a suite."""
    places: dict[str, dict[str, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for task in map(json.loads, suite.read_text(encoding="utf-8").splitlines()):
        start = len(task["prefix"])
        places[task["package"]][task["group"].removeprefix(f"{task['package']}/")].append(
            (start, start + len(task["middle"]))
        )
        language = task["language"]
    for path in archives:
        name, version = identify(path)
        row = {"language": language, "name": name, "version": version, "archive": path.name}
        row |= {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "lines": places[path.name.split("-")[0]]}
        print(json.dumps(row))


def identify(path: Path) -> tuple[str, str]:
    if path.suffix == ".tgz":
        told = json.loads(dict(read_archive(path))["package/package.json"])
        return told["name"], told["version"]
    name, _, version = path.name.removesuffix(".tar.gz").rpartition("-")
    return name, version


if __name__ == "__main__":
    typer.run(main)
