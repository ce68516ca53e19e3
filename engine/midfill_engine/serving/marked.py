"""Reads prompts that hold the fill-in-the-middle markers of other models. Knows no route and no model."""

import re
from typing import Final

from midfill_engine.models.fim_names import FIM_NAMES

# Prefix, suffix, middle: of models that the engine serves, and of others by their cards. Codestral has no middle, and
# puts the suffix first.
_MARKS: Final[tuple[tuple[str, ...], ...]] = (
    *(names for names, _ in FIM_NAMES),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<|fim▁begin|>", "<|fim▁hole|>", "<|fim▁end|>"),
    ("<PRE> ", " <SUF>", " <MID>"),
    ("[PREFIX]", "[SUFFIX]"),
)
_OPENING: Final = re.compile(r"\A(?:<s>|<\|endoftext\|>)\s*")
_FILES: Final = re.compile(r"<\|?(?:repo_name|file_sep)\|?>")


def split_prompt(prompt: str) -> tuple[str, str] | None:
    """The text before and behind the hole of a prompt with markers, in whatever order they are; None for a prompt
    without, and for a text that merely mentions some: each marker stands there once, what opens the middle last.
    """
    for marks in _MARKS:
        head, *pieces = re.split(f"({'|'.join(map(re.escape, marks))})", prompt)
        texts = dict(zip(pieces[::2], pieces[1::2], strict=True))
        if sorted(pieces[::2]) != sorted(marks) or pieces[-2] not in (marks[2:] or marks[:1]):
            continue
        head = _OPENING.sub("", _FILES.sub("", head))
        if head and len(marks) < 3:
            continue
        before = head + texts[marks[0]]
        if len(marks) > 2 and texts[marks[2]].strip():  # the middle is begun
            before += texts[marks[2]]
        return before, texts[marks[1]]
    return None
