"""Text to token ids and back for the embedded family. Knows bytes and pieces, nothing about models or training."""

import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

import tokenizers

from midfill_engine.tokens.special import BOS, EOS, SPECIAL_TOKENS

# What one token may come from. A line break and its indent are one piece of nothing but white space, so no token has
# text from both sides of a line break; a word or a run of marks takes the one space before it; digits go by twos.
PIECE_PATTERN: Final = r"\n *| ?[^\W\d]\w*| ?\d{1,2}| ?[^\s\w]+|\t+| +(?= )|\s"
LONG_TEXT: Final = 4096  # characters from which a text is encoded without holding the interpreter
LANGUAGE_TOKENS: Final = {"python": 6, "javascript": 7, "typescript": 8}


class TokenizerError(ValueError):
    """A tokenizer file that cannot be used; the message is one sentence."""


@cache
def byte_of_character() -> dict[str, int]:
    """The character by which byte-level BPE files (GPT-2's convention) write each of the 256 bytes, and the byte."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    characters = [chr(byte) for byte in printable] + [chr(256 + index) for index in range(len(others))]
    return dict(zip(characters, printable + others, strict=True))


@dataclass(frozen=True)
class HealedEdges:
    """The text around a hole as the model reads it. The model's fill is `lead` + the user's fill without `tail`.

    So a fill must begin with `lead`; what the user gets is `fill[len(lead):] + tail`.
    """

    prefix: str
    suffix: str
    lead: str = ""
    tail: str = ""


def heal(prefix: str, suffix: str) -> HealedEdges:
    """Moves white space at a hole's edges so that text and fill are tokenised as if there were no edge.

    Tokens carry the space before them: `x = ` is read as `x =`, and the fill begins with a space. A line break and its
    indent are one token: a hole from the start of a line to the start of an indented line is read as one from the end
    of the line before to the end of its own last line.
    """
    kept = prefix.rstrip(" ")
    if kept != prefix and kept and kept[-1] not in "\n\t":
        return HealedEdges(kept, suffix, lead=prefix[len(kept) :])
    if not prefix.endswith("\n"):
        return HealedEdges(prefix, suffix)
    if suffix.startswith(("  ", "\t")):
        return HealedEdges(prefix[:-1], "\n" + suffix, lead="\n", tail="\n")
    return HealedEdges(prefix[:-1], suffix, lead="\n")


def opening_ids(language: str | None) -> list[int]:
    """The ids before a document's first token: the language where it is one of the known three, then BOS."""
    return [LANGUAGE_TOKENS[language], BOS] if language in LANGUAGE_TOKENS else [BOS]


def closing_ids() -> list[int]:
    """The ids after a document's last token."""
    return [EOS]


class Tokenizer:
    """Byte-level BPE whose first ids are `SPECIAL_TOKENS`, which no text can produce."""

    def __init__(self, serialized: str) -> None:
        """Raises TokenizerError where `serialized` (the JSON of the `tokenizers` library) is not such a tokenizer."""
        try:
            self._inner = tokenizers.Tokenizer.from_str(serialized)
        except Exception as error:
            raise TokenizerError(f"The tokenizer file cannot be read: {error}") from error
        if [self._inner.id_to_token(index) for index in range(len(SPECIAL_TOKENS))] != list(SPECIAL_TOKENS):
            raise TokenizerError("The tokenizer's first ids are not the embedded family's special tokens.")
        if self._inner.get_added_tokens_decoder():
            raise TokenizerError("The tokenizer has added tokens, which text in a file could imitate.")
        self._serialized = serialized

    @classmethod
    def read(cls, path: Path) -> "Tokenizer":
        try:
            return cls(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise TokenizerError(f"There is no readable tokenizer at {path}.") from error

    def write(self, path: Path) -> None:
        path.write_text(self._serialized, encoding="utf-8")

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self._serialized.encode()).hexdigest()

    @property
    def vocab_size(self) -> int:
        return int(self._inner.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """Ids without special tokens. Lone surrogates, which no file can hold, become question marks."""
        return encode_freely(self._inner, _without_surrogates(text))

    def decode(self, ids: list[int]) -> str:
        """The text of `ids`; specials have none, bytes that are no UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: list[int]) -> bytes:
        table = self._bytes_table
        return b"".join(table[index] for index in ids)

    def token_bytes(self, index: int) -> bytes:
        """The bytes of one token, empty for specials. May be a part of a UTF-8 character."""
        return self._bytes_table[index]

    @cached_property
    def _bytes_table(self) -> list[bytes]:
        byte_of = byte_of_character()
        table = [b""] * len(SPECIAL_TOKENS)
        for index in range(len(SPECIAL_TOKENS), self.vocab_size):
            characters = self._inner.id_to_token(index)
            assert characters is not None
            table.append(bytes(byte_of[character] for character in characters))
        return table


def encode_freely(inner: tokenizers.Tokenizer, text: str) -> list[int]:
    """The ids of `text`. For a batch, even of one, the library lets other threads run meanwhile."""
    if len(text) < LONG_TEXT:
        return inner.encode(text, add_special_tokens=False).ids
    return inner.encode_batch_fast([text], add_special_tokens=False)[0].ids


def _without_surrogates(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", errors="replace").decode("utf-8")


def build(merges: list[tuple[str, str]]) -> Tokenizer:
    """A tokenizer of the specials, the 256 bytes and one token a merge (in `tokenizers`' byte-level characters)."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL_TOKENS, *sorted(byte_of_character())))}
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    inner.pre_tokenizer = pre_tokenizer()
    inner.decoder = tokenizers.decoders.ByteLevel()
    return Tokenizer(inner.to_str())


def pre_tokenizer() -> tokenizers.pre_tokenizers.PreTokenizer:
    return tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(PIECE_PATTERN), behavior="isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
