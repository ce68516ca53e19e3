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
from midfill_infill.text.spans import Edit, Patch, merge_spans


@dataclass(frozen=True)
class Check:
    """Compares the new text of a change with the text that repeats of the change make of it."""

    language: Language
    change: Change
    trees: Trees

    def adds_no_error(self, edits: Sequence[Edit]) -> bool:
        """True if the edits, in document order, add no syntax error that grammar, rules or compiler find."""
        source = self.change.new.source
        old_spans: list[Span] = []
        new_spans: list[Span] = []
        shift = 0
        for edit in edits:
            old_spans.append(Span(edit.start_byte, edit.end_byte))
            start = edit.start_byte + shift
            new_spans.append(Span(start, start + len(edit.replacement)))
            shift += edit.growth
        edited = Patch(tuple(edits)).apply(source)
        changes = list(zip(old_spans, new_spans, strict=True))
        tree = parse_again(self.language, edited, self.trees.new, source, changes)

        problems_before, _ = find_problems(self.language, source, tuple(old_spans), self.trees.new)
        problems, _ = find_problems(self.language, edited, tuple(new_spans), tree)
        if len(problems) > len(problems_before):
            return False
        if count_misplaced(self.language, tree) > self._num_misplaced:
            return False
        return self._still_compiles(edited, edits)

    def keeps_line_ends(self, edit: Edit) -> bool:
        """True if an edit adds no more line breaks that end a statement than the change did."""
        tokens = self.change.new
        span = Span(edit.start_byte, edit.end_byte)
        num_before = _count_line_ends(self.language, tokens, span)
        num_after = _count_line_ends(self.language, tokens, span, edit.replacement)
        return num_after - num_before <= self._num_added_line_ends

    @cached_property
    def _num_added_line_ends(self) -> int:
        """How many line breaks that end a statement the change added."""
        old, new = self.change.old, self.change.new
        num_before = _count_line_ends(self.language, old, old.around(self.change.old_span))
        num_after = _count_line_ends(self.language, new, new.around(self.change.new_span))
        return max(0, num_after - num_before)

    @cached_property
    def _num_misplaced(self) -> int:
        """How many misplaced nodes the new text has without the edits."""
        return count_misplaced(self.language, self.trees.new)

    def _still_compiles(self, edited: bytes, edits: Sequence[Edit]) -> bool:
        """True if the outermost statements at the edits compile in the `edited` text, or did not before. An edit
        between two statements is at both.
        """
        if self.language.compiles is None:
            return True
        source = self.change.new.source
        statements = [node.byte_range for node in self.trees.new.root_node.children if not node.is_extra]
        touched: list[tuple[int, int]] = []
        for edit in edits:
            start = max((start for start, _ in statements if start <= edit.start_byte), default=0)
            end = min((end for _, end in statements if end >= edit.end_byte), default=len(source))
            touched.append((start, end))
        for start, end in merge_spans(touched):
            edited_start = start + sum(edit.growth for edit in edits if edit.start_byte < start)
            edited_end = end + sum(edit.growth for edit in edits if edit.start_byte <= end)
            if not self.language.accepts(edited[edited_start:edited_end]) and self.language.accepts(source[start:end]):
                return False
        return True


def _count_line_ends(language: Language, tokens: Tokens, span: Span, replacement: bytes | None = None) -> int:
    """How many line breaks end a statement between the tokens around `span`, whose bytes may have a `replacement`."""
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

    text_tokens = Tokens(text)
    outer_opener = tokens.openers[first]
    num_ends = 0
    for number in range(1, len(text_tokens)):
        if b"\n" not in text_tokens.white(number):
            continue
        bracket = b""
        opener = text_tokens.openers[number]
        if opener is not None:
            bracket = text_tokens.texts[opener]
        elif outer_opener is not None:
            bracket = tokens.texts[outer_opener]
        if bracket in language.joining_brackets:
            continue
        before = text_tokens.source_of(Span(max(0, number - 2), number))
        around_break = before.replace(b"\n", b" ") + b"\n" + text_tokens.texts[number]
        if re.search(language.line_end, around_break):
            num_ends += 1
    return num_ends
