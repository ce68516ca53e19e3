"""Parses the addresses and protocols of engines, and translates errors that engines report. Knows no sockets."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import ValidationError

from midfill_engine.wire import MAX_HOLE_TOKENS, ErrorBody, ErrorCode, ModelInfo
from midfill_infill.errors import MidfillError

if TYPE_CHECKING:
    from midfill_infill.engines.outside.protocol import Protocol

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")

# The code of the MidfillError for an engine's error, if it differs from the engine's code.
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
    """Where an engine listens: the unix socket of one that Midfill starts, or a URL that the user named.

    `protocol` is the one that another project's engine speaks; it is empty for an engine of Midfill. `token` is sent
    to the engine to be let in. `context_tokens` is how many tokens another project's engine may get, None if the user
    sets no number.
    """

    socket: Path | None = None
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    protocol: str = ""
    model: str = ""
    context_tokens: int | None = None

    def __str__(self) -> str:
        return str(self.socket or self.url)

    @property
    def is_outside(self) -> bool:
        """True for an engine of another project."""
        return bool(self.protocol)

    @property
    def adapter(self) -> "Protocol":
        """How to call another project's engine."""
        from midfill_infill.engines.outside import PROTOCOLS

        return PROTOCOLS[self.protocol]

    @property
    def title(self) -> str:
        """The name of another project's engine, such as "ollama at http://127.0.0.1:11434 with llama3"."""
        return f"{self.protocol} at {self.url}" + (f" with {self.model}" if self.model else "")

    @property
    def remote_host(self) -> str:
        """The host to which code is sent; empty if it is this machine."""
        host = urlsplit(self.url or "").hostname or ""
        return "" if host in LOCAL_HOSTS else host

    @property
    def info(self) -> ModelInfo:
        """The description of another project's engine and its model, as Midfill's engine describes its models."""
        name = f"{self.protocol}:{self.model}" if self.model else self.protocol
        return ModelInfo(
            id=self.model or name,
            family=self.protocol,
            parameters=0,
            device=self.remote_host or "its own",
            dtype="",
            max_context_tokens=self.context_tokens or self.adapter.context_tokens,
            max_hole_tokens=MAX_HOLE_TOKENS,
            keeps="nothing",
            heeds=(),
            weights=str(self.url),
            description=self.title,
        )


_URL: Final = re.compile(r"(?:(?P<model>.*?)@)?(?P<url>\w+://.*)")
# A user's name and password before a host: between // and @, or without http:// between the @ of MODEL@ and another @.
_USER: Final = re.compile(r"(?<=//).+@|(?<=@)(?!sha256:)[^/@:\s]+:[^/@\s]+@")
_HOST_AND_PORT: Final = re.compile(r"(?:[\w.-]+|\[[\da-fA-F:.]+\]):\d{1,5}(?:/.*)?")
_LOCAL: Final = re.compile(
    r"(?P<host>localhost|\d{1,3}(?:\.\d{1,3}){3}|\[[\da-fA-F:.]+\])(?P<port>:\d{1,5})?(?P<path>/.*)?"
)
_OLLAMA_HOST: Final = re.compile(
    r"(?P<scheme>\w+://)?(?P<host>\[.*\]|[^:/]*|[^/]*:[^/]*:[^/]*?)(?P<port>:\d+)?(?P<path>/.*)?"
)


def parse_engine(text: str, context_tokens: int | None = None) -> Endpoint:
    """The endpoint that `PROTOCOL:MODEL`, `PROTOCOL:URL` or `PROTOCOL:MODEL@URL` names; a URL may omit http:// and, for
    this machine, the protocol's usual port. The token is the value of the environment variable that the protocol has
    for an https:// host, or else of MIDFILL_TOKEN. Raises MidfillError `bad_config`.
    """
    from midfill_infill.engines.outside import PROTOCOLS

    name, _, model_and_url = text.strip().partition(":")
    if name not in PROTOCOLS:
        message = f"there is no protocol {name!r} for an engine"
        next_step = f"write PROTOCOL:MODEL@URL with one of {', '.join(PROTOCOLS)}"
        if name in ("http", "https"):
            next_step += "; for an engine of Midfill set MIDFILL_ENGINE_URL and MIDFILL_TOKEN"
        raise MidfillError("bad_config", message, next_step)
    protocol = PROTOCOLS[name]
    model, address = _split(model_and_url, protocol)
    if not address and name == "ollama":
        address = ollama_url()
    url = (address or protocol.default_url).rstrip("/")
    refuse_password(url, model)
    parts = split_address(url)
    if parts is None:
        next_step = f"write {name}:{'MODEL@' if protocol.needs_model else ''}http://HOST:PORT"
        raise MidfillError("bad_config", f"{hide_password(model_and_url)!r} names no address of an engine", next_step)
    if name in ("ollama", "fim") and not model:
        raise MidfillError("bad_config", f"{text!r} names no model", f"write {name}:MODEL@{url}")
    hosts = protocol.key_variables.items()
    variables = [key for host, key in hosts if f".{parts.hostname}".endswith(f".{host}") and parts.scheme == "https"]
    values = [os.environ.get(variable) for variable in (*variables, "MIDFILL_TOKEN")]
    token = next((value for value in values if value), None)
    if not protocol.root or parts.path == protocol.root:
        url = url.removesuffix("/v1")
    return Endpoint(None, url, token, protocol=name, model=model, context_tokens=context_tokens)


def refuse_password(url: str, model: str = "") -> None:
    """Raises MidfillError `bad_config` for an address with a user's name or password, which would be shown and stored
    in clear. In an address without http://, which is split at its last @, they are at the end of `model`.
    """
    if "@" in re.split(r"[/?#]", url.partition("//")[2])[0] or _USER.search(f"{model}@"):
        message = "an engine's address may hold no user name and no password"
        raise MidfillError("bad_config", message, "take them out, and give a key by MIDFILL_TOKEN")


def split_address(url: str) -> SplitResult | None:
    """The parts of a URL that begins with http:// or https://; None if it names no host or no possible port."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket alone
        return None
    return parts if is_address else None


def hide_password(text: str) -> str:
    """An address or the setting `engine`, even a wrong one, with stars in place of a user's name and password. The
    MODEL:TAG of `PROTOCOL:MODEL:TAG@HOST` stays, although it looks like these.
    """
    from midfill_infill.engines.outside import PROTOCOLS

    is_plain_address = "//" not in text and text.partition(":")[0] not in PROTOCOLS
    prefix = "//" if is_plain_address else ""  # for `_USER`
    return _USER.sub("***@", prefix + text).removeprefix(prefix)


def _split(model_and_url: str, protocol: "Protocol") -> tuple[str, str]:
    """Splits what follows the protocol into a model and a URL, each empty if it is not named. What follows an @ is the
    URL, except in `MODEL@sha256:DIGEST`, which is a model.
    """
    with_scheme = _URL.fullmatch(model_and_url)
    if with_scheme is not None:
        return with_scheme["model"] or "", with_scheme["url"]
    model, at_sign, address = model_and_url.rpartition("@")
    local = _LOCAL.fullmatch(address)
    if local is not None:
        port = local["port"] or ""
        usual_port = urlsplit(protocol.default_url).port
        if not port and usual_port:
            port = f":{usual_port}"
        return model, f"http://{local['host']}{port}{local['path'] or ''}"
    if _HOST_AND_PORT.fullmatch(address) and (at_sign or not protocol.needs_model):
        return model, f"http://{address}"
    if at_sign and not address.startswith("sha256:"):
        return model, f"{address}:"  # no address: `parse_engine` refuses it
    return model_and_url, ""


def ollama_url() -> str:
    """The URL in OLLAMA_HOST, read as Ollama does; empty if it is not set. A missing port is 11434, or if a scheme is
    given, the scheme's own. A value that is no address is returned as it is.
    """
    address = os.environ.get("OLLAMA_HOST", "").strip()
    parts = _OLLAMA_HOST.fullmatch(address)
    if not address or parts is None:
        return address
    host, port = parts["host"].strip("[]"), parts["port"]
    if host in ("", "0.0.0.0", "::"):  # where a server listens, which is no address to call
        host = "127.0.0.1"
    elif ":" in host:
        host = f"[{host}]"
    if port is None and parts["scheme"] is None:
        port = ":11434"
    return f"{parts['scheme'] or 'http://'}{host}{port or ''}{parts['path'] or ''}"


def relayed(body: ErrorBody) -> MidfillError:
    """The MidfillError for an error that an engine reports. It keeps the engine's next step, unless the engine refused
    the token: then the usual next step of `engine_refused` has the user check the setting.
    """
    code = _CODES.get(body.code, body.code.value)
    if code == "engine_refused":
        return MidfillError(code, body.message)
    return MidfillError(code, body.message, body.next_step or None)


def last_words(log: str) -> MidfillError | None:
    """The last error that an engine's process logged as JSON, as a MidfillError; None if there is none."""
    for line in reversed(log.splitlines()):
        try:
            return relayed(ErrorBody.model_validate_json(line))
        except ValidationError:
            continue
    return None
