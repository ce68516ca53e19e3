"""Text to token ids and back with a published checkpoint's own tokenizer files. Knows bytes; runs no code of theirs.

Text never becomes a special token: the added tokens are taken out of the encoder, and only ids stand for them. Nor is
it brought into a Unicode normal form, whatever the checkpoint's authors did: a kept text must come back as it was.
"""

import json
from typing import Any, Final

import tokenizers

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.tokens.tokenizer import Tokenizer

# Qwen2's pieces, for checkpoints that ship vocab.json and merges.txt only (Dream). Digits stand singly.
QWEN_PIECES: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UNICODE_FORMS: Final = frozenset({"NFC", "NFD", "NFKC", "NFKD"})


class HubTokenizer(Tokenizer):
    def __init__(self, files: CheckpointFiles, vocab_size: int) -> None:
        """Raises CheckpointError."""
        serialized = json.dumps(_without_added_tokens(files.tokenizer)) if files.tokenizer else _from_merges(files)
        try:
            super().__init__(serialized, vocab_size, frozenset(files.added_tokens.values()))
        except ValueError as error:
            raise CheckpointError(f"The tokenizer in {files.folder} cannot be read: {error}") from error
        if self._inner.get_vocab_size() > vocab_size:
            raise CheckpointError(f"The tokenizer in {files.folder} has more tokens than its model.")


def _without_added_tokens(values: dict[str, Any]) -> dict[str, Any]:
    normalizer = _without_unicode_forms(values.get("normalizer"))
    plain = {"added_tokens": [], "normalizer": normalizer, "post_processor": None, "truncation": None, "padding": None}
    return {**values, **plain}


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
    pairs = (line.partition(" ") for line in lines if not line.startswith("#version"))
    merges = [(left, right) for left, _, right in pairs if right]
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(QWEN_PIECES), behavior="isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    inner.decoder = tokenizers.decoders.ByteLevel()
    return str(inner.to_str())
