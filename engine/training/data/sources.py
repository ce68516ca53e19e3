"""Fetches packages by name and keeps a table of them; refuses non-permissive ones. Knows no source text.

Wheels only, and npm archives without their scripts: fetching runs no code of a package.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from training.data.archives import Archive, ArchiveError, archives_in, open_archive

PERMISSIVE: Final = frozenset(
    "MIT MIT-0 MIT-CMU BSD-2-CLAUSE BSD-3-CLAUSE APACHE-2.0 ISC PSF-2.0 PYTHON-2.0 ZLIB 0BSD UNLICENSE CC0-1.0"
    " HPND".split()
)
# The names of these in classifiers and free text, without "the", "license" and punctuation.
PERMISSIVE_WORDS: Final = frozenset(
    (
        *("mit", "mit mit", "mit no attribution mit 0", "isc", "isc iscl", "python software foundation", "psf", "zlib"),
        *("bsd", "new bsd", "simplified bsd", "modified bsd", "bsd 2 clause", "bsd 3 clause", "3 clause bsd", "0bsd"),
        *("apache", "apache 2", "apache 2 0", "apache version 2 0", "apache software", "apache software apache 2 0"),
        *("zlib libpng", "unlicense", "cc0 1 0", "historical permission notice and disclaimer hpnd", "hpnd"),
    )
)
COLUMNS: Final = ("name", "version", "licence", "sha256", "used", "kept_bytes")


@dataclass(frozen=True)
class Source:
    """A row of `sources.tsv`. `used` is `yes` or `no`; `kept_bytes` is what `filter` kept of it."""

    name: str
    version: str
    licence: str
    sha256: str
    used: str
    kept_bytes: int = 0


def fetch_all(folder: Path, python: Path | None, npm: Path | None, wheels: Path | None = None) -> dict[str, int]:
    """Fetches every name of two lists and writes `sources.tsv` for all archives in `folder`; counts the outcomes.

    A refused archive stays in the table and leaves the folder. `wheels` is a folder to take wheels from instead of the
    registry. A name that cannot be fetched is counted as missing, and the others go on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table, counts = folder / "sources.tsv", Counter[str]()
    refused = [row for row in read_table(table) if row.used == "no"] if table.exists() else []
    rows = refused + [_judge(archive) for archive in archives_in(folder)]
    present = {plain_name(row.name) for row in rows}
    for names, command in ((python, _wheel_command), (npm, _npm_command)):
        for line in names.read_text(encoding="utf-8").splitlines() if names else []:
            wanted = line.split("#")[0].strip()
            if not wanted or plain_name(re.split(r"==|(?<=.)@", wanted)[0]) in present:
                continue
            archive = _fetch(command(wanted, folder, wheels), folder)
            if archive is None:
                counts["missing"] += 1
                print(f"There is no archive of {wanted}.", file=sys.stderr)
            else:
                rows.append(_judge(archive))
                write_table(table, rows)
    write_table(table, rows)
    counts.update("used" if row.used == "yes" else "refused" for row in rows)
    return dict(counts)


def plain_name(name: str) -> str:
    """One form for all spellings of a package's name: requests and metadata differ in case and dashes."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def is_permissive(licence: str) -> bool:
    """True if an SPDX expression, or each of several statements separated by "; ", is on the list.

    One alternative of an OR is enough; within brackets, and with any exception, all must be on the list.
    """
    statements = licence.split("; ")
    return all(_is_permissive_expression(one) or _words_of(one) in PERMISSIVE_WORDS for one in statements)


def _is_permissive_expression(expression: str) -> bool:
    offers = [expression] if "(" in expression else expression.split(" OR ")
    parts = [[part.upper() for part in re.findall(r"[\w.+-]+", offer) if part not in ("AND", "OR")] for offer in offers]
    return any(part and all(word in PERMISSIVE for word in part) for part in parts)


def _words_of(statement: str) -> str:
    words = re.findall(r"[a-z0-9]+", statement.lower().replace("licence", "license"))
    return " ".join(word for word in words if word not in ("the", "license"))


def _judge(archive: Archive) -> Source:
    """A table row for the archive; deletes a refused archive."""
    used = is_permissive(archive.licence)
    if not used:
        archive.path.unlink()
    return Source(archive.name, archive.version, archive.licence, archive.sha256, "yes" if used else "no")


def _wheel_command(wanted: str, folder: Path, wheels: Path | None) -> list[str]:
    origin = ["--no-index", "--find-links", str(wheels)] if wheels else []
    options = ["--disable-pip-version-check", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    return [sys.executable, "-m", "pip", "download", *options, *origin, "--", wanted]


def _npm_command(wanted: str, folder: Path, wheels: Path | None) -> list[str]:
    return ["npm", "pack", "--loglevel=error", "--ignore-scripts", "--pack-destination", str(folder), "--", wanted]


def _fetch(command: list[str], folder: Path) -> Archive | None:
    """The archive that the command put into `folder`, None if there is none."""
    before = set(folder.iterdir())
    subprocess.run(command, stdout=subprocess.DEVNULL, env={**os.environ, "PIP_NO_INPUT": "1"})
    for path in sorted(set(folder.iterdir()) - before):
        try:
            return open_archive(path)
        except ArchiveError:
            path.unlink()
    return None


def read_table(path: Path) -> list[Source]:
    """The rows of a `sources.tsv`. Raises ValueError if its columns differ."""
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    if tuple(header.split("\t")) != COLUMNS:
        raise ValueError(f"{path} is no table of sources: its columns are not {', '.join(COLUMNS)}.")
    rows = [line.split("\t") for line in lines]
    return [
        Source(name, version, licence, sha256, used, int(kept)) for name, version, licence, sha256, used, kept in rows
    ]


def write_table(path: Path, rows: list[Source]) -> None:
    """Replaces the whole table, sorted by name."""
    lines = ["\t".join(COLUMNS)]
    lines += ["\t".join(str(value) for value in vars(row).values()) for row in sorted(rows, key=lambda row: row.name)]
    made = path.with_suffix(".part")
    made.write_text("\n".join(lines) + "\n", encoding="utf-8")
    made.replace(path)
