"""Speaks to the Hugging Face hub, or to what HF_ENDPOINT names: which files there are, and their bytes. Stores nothing.

Every refusal becomes a StartError with the hub's own reason and what to do about it.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from midfill_engine.errors import EXIT_NO_MODEL, StartError
from midfill_engine.wire import ErrorCode

CHUNK_BYTES: Final = 1 << 20
COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
DIGEST: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
PLAIN_NAME: Final = re.compile(r"[\w][\w.+-]*")


def fetch_failed(message: str, next_step: str) -> StartError:
    return StartError(ErrorCode.FETCH_FAILED, message, next_step, EXIT_NO_MODEL)


class Passing(Exception):
    """A failure that may not be there the next time: a connection that broke, a hub that is busy."""


@dataclass(frozen=True)
class RemoteFile:
    """A file at the top of a repository. `digest` is a sha256 in hex, or, where `is_git` says so, git's sha1 of it."""

    name: str
    size_bytes: int
    digest: str
    is_git: bool


@dataclass(frozen=True)
class Listing:
    repository: str
    commit: str
    files: tuple[RemoteFile, ...]


@dataclass(frozen=True)
class Patience:
    """`read_timeout_s` without a byte is a hang; after `retries` of them in a row without any progress it is over."""

    read_timeout_s: float = 10.0
    retries: int = 5
    first_wait_s: float = 1.0

    def wait(self, attempt: int) -> None:
        time.sleep(min(self.first_wait_s * 2**attempt, 30.0))


class Hub:
    """One hub. `headers` carry the user's token; they are not passed on where it sends us to another host."""

    def __init__(self, endpoint: str, headers: dict[str, str], patience: Patience) -> None:
        timeout = httpx.Timeout(patience.read_timeout_s)
        self.endpoint, self.patience = endpoint.rstrip("/"), patience
        self.has_token = "authorization" in {name.lower() for name in headers}
        self._http = httpx.Client(headers=headers, timeout=timeout, follow_redirects=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._http.close()

    def list_files(self, repository: str, revision: str) -> Listing:
        """What stands at the top of a repository. Raises StartError."""
        url = f"{self.endpoint}/api/models/{repository}/revision/{quote(revision, safe='')}?blobs=true"
        values = self._retrying(lambda: self._get_json(url, repository, revision))
        try:
            files = tuple(_read_file(entry) for entry in values["siblings"] if PLAIN_NAME.fullmatch(entry["rfilename"]))
            commit = str(values["sha"])
        except (KeyError, TypeError, ValueError) as error:
            raise fetch_failed(
                f"{self.endpoint} does not answer as a hub does ({error!r})", "check HF_ENDPOINT"
            ) from error
        if COMMIT.fullmatch(commit) is None:
            raise fetch_failed(f"{self.endpoint} names no commit of {repository}", "check HF_ENDPOINT")
        return Listing(repository, commit, files)

    @contextmanager
    def open(self, listing: Listing, name: str, start_byte: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Where the bytes that come begin (`start_byte`, or 0 where the hub takes no ranges), and the bytes.

        Raises StartError, and Passing for what may be tried again.
        """
        url = f"{self.endpoint}/{listing.repository}/resolve/{listing.commit}/{quote(name)}"
        headers = {"range": f"bytes={start_byte}-"} if start_byte else {}
        with (
            self._passing(),
            self._http.stream("GET", url, headers={**headers, "accept-encoding": "identity"}) as reply,
        ):
            self._check(reply, listing.repository, listing.commit)
            yield (start_byte if reply.status_code == 206 else 0), reply.iter_bytes()

    def _get_json(self, url: str, repository: str, revision: str) -> dict[str, Any]:
        with self._passing():
            reply = self._http.get(url)
            self._check(reply, repository, revision)
            try:
                values = reply.json()
            except ValueError:
                values = {}
            return values if isinstance(values, dict) else {}

    def _retrying(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        for attempt in range(2):
            try:
                return ask()
            except Passing as error:
                reason = str(error)
                self.patience.wait(attempt)
        raise self.unreachable(reason)

    def unreachable(self, reason: str) -> StartError:
        step = "check the network, then run the command again: it goes on where it stopped"
        return fetch_failed(f"{self.endpoint} cannot be used: {reason}", step)

    @contextmanager
    def _passing(self) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException:
            raise Passing(f"no answer within {self.patience.read_timeout_s:g} s") from None
        except httpx.UnsupportedProtocol:
            raise fetch_failed(f"{self.endpoint!r} is no address of a hub", "check HF_ENDPOINT") from None
        except httpx.TransportError as error:
            raise Passing(str(error) or type(error).__name__) from None

    def _check(self, reply: httpx.Response, repository: str, revision: str) -> None:
        if reply.is_success:
            return
        if reply.status_code >= 500 or reply.status_code in (408, 429):
            raise Passing(f"it answers HTTP {reply.status_code}")
        raise explain(reply, self.endpoint, repository, revision, has_token=self.has_token)


def explain(reply: httpx.Response, endpoint: str, repository: str, revision: str, *, has_token: bool) -> StartError:
    """What a refusal means to a user."""
    kind, status = reply.headers.get("x-error-code", ""), reply.status_code
    page = f"{endpoint}/{repository}"
    if kind == "GatedRepo" or (status == 403 and has_token):
        step = "" if has_token else ", set HF_TOKEN or run `hf auth login`"
        message = f"{repository} is only given to who accepted its licence"
        return fetch_failed(message, f"accept it at {page}{step}, then run the command again")
    if kind == "RevisionNotFound":
        return StartError(
            ErrorCode.UNKNOWN_MODEL, f"{repository} has no revision {revision!r}", f"see {page}", EXIT_NO_MODEL
        )
    if kind == "RepoNotFound" or status in (401, 403, 404):
        message = f"{endpoint} has no {repository}, or it is private"
        step = "check its name" if has_token else "check its name; for a private one set HF_TOKEN"
        return StartError(ErrorCode.UNKNOWN_MODEL, message, step, EXIT_NO_MODEL)
    return fetch_failed(f"{endpoint} answers HTTP {status} for {repository}", "check HF_ENDPOINT and HF_TOKEN")


def _read_file(entry: dict[str, Any]) -> RemoteFile:
    lfs = entry.get("lfs")
    digest, size = (lfs["sha256"], lfs["size"]) if lfs else (entry["blobId"], entry["size"])
    if DIGEST.fullmatch(digest) is None:  # it becomes a file's name
        raise ValueError(digest)
    return RemoteFile(entry["rfilename"], int(size), digest, is_git=not lfs)
