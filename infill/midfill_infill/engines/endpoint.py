"""Parses engine addresses and protocols, and translates engine errors. Knows no sockets."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from midfill_engine.wire import MAX_HOLE_TOKENS, ErrorBody, ErrorCode, ModelInfo
from midfill_infill.errors import MidfillError

if TYPE_CHECKING:
    from midfill_infill.engines.outside.protocol import Protocol

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")

# Our error code where it differs from the engine's.
_CODES: Final[dict[ErrorCode, str]] = {
    ErrorCode.UNAUTHORIZED: "engine_refused",
    ErrorCode.FORBIDDEN: "engine_refused",
    ErrorCode.NOT_FOUND: "engine_error",
    ErrorCode.TOO_LARGE: "hole_too_large",
    ErrorCode.BUSY: "engine_busy",
    ErrorCode.INTERNAL: "engine_error",
}


@dataclass(frozen=True)
class Endpoint:
    """Where an engine listens: our unix socket, or a URL that the user named. `protocol` is empty for Midfill's own."""

    socket: Path | None = None
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    protocol: str = ""
    model: str = ""

    def __str__(self) -> str:
        return str(self.socket or self.url)

    @property
    def is_outside(self) -> bool:
        return bool(self.protocol)

    @property
    def title(self) -> str:
        """The name of another project's engine, such as "ollama at http://127.0.0.1:11434 with llama3"."""
        return f"{self.protocol} at {self.url}{f' with {self.model}' if self.model else ''}"

    @property
    def remote_host(self) -> str:
        """The host that code is sent to; empty for this machine."""
        host = urlsplit(self.url or "").hostname or ""
        return "" if host in LOCAL_HOSTS else host

    @property
    def info(self) -> ModelInfo:
        """Describes the model of another project's engine, with the context size that its protocol assumes."""
        from midfill_infill.engines.outside import PROTOCOLS

        name = f"{self.protocol}:{self.model}" if self.model else self.protocol
        return ModelInfo(
            id=self.model or name,
            family=self.protocol,
            parameters=0,
            device=self.remote_host or "its own",
            dtype="",
            max_context_tokens=PROTOCOLS[self.protocol].context_tokens,
            max_hole_tokens=MAX_HOLE_TOKENS,
            keeps="nothing",
            heeds=(),
            weights=str(self.url),
            description=self.title,
        )


_URL: Final = re.compile(r"(?:(?P<model>.*?)@)?(?P<url>\w+://.*)")
_HOST_AND_PORT: Final = re.compile(r"(?:[\w.-]+|\[[\da-fA-F:.]+\]):\d{1,5}(?:/.*)?")
_LOCAL: Final = re.compile(
    r"(?P<host>localhost|\d{1,3}(?:\.\d{1,3}){3}|\[[\da-fA-F:.]+\])(?P<port>:\d{1,5})?(?P<path>/.*)?"
)


def parse_engine(text: str) -> Endpoint:
    """`PROTOCOL:MODEL`, `PROTOCOL:URL` or `PROTOCOL:MODEL@URL` as an endpoint; HOST:PORT is http://HOST:PORT. Raises
    MidfillError `bad_config`.
    """
    from midfill_infill.engines.outside import PROTOCOLS

    name, _, rest = text.strip().partition(":")
    if name not in PROTOCOLS:
        message = f"there is no protocol {name!r} for an engine"
        next_step = f"write PROTOCOL:MODEL@URL with one of {', '.join(PROTOCOLS)}"
        if name in ("http", "https"):
            next_step += "; for an engine of Midfill set MIDFILL_ENGINE_URL and MIDFILL_TOKEN"
        raise MidfillError("bad_config", message, next_step)
    protocol = PROTOCOLS[name]
    model, url = _split(rest, protocol)
    url = (url or (ollama_url() if name == "ollama" else "") or protocol.default_url).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        next_step = f"write {name}:{'MODEL@' if protocol.needs_model else ''}http://HOST:PORT"
        raise MidfillError("bad_config", f"{text!r} names no address of an engine", next_step)
    if name in ("ollama", "fim") and not model:
        raise MidfillError("bad_config", f"{text!r} names no model", f"write {name}:MODEL@{url}")
    host = parts.hostname
    keys = [variable for part, variable in protocol.key_variables.items() if host == part or host.endswith(f".{part}")]
    token = next((os.environ[each] for each in (*keys, "MIDFILL_TOKEN") if os.environ.get(each)), None)
    return Endpoint(url=url.removesuffix("/v1"), token=token, protocol=name, model=model)


def _split(rest: str, protocol: "Protocol") -> tuple[str, str]:
    """The model and the URL that are named; "" for what is not. What follows an @ is an address, or no URL at all."""
    if match := _URL.fullmatch(rest):
        return match["model"] or "", match["url"]
    model, at, said = rest.rpartition("@")
    if match := _LOCAL.fullmatch(said):
        port = match["port"] or (f":{usual}" if (usual := urlsplit(protocol.default_url).port) else "")
        return model, f"http://{match['host']}{port}{match['path'] or ''}"
    if _HOST_AND_PORT.fullmatch(said) and (at or not protocol.needs_model):
        return model, f"http://{said}"
    return (model, f"{said}:") if at and not said.startswith("sha256:") else (rest, "")


def ollama_url() -> str:
    """The URL in OLLAMA_HOST, which may omit scheme and port; empty if it is not set."""
    said = os.environ.get("OLLAMA_HOST", "")
    if not said:
        return ""
    parts = urlsplit(said if "//" in said else f"http://{said}")
    host = "127.0.0.1" if parts.hostname in (None, "0.0.0.0") else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or 11434}"


def relayed(body: ErrorBody) -> MidfillError:
    """The engine's error as ours, with its own next step unless the token was refused."""
    code = _CODES.get(body.code, body.code.value)
    return MidfillError(code, body.message, None if code == "engine_refused" else body.next_step or None)


def last_words(log: str) -> MidfillError | None:
    """The last error that an engine's process logged as JSON; None if there is none."""
    for line in reversed(log.splitlines()):
        try:
            return relayed(ErrorBody.model_validate_json(line))
        except ValidationError:
            continue
    return None
