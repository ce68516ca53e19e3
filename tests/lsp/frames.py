"""Frames of a language server's protocol, good and malformed."""

import json

from midfill_lsp.frames import MAX_BODY_BYTES

GOOD = {"jsonrpc": "2.0", "id": 7, "method": "shutdown"}

BODY = json.dumps(GOOD).encode()


def frame(body: bytes, length: object = None) -> bytes:
    return b"Content-Length: %b\r\n\r\n%b" % (str(len(body) if length is None else length).encode(), body)


# What comes on the wire before a good frame, and whether it is reported.
MALFORMED = {
    "length is a word": b"Content-Length: abc\r\n\r\n" + BODY,
    "length is negative": frame(BODY, -5),
    "length is huge": frame(BODY, 10**12),
    "length has too many digits": frame(BODY, "9" * 400),
    "length is just over the bound": frame(BODY, MAX_BODY_BYTES + 1),
    "length is zero": frame(b""),
    "length is missing": b"Content-Type: x\r\n\r\n" + BODY,
    "length is empty": b"Content-Length: \r\n\r\n" + BODY,
    "length is a float": frame(BODY, "12.5"),
    "length is hexadecimal": frame(BODY, "0x20"),
    "length is too small": frame(BODY, 5),
    "length is a little too large": frame(BODY, len(BODY) + 3),
    "length is too large": frame(BODY, len(BODY) + 50),
    "length is far too large": frame(BODY, 9999),
    "blank line is missing": b"Content-Length: 20\r\n" + BODY,
    "blank line is a line feed": b"Content-Length: 20\n\n" + BODY,
    "header has no colon": b"hello world\r\n\r\n",
    "header is binary": b"\x00\xff\xfe\r\n\r\n",
    "header is very long": b"X-Pad: " + b"y" * 100_000 + b"\r\n\r\n",
    "an http request": b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
    "body is no json": frame(b"{nope}"),
    "body is cut": frame(BODY, len(BODY))[:-10],
    "body is not utf-8": frame(b'{"a": "\xff\xfe"}'),
    "body is utf-16": frame('{"a": 1}'.encode("utf-16")),
    "body has a byte order mark": frame(b"\xef\xbb\xbf{}"),
    "body is NaN": frame(b'{"a": NaN}'),
    "body is null": frame(b"null"),
    "body is nested too deeply": frame(b"[" * 100_000),
    "body has a raw blank line": frame(b'{"a":\r\n\r\n'),
    "two lengths": b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n" + BODY,
}
