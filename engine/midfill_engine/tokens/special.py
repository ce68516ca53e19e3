"""The special tokens of every embedded tokenizer, and their ids. Knows no text."""

from typing import Final

# The first ids of every embedded tokenizer, in this order. Saved with the tokenizer and checked at load.
SPECIAL_TOKENS: Final = (
    "<|pad|>", "<|mask|>", "<|eos|>", "<|del|>", "<|exp|>", "<|bos|>",
    "<|python|>", "<|javascript|>", "<|typescript|>",
    "<|spare0|>", "<|spare1|>", "<|spare2|>", "<|spare3|>", "<|spare4|>", "<|spare5|>", "<|spare6|>",
)  # fmt: skip
PAD, MASK, EOS, DELETE, EXPAND, BOS = range(6)
