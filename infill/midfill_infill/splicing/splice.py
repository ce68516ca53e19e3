"""Puts the texts of holes into their document, with its line ends and encoding, and counts new errors. No I/O."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final

from midfill_infill.answers import draft as drafts
from midfill_infill.answers.draft import DraftText
from midfill_infill.answers.reading import anchor_texts, read_answer, read_plainly, trimmed_anchor_texts
from midfill_infill.answers.trials import Trials
from midfill_infill.errors import MidfillError
from midfill_infill.splicing import json_files
from midfill_infill.syntax.holes import sort_holes
from midfill_infill.syntax.outline import find_own, outline
from midfill_infill.text.document import Document
from midfill_infill.text.lines import count_columns
from midfill_infill.text.spans import Edit, Hole, Patch

MAX_COMPILED_BYTES: Final = 200_000  # some 25 ms for each text
_CLOSING = re.compile(rb"\s*\}")


@dataclass(frozen=True)
class SplicedFill:
    r"""The text inserted into one hole, without the hole's lead and tail.

    `text` has `\n` line ends; `origins[i]` is where its character `i` stands in the engine's text, -1 for added white
    space. `error_ranges` are code points of the engine's text to remask. `is_idle`: the fill does nothing.
    """

    text: str
    origins: tuple[int, ...]
    error_ranges: tuple[tuple[int, int], ...] = ()
    is_idle: bool = False


@dataclass(frozen=True)
class Spliced:
    """A patch, its fills in the order of the holes that were given, and the number of syntax errors that it adds."""

    patch: Patch
    fills: tuple[SplicedFill, ...]
    new_errors: int

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(fill.text for fill in self.fills)

    def with_error(self, sizes: Sequence[int]) -> "Spliced":
        """The same with an error somewhere in the engine's texts, which have these `sizes` in code points."""
        fills = [replace(fill, error_ranges=((0, size),)) for fill, size in zip(self.fills, sizes, strict=True)]
        return Spliced(self.patch, tuple(fills), 1)


class Splicer:
    """Splices texts into the holes of a document. A fill has one, so that the document is read once."""

    def __init__(self, document: Document, holes: Sequence[Hole]) -> None:
        """Raises MidfillError `overlapping_holes`."""
        self.document = document
        self.holes = tuple(holes)
        self._ordered = sort_holes(document, list(holes))
        self._near_trials: dict[tuple[tuple[Hole, ...], Hole], Trials | None] = {}

    def splice(self, fills: Sequence[str], *, compiles: bool = False) -> Spliced:
        """The patch that puts the text that `answers` finds in `fills[i]` into `holes[i]`.

        Errors of the document itself do not count. With `compiles` it is an error too if a compiler at hand accepts the
        document, and not with the fills. An empty fill keeps a body. Raises MidfillError `file_encoding` for characters
        that the encoding lacks, and `engine_error` for a fill without its hole's anchors.
        """
        document = self.document
        fill_of = dict(zip(self.holes, fills, strict=True))
        answers = {hole: clean(document, hole, fill_of[hole]) for hole in self._ordered}
        spliced: dict[Hole, SplicedFill] = {}
        new_errors = 0
        for trials in self.trials:
            texts = read_answers(trials, document, [answers[hole] for hole in trials.holes])
            num_added, error_ranges = trials.judge(texts)
            new_errors += num_added
            judged = zip(trials.holes, texts, error_ranges, trials.find_idle(texts), strict=True)
            for hole, draft, ranges, is_idle in judged:
                spliced[hole] = SplicedFill(draft.text, draft.origins, ranges, is_idle)
        for hole, answer in answers.items():
            if hole not in spliced:
                draft = read_plainly(document, hole, answer)
                spliced[hole] = SplicedFill(draft.text, draft.origins)
        result = self._put(spliced, new_errors)
        if not compiles or new_errors or self._still_compiles(result.patch):
            return result
        others = (self._put(other, 0) for other in self._vary_commas(spliced))
        sound = next((other for other in others if self._still_compiles(other.patch)), None)
        return sound or result.with_error([len(fill) for fill in fills])

    def _put(self, spliced: dict[Hole, SplicedFill], new_errors: int) -> Spliced:
        """The patch that puts one fill into each hole."""
        patch = Patch.of(_edit(self.document, hole, fill.text) for hole, fill in spliced.items())
        return Spliced(patch, tuple(spliced[hole] for hole in self.holes), new_errors)

    def _vary_commas(self, spliced: dict[Hole, SplicedFill]) -> Iterator[dict[Hole, SplicedFill]]:
        """The fills of a JSON file with the comma behind one of them taken off or added: what follows the hole tells
        whether one has to be there.
        """
        if self._compiler is not json_files.compiles:
            return
        for hole, fill in spliced.items():
            if fill.text.endswith(","):
                yield spliced | {hole: SplicedFill(fill.text[:-1], fill.origins[:-1])}
            else:
                yield spliced | {hole: SplicedFill(f"{fill.text},", (*fill.origins, drafts.ADDED))}

    @cached_property
    def _compiler(self) -> Callable[[str], bool] | None:
        """The compiler at hand for the document, if that accepts it as it is, or with stand-ins in the holes."""
        document = self.document
        if len(document.source) > MAX_COMPILED_BYTES:
            return None
        if document.syntax is not None:
            compiles = document.syntax.compiles
            return compiles if compiles is not None and compiles(_to_text(document)) else None
        if document.path is None or not json_files.is_json(document.path):
            return None
        patches = (Patch.of(_edit(document, hole, text) for hole in self.holes) for text in json_files.STAND_INS)
        documents = (document, *map(document.with_patch, patches))
        return json_files.compiles if any(json_files.compiles(_to_text(each)) for each in documents) else None

    def _still_compiles(self, patch: Patch) -> bool:
        return self._compiler is None or self._compiler(_to_text(self.document.with_patch(patch)))

    def prepare(self) -> None:
        """Reads now what `splice` needs of the document, so that `splice` itself is faster."""
        _ = self.document.lines.mixes_indents, self.trials

    @cached_property
    def trials(self) -> tuple[Trials, ...]:
        """The trials of all holes, none without a grammar. In a document with errors, each body whose function parses
        alone has its own, because an error elsewhere may include the function and hide the errors that a fill adds.
        """
        document = self.document
        language = document.syntax
        holes = self._ordered
        if language is None:
            return ()
        whole = Trials(document, language, holes, find_near=lambda: self._find_near(holes, holes[0]) if holes else None)
        if not whole.num_errors:
            return (whole,)
        alone = [self._find_near((hole,), hole) for hole in holes if hole.is_body]
        sound = [trials for trials in alone if trials is not None and not trials.num_errors]
        if not sound:
            return (whole,)
        sound_holes = set(chain.from_iterable(trials.holes for trials in sound))
        other_holes = tuple(hole for hole in holes if hole not in sound_holes)
        if other_holes:
            sound.append(Trials(document, language, other_holes))
        return tuple(sound)

    def _find_near(self, holes: tuple[Hole, ...], hole: Hole) -> Trials | None:
        """As `_open_near`, but opens each trials once."""
        key = (holes, hole)
        if key not in self._near_trials:
            self._near_trials[key] = _open_near(self.document, holes, hole)
        return self._near_trials[key]

    def find_needs(self, index: int) -> dict[str, list[str]]:
        """The `names` that hole `index` has to bind, and the `unused` ones before it, as the wire has them. Empty for a
        hole with anchors, and if the holes have separate trials or none.
        """
        hole = self.holes[index]
        if hole.anchors or len(self.trials) != 1:
            return {}
        (trials,) = self.trials
        return trials.find_needs(self._ordered.index(hole))

    def find_sieve(self, index: int) -> "Sieve | None":
        """The sieve of hole `index`; None outside of functions, and if its function has errors around its holes."""
        near = self._find_near(self._ordered, self.holes[index])
        if near is None or near.num_errors:
            return None
        return Sieve(self.document, near, near.holes.index(self.holes[index]))


def splice(document: Document, holes: Sequence[Hole], fills: Sequence[str]) -> Spliced:
    """Splices one text into each hole, see `Splicer`. Raises MidfillError."""
    return Splicer(document, holes).splice(fills)


def clean(document: Document, hole: Hole, fill: str) -> DraftText:
    """A fill as a draft without dangerous characters. Raises MidfillError `engine_error` if it lacks an anchor."""
    draft = drafts.clean(fill, anchor_texts(document, hole))
    if drafts.find_anchors(draft.text, trimmed_anchor_texts(document, hole)) is None:
        next_step = "fill again, or leave the kept text out of the hole"
        raise MidfillError("engine_error", "the fill changes text that was to be kept", next_step)
    return draft


def _edit(document: Document, hole: Hole, text: str) -> Edit:
    """The edit that puts a text into a hole; a body without text stays as it is."""
    replacement = document.data[hole.start_byte : hole.end_byte]
    if text or not hole.is_body:
        replacement = document.encode(hole.lead + text + hole.tail)
    return Edit(hole.start_byte, hole.end_byte, replacement)


def _to_text(document: Document) -> str:
    """The text of a document as a compiler reads it."""
    return document.source.decode("utf-8", "replace")


def _open_near(document: Document, holes: tuple[Hole, ...], hole: Hole) -> Trials | None:
    """Trials that parse only the function around `hole`, with those of `holes` in it; None outside of functions."""
    language = document.syntax
    if language is None:
        return None
    window = _find_window(document, hole)
    if window is None:
        return None
    start, end = map(document.to_data, window)
    inside = tuple(other for other in holes if start <= other.start_byte and other.end_byte <= end)
    return Trials(document, language, inside, window)


def _find_window(document: Document, hole: Hole) -> tuple[int, int] | None:
    """Source bytes of the lines of the innermost function that a hole is in or continues; None without one."""
    lines = document.source_lines
    start = document.to_source(hole.start_byte)
    end = document.to_source(hole.end_byte)
    own = find_own(document, hole)
    if own is not None:
        first = lines.start(lines.at(own.start))
        closing = _CLOSING.match(document.source, end)
        if closing is not None:
            return first, closing.end()
        return first, lines.end(lines.at(end))
    columns = count_columns(hole.indent.encode("ascii"))
    for function in reversed(outline(document).functions):
        if function.head >= start:
            continue
        is_deeper = columns > lines.columns(lines.at(function.head))
        continues = is_deeper and not document.source[function.end : start].strip()
        if end <= function.end or continues:
            last = max(function.end, end)
            return lines.start(lines.at(function.start)), lines.end(lines.at(last))
    return None


def read_answers(trials: Trials, document: Document, answers: Sequence[DraftText]) -> list[DraftText]:
    """The texts of the holes of `trials` in their answers. Reads them in order, with stand-ins in the later holes."""
    chosen: list[DraftText | None] = [None] * len(answers)
    texts: list[DraftText] = []
    for index, answer in enumerate(answers):
        draft = read_answer(trials, document, chosen, index, answer)
        chosen[index] = draft
        texts.append(draft)
    return texts


@dataclass(frozen=True)
class Sieve:
    """Judges candidates for hole `index` of `trials`, which parse its function alone, with stand-ins in other holes.
    This costs a hundredth of parsing a long file; a candidate that passes may still fail in the whole document.
    """

    document: Document
    trials: Trials
    index: int

    def count_errors(self, text: str) -> int | None:
        """The number of errors that a candidate adds; None if it is blank or cannot be inserted."""
        if not text.strip():
            return None
        try:
            answer = clean(self.document, self.trials.holes[self.index], text)
        except MidfillError:
            return None
        chosen: list[DraftText | None] = [None] * len(self.trials.holes)
        chosen[self.index] = read_answer(self.trials, self.document, chosen, self.index, answer)
        return self.trials.count_errors(chosen)
