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
        source = self.change.new.source
        old: list[Span] = []
        new: list[Span] = []
        shift = 0
        for edit in edits:
            old.append(Span(edit.start_byte, edit.end_byte))
            start = edit.start_byte + shift
            new.append(Span(start, start + len(edit.replacement)))
            shift += edit.growth
        changed = Patch(tuple(edits)).apply(source)
        changes = list(zip(old, new, strict=True))
        tree = parse_again(self.language, changed, self.trees.new, source, changes)

        known, _ = find_problems(self.language, source, tuple(old), self.trees.new)
        problems, _ = find_problems(self.language, changed, tuple(new), tree)
        if len(problems) > len(known):
            return False
        if count_misplaced(self.language, tree) > self._num_misplaced:
            return False
        return self._compiles(changed, edits)

    def keeps_line_ends(self, edit: Edit) -> bool:
        """True if an edit ends no more statements by line breaks than the change did."""
        tokens = self.change.new
        span = Span(edit.start_byte, edit.end_byte)
        was = _count_line_ends(self.language, tokens, span)
        now = _count_line_ends(self.language, tokens, span, edit.replacement)
        return now - was <= self._num_line_ends

    @cached_property
    def _num_line_ends(self) -> int:
        """How many more statements the change ends by line breaks than before."""
        old, new = self.change.old, self.change.new
        was = _count_line_ends(self.language, old, old.around(self.change.old_span))
        now = _count_line_ends(self.language, new, new.around(self.change.new_span))
        return max(0, now - was)

    @cached_property
    def _num_misplaced(self) -> int:
        """What the rules of the language find in the new text already."""
        return count_misplaced(self.language, self.trees.new)

    @cached_property
    def _units(self) -> list[tuple[int, int]]:
        """What is compiled: the whole text, or the outermost statements if it does not compile."""
        source = self.change.new.source
        if self._takes(source):
            return [(0, len(source))]
        return [statement.byte_range for statement in self.trees.new.root_node.children]

    def _compiles(self, changed: bytes, edits: Sequence[Edit]) -> bool:
        """True if all that compiled and that an edit touches still does."""
        if self.language.compiles is None:
            return True
        source = self.change.new.source
        for start, end in self._units:
            if not any(start <= edit.start_byte <= end for edit in edits):
                continue
            first, last = start, end
            for edit in edits:
                if edit.start_byte < start:
                    first += edit.growth
                if edit.end_byte <= end:
                    last += edit.growth
            if not self._takes(changed[first:last]) and self._takes(source[start:end]):
                return False
        return True

    def _takes(self, source: bytes) -> bool:
        assert self.language.compiles is not None
        return self.language.compiles(source.decode("utf-8", "replace"))


def _count_line_ends(language: Language, tokens: Tokens, span: Span, replacement: bytes | None = None) -> int:
    """Line breaks that end a statement, within some bytes or their replacement and between the tokens around them."""
    if language.line_end is None:
        return 0
    first = max(0, tokens.at(span.start) - 1)
    last = min(tokens.at(span.end), len(tokens) - 1)
    start = tokens.spans[first].start
    end = tokens.spans[last].end
    text = tokens.source[start:end]
    if replacement is not None:
        head = tokens.source[start : span.start]
        tail = tokens.source[span.end : end]
        text = head + replacement + tail

    there = Tokens(text)
    outer = tokens.openers[first]
    num_ends = 0
    for number in range(1, len(there)):
        if b"\n" not in there.white(number):
            continue
        bracket = b""
        opener = there.openers[number]
        if opener is not None:
            bracket = there.texts[opener]
        elif outer is not None:
            bracket = tokens.texts[outer]
        if bracket in language.joins_lines:
            continue
        before = there.source_of(Span(max(0, number - 2), number))
        near = before.replace(b"\n", b" ") + b"\n" + there.texts[number]
        if re.search(language.line_end, near):
            num_ends += 1
    return num_ends
