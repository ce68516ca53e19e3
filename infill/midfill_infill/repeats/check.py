"""Decides whether repeats add a syntax error: by tree, compiler and line ends. Knows no language, no probability."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from midfill_infill.languages import Language
from midfill_infill.repeats.change import Change, Span, Tokens
from midfill_infill.repeats.judge import Trees
from midfill_infill.syntax.problems import find_problems, parse_again
from midfill_infill.syntax.rules import count_misplaced
from midfill_infill.text.spans import Edit, Patch


@dataclass(frozen=True)
class Check:
    """Compares the new text of a change with what edits make of it."""

    language: Language
    change: Change
    trees: Trees

    def adds_none(self, edits: Sequence[Edit]) -> bool:
        """True if the edits, in document order, add no syntax error that grammar, compiler or rules find."""
        source, changes, shift = self.change.new.source, list[tuple[Span, Span]](), 0
        for edit in edits:
            start = edit.start_byte + shift
            changes.append(((edit.start_byte, edit.end_byte), (start, start + len(edit.replacement))))
            shift += edit.growth
        changed = Patch(tuple(edits)).apply(source)
        after = parse_again(self.language, changed, self.trees.new, source, changes)
        old, new = zip(*changes, strict=True)
        known, _ = find_problems(self.language, source, old, self.trees.new)
        problems, _ = find_problems(self.language, changed, new, after)
        return (
            len(problems) <= len(known)
            and count_misplaced(self.language, after) <= self._num_misplaced
            and self._compiles(changed, edits)
        )

    def keeps_line_ends(self, edit: Edit) -> bool:
        """True if an edit ends no more statements by line breaks than the change did."""
        tokens, span = self.change.new, (edit.start_byte, edit.end_byte)
        was, now = (_count_line_ends(self.language, tokens, span, text) for text in (None, edit.replacement))
        return now - was <= self._num_line_ends

    @cached_property
    def _num_line_ends(self) -> int:
        """How many more statements the change ends by line breaks than before."""
        old, new = self.change.old, self.change.new
        spans = old.around(self.change.old_span), new.around(self.change.new_span)
        was, now = (_count_line_ends(self.language, *side) for side in zip((old, new), spans, strict=True))
        return max(0, now - was)

    @cached_property
    def _num_misplaced(self) -> int:
        return count_misplaced(self.language, self.trees.new)

    @cached_property
    def _units(self) -> list[Span]:
        """What is compiled: the whole text, or the outermost statements if it does not compile."""
        source = self.change.new.source
        return (
            [(0, len(source))]
            if self._takes(source)
            else [node.byte_range for node in self.trees.new.root_node.children]
        )

    def _compiles(self, changed: bytes, edits: Sequence[Edit]) -> bool:
        """True if all that compiled and that an edit touches still does."""
        if self.language.compiles is None:
            return True
        for start, end in self._units:
            if any(start <= edit.start_byte <= end for edit in edits):
                first = start + sum(edit.growth for edit in edits if edit.start_byte < start)
                last = end + sum(edit.growth for edit in edits if edit.end_byte <= end)
                if not self._takes(changed[first:last]) and self._takes(self.change.new.source[start:end]):
                    return False
        return True

    def _takes(self, source: bytes) -> bool:
        assert self.language.compiles is not None
        return self.language.compiles(source.decode("utf-8", "replace"))


def _count_line_ends(language: Language, tokens: Tokens, span: Span, replacement: bytes | None = None) -> int:
    """Line breaks that end a statement, within some bytes or their replacement and between the tokens around them."""
    if language.line_end is None:
        return 0
    first, last = max(0, tokens.at(span[0]) - 1), min(tokens.at(span[1]), len(tokens) - 1)
    start, end = tokens.spans[first].start, tokens.spans[last].end
    text = tokens.source[start:end]
    if replacement is not None:
        text = tokens.source[start : span[0]] + replacement + tokens.source[span[1] : end]
    around, there = tokens.openers[first], Tokens(text)
    outer = b"" if around is None else tokens.texts[around]
    found = 0
    for number in range(1, len(there)):
        if b"\n" in there.white(number):
            before, opener = (
                text[there.spans[max(0, number - 2)].start : there.spans[number - 1].end],
                there.openers[number],
            )
            is_joined = (outer if opener is None else there.texts[opener]) in language.joins_lines
            near = before.replace(b"\n", b" ") + b"\n" + there.texts[number]
            found += not is_joined and re.search(language.line_end, near) is not None
    return found
