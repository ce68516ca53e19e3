"""Fetches a checkpoint into the hub's own cache: small files first, then the weights, resumed where they stopped.

The cache's layout is huggingface_hub's (blobs, snapshots, refs), so its other users find what was fetched. A file is
named only after its hash was found to be the hub's. Knows files and hashes; what a model is, `fits` decides.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Final

from midfill_engine.loading.hub_api import CHUNK_BYTES, Hub, Listing, Passing, RemoteFile, fetch_failed
from midfill_engine.wire import FetchProgress

SMALL: Final = ("*.json", "merges.txt")
WEIGHTS: Final = "*.safetensors"
MAX_SMALL_BYTES: Final = 256 * 2**20
SPARE_DISK_BYTES: Final = 2**28  # a full disk harms more than this download
REPORT_EVERY_S: Final = 0.25

Say = Callable[[FetchProgress], None]
Fits = Callable[[Path, int], None]


class Pace:
    """Counts bytes and tells of them a few times a second, at the rate of the last moments."""

    def __init__(self, name: str, total_bytes: int, done_bytes: int, say: Say) -> None:
        self.done_bytes = done_bytes
        self._name, self._total_bytes, self._say = name, total_bytes, say
        self._marks = [(time.monotonic(), done_bytes)]
        self._said_s = 0.0

    def add(self, num_bytes: int) -> None:
        self.done_bytes += num_bytes
        if time.monotonic() - self._said_s >= REPORT_EVERY_S:
            self.tell()

    def tell(self, note: str = "") -> None:
        now = self._said_s = time.monotonic()
        self._marks = [*self._marks[-40:], (now, self.done_bytes)]
        start_s, start_bytes = self._marks[0]
        rate = max(0.0, (self.done_bytes - start_bytes) / max(now - start_s, 1e-3))
        left_s = (self._total_bytes - self.done_bytes) / rate if rate > 0 else None
        self._say(
            FetchProgress(
                model=self._name,
                done_bytes=max(0, self.done_bytes),
                total_bytes=self._total_bytes,
                bytes_per_s=rate,
                left_s=left_s,
                note=note,
            )
        )


@dataclass(frozen=True)
class Store:
    """One repository's folder in the hub's cache."""

    folder: Path

    def blob(self, file: RemoteFile) -> Path:
        return self.folder / "blobs" / file.digest

    def part(self, file: RemoteFile) -> Path:
        """What came so far; the same name in every run, so that the next one goes on."""
        return self.folder / "blobs" / f"{file.digest}.midfill-part"

    def here_bytes(self, file: RemoteFile) -> int:
        for path in (self.blob(file), self.part(file)):
            if path.exists():
                return min(path.stat().st_size, file.size_bytes)
        return 0

    def link(self, commit: str, file: RemoteFile) -> None:
        """Names a blob in its snapshot: by a relative link, or by a copy where links are not to be had."""
        place = self.folder / "snapshots" / commit / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        try:
            place.symlink_to(os.path.relpath(self.blob(file), place.parent))
        except OSError:
            shutil.copyfile(self.blob(file), place)

    def point(self, revision: str, commit: str) -> None:
        if revision == commit:
            return
        place = self.folder / "refs" / revision
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(commit, encoding="ascii")


def fetch(hub: Hub, name: str, cache: Path, say: Say, fits: Fits, *, check: bool = False) -> Path:
    """The snapshot's folder of `OWNER/NAME[@REVISION]`, with every file's hash compared with the hub's.

    `fits(folder, weights_bytes)` is asked when only the small files are there; it raises for what is not to be fetched.
    Raises StartError.
    """
    from filelock import FileLock

    repository, _, revision = name.partition("@")
    revision = revision or "main"
    if ".." in revision.split("/"):
        raise fetch_failed(f"{revision!r} is no revision", "name a branch, a tag or a commit")
    listing = hub.list_files(repository, revision)
    store = Store(cache / f"models--{repository.replace('/', '--')}")
    small = [file for file in listing.files if any(fnmatch(file.name, pattern) for pattern in SMALL)]
    if sum(file.size_bytes for file in small) > MAX_SMALL_BYTES:
        raise fetch_failed(f"{repository} has JSON of an unbelievable size", "choose another checkpoint")
    if not any(fnmatch(file.name, WEIGHTS) for file in listing.files):
        raise fetch_failed(_why_no_weights(listing), "choose a checkpoint with safetensors")
    with _disk_errors(store.folder):
        (store.folder / "blobs").mkdir(parents=True, exist_ok=True)
        with FileLock(store.folder / ".midfill.lock", mode=0o600):
            if check:
                _drop_wrong(store, listing.files)
            _take(hub, listing, store, small, Pace(name, 0, 0, lambda _: None))
            folder = store.folder / "snapshots" / listing.commit
            weights = wanted_weights(folder, listing)
            fits(folder, sum(file.size_bytes for file in weights))
            here = sum(store.here_bytes(file) for file in weights)
            total = sum(file.size_bytes for file in weights)
            check_disk(store.folder, total - here)
            pace = Pace(name, total, here, say)
            pace.tell()
            _take(hub, listing, store, weights, pace)
            store.point(revision, listing.commit)
            pace.tell()
    return folder


def wanted_weights(folder: Path, listing: Listing) -> list[RemoteFile]:
    """The files that the index names; without an index all safetensors at the top."""
    present = {file.name: file for file in listing.files if fnmatch(file.name, WEIGHTS)}
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return sorted(present.values(), key=lambda file: file.name)
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        return [present[name] for name in names]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        message = f"{listing.repository} lacks weights that its index names ({error})"
        raise fetch_failed(message, "choose another revision") from error


def check_disk(folder: Path, needed_bytes: int) -> None:
    """Raises StartError where the disk has no room for so much more."""
    free = shutil.disk_usage(folder).free
    if needed_bytes and needed_bytes + SPARE_DISK_BYTES > free:
        message = f"{needed_bytes / 1e9:.1f} GB are still to come and {folder} has {free / 1e9:.1f} GB free"
        raise fetch_failed(message, "free some space, or set HF_HOME to a folder on a larger disk")


def _why_no_weights(listing: Listing) -> str:
    has_pickles = any(file.name.endswith((".bin", ".pt", ".pth")) for file in listing.files)
    reason = "only pickled weights, which could run code" if has_pickles else "no safetensors"
    return f"{listing.repository} has {reason}"


def _drop_wrong(store: Store, files: Iterable[RemoteFile]) -> None:
    """What others fetched bears its hash as its name, which is compared here. Wrong files go, and are fetched anew."""
    for file in files:
        if store.blob(file).exists():
            with Part.open(store.blob(file), file) as blob:
                is_right = blob.is_right
            if not is_right:
                store.blob(file).unlink()


def _take(hub: Hub, listing: Listing, store: Store, files: list[RemoteFile], pace: Pace) -> None:
    for file in files:
        if not store.blob(file).exists():
            _take_file(hub, listing, store, file, pace)
        store.link(listing.commit, file)


def _take_file(hub: Hub, listing: Listing, store: Store, file: RemoteFile, pace: Pace) -> None:
    """Downloads what is missing of one file, checks all of it, and names it. Raises StartError."""
    with Part.open(store.part(file), file) as part:
        was_here = part.size_bytes > 0
        _complete(hub, listing, part, pace)
        if not part.is_right and was_here:  # what an earlier run left may be what is wrong
            pace.add(-part.size_bytes)
            part.restart()
            _complete(hub, listing, part, pace)
        is_right, found = part.is_right, part.digest
    if is_right:
        store.part(file).replace(store.blob(file))
        return
    store.part(file).unlink()
    message = f"{file.name} of {listing.repository} is not what the hub says it is (its hash is {found})"
    raise fetch_failed(message, "it was thrown away; run the command again, and leave this hub if it stays so")


def _complete(hub: Hub, listing: Listing, part: "Part", pace: Pace) -> None:
    attempt = 0
    while part.size_bytes < part.file.size_bytes or not part.file.size_bytes:
        before = part.size_bytes
        try:
            return _receive(hub, listing, part, pace)
        except Passing as error:
            attempt = 0 if part.size_bytes > before else attempt + 1
            if attempt > hub.patience.retries:
                raise hub.unreachable(f"{error}; what came of {part.file.name} is kept") from None
            pace.tell(f"{error}, trying again")
            hub.patience.wait(attempt)


def _receive(hub: Hub, listing: Listing, part: "Part", pace: Pace) -> None:
    """Raises Passing where it ends early."""
    with hub.open(listing, part.file.name, part.size_bytes) as (start_byte, chunks):
        if start_byte != part.size_bytes:
            pace.add(-part.size_bytes)
            part.restart()
        for chunk in chunks:
            part.add(chunk)
            pace.add(len(chunk))
            if part.size_bytes > part.file.size_bytes:
                return  # its hash will say so
    if part.size_bytes < part.file.size_bytes:
        raise Passing("the connection ended early")


class Part:
    """A file that grows, with the hash of all that is in it."""

    def __init__(self, out: IO[bytes], file: RemoteFile) -> None:
        self.file, self.size_bytes = file, 0
        self._out = out
        self._hash = self._begin()

    @classmethod
    @contextmanager
    def open(cls, path: Path, file: RemoteFile) -> Iterator["Part"]:
        with open(path, "ab+") as out:
            part = cls(out, file)
            out.seek(0)
            while chunk := out.read(CHUNK_BYTES):
                part._hash.update(chunk)
                part.size_bytes += len(chunk)
            yield part

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    @property
    def is_right(self) -> bool:
        return self.size_bytes == self.file.size_bytes and self.digest == self.file.digest

    def add(self, chunk: bytes) -> None:
        self._out.write(chunk)
        self._hash.update(chunk)
        self.size_bytes += len(chunk)

    def restart(self) -> None:
        self._out.truncate(0)
        self._hash, self.size_bytes = self._begin(), 0

    def _begin(self) -> "hashlib._Hash":
        """git hashes a header along with a file's bytes."""
        if not self.file.is_git:
            return hashlib.sha256()
        header = f"blob {self.file.size_bytes}\0".encode()
        return hashlib.sha1(header) if len(self.file.digest) == 40 else hashlib.sha256(header)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """A disk's refusal as a sentence."""
    try:
        yield
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror or error}"
        raise fetch_failed(message, "free some space there, or set HF_HOME to another folder") from error
