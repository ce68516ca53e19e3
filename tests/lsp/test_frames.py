"""No byte sequence makes the reader wait for ever or lose the message behind it."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lsp.frames import BODY, GOOD, MALFORMED, frame

from midfill_lsp.frames import BadFrame, FrameParser


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
def test_valid_headers_of_every_spelling_are_read(head: bytes) -> None:
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
