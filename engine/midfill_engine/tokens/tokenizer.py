"""Text to token ids and back, and white space at a hole's edges. Knows bytes and pieces; no models, no training."""

import json
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import tokenizers

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles

# The first ids of every embedded tokenizer, in this order. Saved with the tokenizer and checked at load.
SPECIAL_TOKENS: Final = (
    "<|pad|>", "<|mask|>", "<|eos|>", "<|del|>", "<|exp|>", "<|bos|>",
    "<|python|>", "<|javascript|>", "<|typescript|>",
    "<|spare0|>", "<|spare1|>", "<|spare2|>", "<|spare3|>", "<|spare4|>", "<|spare5|>", "<|spare6|>",
)  # fmt: skip
PAD, MASK, EOS, DELETE, EXPAND, BOS = range(6)
SPACE_MARK: Final = "\u2581"  # how sentencepiece writes a space
LONG_TEXT: Final = 4096  # texts of at least so many characters are encoded without the GIL
LANGUAGE_TOKENS: Final = {"python": 6, "javascript": 7, "typescript": 8}
# Where Qwen2 cuts text, for checkpoints that ship vocab.json and merges.txt only (Dream). Each digit stands alone.
QWEN_PIECES: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PLAIN_BYTES: Final = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
UNICODE_FORMS: Final = frozenset({"NFC", "NFD", "NFKC", "NFKD"})


@cache
def byte_of_character() -> dict[str, int]:
    """Maps the character for a byte in byte-level BPE files (GPT-2's convention) to the byte, for all 256 bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    unprintable = [byte for byte in range(256) if byte not in set(printable)]
    characters = [chr(byte) for byte in printable] + [chr(256 + index) for index in range(len(unprintable))]
    return dict(zip(characters, printable + unprintable, strict=True))


@dataclass(frozen=True)
class HealedEdges:
    """The texts around a hole as the model reads them. Of its `fill` the user gets `fill[len(lead):] + tail`."""

    prefix: str
    suffix: str
    lead: str = ""
    tail: str = ""


def heal(prefix: str, suffix: str) -> HealedEdges:
    """Moves white space at a hole's edges so that text and fill are tokenized as if there were no edge.

    Tokens include the space before them, so `x = ` is read as `x =` and the fill begins with a space. A line break and
    the indentation behind it are one token, so a hole that begins at a line start begins with the line break before it;
    and if an indented line follows the hole, that line's break moves out of the hole.
    """
    stripped = prefix.rstrip(" ")
    if stripped != prefix and stripped and stripped[-1] not in "\n\t":
        return HealedEdges(stripped, suffix, lead=prefix[len(stripped) :])
    if not prefix.endswith("\n"):
        return HealedEdges(prefix, suffix)
    if suffix.startswith(("  ", "\t")):
        return HealedEdges(prefix[:-1], "\n" + suffix, lead="\n", tail="\n")
    return HealedEdges(prefix[:-1], suffix, lead="\n")


class Tokenizer:
    """Text to ids below `vocab_size`, and the bytes of every id; ids of `special` tokens and unused ones have none."""

    def __init__(self, serialized: str, vocab_size: int | None = None, special: frozenset[int] = frozenset()) -> None:
        """Raises ValueError if `serialized` is not the JSON of the `tokenizers` library."""
        try:
            self._inner = tokenizers.Tokenizer.from_str(serialized)
        except Exception as error:  # the library raises a bare Exception
            raise ValueError(str(error)) from error
        self.serialized = serialized
        self.vocab_size = int(self._inner.get_vocab_size()) if vocab_size is None else vocab_size
        self._special = special

    def encode(self, text: str) -> list[int]:
        """Ids without special tokens. Lone surrogates, which no file can hold, become question marks."""
        clean = text if text.isascii() else text.encode("utf-8", errors="replace").decode("utf-8")
        if len(clean) < LONG_TEXT:
            return self._inner.encode(clean, add_special_tokens=False).ids
        # For a batch, even of one text, the library releases the GIL.
        return self._inner.encode_batch_fast([clean], add_special_tokens=False)[0].ids

    def token_bytes(self, index: int) -> bytes:
        """The bytes of one token, empty for specials. May be a part of a UTF-8 character."""
        return self._bytes_table[index]

    @cached_property
    def _bytes_table(self) -> list[bytes]:
        table, is_byte_level = [b""] * self.vocab_size, '"ByteLevel"' in self.serialized
        for text, index in self._inner.get_vocab(with_added_tokens=False).items():
            if index not in self._special and index < self.vocab_size:
                table[index] = bytes_of_level(text) if is_byte_level else bytes_of_piece(text)
        return table


def bytes_of_level(text: str) -> bytes:
    """The bytes of a token of byte-level BPE, which is written with one character for each byte. A character that
    stands for no byte becomes its UTF-8.
    """
    byte_of = byte_of_character()
    try:
        return bytes([byte_of[character] for character in text])
    except KeyError:
        parts = (bytes([byte_of[character]]) if character in byte_of else character.encode() for character in text)
        return b"".join(parts)


def bytes_of_piece(text: str) -> bytes:
    """The bytes of a token of sentencepiece, which writes a byte as `<0x0A>` and a space by a mark."""
    if re.fullmatch(r"<0x[0-9A-F]{2}>", text):
        return bytes.fromhex(text[3:5])
    return text.replace(SPACE_MARK, " ").encode()


def read_embedded_tokenizer(path: Path) -> Tokenizer:
    """Reads byte-level BPE whose first ids are `SPECIAL_TOKENS`, which no text can produce. Raises CheckpointError."""
    try:
        tokenizer = Tokenizer(path.read_text(encoding="utf-8"), special=frozenset(range(len(SPECIAL_TOKENS))))
    except OSError as error:
        raise CheckpointError(f"There is no readable tokenizer at {path}.") from error
    except ValueError as error:
        raise CheckpointError(f"The tokenizer file cannot be read: {error}") from error
    if [tokenizer._inner.id_to_token(index) for index in range(len(SPECIAL_TOKENS))] != list(SPECIAL_TOKENS):
        raise CheckpointError("The tokenizer's first ids are not the embedded family's special tokens.")
    if tokenizer._inner.get_added_tokens_decoder():
        raise CheckpointError("The tokenizer has added tokens, which text in a file could imitate.")
    return tokenizer


def read_hub_tokenizer(files: CheckpointFiles, vocab_size: int) -> Tokenizer:
    """The tokenizer of a published checkpoint. Raises CheckpointError.

    Added tokens are removed, so that text never becomes a special token, and so is Unicode normalization, so that kept
    text comes back unchanged.
    """
    normalizer = _without_unicode_forms(files.tokenizer.get("normalizer"))
    plain = {"added_tokens": [], "normalizer": normalizer, "post_processor": None, "truncation": None, "padding": None}
    serialized = json.dumps(files.tokenizer | plain) if files.tokenizer else _from_merges(files)
    try:
        tokenizer = Tokenizer(serialized, vocab_size, frozenset(files.added_tokens.values()))
    except ValueError as error:
        raise CheckpointError(f"The tokenizer in {files.folder} cannot be read: {error}") from error
    if tokenizer._inner.get_vocab_size() > vocab_size:
        raise CheckpointError(f"The tokenizer in {files.folder} has more tokens than its model.")
    return tokenizer


def _without_unicode_forms(normalizer: Any) -> Any:
    if not isinstance(normalizer, dict) or normalizer.get("type") in UNICODE_FORMS:
        return None
    if normalizer.get("type") != "Sequence":
        return normalizer
    parts = [_without_unicode_forms(part) for part in normalizer.get("normalizers", [])]
    return {**normalizer, "normalizers": [part for part in parts if part is not None]}


def _from_merges(files: CheckpointFiles) -> str:
    """The tokenizer that vocab.json and merges.txt describe, as Qwen2's class builds it. Raises CheckpointError."""
    try:
        vocabulary = json.loads((files.folder / "vocab.json").read_text(encoding="utf-8"))
        lines = (files.folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        message = f"The checkpoint at {files.folder} has neither a tokenizer.json nor vocab.json and merges.txt."
        raise CheckpointError(message) from error
    merges = [line for line in lines if " " in line and not line.startswith("#version")]
    return json.dumps(describe_bpe(vocabulary, merges, split_at(QWEN_PIECES)))


def split_at(pattern: str) -> list[dict[str, Any]]:
    """The pre-tokenizers of a tokenizer.json that cut text into the matches of `pattern` and write its bytes."""
    return [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, PLAIN_BYTES]


def describe_bpe(vocabulary: dict[str, int], merges: list[str], cut: list[dict[str, Any]]) -> dict[str, Any]:
    """The tokenizer.json of byte-level BPE after the pre-tokenizers `cut`, without added tokens."""
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cut},
        "post_processor": None,
        "decoder": PLAIN_BYTES,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }
