"""No byte sequence makes the reader wait for ever or lose the message behind it."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midfill_lsp.frames import MAX_BODY_BYTES, BadFrame, FrameParser

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


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", MALFORMED)
def test_the_message_behind_a_malformed_frame_arrives(name: str, chunk_bytes: int) -> None:
    stream = MALFORMED[name] + frame(BODY)
    chunk_bytes = max(chunk_bytes, len(stream) // 2000)
    parser = FrameParser()
    chunks = [stream[start : start + chunk_bytes] for start in range(0, len(stream), chunk_bytes)]
    found = [item for chunk in chunks for item in parser.feed(chunk)]
    assert found[-1] == GOOD
    assert sum(isinstance(item, BadFrame) for item in found) >= 1
    assert list(parser.feed(frame(BODY))) == [GOOD], "nothing is left over"


@pytest.mark.parametrize("head", [
    b"Content-Length: %d\r\n\r\n", b"content-length:%d\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n",
    b"Content-Length: %d\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n",
    b"Content-Type: application/vscode-jsonrpc\r\nContent-Length: %d\r\n\r\n",
])  # fmt: skip
def test_good_heads(head: bytes) -> None:
    assert list(FrameParser().feed((head % len(BODY) + BODY) * 3)) == [GOOD] * 3


def test_text_that_looks_like_a_header_is_just_text() -> None:
    body = json.dumps({"text": "Content-Length: 3\r\n\r\nabc" * 50, "more": "é" * 100}, ensure_ascii=False).encode()
    assert list(FrameParser().feed(frame(body) + frame(BODY))) == [json.loads(body), GOOD]


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200), st.randoms(use_true_random=False))
def test_random_bytes_never_hide_what_follows(garbage: bytes, source: random.Random) -> None:
    stream = garbage + frame(BODY) + frame(BODY)
    parser = FrameParser()
    found = []
    while stream:
        cut = source.randint(1, len(stream))
        found += list(parser.feed(stream[:cut]))
        stream = stream[cut:]
    assert found[-1] == GOOD


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from([*MALFORMED.values(), frame(BODY)]), max_size=5))
def test_any_mixture_ends_in_the_good_frame(frames: list[bytes]) -> None:
    assert list(FrameParser().feed(b"".join(frames) + frame(BODY)))[-1] == GOOD
