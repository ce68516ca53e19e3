"""Fits an answer to its hole in a document without a grammar: what it repeats of the lines around it, and its
indentation. No parser can tell here which reading is right, so only what is plain is changed.
"""

import re
from pathlib import PurePath
from typing import Final

from midfill_infill.answers.draft import ADDED, DraftText, join
from midfill_infill.answers.overlaps import Before, Behind, cut_head, cut_tail
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

_LONG_LINE: Final = 8  # characters of a line that an answer hardly repeats by chance
_CLOSING: Final = re.compile(r"[)\]}]|</[\w-]+")
_OPENER_OF: Final = {")": "(", "]": "[", "}": "{"}
_PROSE: Final = (".md", ".markdown", ".mdx", ".rst", ".txt", ".adoc", ".asciidoc", ".rmd", ".qmd")
# Files of code, unlike others with a name in capitals: README, CHANGELOG, NOTICE.
_BUILDS: Final = ("BUILD", "WORKSPACE")


def is_prose(path: PurePath | None) -> bool:
    """True for a file whose name tells that people read it as text."""
    if path is None:
        return False
    return path.suffix.lower() in _PROSE or (path.name.isupper() and not path.suffix and path.name not in _BUILDS)


def cut_repeated_above(document: Document, hole: Hole, answer: DraftText) -> DraftText:
    """The answer without first lines that repeat the lines above its hole, if one of them is long."""
    before = Before.at(document, hole)
    cut_and_telling = None if before.start.strip() else cut_head(answer, before)
    if cut_and_telling is None:
        return answer
    cut, is_telling = cut_and_telling
    repeated = answer.text[: len(answer.text) - len(cut.text)]
    return cut if is_telling and _has_long_line(repeated) else answer


def cut_repeated_below(document: Document, hole: Hole, draft: DraftText) -> DraftText:
    """The draft without last lines that repeat the lines below its hole, if one of them is long."""
    behind = Behind.at(document, hole)
    if behind.rest.strip():
        return draft
    for cut, is_telling in cut_tail(draft, behind):
        if is_telling and _has_long_line(draft.text[len(cut.text) :]):
            return cut
    return draft


def move_to_hole(draft: DraftText, indent: str) -> DraftText:
    """The draft with `indent` before all lines but the first, if it is written from column 0. It is not if a line
    there closes what stands above the hole, or if other lines have the tabs of the hole.
    """
    first, *later = draft.lines()
    filled = [line.text for line in later if line.text.strip()]
    if not indent or all(text[0].isspace() for text in filled) or _closes_outer(draft):
        return draft
    if "\t" in indent and any(text.startswith("\t") for text in filled):
        return draft
    added = DraftText(indent, (ADDED,) * len(indent))
    return join([first, *(added + line if line.text.strip() else line for line in later)])


def _closes_outer(draft: DraftText) -> bool:
    """True if a line in column 0 begins with a closing bracket or tag that the draft does not open above."""
    before = ""
    for line in draft.lines():
        closing = _CLOSING.match(line.text)
        if closing is not None:
            closer = closing.group()
            opener = _OPENER_OF.get(closer, closer.replace("/", ""))
            if before.count(opener) <= before.count(closer):
                return True
        before += line.text
    return False


def _has_long_line(text: str) -> bool:
    """True if a line is so long that it is hardly repeated by chance."""
    return any(len(line.strip()) >= _LONG_LINE for line in text.split("\n"))
