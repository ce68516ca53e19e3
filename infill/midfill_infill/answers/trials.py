"""Tries candidate texts in the holes of a document and counts syntax errors. Fixes nothing."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import tree_sitter

from midfill_infill.answers.draft import DraftText
from midfill_infill.answers.oddities import Oddities, count_oddities
from midfill_infill.languages import Language
from midfill_infill.syntax.idle import does_nothing, is_comment, is_idle
from midfill_infill.syntax.problems import Span, captures, find_problems, function_end, parse_again
from midfill_infill.syntax.unbound import find_unbound, find_unused
from midfill_infill.text.document import Document
from midfill_infill.text.lines import Lines
from midfill_infill.text.spans import Hole, merge_spans

_NAME = "midfill"
# Lines that stand at the margin whatever is around them: directives of a preprocessor, labels for `goto`.
_OUTDENTED = re.compile(
    r"#\s*(if|ifdef|ifndef|else|elif|endif|define|undef|pragma|include|error)\b|(?!(default|public|protected|private)\b)\w+:\s*$"
)


@dataclass(frozen=True)
class _Content:
    """The content of a hole in a trial, which judges `text`."""

    lead: bytes
    text: bytes
    tail: bytes


@dataclass(frozen=True)
class _Trial:
    """A source with content in every hole. `spans` are the contents, `starts` the parts between the holes."""

    source: bytes
    spans: tuple[Span, ...]
    starts: tuple[int, ...]
    problems: tuple[Span, ...]
    tree: tree_sitter.Tree


class Trials:
    """A document with `holes` in document order. A None draft stands for a harmless mask."""

    def __init__(
        self,
        document: Document,
        language: Language,
        holes: tuple[Hole, ...],
        window: Span | None = None,
        find_near: Callable[[], "Trials | None"] = lambda: None,
    ) -> None:
        """`window` is the part of the source that is parsed; it contains all holes. If the usual masks leave errors,
        those of the trials that `find_near` returns are used, if these have the same holes.
        """
        self.language, self.holes = language, holes
        first, end = window or (0, len(document.source))
        source = document.source[:end]
        ends = [(document.to_source(hole.start_byte), document.to_source(hole.end_byte)) for hole in holes]
        starts = [first, *(end for _, end in ends)]
        stops = [*(start for start, _ in ends), len(source)]
        self._between = [source[start:stop] for start, stop in zip(starts, stops, strict=True)]
        self._originals = [source[start:end] for start, end in ends]
        self._trials: dict[tuple[_Content, ...], _Trial] = {}
        self._alone: dict[int, Trials] = {}
        self._base: _Trial | None = None  # others are parsed incrementally from it
        self._masks = self._find_masks(find_near)
        self._baseline = self._try(self._masks)
        self._base = None if self._baseline.problems else self._baseline
        self._bodies = [self._find_body(index) for index in range(len(holes))]

    @property
    def num_errors(self) -> int:
        """Syntax errors with masks in all holes."""
        return len(self._baseline.problems)

    def _find_masks(self, find_near: Callable[[], "Trials | None"]) -> tuple[_Content, ...]:
        """The mask for each hole that leaves the fewest errors: what a good fill can achieve."""
        names = tuple(_pack(hole, hole.indent * (hole.kind == "line") + _NAME) for hole in self.holes)
        bodies = (_pack(hole, self.language.statement) if hole.is_body else None for hole in self.holes)
        masks = [
            tuple(body or name for body, name in zip(bodies, names, strict=True)),
            names,
            tuple(_Content(b"", original, b"") for original in self._originals),
            tuple(_pack(hole, "") for hole in self.holes),
        ]
        if len(self.holes) == 1 and not self.holes[0].is_body:
            masks += [(_pack(self.holes[0], line),) for line in self.language.openings]
        self._base = self._try(masks[0])
        likely = masks[: 3 if _touching(self._base, self._base.problems) else 1]  # other errors stay with any mask
        sound = next((mask for mask in likely if not self._try(mask).problems), None)
        if not sound and (near := find_near()) is not None and near.holes == self.holes:
            return near._masks
        sound = sound or next((mask for mask in masks if not self._try(mask).problems), None)
        return sound or min(masks, key=lambda mask: len(self._try(mask).problems))

    def _try(self, pieces: tuple[_Content, ...]) -> _Trial:
        if pieces not in self._trials:
            self._trials[pieces] = self._parse(pieces)
        return self._trials[pieces]

    def _parse(self, pieces: tuple[_Content, ...]) -> _Trial:
        parts, spans, starts, position = [self._between[0]], [], [0], len(self._between[0])
        for piece, following in zip(pieces, self._between[1:], strict=True):
            start = position + len(piece.lead)
            end = start + len(piece.text)
            position = end + len(piece.tail)
            spans.append((start, end))
            starts.append(position)
            parts += [piece.lead, piece.text, piece.tail, following]
            position += len(following)
        source = b"".join(parts)
        tree = None
        if self._base is not None:
            changes = list(zip(self._pieces_of(self._base.starts), self._pieces_of(starts), strict=True))
            tree = parse_again(self.language, source, self._base.tree, self._base.source, changes)
        problems, tree = find_problems(self.language, source, tuple(spans), tree)
        return _Trial(source, tuple(spans), tuple(starts), tuple(problems), tree)

    def _pieces_of(self, starts: Sequence[int]) -> list[Span]:
        """Spans of the hole contents in a trial; `starts` are the starts of the text between holes."""
        pairs = zip(starts, self._between, starts[1:], strict=False)
        return [(start + len(between), end) for start, between, end in pairs]

    def _find_body(self, index: int) -> tuple[int, int] | None:
        """The function that a body hole must stay in: the number of a part between holes, and an offset in it."""
        if not self.holes[index].is_body:
            return None
        first, last = self._baseline.spans[index]
        functions = captures(self.language, self._baseline.tree, (first, last), "function")
        around = (node.start_byte for node in functions if node.start_byte < first and last <= node.end_byte)
        if (start := max(around, default=None)) is None:
            return None
        stretch = max(number for number, begin in enumerate(self._baseline.starts) if begin <= start)
        return stretch, start - self._baseline.starts[stretch]

    def _pieces(self, drafts: Sequence[DraftText | None]) -> tuple[_Content, ...]:
        return tuple(
            mask
            if draft is None
            else _Content(b"", original, b"")
            if hole.is_body and not draft.text
            else _pack(hole, draft.text)
            for hole, draft, mask, original in zip(self.holes, drafts, self._masks, self._originals, strict=True)
        )

    def _try_alone(self, draft: DraftText, index: int) -> _Trial:
        drafts: list[DraftText | None] = [None] * len(self.holes)
        drafts[index] = draft
        return self._try(self._pieces(drafts))

    def open_alone(self, index: int) -> "Trials":
        """Trials of a body in a function of its own, for a function that does not parse: there the parser reports no
        error for a line that leaves the body.
        """
        if index not in self._alone:
            hole = self.holes[index]
            header = f"def midfill():\n{hole.indent}"
            document = Document(f"{header}pass\n".encode(), self.language.id)
            alone = replace(hole, start_byte=len(header), end_byte=len(header) + 4, anchors=(), lead="", tail="")
            self._alone[index] = Trials(document, self.language, (alone,))
        return self._alone[index]

    def sees_body(self, index: int) -> bool:
        """True if the parser finds the function of a body hole without errors."""
        if (body := self._bodies[index]) is None:
            return False
        start = self._baseline.starts[body[0]] + body[1]
        end = function_end(self.language, self._baseline.tree, start) or self._baseline.spans[index][0]
        return not any(first <= end and last >= start for first, last in self._baseline.problems)

    def count_oddities(self, draft: DraftText, index: int, frozen: frozenset[int]) -> Oddities:
        """Lines of a draft whose indentation contradicts the tree."""
        trial = self._try_alone(draft, index)
        return count_oddities(trial.tree, Lines(trial.source), trial.spans[index], frozen)

    def is_in_text(self, index: int) -> bool:
        """True for a hole inside a comment or a string."""
        start, end = self._baseline.spans[index]
        node = self._baseline.tree.root_node.descendant_for_byte_range(start, end)
        while node is not None and (node.start_byte, node.end_byte) == (start, end):  # the mask itself
            node = node.parent
        is_run = node is not None and node.type == "concatenated_string"  # the mask is a part beside strings
        return node is not None and not is_run and ("comment" in node.type or "string" in node.type)

    def find_unmatched(self, draft: DraftText, index: int) -> int | None:
        """The character of a draft where a brace closes that the draft has not opened."""
        trial = self._try_alone(draft, index)
        start, end = trial.spans[index]
        depth = 0
        for leaf in _leaves(trial.tree.root_node, (start, end)):
            depth += leaf.type.endswith("{") - (leaf.type == "}")
            if depth < 0:
                return len(trial.source[start : leaf.start_byte].decode("utf-8", "replace"))
        return None

    def frozen_lines(self, draft: DraftText, index: int) -> frozenset[int]:
        """Lines of a draft whose start must not change: inside strings, preprocessor lines, labels."""
        lines = draft.lines()
        if len(lines) == 1:
            return frozenset()
        trial = self._try_alone(draft, index)
        strings = captures(self.language, trial.tree, trial.spans[index], "verbatim")
        frozen, position = set(), trial.spans[index][0]
        for number, line in enumerate(lines):
            outdented = not self.language.has_indented_blocks and _OUTDENTED.match(line.text)
            if outdented or any(node.start_byte < position < node.end_byte for node in strings):
                frozen.add(number)
            position += len(line.text.encode("utf-8", "replace"))
        return frozenset(frozen)

    def _escapes(self, trial: _Trial, drafts: Sequence[DraftText | None]) -> list[Span]:
        """For each draft that ends its body too early, the span of its text behind the body."""
        found = []
        for body, span, draft in zip(self._bodies, trial.spans, drafts, strict=True):
            if body is None or draft is None or not draft.text:
                continue
            end = function_end(self.language, trial.tree, trial.starts[body[0]] + body[1])
            outside = trial.source[span[0] if end is None else max(span[0], end) : span[1]]
            lines = filter(None, map(bytes.strip, outside.splitlines()))
            if not all(line.startswith(self.language.comment.encode("ascii")) for line in lines):
                found.append((span[1] - len(outside), span[1]))
        return found

    def count(self, drafts: Sequence[DraftText | None]) -> int:
        """Syntax errors in the whole document, plus bodies that a draft leaves."""
        trial = self._try(self._pieces(drafts))
        return len(trial.problems) + len(self._escapes(trial, drafts))

    def judge(self, drafts: Sequence[DraftText]) -> tuple[int, list[tuple[tuple[int, int], ...]]]:
        """Number of errors that the drafts add, and for each hole the error ranges in the engine's text. Extra errors
        inside the holes count too: an error may absorb one of the file's own.
        """
        trial = self._try(self._pieces(drafts))
        problems = [*trial.problems, *self._escapes(trial, drafts)]
        known = self._baseline.problems
        inside = _touching(trial, problems) - _touching(self._baseline, known)
        added = max(0, len(problems) - len(known), inside)
        if not added:
            return 0, [()] * len(drafts)
        ranges = [_blame(draft, span, problems) for draft, span in zip(drafts, trial.spans, strict=True)]
        if not any(ranges):
            ranges = [((0, max(draft.origins) + 1),) if draft.text else () for draft in drafts]
        return added, ranges

    def find_needs(self, index: int) -> dict[str, list[str]]:
        """The `names` that the code up to the next hole needs, and the `unused` ones before it; {} in broken code."""
        known, (span, *following) = self._baseline, self._baseline.spans[index:]
        if known.problems:
            return {}
        end = following[0][0] if following else len(known.source)
        is_body = self.holes[index].is_body
        names = [] if is_body else find_unbound(self.language, known.source, known.tree, span, end)
        return {"names": names, "unused": find_unused(self.language, known.tree, span)}

    def find_idle(self, drafts: Sequence[DraftText]) -> list[bool]:
        """For each draft: True for a body that does nothing, or a comment, placeholder or literal on a blank line."""
        trial = self._try(self._pieces(drafts))
        if self.count(drafts) > self.num_errors:  # a broken tree may have lost code
            return [False] * len(drafts)
        return [
            is_idle(self.language, trial.tree, span)
            if hole.is_body
            else not original.strip()
            and (is_comment(trial.tree, span) or does_nothing(self.language, trial.tree, span))
            for hole, span, original in zip(self.holes, trial.spans, self._originals, strict=True)
        ]


def _pack(hole: Hole, text: str) -> _Content:
    return _Content(hole.lead.encode("utf-8"), text.encode("utf-8", "replace"), hole.tail.encode("utf-8"))


def _leaves(root: tree_sitter.Node, span: Span) -> Iterator[tree_sitter.Node]:
    """The tokens that begin within `span`, in order."""
    pending = [root]
    while pending:
        node = pending.pop()
        if node.end_byte <= span[0] or span[1] <= node.start_byte:
            continue
        if node.child_count:
            pending += reversed(node.children)
        elif span[0] <= node.start_byte:
            yield node


def _touching(trial: _Trial, problems: Sequence[Span]) -> int:
    return sum(any(start <= last and first <= end for first, last in trial.spans) for start, end in problems)


def _blame(draft: DraftText, span: Span, problems: Sequence[Span]) -> tuple[tuple[int, int], ...]:
    """Ranges of the engine's text that contain problems; an empty problem is attributed to the character before it."""
    encoded, found = draft.text.encode("utf-8", "replace"), []
    for start, end in problems:
        first, last = max(start, span[0]) - span[0], min(end, span[1]) - span[0]
        if first > last or (first == last and not 0 <= first <= len(encoded)):
            continue
        begin, stop = (len(encoded[:offset].decode("utf-8", "ignore")) for offset in (first, last))
        if begin == stop:
            begin, stop = (begin - 1, begin) if begin else (0, 1)
        if reach := draft.reach(begin, stop):
            found.append(reach)
    return tuple(merge_spans(found))
