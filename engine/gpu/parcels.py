"""Folders as parts small enough for a journey, checked when they are put together. Knows bytes and hashes."""

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path


def send(folder: Path, out: Path, name: str, part_bytes: int) -> list[Path]:
    """Writes `folder` to `out` as NAME.tar.00, ... of at most `part_bytes`, and NAME.parts.json with their hashes.

    Parts of an earlier sending of that name go. Returns what was written.
    """
    for old in out.glob(f"{name}.tar.*"):
        old.unlink()
    hashes: dict[str, str] = {}
    with tempfile.TemporaryFile() as whole:
        with tarfile.open(fileobj=whole, mode="w") as archive:
            archive.add(folder, arcname=".")
        whole.seek(0)
        while data := whole.read(part_bytes):
            part = f"{name}.tar.{len(hashes):02d}"
            (out / part).write_bytes(data)
            hashes[part] = hashlib.sha256(data).hexdigest()
    listed = out / f"{name}.parts.json"
    listed.write_text(json.dumps(hashes, indent=1) + "\n", encoding="utf-8")
    return [*(out / part for part in hashes), listed]


def missing_of(parts: Path, name: str) -> list[str]:
    """Which files a parcel in `parts` still lacks."""
    listed = parts / f"{name}.parts.json"
    if not listed.exists():
        return [listed.name]
    return [part for part in json.loads(listed.read_text(encoding="utf-8")) if not (parts / part).exists()]


def join(parts: Path, name: str, target: Path) -> None:
    """Makes `target` of a parcel, whole or not at all. Raises ValueError where a part is missing or damaged."""
    missing = missing_of(parts, name)
    if missing:
        raise ValueError(f"The parcel {name} in {parts} lacks {', '.join(missing)}: fetch them again.")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as scratch:
        with tempfile.TemporaryFile() as whole:
            for part, sha256 in json.loads((parts / f"{name}.parts.json").read_text(encoding="utf-8")).items():
                data = (parts / part).read_bytes()
                if hashlib.sha256(data).hexdigest() != sha256:
                    raise ValueError(f"The part {parts / part} is damaged or of another sending: fetch it again.")
                whole.write(data)
            whole.seek(0)
            with tarfile.open(fileobj=whole) as archive:
                archive.extractall(Path(scratch, "made"), filter="data")
        Path(scratch, "made").rename(target)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return (
        path.stat().st_size
        if path.is_file()
        else sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    )


def fill_calls(items: Sequence[Path], room: int) -> list[list[Path]]:
    """The items in their order, as many a call as `room` bytes hold. Raises ValueError for one that is too large."""
    calls: list[list[Path]] = [[]]
    for item in items:
        if size_of(item) > room:
            raise ValueError(f"{item} has {size_of(item):,} bytes, and beside the tree there is room for {room:,}.")
        if sum(map(size_of, calls[-1])) + size_of(item) > room:
            calls.append([])
        calls[-1].append(item)
    return calls


def link(source: Path, target: Path) -> None:
    """`target` without a second copy of the bytes, where the disk allows that."""
    for file in [source] if source.is_file() else [found for found in source.rglob("*") if found.is_file()]:
        here = target / file.relative_to(source) if source.is_dir() else target
        here.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, here)
        except OSError:  # another disk
            shutil.copyfile(file, here)
