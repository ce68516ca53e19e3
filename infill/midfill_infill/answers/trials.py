"""Tries candidate texts in the holes of a document and counts syntax errors. Fixes nothing."""

import re
from bisect import bisect_right
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
        self.language = language
        self.holes = holes
        position, end = window or (0, len(document.source))
        source = document.source[:end]
        self._between: list[bytes] = []
        self._originals: list[bytes] = []
        for hole in holes:
            start_byte = document.to_source(hole.start_byte)
            end_byte = document.to_source(hole.end_byte)
            self._between.append(source[position:start_byte])
            self._originals.append(source[start_byte:end_byte])
            position = end_byte
        self._between.append(source[position:])
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
        masks = self._list_masks()
        self._base = self._try(masks[0])
        # Other errors stay with any mask.
        num_likely = 3 if _count_touching(self._base, self._base.problems) else 1
        sound = self._find_sound(masks[:num_likely])
        if sound is not None:
            return sound
        near = find_near()
        if near is not None and near.holes == self.holes:
            return near._masks
        sound = self._find_sound(masks)
        if sound is not None:
            return sound
        return min(masks, key=lambda mask: len(self._try(mask).problems))

    def _find_sound(self, masks: Sequence[tuple[_Content, ...]]) -> tuple[_Content, ...] | None:
        """The first masks that leave no error."""
        return next((mask for mask in masks if not self._try(mask).problems), None)

    def _list_masks(self) -> list[tuple[_Content, ...]]:
        """Masks for all holes: statements and names, names, what the holes hold, nothing."""
        usual: list[_Content] = []
        names: list[_Content] = []
        for hole in self.holes:
            name = _pack(hole, hole.indent + _NAME if hole.kind == "line" else _NAME)
            names.append(name)
            usual.append(_pack(hole, self.language.statement) if hole.is_body else name)
        masks = [
            tuple(usual),
            tuple(names),
            tuple(_Content(b"", original, b"") for original in self._originals),
            tuple(_pack(hole, "") for hole in self.holes),
        ]
        if len(self.holes) == 1 and not self.holes[0].is_body:
            masks += [(_pack(self.holes[0], line),) for line in self.language.openings]
        return masks

    def _try(self, pieces: tuple[_Content, ...]) -> _Trial:
        """The trial of some contents, parsed once."""
        if pieces not in self._trials:
            self._trials[pieces] = self._parse(pieces)
        return self._trials[pieces]

    def _parse(self, pieces: tuple[_Content, ...]) -> _Trial:
        """Parses the source with content in every hole."""
        head = self._between[0]
        parts = [head]
        spans: list[Span] = []
        starts = [0]
        position = len(head)
        for piece, following in zip(pieces, self._between[1:], strict=True):
            start = position + len(piece.lead)
            end = start + len(piece.text)
            spans.append((start, end))
            position = end + len(piece.tail)
            starts.append(position)
            parts += [piece.lead, piece.text, piece.tail, following]
            position += len(following)
        source = b"".join(parts)
        tree = None
        if self._base is not None:
            old = self._spans_of_holes(self._base.starts)
            new = self._spans_of_holes(starts)
            changes = list(zip(old, new, strict=True))
            tree = parse_again(self.language, source, self._base.tree, self._base.source, changes)
        problems, tree = find_problems(self.language, source, tuple(spans), tree)
        return _Trial(source=source, spans=tuple(spans), starts=tuple(starts), problems=tuple(problems), tree=tree)

    def _spans_of_holes(self, starts: Sequence[int]) -> list[Span]:
        """Spans of the hole contents in a trial; `starts` are the starts of the text between holes."""
        pairs = zip(starts, self._between, starts[1:], strict=False)
        return [(start + len(between), end) for start, between, end in pairs]

    def _find_body(self, index: int) -> tuple[int, int] | None:
        """The function that a body hole must stay in: the number of a part between holes, and an offset in it."""
        if not self.holes[index].is_body:
            return None
        first, last = self._baseline.spans[index]
        starts: list[int] = []
        for node in captures(self.language, self._baseline.tree, (first, last), "function"):
            if node.start_byte < first and last <= node.end_byte:
                starts.append(node.start_byte)
        if not starts:
            return None
        innermost = max(starts)
        part = bisect_right(self._baseline.starts, innermost) - 1
        return part, innermost - self._baseline.starts[part]

    def _pieces(self, drafts: Sequence[DraftText | None]) -> tuple[_Content, ...]:
        """The contents for some drafts: a mask for None; a body without text stays as it is."""
        pieces: list[_Content] = []
        for hole, draft, mask, original in zip(self.holes, drafts, self._masks, self._originals, strict=True):
            if draft is None:
                pieces.append(mask)
            elif hole.is_body and not draft.text:
                pieces.append(_Content(b"", original, b""))
            else:
                pieces.append(_pack(hole, draft.text))
        return tuple(pieces)

    def _try_alone(self, draft: DraftText, index: int) -> _Trial:
        """The trial of one draft with masks in the other holes."""
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
        body = self._bodies[index]
        if body is None:
            return False
        start = _find_start(self._baseline, body)
        end = function_end(self.language, self._baseline.tree, start)
        if not end:
            end, _ = self._baseline.spans[index]
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
        if node is None or node.type == "concatenated_string":  # the mask is a part beside strings
            return False
        return "comment" in node.type or "string" in node.type

    def find_unmatched(self, draft: DraftText, index: int) -> int | None:
        """The character of a draft where a brace closes that the draft has not opened."""
        trial = self._try_alone(draft, index)
        start, end = trial.spans[index]
        depth = 0
        for leaf in _leaves(trial.tree.root_node, (start, end)):
            if leaf.type.endswith("{"):
                depth += 1
            elif leaf.type == "}":
                depth -= 1
            if depth < 0:
                before = trial.source[start : leaf.start_byte]
                return len(before.decode("utf-8", "replace"))
        return None

    def frozen_lines(self, draft: DraftText, index: int) -> frozenset[int]:
        """Lines of a draft whose start must not change: inside strings, preprocessor lines, labels."""
        lines = draft.lines()
        if len(lines) == 1:
            return frozenset()
        trial = self._try_alone(draft, index)
        strings = captures(self.language, trial.tree, trial.spans[index], "verbatim")
        frozen: set[int] = set()
        position, _ = trial.spans[index]
        for number, line in enumerate(lines):
            if not self.language.has_indented_blocks and _OUTDENTED.match(line.text):
                frozen.add(number)
            elif any(node.start_byte < position < node.end_byte for node in strings):
                frozen.add(number)
            position += len(line.text.encode("utf-8", "replace"))
        return frozenset(frozen)

    def _escapes(self, trial: _Trial, drafts: Sequence[DraftText | None]) -> list[Span]:
        """For each draft that ends its body too early, the span of its text behind the body."""
        escapes: list[Span] = []
        for body, (start, end), draft in zip(self._bodies, trial.spans, drafts, strict=True):
            if body is None or draft is None or not draft.text:
                continue
            body_end = function_end(self.language, trial.tree, _find_start(trial, body))
            if body_end is not None:
                start = max(start, body_end)
            if not self._is_comment(trial.source[start:end]):
                escapes.append((start, end))
        return escapes

    def _is_comment(self, text: bytes) -> bool:
        """True if no line is anything but blank or a comment."""
        comment = self.language.comment.encode("ascii")
        lines = filter(None, map(bytes.strip, text.splitlines()))
        return all(line.startswith(comment) for line in lines)

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
        num_touching = _count_touching(trial, problems)
        num_touching_before = _count_touching(self._baseline, known)
        num_added = max(0, len(problems) - len(known), num_touching - num_touching_before)
        if num_added == 0:
            return 0, [()] * len(drafts)
        ranges = [_blame(draft, span, problems) for draft, span in zip(drafts, trial.spans, strict=True)]
        if not any(ranges):
            ranges = list(map(_blame_all, drafts))
        return num_added, ranges

    def find_needs(self, index: int) -> dict[str, list[str]]:
        """The `names` that the code up to the next hole needs, and the `unused` ones before it; {} in broken code."""
        known = self._baseline
        if known.problems:
            return {}
        span = known.spans[index]
        end = len(known.source)
        if index + 1 < len(known.spans):
            end, _ = known.spans[index + 1]
        names: list[str] = []
        if not self.holes[index].is_body:
            names = find_unbound(self.language, known.source, known.tree, span, end)
        return {"names": names, "unused": find_unused(self.language, known.tree, span)}

    def find_idle(self, drafts: Sequence[DraftText]) -> list[bool]:
        """For each draft: True for a body that does nothing, or a comment, placeholder or literal on a blank line."""
        trial = self._try(self._pieces(drafts))
        if self.count(drafts) > self.num_errors:  # a broken tree may have lost code
            return [False] * len(drafts)
        idle: list[bool] = []
        for hole, span, original in zip(self.holes, trial.spans, self._originals, strict=True):
            if hole.is_body:
                idle.append(is_idle(self.language, trial.tree, span))
            elif original.strip():
                idle.append(False)
            else:
                idle.append(is_comment(trial.tree, span) or does_nothing(self.language, trial.tree, span))
        return idle


def _pack(hole: Hole, text: str) -> _Content:
    """A text between the lead and the tail of its hole."""
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


def _find_start(trial: _Trial, body: tuple[int, int]) -> int:
    """Where the function of a body hole begins."""
    part, offset = body
    return trial.starts[part] + offset


def _count_touching(trial: _Trial, problems: Sequence[Span]) -> int:
    """How many problems touch the content of a hole."""
    num_touching = 0
    for start, end in problems:
        num_touching += any(start <= last and first <= end for first, last in trial.spans)
    return num_touching


def _blame(draft: DraftText, span: Span, problems: Sequence[Span]) -> tuple[tuple[int, int], ...]:
    """Ranges of the engine's text that contain problems; an empty problem is attributed to the character before it."""
    span_start, span_end = span
    encoded = draft.text.encode("utf-8", "replace")
    ranges: list[tuple[int, int]] = []
    for start, end in problems:
        first = max(start, span_start) - span_start
        last = min(end, span_end) - span_start
        is_outside = first == last and not 0 <= first <= len(encoded)
        if first > last or is_outside:
            continue
        begin = len(encoded[:first].decode("utf-8", "ignore"))
        stop = len(encoded[:last].decode("utf-8", "ignore"))
        if begin == stop:
            begin = max(0, begin - 1)
            stop = begin + 1
        reach = draft.reach(begin, stop)
        if reach is not None:
            ranges.append(reach)
    return tuple(merge_spans(ranges))


def _blame_all(draft: DraftText) -> tuple[tuple[int, int], ...]:
    """The range of all that the engine wrote."""
    if not draft.text:
        return ()
    return ((0, max(draft.origins) + 1),)
