"""Writes the notices for a model's training packages: their copyright holders, and every license text once.

A package's own license files are the best source. Without its archive those of another version are used, or else the
copyright lines of its source files with the text of the license that it states; the output names the source. Knows
archives and a corpus; no model.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from training.data.archives import Archive, archives_in, read_files
from training.data.corpus import read_corpus
from training.data.sources import Source, plain_name, read_table

NOTICE_NAME: Final = re.compile(r"(licen[cs]e|notice|copying|copyright|authors)\b.*", re.I)
HOLDER: Final = re.compile(
    r"\W*((portions )?copyright\b.*(\d{4}|\(c\)|©)|(\(c\)|©) ?\d{4}|all rights reserved\W*$)", re.I
)
HOLDER_IN_SOURCE: Final = re.compile(r"copyright (\(c\)|©|\d{4})|copyright,? by |(\(c\)|©) ?\d{4}", re.I)
TITLE: Final = re.compile(r"(the |[\w.-]+ )?(mit|(new |modified |simplified )?bsd|isc|apache)\b.{0,40}", re.I)
MAX_HOLDER_CHARACTERS: Final = 200
RULE: Final = "=" * 80

RECORDED, OTHER, NONE = "recorded archive", "another archive", "no archive"
HEAD: Final = f"""Notices of the packages whose source files this model was trained on

DATA_SOURCES.tsv beside this file names each package with its version, its licence as its metadata states it, and the
sha256 of its archive. Below: each package with the lines that say whose it is and the numbers of its texts; then every
text once, without such lines. How a package's notices were found stands behind its name:

{RECORDED}: all licence and notice files of the archive with the recorded sha256.
{OTHER}: the same of another archive of the package, named there; the recorded one was not at hand.
{NONE}: none was at hand. The lines are the copyright lines in the source files themselves, and the text is that of
the licence which the package states, as other packages here have it. Where no line follows, the files name no holder.
"""


@dataclass
class Notice:
    """A package: the source of its notices, its copyright holders, and the keys of its license texts."""

    source: Source
    basis: str
    which: str = ""
    holders: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


def write_notices(sources: Path, archives: Path, corpus: Path | None, out: Path) -> dict[str, int]:
    """Writes `out` for every row of the table `sources`; counts the packages by the source of their notices.

    `corpus` is read for packages without an archive; if it is None only their metadata is used.
    """
    rows, present = read_table(sources), defaultdict(list)
    for archive in archives_in(archives):
        present[plain_name(archive.name)].append(archive)
    texts: dict[str, str] = {}
    notices = [_from_archive(row, _closest(row, present[plain_name(row.name)]), texts) for row in rows]
    named = _texts_by_licence(notices)
    silent = {notice.source.name for notice in notices if notice.basis == NONE}
    lines = _holders_in(corpus, silent) if corpus is not None and silent else {}
    for notice in notices:
        if notice.basis == NONE:
            notice.holders = lines.get(notice.source.name, [])
            notice.texts = [named[key] for key in (licence_key(notice.source.licence),) if key in named]
    out.write_text(_render(notices, texts), encoding="utf-8")
    return dict(Counter(notice.basis for notice in notices))


def _closest(row: Source, archives: list[Archive]) -> Archive | None:
    """The recorded archive, else the one of the highest version."""
    recorded = next((archive for archive in archives if archive.sha256 == row.sha256), None)
    by_version = sorted(archives, key=lambda archive: [int(part) for part in re.findall(r"\d+", archive.version)])
    return recorded or next(reversed(by_version), None)


def _from_archive(row: Source, archive: Archive | None, texts: dict[str, str]) -> Notice:
    """Adds new texts to `texts`. Without an archive, or without license files in it, the package's metadata is used."""
    if archive is None:
        return Notice(row, NONE)
    contents = {content for path, content in read_files(archive.path) if _is_notice(path) and content.strip()}
    notice_texts = sorted(content.decode("utf-8", "replace") for content in contents)
    is_recorded = archive.sha256 == row.sha256
    notice = Notice(row, NONE)
    if notice_texts and is_recorded:
        notice = Notice(row, RECORDED)
    elif notice_texts:
        notice = Notice(row, OTHER, f" (version {archive.version}, {archive.sha256})")
    for text in notice_texts:
        holders, body = split_holders(text)
        notice.holders += [line for line in holders if line not in notice.holders]
        key = text_key(body)
        if key and key not in notice.texts:
            notice.texts.append(key)
            texts.setdefault(key, body)
    return notice


def split_holders(text: str) -> tuple[list[str], str]:
    """The copyright lines of a text, and the text without them."""
    lines = text.replace("\r\n", "\n").expandtabs().strip("\n").split("\n")
    holders = [line.strip() for line in lines if HOLDER.match(line)]
    body = "\n".join(line.rstrip() for line in lines if not HOLDER.match(line))
    return holders, re.sub(r"\n{3,}", "\n\n", body).strip("\n")


def text_key(body: str) -> str:
    """A key that is equal for texts that differ only in titles, line breaks, case and punctuation."""
    first, _, rest = body.lstrip().partition("\n")
    return " ".join(re.findall(r"[a-z0-9]+", (rest if TITLE.fullmatch(first.strip()) else body).lower()))


def licence_key(licence: str) -> str:
    """One name for all spellings of a license in metadata. BSD without a number counts as the longer, 3-clause one."""
    words = re.findall(r"[a-z]+|\d", licence.lower())
    if "ref" in words or "licenseref" in words:
        return licence
    for name in ("apache", "mit", "isc", "python"):
        if name in words:
            return name
    return ("bsd 2" if "2" in words else "bsd 3") if "bsd" in words else licence


def _texts_by_licence(notices: Iterable[Notice]) -> dict[str, str]:
    """For each license the most common text among packages with exactly one text."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for notice in notices:
        if len(notice.texts) == 1:
            counts[licence_key(notice.source.licence)][notice.texts[0]] += 1
    return {licence: of_texts.most_common(1)[0][0] for licence, of_texts in counts.items()}


def _holders_in(corpus: Path, packages: set[str]) -> dict[str, list[str]]:
    """The distinct copyright lines in the files of `packages`, in order of occurrence."""
    lines_of: dict[str, dict[str, None]] = defaultdict(dict)
    for file in read_corpus(corpus):
        if file.package in packages:
            for line in file.text.split("\n"):
                if len(line) < MAX_HOLDER_CHARACTERS and HOLDER_IN_SOURCE.search(line):
                    lines_of[file.package][" ".join(line.strip(" \t\r#*/;\"'<!->").split())] = None
    return {package: list(lines) for package, lines in lines_of.items()}


def _render(notices: list[Notice], texts: dict[str, str]) -> str:
    used = dict.fromkeys(key for notice in notices for key in notice.texts)
    numbers = {key: number for number, key in enumerate(used, 1)}
    parts = [HEAD, RULE]
    for notice in notices:
        source = notice.source
        of = ", ".join(str(numbers[key]) for key in notice.texts) or "none at hand"
        parts.append(f"\n{source.name} {source.version}: {source.licence}; {notice.basis}{notice.which}; texts: {of}")
        parts += [f"    {line}" for line in notice.holders]
    for key, number in numbers.items():
        parts.append(f"\n{RULE}\nText {number}\n\n{texts[key]}")
    return "\n".join(parts) + "\n"


def _is_notice(path: str) -> bool:
    """True for license files in the places of wheels and npm archives: the metadata folder, or the root."""
    parts = PurePosixPath(path).parts
    is_there = len(parts) == 1 or parts[0].endswith(".dist-info")
    return is_there and NOTICE_NAME.fullmatch(parts[-1]) is not None
