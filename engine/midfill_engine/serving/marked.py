"""Reads prompts that hold fill-in-the-middle markers of any model. Knows no route and no model."""

import re
from typing import Final

from midfill_engine.models.fim_names import FIM_NAMES

# What marks prefix, suffix and middle: for models that the engine serves, and for others as their model cards say.
# Codestral has no marker for the middle, and puts the suffix first.
_MARKERS: Final[tuple[tuple[str, ...], ...]] = (
    *(names for names, _ in FIM_NAMES),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<|fim▁begin|>", "<|fim▁hole|>", "<|fim▁end|>"),
    ("<PRE> ", " <SUF>", " <MID>"),
    ("[PREFIX]", "[SUFFIX]"),
)
_START_OF_TEXT: Final = re.compile(r"\A(?:<s>|<\|endoftext\|>)\s*")
_FILE_MARKERS: Final = re.compile(r"<\|?(?:repo_name|file_sep)\|?>")


def split_prompt(prompt: str) -> tuple[str, str] | None:
    """The text before and behind the hole of a prompt with one model's markers. Each must stand there once, and the one
    before the middle last; None for a prompt without markers, and for one that merely mentions some.
    """
    for markers in _MARKERS:
        head, *pieces = re.split(f"({'|'.join(map(re.escape, markers))})", prompt)
        found_markers, texts = pieces[::2], pieces[1::2]
        last_markers = markers[2:] or markers[:1]
        if sorted(found_markers) != sorted(markers) or found_markers[-1] not in last_markers:
            continue
        text_behind = dict(zip(found_markers, texts, strict=True))
        head = _START_OF_TEXT.sub("", _FILE_MARKERS.sub("", head))
        if head and len(markers) < 3:
            continue
        before = head + text_behind[markers[0]]
        if len(markers) > 2 and text_behind[markers[2]].strip():  # the middle is begun
            before += text_behind[markers[2]]
        return before, text_behind[markers[1]]
    return None
