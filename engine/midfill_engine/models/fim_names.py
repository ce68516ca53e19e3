"""Names of fill-in-the-middle tokens: prefix, suffix, middle; and whether the suffix comes first. Loads no torch."""

from typing import Final

FIM_NAMES: Final = (
    (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), False),
    (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), False),
    (("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), False),
    (("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"), True),
)
