"""The tokenizer: nothing is lost, nothing special can be typed, no token crosses a line break."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.tiny import build_tokenizer, decode

from midfill_engine.checkpoint_files import CheckpointError
from midfill_engine.loading.runtime import WEIGHTS
from midfill_engine.tokens.tokenizer import SPECIAL_TOKENS, Tokenizer, heal, read_embedded_tokenizer

PARTS = [*"ab_1 \n\t()[]:=.\r", "é", "☃", "\u2028", "<|mask|>"]
CODE = st.lists(st.sampled_from(PARTS), max_size=60).map("".join)
SHARED = build_tokenizer([("Ġ", "a"), ("Ċ", "Ġ"), ("ĊĠ", "Ġ"), ("a", "b")])


@given(st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), CODE))
def test_round_trip(text: str) -> None:
    assert decode(SHARED, SHARED.encode(text)) == text


def test_lone_surrogate_does_not_fail() -> None:
    assert decode(SHARED, SHARED.encode("a\ud800b")) == "a?b"


@given(st.lists(st.sampled_from(SPECIAL_TOKENS), max_size=4).map(" x".join))
def test_text_never_becomes_special(text: str) -> None:
    assert all(index >= len(SPECIAL_TOKENS) for index in SHARED.encode(text))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return read_embedded_tokenizer(WEIGHTS / "embedded/tokenizer.json")


def test_no_token_crosses_a_line_break(tokenizer: Tokenizer) -> None:
    pieces = [tokenizer.token_bytes(index) for index in range(tokenizer.vocab_size)]
    with_break = [piece for piece in pieces if b"\n" in piece]
    assert len(with_break) > 1
    assert all(piece.startswith(b"\n") and not piece.strip() and piece.count(b"\n") == 1 for piece in with_break)


def test_digits_go_two_at_a_time(tokenizer: Tokenizer) -> None:
    assert max(len(decode(tokenizer, [index]).strip()) for index in tokenizer.encode("= 123456")) <= 2


def test_foreign_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no readable tokenizer"):
        read_embedded_tokenizer(tmp_path / "missing.json")
    with pytest.raises(CheckpointError, match="cannot be read"):
        (tmp_path / "empty.json").write_text("{}")
        read_embedded_tokenizer(tmp_path / "empty.json")


@given(CODE, CODE, CODE)
def test_healing_keeps_the_document(prefix: str, middle: str, suffix: str) -> None:
    healed = heal(prefix, suffix)
    if not middle.endswith(healed.tail):
        return
    fill = healed.lead + middle.removesuffix(healed.tail)
    assert healed.prefix + fill + healed.suffix == prefix + middle + suffix
    assert fill[len(healed.lead) :] + healed.tail == middle


def test_healing_gives_space_to_the_hole() -> None:
    assert heal("x = ", "\n").lead == " "
    assert heal("f:\n    ", "\n").lead == ""
    assert heal("f:\n", "    b").suffix == "\n    b"
