"""`python -m bench quality.lines OUT SOURCE...`: a suite of single lines with their whole files around them.

With `--mixed` other gaps are among them, as users have them: bodies, several lines, rests of lines, whole lines. With
`--inside` the gaps are parts of lines.

A source is an archive of a package (sdist, wheel, npm) or a part of a training corpus (`LANGUAGE-NN.jsonl.xz`). The
prefix and suffix are all of the file: what a model sees of them is its own affair. Knows no model.
"""

import ast
import io
import json
import lzma
import re
import tarfile
import tokenize
import zipfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final, TextIO

import numpy as np
import typer

from midfill_infill.context.references import find_references
from midfill_infill.text.document import Document
from training.data import spans
from training.data.contamination import count_hits

LANGUAGE_OF: Final = {".py": "python", ".js": "javascript", ".mjs": "javascript", ".ts": "typescript"}
UNWANTED: Final = re.compile(r"(^|/)(_?vendor|node_modules|dist|umd|build)/|\.min\.|\.d\.ts$|\.umd\.")
SKIPPED: Final = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
LONG_STRING: Final = re.compile(r"\"\"\"|'''")
PIECE: Final = re.compile(r"\w+|[^\w\s]")
MAX_PIECES: Final = 50
MAX_BREAKS: Final = 6
MIN_BYTES: Final = 200
MAX_BYTES: Final = 200_000
MAX_HITS: Final = 8  # a file with so many windows of evaluation programs is left out

MIN_PART: Final = 4  # characters within a line
MAX_PART: Final = 80
RANGED: Final = 0.25  # share of the parts of lines that end anywhere in their line

Span = tuple[int, int]
File = tuple[str, str, str]  # path, language, text


def main(
    out: Annotated[Path, typer.Argument(help="The suite to write, as JSON lines.")],
    sources: Annotated[list[Path], typer.Argument(help="Archives, or parts of a corpus.")],
    per_package: Annotated[int, typer.Option(min=1)] = 40,
    evaluation: Annotated[list[Path] | None, typer.Option(help="Suites, or a module that counts hits.")] = None,
    share: Annotated[float, typer.Option(min=0, max=1, help="Of a corpus' files, so many are looked at.")] = 1.0,
    mixed: Annotated[bool, typer.Option(help="Other gaps too, for fitting.")] = False,
    tests: Annotated[float, typer.Option(min=0, help="How much more often a test file is drawn.")] = 1.0,
    physical: Annotated[bool, typer.Option(help="Lines of code as they stand, not whole statements.")] = False,
    inside: Annotated[bool, typer.Option(help="Expressions of Python, and some other ranges, within lines.")] = False,
    seed: int = 5,
) -> None:
    """Draws lines by the size of their files, and leaves out files that hold evaluation programs."""
    hits, rng = count_hits(evaluation or []), np.random.default_rng(seed)
    with out.open("w", encoding="utf-8") as rows:
        for source in sources:
            for package, files in read_packages(source, rng, share):
                clean = [file for file in files if hits(file[2]) < MAX_HITS]
                write_rows(rows, package, files, draw(clean, per_package, rng, mixed, tests, physical, inside))


def write_rows(rows: TextIO, package: str, files: list[File], chosen: Iterable[tuple[File, Span]]) -> None:
    """Writes a row for each chosen span, with the references that a fill there may use."""
    with TemporaryDirectory() as folder:
        write_files(Path(folder), files)
        for number, ((path, language, text), (start, end)) in enumerate(chosen, 1):
            row = {
                "id": f"{package}/{number}",
                "group": f"{package}/{path}",
                "package": package,
                "kind": "single",
                "language": language,
                "prefix": text[:start],
                "middle": text[start:end],
                "suffix": text[end:],
                "references": list_references(Path(folder), path),
            }
            rows.write(json.dumps(row) + "\n")


def write_files(folder: Path, files: list[File]) -> None:
    for path, _, text in files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


@lru_cache(maxsize=64)
def list_references(folder: Path, path: str) -> list[dict[str, str]]:
    """The references that a fill in that file may use, as the command finds them."""
    references = find_references(Document.read(folder / path), folder / path, root=folder)
    return [{"kind": reference.kind, "text": reference.text} for reference in references]


def read_packages(path: Path, rng: np.random.Generator, share: float) -> Iterator[tuple[str, list[File]]]:
    """The packages of a source with their files."""
    if path.suffix != ".xz":
        files = ((name, LANGUAGE_OF.get(Path(name).suffix), data) for name, data in sorted(read_archive(path)))
        yield path.name.split("-")[0], [file for file in map(_file, files) if file is not None]
        return
    packages: dict[str, list[File]] = {}
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if rng.random() < share:
                packages.setdefault(row["package"], []).append((row["path"], path.name.split("-")[0], row["text"]))
    yield from packages.items()


def read_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as archive:
            yield from ((name, archive.read(name)) for name in archive.namelist())
        return
    with tarfile.open(path) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None:
                yield member.name, stream.read()


def _file(member: tuple[str, str | None, bytes]) -> File | None:
    name, language, data = member
    if language is None or UNWANTED.search(name) or not MIN_BYTES <= len(data) <= MAX_BYTES:
        return None
    try:
        return name, language, data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None


def draw(
    files: list[File],
    count: int,
    rng: np.random.Generator,
    mixed: bool = False,
    tests: float = 1.0,
    physical: bool = False,
    inside: bool = False,
) -> Iterator[tuple[File, Span]]:
    """`count` different lines, or as many as there are."""
    sizes = np.array([len(text) * (tests if "test" in path.lower() else 1.0) for path, _, text in files], float)
    seen: set[tuple[str, Span]] = set()
    for _ in range(20 * count if files else 0):
        if len(seen) == count:
            return
        file = files[int(rng.choice(len(files), p=sizes / sizes.sum()))]
        path, language, text = file
        spans_here = parts_of(text) if inside else lines_of(text, language, physical)
        if not spans_here:
            continue
        span = spans_here[int(rng.integers(len(spans_here)))]
        if mixed:
            span = vary(text, span, rng)
        if inside and rng.random() < RANGED:
            span = span[0], int(rng.integers(span[0] + MIN_PART, (text + "\n").index("\n", span[1]) + 1))
        if (path, span) not in seen:
            seen.add((path, span))
            yield file, span


def vary(text: str, line: Span, rng: np.random.Generator) -> Span:
    """The line alone, with its indent, or also with its line end; or another gap."""
    kind = rng.random()
    for bound, chooser in ((0.15, spans.body), (0.25, spans.consecutive_lines), (0.35, spans.rest_of_line)):
        if kind < bound:
            return chooser(text, rng) or line
    start = text.rfind("\n", 0, line[0]) + 1
    if kind < 0.75 or text[start : line[0]].strip() or text[line[1] : line[1] + 1] != "\n":
        return line
    return start, line[1] + (kind > 0.87)


@lru_cache(maxsize=256)
def lines_of(text: str, language: str, physical: bool = False) -> list[Span]:
    """Logical or physical lines of Python, filled lines of all else, without indent and line end."""
    if language != "python":
        line_spans = filled_lines(text)
    else:
        line_spans = physical_lines(text) if physical else logical_lines(text)
    return [span for span in line_spans if _is_fit(text[slice(*span)])]


@lru_cache(maxsize=256)
def parts_of(text: str) -> list[Span]:
    """Expressions of Python within lines; names are seldom selected and left out."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    lines = text.split("\n")
    starts = np.cumsum([0, *(len(line) + 1 for line in lines)])
    parts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and not isinstance(node, ast.Name) and node.end_lineno == node.lineno:
            line, start = lines[node.lineno - 1], int(starts[node.lineno - 1])
            columns = node.col_offset, node.end_col_offset or 0  # in bytes
            first, last = (len(line.encode()[:column].decode()) for column in columns)
            if MIN_PART <= last - first <= MAX_PART and line[first:last].strip() != line.strip():
                parts.append((start + first, start + last))
    return parts


def _is_fit(line: str) -> bool:
    return len(line) > 1 and len(PIECE.findall(line)) <= MAX_PIECES and line.count("\n") <= MAX_BREAKS


def filled_lines(text: str) -> list[Span]:
    line_spans, start = [], 0
    for line in text.split("\n"):
        if line.strip():
            line_spans.append((start + len(line) - len(line.lstrip()), start + len(line.rstrip())))
        start += len(line) + 1
    return line_spans


def physical_lines(text: str) -> list[Span]:
    """The physical lines of statements, without comments and long strings."""
    line_spans = []
    for start, end in logical_lines(text):
        statement = text[start:end]
        if not LONG_STRING.search(statement):
            inner = [(start + first, start + last) for first, last in filled_lines(statement)]
            line_spans += [(first, last) for first, last in inner if text[first] != "#"]
    return line_spans


def logical_lines(text: str) -> list[Span]:
    """The logical lines up to the first error."""
    offsets = np.cumsum([0, *(len(line) + 1 for line in text.split("\n"))])
    line_spans: list[Span] = []
    start, end = None, 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NEWLINE:
                if start is not None:
                    line_spans.append((start, end))
                start = None
            elif token.type not in SKIPPED:
                if start is None:
                    start = int(offsets[token.start[0] - 1]) + token.start[1]
                end = int(offsets[token.end[0] - 1]) + token.end[1]
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return line_spans
    return line_spans


if __name__ == "__main__":
    typer.run(main)
