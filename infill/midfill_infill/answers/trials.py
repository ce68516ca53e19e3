"""Tries candidate texts in the holes of a document and counts the syntax errors that they leave. Changes no text."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import tree_sitter

from midfill_infill.answers.draft import DraftText
from midfill_infill.answers.layout import columns_of, leading
from midfill_infill.answers.oddities import Verdict, count_oddities
from midfill_infill.languages import Language
from midfill_infill.syntax.idle import is_comment, is_idle_body, is_idle_statement
from midfill_infill.syntax.problems import Span, captures, find_problems, function_end, parse_again
from midfill_infill.syntax.unbound import find_unbound, find_unused
from midfill_infill.text.document import Document
from midfill_infill.text.lines import Lines
from midfill_infill.text.spans import Hole, merge_spans

_NAME_STAND_IN = "midfill"
# Trials that are kept: at least so many, and as many as have so many bytes of source. A tree has 40 times as many.
_MIN_KEPT = 4
_KEPT_BYTES = 4_000_000
# Lines that stand at the margin whatever is around them: directives of a preprocessor, labels for `goto`.
_AT_MARGIN = re.compile(
    r"#\s*(if|ifdef|ifndef|else|elif|endif|define|undef|pragma|include|error)\b|(?!(default|public|protected|private)\b)\w+:\s*$"
)


@dataclass(frozen=True)
class _Content:
    """What stands in a hole in a trial: a judged `text` between the hole's lead and tail."""

    lead: bytes
    text: bytes
    tail: bytes


@dataclass(frozen=True)
class _Trial:
    """A parsed source with content in every hole."""

    source: bytes
    spans: tuple[Span, ...]  # of each content's text
    starts: tuple[int, ...]  # of the parts before, between and behind the holes
    problems: tuple[Span, ...]  # syntax errors
    tree: tree_sitter.Tree


class Trials:
    """Tries drafts in the `holes` of a document, in document order. A hole whose draft is None gets a stand-in: a
    harmless text.
    """

    def __init__(
        self,
        document: Document,
        language: Language,
        holes: tuple[Hole, ...],
        window: Span | None = None,
        find_near: Callable[[], "Trials | None"] = lambda: None,
    ) -> None:
        """`window` is the part of the source that is parsed; it contains all holes. `find_near` opens trials within the
        holes' function alone. If the likely stand-ins leave errors, those of these trials are used, if they have the
        same holes.
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
        self._num_errors_of: dict[tuple[str | None, ...], int] = {}
        self._alone: dict[int, Trials] = {}
        self._base: _Trial | None = None  # other trials are parsed incrementally from this one
        self._stand_ins = self._find_stand_ins(find_near)
        self._baseline = self._try(self._stand_ins)
        self._base = None if self._baseline.problems else self._baseline
        self._functions = [self._locate_function(index) for index in range(len(holes))]

    @property
    def num_errors(self) -> int:
        """Syntax errors with stand-ins in all holes."""
        return len(self._baseline.problems)

    def _find_stand_ins(self, find_near: Callable[[], "Trials | None"]) -> tuple[_Content, ...]:
        """The stand-in for each hole that leaves the fewest errors: what a good fill can achieve."""
        stand_ins = self._list_stand_ins()
        self._base = self._try(stand_ins[0])
        # No stand-in removes an error that touches no hole.
        touches_hole = _count_touching(self._base, self._base.problems) > 0
        num_likely = 3 if touches_hole else 1
        sound = self._find_sound(stand_ins[:num_likely])
        if sound is not None:
            return sound
        heads = self._list_heads() if touches_hole else []
        near = find_near()
        if near is not None and near.holes == self.holes:
            sound = self._find_sound(heads) if near.num_errors else None  # a method alone may be no sound source
            return sound or near._stand_ins
        best, fewest_problems = stand_ins[0], len(self._base.problems)
        for contents in (*stand_ins[1:], *heads):
            num_problems = len(self._try(contents).problems)
            if num_problems < fewest_problems:
                best, fewest_problems = contents, num_problems
            if num_problems == 0:
                break
        return best

    def _find_sound(self, stand_ins: Sequence[tuple[_Content, ...]]) -> tuple[_Content, ...] | None:
        """The first stand-ins that leave no error in the source; None if all leave some."""
        return next((contents for contents in stand_ins if not self._try(contents).problems), None)

    def _list_stand_ins(self) -> list[tuple[_Content, ...]]:
        """Stand-ins for all holes, the likeliest first: a statement in each body and a name in each other hole; a name
        in each; what the document has there; nothing; lines that open or close a block, if the only hole is no body.
        """
        usual: list[_Content] = []
        names: list[_Content] = []
        for hole in self.holes:
            name = _pack(hole, hole.indent + _NAME_STAND_IN if hole.kind == "line" else _NAME_STAND_IN)
            names.append(name)
            usual.append(_pack(hole, self.language.statement) if hole.is_body else name)
        stand_ins = [
            tuple(usual),
            tuple(names),
            tuple(_Content(b"", original, b"") for original in self._originals),
            tuple(_pack(hole, "") for hole in self.holes),
        ]
        if len(self.holes) == 1 and not self.holes[0].is_body:
            stand_ins += [(_pack(self.holes[0], line),) for line in self.language.openings]
        return stand_ins

    def _list_heads(self) -> list[tuple[_Content, ...]]:
        """Stand-ins for the only hole if it is a part of a line behind other text: heads of statements."""
        before = self._between[0].rpartition(b"\n")[2]
        if len(self.holes) != 1 or self.holes[0].is_body or not before.strip():
            return []
        return [(_pack(self.holes[0], head),) for head in self.language.heads]

    def _try(self, contents: tuple[_Content, ...]) -> _Trial:
        """The trial with `contents` in the holes. Those that were used last are kept."""
        trial = self._trials.pop(contents, None) or self._parse(contents)
        self._trials[contents] = trial
        if len(self._trials) > max(_MIN_KEPT, _KEPT_BYTES // (1 + len(trial.source))):
            del self._trials[next(iter(self._trials))]
        return trial

    def _parse(self, contents: tuple[_Content, ...]) -> _Trial:
        """Parses the source with `contents` in the holes."""
        head = self._between[0]
        parts = [head]
        spans: list[Span] = []
        starts = [0]
        position = len(head)
        for content, following in zip(contents, self._between[1:], strict=True):
            start = position + len(content.lead)
            end = start + len(content.text)
            spans.append((start, end))
            position = end + len(content.tail)
            starts.append(position)
            parts += [content.lead, content.text, content.tail, following]
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
        """The span of each whole content, lead and tail included, in a trial whose parts begin at `starts`."""
        pairs = zip(starts, self._between, starts[1:], strict=False)
        return [(start + len(between), end) for start, between, end in pairs]

    def _locate_function(self, index: int) -> tuple[int, int] | None:
        """Where the innermost function around a body hole starts: the index of one of the `_between` parts and an
        offset in it, which are the same in every trial. None for other holes, and if the tree has no such function.
        """
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

    def _list_contents(self, drafts: Sequence[DraftText | None]) -> tuple[_Content, ...]:
        """The contents for the drafts of all holes: a stand-in for None; a body whose draft is empty stays as it is."""
        contents: list[_Content] = []
        for hole, draft, stand_in, original in zip(self.holes, drafts, self._stand_ins, self._originals, strict=True):
            if draft is None:
                contents.append(stand_in)
            elif hole.is_body and not draft.text:
                contents.append(_Content(b"", original, b""))
            else:
                contents.append(_pack(hole, draft.text))
        return tuple(contents)

    def _try_alone(self, draft: DraftText, index: int) -> _Trial:
        """The trial of one draft with stand-ins in the other holes."""
        drafts: list[DraftText | None] = [None] * len(self.holes)
        drafts[index] = draft
        return self._try(self._list_contents(drafts))

    def open_alone(self, index: int) -> "Trials":
        """Trials of body hole `index` alone, in a sound function of a new document. Needed if its own function does not
        parse, because the parser then reports no error for a line that leaves the body.
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
        function = self._functions[index]
        if function is None:
            return False
        start = _find_start(self._baseline, function)
        end = function_end(self.language, self._baseline.tree, start)
        if not end:
            end, _ = self._baseline.spans[index]
        return not any(first <= end and last >= start for first, last in self._baseline.problems)

    def count_oddities(self, draft: DraftText, index: int, frozen: frozenset[int]) -> Counter[Verdict]:
        """Counts the lines of a draft whose indentation contradicts the tree, with stand-ins in the other holes."""
        trial = self._try_alone(draft, index)
        return count_oddities(trial.tree, Lines(trial.source), trial.spans[index], frozen)

    def is_in_text(self, index: int) -> bool:
        """True for a hole inside a comment or a string."""
        start, end = self._baseline.spans[index]
        node = self._baseline.tree.root_node.descendant_for_byte_range(start, end)
        while node is not None and (node.start_byte, node.end_byte) == (start, end):  # the stand-in itself
            node = node.parent
        if node is None or node.type == "concatenated_string":  # the stand-in stands beside strings, not in one
            return False
        return "comment" in node.type or "string" in node.type

    def is_between_tags(self, index: int) -> bool:
        """True for a hole in the text between tags of JSX, which may also hold elements."""
        start, end = self._baseline.spans[index]
        node = self._baseline.tree.root_node.descendant_for_byte_range(start, end)
        return node is not None and node.type == "jsx_text"

    def find_unmatched(self, draft: DraftText, index: int) -> int | None:
        """The position in a draft of the first closing brace that the draft has not opened; None if there is none."""
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

    def find_frozen_lines(self, draft: DraftText, index: int) -> frozenset[int]:
        """The numbers of a draft's lines whose start must not change: inside strings, preprocessor lines, labels."""
        lines = draft.lines()
        if len(lines) == 1:
            return frozenset()
        trial = self._try_alone(draft, index)
        strings = captures(self.language, trial.tree, trial.spans[index], "verbatim")
        frozen: set[int] = set()
        position, _ = trial.spans[index]
        for number, line in enumerate(lines):
            if not self.language.has_indented_blocks and _AT_MARGIN.match(line.text):
                frozen.add(number)
            elif any(node.start_byte < position < node.end_byte for node in strings):
                frozen.add(number)
            position += len(line.text.encode("utf-8", "replace"))
        return frozenset(frozen)

    def find_docstring_lines(self, draft: DraftText, index: int, frozen: frozenset[int]) -> frozenset[int]:
        """The numbers of a draft's lines inside docstrings that may be indented with their code, because the shallowest
        line stands at the column of the docstring's start. Only Python has them. `frozen` as of `find_frozen_lines`.
        """
        lines = draft.lines()
        if not self.language.has_indented_blocks or len(lines) == 1:
            return frozenset()
        columns = {number: columns_of(leading(line.text)) for number, line in enumerate(lines) if line.text.strip()}
        code = columns.keys() - frozen - {0}
        columns[0] = min((columns[number] for number in code), default=0)  # the first line may lack its indentation
        trial = self._try_alone(draft, index)
        span_start, span_end = trial.spans[index]
        fixed_lines: set[int] = set()
        for node in captures(self.language, trial.tree, trial.spans[index], "verbatim"):
            if not _is_docstring(node, trial.source) or node.start_byte < span_start or span_end < node.end_byte:
                continue
            first = trial.source.count(b"\n", span_start, node.start_byte)
            last = trial.source.count(b"\n", span_start, node.end_byte)
            below = [number for number in range(first + 1, last + 1) if number in columns]
            if min((columns[number] for number in below), default=None) == columns.get(first):
                fixed_lines.update(below)
        return frozenset(fixed_lines)

    def _find_escapes(self, trial: _Trial, drafts: Sequence[DraftText | None]) -> list[Span]:
        """The spans of text behind the ends of functions whose drafts leave their bodies, unless it is a comment; all
        of a draft's text if its function is no function any more.
        """
        escapes: list[Span] = []
        for function, (start, end), draft in zip(self._functions, trial.spans, drafts, strict=True):
            if function is None or draft is None or not draft.text:
                continue
            escape_start = start
            body_end = function_end(self.language, trial.tree, _find_start(trial, function))
            if body_end is not None:
                escape_start = max(start, body_end)
            if not self._is_comment(trial.source[escape_start:end]):
                escapes.append((escape_start, end))
        return escapes

    def _is_comment(self, text: bytes) -> bool:
        """True if every line is blank or a comment."""
        comment = self.language.comment.encode("ascii")
        lines = [line.strip() for line in text.splitlines()]
        return all(line.startswith(comment) for line in lines if line)

    def count_errors(self, drafts: Sequence[DraftText | None]) -> int:
        """Syntax errors in the parsed source, plus the number of bodies that their drafts leave."""
        texts = tuple(None if draft is None else draft.text for draft in drafts)
        if texts not in self._num_errors_of:
            trial = self._try(self._list_contents(drafts))
            self._num_errors_of[texts] = len(trial.problems) + len(self._find_escapes(trial, drafts))
        return self._num_errors_of[texts]

    def judge(self, drafts: Sequence[DraftText]) -> tuple[int, list[tuple[tuple[int, int], ...]]]:
        """The number of errors that the drafts add, and for each hole the ranges of the engine's text with errors.
        Errors that touch holes are also counted apart, because a new one may absorb one of the document's own.
        """
        trial = self._try(self._list_contents(drafts))
        problems = [*trial.problems, *self._find_escapes(trial, drafts)]
        problems_before = self._baseline.problems
        num_touching = _count_touching(trial, problems)
        num_touching_before = _count_touching(self._baseline, problems_before)
        num_added = max(0, len(problems) - len(problems_before), num_touching - num_touching_before)
        if num_added == 0:
            return 0, [()] * len(drafts)
        ranges = [_blame(draft, span, problems) for draft, span in zip(drafts, trial.spans, strict=True)]
        if not any(ranges):
            ranges = [_blame_all(draft) for draft in drafts]
        return num_added, ranges

    def find_needs(self, index: int) -> dict[str, list[str]]:
        """The `names` that the code from hole `index` up to the next hole needs and nothing binds, none for a body, and
        the `unused` names before the hole. Empty if the source has errors with stand-ins in the holes.
        """
        baseline = self._baseline
        if baseline.problems:
            return {}
        span = baseline.spans[index]
        end = len(baseline.source)
        if index + 1 < len(baseline.spans):
            end, _ = baseline.spans[index + 1]
        names: list[str] = []
        if not self.holes[index].is_body:
            names = find_unbound(self.language, baseline.source, baseline.tree, span, end)
        return {"names": names, "unused": find_unused(self.language, baseline.tree, span)}

    def find_idle(self, drafts: Sequence[DraftText]) -> list[bool]:
        """For each draft: True for a body that does nothing, or a comment, placeholder or literal on a blank line."""
        trial = self._try(self._list_contents(drafts))
        if self.count_errors(drafts) > self.num_errors:  # a broken tree may have lost code
            return [False] * len(drafts)
        idle: list[bool] = []
        for hole, span, original in zip(self.holes, trial.spans, self._originals, strict=True):
            if hole.is_body:
                idle.append(is_idle_body(self.language, trial.tree, span))
            elif original.strip():
                idle.append(False)
            else:
                idle.append(is_comment(trial.tree, span) or is_idle_statement(self.language, trial.tree, span))
        return idle


def _pack(hole: Hole, text: str) -> _Content:
    """The content of a hole: `text` between the hole's lead and tail."""
    return _Content(hole.lead.encode("utf-8"), text.encode("utf-8", "replace"), hole.tail.encode("utf-8"))


def _is_docstring(node: tree_sitter.Node, source: bytes) -> bool:
    """True for a string that is a statement of its own below a header, also where its indentation is an error."""
    if node.parent is None or node.parent.type not in ("expression_statement", "ERROR"):
        return False
    _, colon, white = source[: node.start_byte].rpartition(b":")
    return bool(colon) and b"\n" in white and not white.strip()


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


def _find_start(trial: _Trial, function: tuple[int, int]) -> int:
    """Where a function that `_locate_function` has located starts in a trial's source."""
    part, offset = function
    return trial.starts[part] + offset


def _count_touching(trial: _Trial, problems: Sequence[Span]) -> int:
    """How many problems touch the text of a hole."""
    num_touching = 0
    for start, end in problems:
        num_touching += any(start <= last and first <= end for first, last in trial.spans)
    return num_touching


def _blame(draft: DraftText, span: Span, problems: Sequence[Span]) -> tuple[tuple[int, int], ...]:
    """Ranges of the engine's text with problems of the draft at `span`; an empty one blames the character before."""
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
        engine_range = draft.find_engine_range(begin, stop)
        if engine_range is not None:
            ranges.append(engine_range)
    return tuple(merge_spans(ranges))


def _blame_all(draft: DraftText) -> tuple[tuple[int, int], ...]:
    """The range of all of the engine's text up to the last character that the draft has kept."""
    if not draft.text:
        return ()
    return ((0, max(draft.origins) + 1),)
