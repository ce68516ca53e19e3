"""Downloads a checkpoint's files from the Hugging Face hub into the hub's own cache, and compares their hashes.

It uses huggingface_hub's `http_get`, because `hf_hub_download` starts a file from the beginning after a download was
killed. Here the bytes of each file go to a part file, which the next run resumes.
"""

import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from huggingface_hub import HfApi, constants, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from midfill_engine.errors import fetch_failed, unknown_model
from midfill_engine.loading.packaged import Fits, Say, alone
from midfill_engine.wire import FetchProgress

SMALL: Final = ("*.json", "merges.txt")  # the files beside the weights
WEIGHTS: Final = "*.safetensors"
INDEX: Final = "model.safetensors.index.json"
PLAIN_NAME: Final = re.compile(r"[\w][\w.+-]*")  # of a file at the top of a repository
DIGEST: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
PART_SUFFIX: Final = ".midfill-part"
MAX_SMALL_BYTES: Final = 256 * 2**20
SPARE_DISK_BYTES: Final = 2**28  # left free for other programs
REPORT_EVERY_S: Final = 0.25


@dataclass(frozen=True)
class RemoteFile:
    """A file at the top of a repository. `digest` is the sha256 of an LFS file, otherwise git's own hash."""

    name: str
    size_bytes: int
    digest: str
    is_git: bool

    def matches(self, path: Path) -> bool:
        """True if `path` has this file's bytes. git hashes a header before them."""
        header = f"blob {self.size_bytes}\0".encode() if self.is_git else b""
        algorithm = "sha1" if len(self.digest) == 40 else "sha256"
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.new(algorithm, header))
        return digest.hexdigest() == self.digest


@dataclass(frozen=True)
class Listing:
    """A repository's `files` at a commit, and its cache folder: blobs by hash, and snapshots that link to them."""

    repository: str
    commit: str
    files: tuple[RemoteFile, ...]
    folder: Path

    @property
    def snapshot(self) -> Path:
        return self.folder / "snapshots" / self.commit

    def blob(self, file: RemoteFile) -> Path:
        """The path of a complete file."""
        return self.folder / "blobs" / file.digest

    def part(self, file: RemoteFile) -> Path:
        """Where the bytes of a file go while it is downloaded."""
        return self.folder / "blobs" / f"{file.digest}{PART_SUFFIX}"

    def here_bytes(self, file: RemoteFile) -> int:
        """How many bytes of a file are on this machine."""
        stored = next((path for path in (self.blob(file), self.part(file)) if path.exists()), None)
        return min(stored.stat().st_size, file.size_bytes) if stored else 0

    def link(self, file: RemoteFile) -> None:
        """Adds a blob to the snapshot in one step, by a relative link, or by a copy where the file system has none."""
        part = self.snapshot / f"{file.name}{PART_SUFFIX}"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        try:
            part.symlink_to(os.path.relpath(self.blob(file), self.snapshot))
        except OSError:
            shutil.copyfile(self.blob(file), part)
        part.replace(self.snapshot / file.name)

    def point(self, revision: str) -> None:
        """Notes in the cache that the branch or tag `revision` means this commit."""
        if revision != self.commit:
            reference = self.folder / "refs" / revision
            reference.parent.mkdir(parents=True, exist_ok=True)
            reference.write_text(self.commit, encoding="ascii")


class DownloadProgress:
    """Counts bytes, and reports their number and rate a few times a second. The rate is that of the last reports."""

    def __init__(self, name: str, total_bytes: int, done_bytes: int, say: Say) -> None:
        self.done_bytes = done_bytes
        self._name, self._total_bytes, self._say = name, total_bytes, say
        self._reports = [(time.monotonic(), done_bytes)]  # seconds and bytes of the last ones
        self._reported_s = 0.0

    def add(self, num_bytes: int) -> None:
        self.done_bytes += num_bytes
        if time.monotonic() - self._reported_s >= REPORT_EVERY_S:
            self.tell()

    def tell(self, note: str = "") -> None:
        """Reports the progress now."""
        now_s = self._reported_s = time.monotonic()
        self._reports = [*self._reports[-40:], (now_s, self.done_bytes)]
        start_s, start_bytes = self._reports[0]
        rate = max(0.0, (self.done_bytes - start_bytes) / max(now_s - start_s, 1e-3))
        self._say(
            FetchProgress(
                model=self._name,
                done_bytes=max(0, self.done_bytes),
                total_bytes=self._total_bytes,
                bytes_per_s=rate,
                left_s=(self._total_bytes - self.done_bytes) / rate if rate > 0 else None,
                note=note,
            )
        )

    def bar(self, here_bytes: int) -> type:
        """A class with tqdm's methods that `http_get` uses, for a file that has `here_bytes` already."""
        progress = self

        class Bar(nullcontext[Any]):
            def __init__(self, *_: Any, initial: int = 0, **__: Any) -> None:
                super().__init__(self)
                progress.add(initial - here_bytes)  # negative if the hub sends the file from its beginning

            def update(self, num_bytes: int = 1) -> None:
                progress.add(num_bytes)

        return Bar


class Hub:
    """A hub by its address, with the user's token."""

    def __init__(self, endpoint: str, token: str | None) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._api = HfApi(endpoint=self.endpoint, token=token or False)
        self._headers = build_hf_headers(token=token or False, user_agent="midfill")
        self._has_token = bool(token)

    def list_files(self, repository: str, revision: str, cache: Path) -> Listing:
        """The files at the top of a repository, if their names are plain. Raises StartError."""
        timeout_s = constants.HF_HUB_DOWNLOAD_TIMEOUT
        try:
            with self._start_errors(repository, revision):
                info = self._api.model_info(repository, revision=revision, files_metadata=True, timeout=timeout_s)
            files = [_read_file(entry) for entry in info.siblings or [] if PLAIN_NAME.fullmatch(entry.rfilename)]
            if DIGEST.fullmatch(info.sha or "") is None:
                raise ValueError(info.sha)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"{self.endpoint} does not answer as a hub does ({error!r})"
            raise fetch_failed(message, "check HF_ENDPOINT") from error
        return Listing(repository, str(info.sha), tuple(files), cache / f"models--{repository.replace('/', '--')}")

    def download(self, listing: Listing, file: RemoteFile, progress: DownloadProgress) -> None:
        """Appends the missing bytes to the file's part. Raises StartError."""
        part = listing.part(file)
        here_bytes = part.stat().st_size if part.exists() else 0
        url = hf_hub_url(listing.repository, file.name, revision=listing.commit, endpoint=self.endpoint)
        headers = {**self._headers, "accept-encoding": "identity"}
        with self._start_errors(listing.repository, listing.commit), retries_told(progress), part.open("ab") as out:
            size, bar = file.size_bytes, progress.bar(here_bytes)
            http_get(url, out, resume_size=here_bytes, headers=headers, expected_size=size, tqdm_class=bar)

    @contextmanager
    def _start_errors(self, repository: str, revision: str) -> Iterator[None]:
        """Turns the library's errors inside the `with` block into StartErrors with a next step."""
        page = f"{self.endpoint}/{repository}"
        try:
            yield
        except HFValidationError:
            raise unknown_model(f"{repository} is no name that a hub can have", "check its name") from None
        except RevisionNotFoundError:
            raise unknown_model(f"{repository} has no revision {revision!r}", f"see {page}") from None
        except HfHubHTTPError as error:
            status = error.response.status_code
            if isinstance(error, GatedRepoError) or (status == 403 and self._has_token):
                step = "" if self._has_token else ", set HF_TOKEN or run `hf auth login`"
                message = f"{repository} is only given to who accepted its licence"
                raise fetch_failed(message, f"accept it at {page}{step}, then run the command again") from None
            if isinstance(error, RepositoryNotFoundError) or status in (401, 403, 404):
                message = f"{self.endpoint} has no {repository}, or it is private"
                step = "check its name" if self._has_token else "check its name; for a private one set HF_TOKEN"
                raise unknown_model(message, step) from None
            message = f"{self.endpoint} answers HTTP {status} for {repository}"
            step = "run the command again in a while" if status >= 500 else "check HF_ENDPOINT and HF_TOKEN"
            raise fetch_failed(message, step) from None
        except Exception as error:
            if not type(error).__module__.startswith("httpx"):  # the client's package differs between versions
                raise
            reason = f"no answer in time ({type(error).__name__})" if "Timeout" in type(error).__name__ else str(error)
            message = f"{self.endpoint} cannot be used: {reason or type(error).__name__}"
            step = "check the network and HF_ENDPOINT, then run the command again: it resumes where it stopped"
            raise fetch_failed(message, step) from error


@contextmanager
def retries_told(progress: DownloadProgress) -> Iterator[None]:
    """Turns the library's warnings about retries inside the `with` block into notes of the progress, not into logs."""

    def note(record: logging.LogRecord) -> bool:
        progress.tell(f"{record.getMessage().splitlines()[0].partition(': ')[2]}, trying again")
        return False

    logger = logging.getLogger("huggingface_hub.file_download")
    logger.addFilter(note)
    try:
        yield
    finally:
        logger.removeFilter(note)


def fetch(hub: Hub, name: str, cache: Path, say: Say, fits: Fits, *, check: bool = False) -> Path:
    """Downloads what is missing of `OWNER/NAME[@REVISION]`, and returns the snapshot's folder. The hash of each
    downloaded file is compared with the hub's, and with `check` those of the files that are here already.

    Small files come first, so that `fits` can refuse the weights. Raises StartError.
    """
    repository, _, revision = name.partition("@")
    revision = revision or "main"
    if {"", ".."} & {*revision.split("/")}:  # it becomes a file's path
        raise fetch_failed(f"{revision!r} is no revision", "name a branch, a tag or a commit")
    listing = hub.list_files(repository, revision, cache)
    small = [file for file in listing.files if any(fnmatch(file.name, pattern) for pattern in SMALL)]
    if sum(file.size_bytes for file in small) > MAX_SMALL_BYTES:
        raise fetch_failed(f"{repository} has JSON of an unbelievable size", "choose another checkpoint")
    if not any(fnmatch(file.name, WEIGHTS) for file in listing.files):
        has_pickles = any(file.name.endswith((".bin", ".pt", ".pth")) for file in listing.files)
        reason = "only pickled weights, which could run code" if has_pickles else "no safetensors"
        raise fetch_failed(f"{repository} has {reason}", "choose a checkpoint with safetensors")
    try:
        (listing.folder / "blobs").mkdir(parents=True, exist_ok=True)
        with alone(listing.folder / ".midfill.lock", name, sum(file.size_bytes for file in listing.files), say):
            if check:
                for file in listing.files:
                    if listing.blob(file).exists() and not file.matches(listing.blob(file)):
                        listing.blob(file).unlink()  # so that it is downloaded again
            for file in small:
                _download_file(hub, listing, file, DownloadProgress(name, 0, 0, lambda _: None))
                listing.link(file)
            weights = wanted_weights(listing)
            total, here = sum(file.size_bytes for file in weights), sum(map(listing.here_bytes, weights))
            fits(listing.snapshot, total)
            check_disk(listing.folder, total - here)
            progress = DownloadProgress(name, total, here, say)
            progress.tell()
            for file in weights:
                _download_file(hub, listing, file, progress)
            for file in weights:  # once all are here, because a snapshot with some weights may count as whole
                listing.link(file)
            listing.point(revision)
            progress.tell()
    except OSError as error:
        message = f"{listing.folder} cannot be written: {error.strerror or error}"
        raise fetch_failed(message, "free some space there, or set HF_HOME to another folder") from error
    return listing.snapshot


def wanted_weights(listing: Listing) -> list[RemoteFile]:
    """The weights that the index names; without an index all safetensors. Raises StartError."""
    present = {file.name: file for file in listing.files if fnmatch(file.name, WEIGHTS)}
    index = listing.snapshot / INDEX
    if not index.exists():
        return sorted(present.values(), key=lambda file: file.name)
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        return [present[name] for name in names]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        message = f"{listing.repository} lacks weights that its index names ({error})"
        raise fetch_failed(message, "choose another revision") from error


def check_disk(folder: Path, needed_bytes: int) -> None:
    """Raises StartError if `needed_bytes` more do not fit on the disk of `folder`."""
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes and needed_bytes + SPARE_DISK_BYTES > free_bytes:
        message = f"{needed_bytes / 1e9:.1f} GB are still to come and {folder} has {free_bytes / 1e9:.1f} GB free"
        raise fetch_failed(message, "free some space, or set HF_HOME to a folder on a larger disk")


def _read_file(entry: Any) -> RemoteFile:
    """The file of an entry of the hub's answer. Raises ValueError if its digest is none."""
    digest, size = (entry.lfs.sha256, entry.lfs.size) if entry.lfs else (entry.blob_id, entry.size)
    if DIGEST.fullmatch(digest) is None:  # it becomes a file's name
        raise ValueError(digest)
    return RemoteFile(entry.rfilename, int(size), digest, is_git=not entry.lfs)


def _download_file(hub: Hub, listing: Listing, file: RemoteFile, progress: DownloadProgress) -> None:
    """Downloads what is missing of a file and verifies its hash; then it becomes a blob. Raises StartError."""
    if listing.blob(file).exists():
        return
    part = listing.part(file)
    num_tries = 2 if part.exists() else 1  # a second one, because the part of an earlier run may be wrong
    if part.exists() and part.stat().st_size > file.size_bytes:
        progress.add(-file.size_bytes)
        part.unlink()
    for _ in range(num_tries):
        hub.download(listing, file, progress)
        if file.matches(part):
            part.replace(listing.blob(file))
            return
        progress.add(-file.size_bytes)
        part.unlink()
    message = f"{file.name} of {listing.repository} is not what the hub says it is: its hash differs"
    raise fetch_failed(message, "it was thrown away; run the command again, and leave this hub if it stays so")
