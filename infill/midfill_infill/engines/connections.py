"""Makes HTTP connections to one engine, and keeps them open. The only file with sockets; knows no messages."""

import base64
import json
import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, InvalidURL
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote

from midfill_infill.engines.endpoint import Endpoint, split_address
from midfill_infill.errors import MidfillError

CONNECT_TIMEOUT_S: Final = 2.0  # on this machine
FAR_TIMEOUT_S: Final = 10.0  # to another machine: lost packets are sent again after 1, 3 and 7 s
# Longer than a step of a large model on a slow machine. A dead engine is noticed by its closed socket, not by this.
READ_TIMEOUT_S: Final = 300.0
MAX_IDLE: Final = 4  # connections that are kept open
# Most servers close an idle connection after 5 s, just when it is used again, and after a laptop's sleep it may be dead
# without a sign of it.
MAX_IDLE_S: Final = 4.0
CHECK_PROXY: Final = "set HTTP_PROXY and HTTPS_PROXY to a proxy that speaks HTTP, or add the host to NO_PROXY"


class Unreachable(Exception):
    """No connection is possible. The message completes a sentence that begins with "the engine"; `next_step` may say
    what to do about it.
    """

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.next_step = next_step


class Silent(Exception):
    """No answer came in time."""


class Broken(Exception):
    """The connection ended before the answer did."""


class Connection(AbstractContextManager["Connection"]):
    """One connection for one request. Only `shut_down` may be called from another thread."""

    def __init__(self, http: HTTPConnection, owner: "Connections") -> None:
        self._http, self._owner = http, owner
        self._socket = http.sock  # http.client forgets it once it knows that the answer is the last
        self._response: HTTPResponse | None = None

    def __exit__(self, *error: object) -> None:
        """Keeps the connection for the next request if the whole answer was read, and closes it otherwise."""
        response = self._response
        if response is not None and response.isclosed() and not response.will_close:
            self._owner.keep(self._http)
            return
        if response is not None:
            response.close()
        self._http.close()

    def ask(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> "Connection":
        """Sends a request and waits for the head of its answer. Raises Silent, Unreachable and Broken."""
        sent = dict(self._owner.headers)
        with _translated_errors():
            encoded: bytes | None = None
            if body is not None:
                encoded = body.encode()
                sent["content-type"] = "application/json"
            sent.update(headers or {})
            self._http.request(method, self._owner.prefix + path, encoded, sent)
            self._response = self._http.getresponse()
        return self

    def shut_down(self) -> None:
        """Ends the request, called from another thread; the requesting thread then raises Broken."""
        with suppress(OSError):  # closed meanwhile
            self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def _answer(self) -> HTTPResponse:
        assert self._response is not None
        return self._response

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def header(self, name: str) -> str | None:
        """A header of the answer; None if it is not there."""
        return self._answer.headers.get(name)

    def read(self) -> bytes:
        """The body of the answer. Raises Silent and Broken."""
        with _translated_errors():
            return self._answer.read()

    def json(self) -> Any:
        """The answer as JSON. Raises Silent, Broken, and ValueError for other text."""
        return json.loads(self.read())

    @property
    def tells_end(self) -> bool:
        """True if the body comes in chunks or with its length, so that a lost end is noticed. False if the closing of
        the connection ends the body, as a server does that dies.
        """
        return self._answer.chunked or self._answer.length is not None

    def lines(self) -> Iterator[str]:
        """Yields the lines of the answer as they come, without their ends. Raises Silent, and Broken if an answer that
        `tells_end` lacks it.
        """
        begun = b""
        with _translated_errors():
            # HTTPResponse.readline takes the lost end of a chunked body for its end; read1 does not.
            for read in iter(self._answer.read1, b""):
                *lines, begun = (begun + read).split(b"\n")
                for line in lines:
                    yield line.rstrip(b"\r").decode()
        if self._answer.length:  # bytes that are missing
            raise Broken
        if begun:
            yield begun.rstrip(b"\r").decode()


class Connections:
    """A thread-safe pool of connections to one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Raises ValueError for an invalid address, Unreachable if the environment sets a proxy that speaks no HTTP,
        MidfillError `engine_refused` for a token that no header can hold.
        """
        self._socket = endpoint.socket
        self._connect_timeout_s = FAR_TIMEOUT_S if endpoint.remote_host else CONNECT_TIMEOUT_S
        url = split_address(endpoint.url or "http://localhost")
        if url is None:
            raise ValueError(f"{endpoint} is no address")
        self._url = url
        self.prefix = self._url.path.rstrip("/") or (endpoint.adapter.root if endpoint.is_outside else "")
        self.headers: dict[str, str] = {}
        if endpoint.token:
            if not endpoint.token.isascii() or not endpoint.token.isprintable():
                message = f"the token for {endpoint} has a character that no token has, such as the end of a line"
                raise MidfillError("engine_refused", message)
            self.headers["authorization"] = f"Bearer {endpoint.token}"
        # Requests to this machine must not pass through a proxy that the environment sets.
        self._proxy = _find_proxy(self._url) if endpoint.remote_host else None
        if self._proxy is not None and self._url.scheme == "http":
            self.prefix = f"http://{self._url.netloc}{self.prefix}"
            self.headers |= _authorize(self._proxy)
        self._idle: list[HTTPConnection] = []
        self._kept_at_s = 0.0  # of the last one, by the clock that counts a sleep of the machine

    def open(self, timeout_s: float = READ_TIMEOUT_S, *, is_new: bool = False) -> Connection:
        """A kept connection, or a new one if none can be used or `is_new`. The timeout holds for each read. Raises
        Unreachable, Silent, and MidfillError `engine_stopped`.
        """
        while self._idle and not is_new:
            with suppress(IndexError):  # another thread was faster
                kept = self._idle.pop()
                is_fresh = time.time() - self._kept_at_s <= MAX_IDLE_S
                if is_fresh and kept.sock is not None and not select.select([kept.sock], [], [], 0)[0]:
                    kept.sock.settimeout(timeout_s)
                    _check_runs(kept.sock)
                    return Connection(kept, self)
                kept.close()  # the other end has closed it, or may just do so
        http = self._connect(min(timeout_s, self._connect_timeout_s))
        http.sock.settimeout(timeout_s)
        _check_runs(http.sock)
        return Connection(http, self)

    def keep(self, http: HTTPConnection) -> None:
        """Keeps a connection open for a later request, or closes it if enough are kept."""
        if len(self._idle) < MAX_IDLE:
            self._idle.append(http)
            self._kept_at_s = time.time()
        else:
            http.close()

    def look_up(self, path: str, body: str | None, timeout_s: float) -> Any:
        """The JSON that a question gets, which is a POST with a body; None without one. Raises nothing."""
        failures = (Unreachable, Silent, Broken, MidfillError, ValueError)
        with suppress(*failures), self.open(timeout_s) as connection:
            answer = connection.ask("GET" if body is None else "POST", path, body)
            return answer.json() if answer.is_success else None
        return None

    def close(self) -> None:
        """Closes the kept connections."""
        while self._idle:
            self._idle.pop().close()

    def _connect(self, timeout_s: float) -> HTTPConnection:
        """A new connection. Raises Silent and Unreachable."""
        http = self._make(timeout_s)
        try:
            http.connect()
        except (TimeoutError, BlockingIOError):  # BlockingIOError: the unix socket's backlog is full
            http.close()
            raise Silent from None
        except (OSError, HTTPException, UnicodeError) as error:  # HTTPException: the proxy speaks no HTTP
            http.close()
            if type(error).__module__ == "ssl":
                next_step = "check whether its address begins with http://"
                if type(error).__name__ == "SSLCertVerificationError":
                    next_step = "set SSL_CERT_FILE to the certificate of its authority"
                raise Unreachable(f"speaks no TLS that is trusted ({error})", next_step) from None
            if self._proxy is not None:
                raise Unreachable("is not reached by the proxy that the environment sets", CHECK_PROXY) from None
            if isinstance(error, (socket.gaierror, UnicodeError)):
                raise Unreachable("is not found by its name", "check the name and the network") from None
            raise Unreachable("is not running") from None
        return http

    def _make(self, timeout_s: float) -> HTTPConnection:
        """A connection that is not opened yet: to the unix socket, to the proxy, or to the host itself."""
        if self._socket is not None:
            return _UnixConnection(self._socket, timeout_s)
        kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        assert self._url.hostname is not None
        proxy = self._proxy
        if proxy is None:
            return kind(self._url.hostname, self._url.port, timeout=timeout_s)
        assert proxy.hostname is not None
        http = kind(proxy.hostname, proxy.port or 80, timeout=timeout_s)
        if kind is HTTPSConnection:
            http.set_tunnel(self._url.hostname, self._url.port, _authorize(proxy))
        return http


class _UnixConnection(HTTPConnection):
    """An HTTP connection over the unix socket at a path."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Turns what http.client and sockets raise into Silent, Unreachable and Broken."""
    try:
        yield
    except TimeoutError:
        raise Silent from None
    except InvalidURL:
        raise Unreachable("is not the address of an engine") from None
    except (HTTPException, OSError):
        raise Broken from None


def _find_proxy(url: SplitResult) -> SplitResult | None:
    """The proxy that the environment sets for a URL; None for a direct connection. Raises Unreachable if it speaks no
    HTTP.
    """
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or proxy_bypass(url.netloc.rpartition("@")[2]):
        return None
    proxy = split_address(address if "//" in address else f"http://{address}")
    if proxy is None:  # such as one that speaks SOCKS
        raise Unreachable("cannot be reached by the proxy that the environment sets", CHECK_PROXY)
    return proxy


def _authorize(proxy: SplitResult) -> dict[str, str]:
    """The header with the user's name and password for a proxy; empty if its address has none."""
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _check_runs(connection: socket.socket) -> None:
    """Closes a connection and raises MidfillError `engine_stopped` if the process at its other end is stopped, by
    SIGSTOP or a debugger. Nothing happens where /proc or the socket does not tell, as for TCP.
    """
    if not hasattr(socket, "SO_PEERCRED") or connection.family != socket.AF_UNIX:
        return
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return
    if state in "Tt":
        connection.close()
        next_step = f"continue it with `kill -CONT {pid}`, or end it with `kill -9 {pid}`"
        raise MidfillError("engine_stopped", f"the engine (process {pid}) is stopped", next_step)
