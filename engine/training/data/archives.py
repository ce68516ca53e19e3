"""Reads wheels and npm archives: name, version, licence, files. Knows the two formats; judges nothing, runs nothing."""

import hashlib
import json
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from pathlib import Path, PurePosixPath
from typing import Final

MAX_FILE_BYTES: Final = 2**20


@dataclass(frozen=True)
class Archive:
    """`licence` is the statement of the metadata; "?" if there is none, several are joined by "; "."""

    path: Path
    name: str
    version: str
    licence: str
    sha256: str


class ArchiveError(ValueError):
    """The file is neither a wheel nor an npm archive."""


def open_archive(path: Path) -> Archive:
    """Reads the metadata of a `.whl` or `.tgz`. Raises ArchiveError."""
    try:
        name, version, licence = _read_wheel(path) if path.suffix == ".whl" else _read_npm(path)
    except (OSError, EOFError, KeyError, ValueError, StopIteration, tarfile.TarError, zipfile.BadZipFile) as error:
        raise ArchiveError(f"{path.name} is not a package archive: {error!r}.") from error
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Archive(path, name, version, " ".join(licence.split()), digest)


def archives_in(folder: Path) -> list[Archive]:
    """Every archive of `folder`, in order of names."""
    paths = [path for path in folder.iterdir() if path.suffix in (".whl", ".tgz")]
    return sorted((open_archive(path) for path in paths), key=lambda archive: archive.name)


def read_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """The path and content of every file up to 1 MiB, without the folder that npm puts around all of them."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for info in wheel.infolist():
                if not info.is_dir() and info.file_size <= MAX_FILE_BYTES:
                    yield info.filename, wheel.read(info)
        return
    with tarfile.open(path, "r:gz") as npm:
        for member in npm:
            file = npm.extractfile(member) if member.isreg() and member.size <= MAX_FILE_BYTES else None
            if file is not None:
                yield str(PurePosixPath(*PurePosixPath(member.name).parts[1:])), file.read()


def _read_wheel(path: Path) -> tuple[str, str, str]:
    with zipfile.ZipFile(path) as wheel:
        metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        headers = BytesParser().parsebytes(wheel.read(metadata), headersonly=True)
    return headers["Name"], headers["Version"], _wheel_licence(headers)


def _wheel_licence(headers: Message) -> str:
    """The SPDX expression, else the classifiers, else the free text, as packages have stated it over the years."""
    if headers["License-Expression"]:
        return str(headers["License-Expression"])
    classifiers = [value for value in headers.get_all("Classifier", []) if value.startswith("License ::")]
    stated = [value.split(" :: ")[-1] for value in classifiers if value != "License :: OSI Approved"]
    if stated:
        return "; ".join(stated)
    text = str(headers["License"] or "").strip()
    return text if text and "\n" not in text and len(text) < 60 else "?"


def _read_npm(path: Path) -> tuple[str, str, str]:
    with tarfile.open(path, "r:gz") as npm:
        member = next(member for member in npm if PurePosixPath(member.name).parts[1:] == ("package.json",))
        file = npm.extractfile(member)
        assert file is not None
        package = json.loads(file.read())
    licence = package.get("license", "?")
    return package["name"], package["version"], licence.get("type", "?") if isinstance(licence, dict) else str(licence)
