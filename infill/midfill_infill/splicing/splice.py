"""Inserts fills: line endings, indentation, overlap with the text behind, decided by the parser. No I/O."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain

from midfill_infill.errors import MidfillError
from midfill_infill.languages import Language
from midfill_infill.splicing import drafts
from midfill_infill.splicing.drafts import DraftText
from midfill_infill.splicing.sight import Sight
from midfill_infill.splicing.trials import Trials
from midfill_infill.syntax.holes import sort_holes
from midfill_infill.syntax.outline import find_own, outline
from midfill_infill.text.document import Document
from midfill_infill.text.encoding import encode
from midfill_infill.text.lines import count_columns, mixes_indents
from midfill_infill.text.spans import Edit, Hole, Patch

_WHITE = " \t\n"
_CLOSING = re.compile(rb"\s*\}")


@dataclass(frozen=True)
class SplicedFill:
    r"""The text inserted into one hole, without the hole's lead and tail.

    `text` has line feeds; `origins[i]` is the position of its character `i` in the engine's text, -1 for added white
    space. `error_ranges` are code points of the engine's text to remask. `removed` counts dropped dangerous characters.
    `names` are names that the fill uses and does not bind. `is_idle`: the fill does nothing.
    """

    text: str
    origins: tuple[int, ...]
    error_ranges: tuple[tuple[int, int], ...]
    removed: int
    names: frozenset[str] = frozenset()
    is_idle: bool = False


@dataclass(frozen=True)
class Spliced:
    """A patch, its fills in the given order, and the number of syntax errors it adds."""

    patch: Patch
    fills: tuple[SplicedFill, ...]
    new_errors: int

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(fill.text for fill in self.fills)


def splice(document: Document, holes: Sequence[Hole], fills: Sequence[str]) -> Spliced:
    """The patch that puts `fills[i]` into `holes[i]`, adjusted to add the fewest syntax errors.

    Errors of the document itself do not count. An empty fill keeps the body. Raises MidfillError `file_encoding` for
    characters that the encoding lacks, `engine_error` for a fill without its hole's anchors, and `overlapping_holes`.
    """
    ordered = sort_holes(document, list(holes))
    fill_of = dict(zip(holes, fills, strict=True))
    cleaned = [clean(document, hole, fill_of[hole]) for hole in ordered]
    spliced = {
        hole: SplicedFill(draft.text, draft.origins, (), removed)
        for hole, (draft, removed) in zip(ordered, cleaned, strict=True)
    }
    errors = 0
    for trials in find_trials(document, document.syntax, ordered) if document.syntax else ():
        settled = settle(trials, document, [cleaned[ordered.index(hole)][0] for hole in trials.holes])
        added, blamed = trials.judge(settled)
        errors += added
        found = zip(settled, blamed, trials.find_names(settled), trials.find_idle(settled), strict=True)
        for hole, (draft, ranges, names, is_idle) in zip(trials.holes, found, strict=True):
            removed = spliced[hole].removed
            spliced[hole] = SplicedFill(draft.text, draft.origins, ranges, removed, names, is_idle)
    patch = Patch.of(_edit(document, hole, fill.text) for hole, fill in spliced.items())
    return Spliced(patch, tuple(spliced[hole] for hole in holes), errors)


def clean(document: Document, hole: Hole, fill: str) -> tuple[DraftText, int]:
    """Cleans a fill for its hole; also returns the number of dropped characters. Raises MidfillError."""
    draft, removed = drafts.clean(fill, _anchor_texts(document, hole))
    if drafts.find_anchors(draft.text, _firm_anchors(document, hole)) is None:
        next_step = "fill again, or leave the kept text out of the hole"
        raise MidfillError("engine_error", "the fill changes text that was to be kept", next_step)
    return _trim(document, hole, draft), removed


def prepare(document: Document, holes: tuple[Hole, ...]) -> None:
    """Precomputes data for `splice` from the document. `holes` are in document order."""
    mixes_indents(document.lines)
    if document.syntax is not None:
        find_trials(document, document.syntax, holes)


def _edit(document: Document, hole: Hole, text: str) -> Edit:
    if hole.is_body and not text:
        return Edit(hole.start_byte, hole.end_byte, document.data[hole.start_byte : hole.end_byte])
    whole = (hole.lead + text + hole.tail).replace("\n", document.newline)
    return Edit(hole.start_byte, hole.end_byte, encode(whole, document.encoding))


def _anchor_texts(document: Document, hole: Hole) -> list[str]:
    texts = [document.decode(anchor.start_byte, anchor.end_byte) for anchor in hole.anchors]
    return [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]


def _firm_anchors(document: Document, hole: Hole) -> list[str]:
    """Anchors without the white space that trimming may remove."""
    texts = [text for text in _anchor_texts(document, hole) if text.strip()]
    texts[:1] = [text.lstrip(_WHITE) for text in texts[:1]]
    texts[-1:] = [text.rstrip(_WHITE) for text in texts[-1:]]
    return texts


def _trim(document: Document, hole: Hole, draft: DraftText) -> DraftText:
    """Drops white space that already surrounds the hole."""
    line_start = document.lines.start(document.lines.at(hole.start_byte))
    opens_line = bool(hole.lead) or not document.data[line_start : hole.start_byte].strip()
    closes_line = hole.tail.startswith("\n") or document.data[hole.end_byte : hole.end_byte + 1] in (b"", b"\n", b"\r")
    if hole.kind == "line":
        return drafts.trim(draft, "\n", _WHITE)
    before = _WHITE if hole.kind != "cursor" else " \t" if hole.indent else ""
    return drafts.trim(draft, before if opens_line else "", _WHITE if closes_line else "")


@lru_cache(maxsize=8)
def find_trials(document: Document, language: Language, holes: tuple[Hole, ...]) -> tuple[Trials, ...]:
    """Trials of all holes; in a document with errors separate ones for bodies whose functions parse alone, because an
    error elsewhere may include these functions and hide the errors that a fill adds.
    """
    whole = Trials(document, language, holes, find_near=partial(_find_near, document, language, holes))
    if not whole.num_errors:
        return (whole,)
    alone = [_find_near(document, language, (hole,)) for hole in holes if hole.is_body]
    sound = [trials for trials in alone if trials is not None and not trials.num_errors]
    if not sound:
        return (whole,)
    apart = {hole for trials in sound for hole in trials.holes}
    rest = tuple(hole for hole in holes if hole not in apart)
    return (*sound, Trials(document, language, rest)) if rest else tuple(sound)


@lru_cache(maxsize=8)
def _find_near(document: Document, language: Language, holes: tuple[Hole, ...], index: int = 0) -> Trials | None:
    """Trials of the holes in the function of hole `index`, within this function alone; None outside of functions."""
    window = _find_window(document, holes[index]) if holes else None
    if window is None:
        return None
    start, end = map(document.to_raw, window)
    return Trials(
        document, language, tuple(hole for hole in holes if start <= hole.start_byte and hole.end_byte <= end), window
    )


def _find_window(document: Document, hole: Hole) -> tuple[int, int] | None:
    """Source bytes of the lines of the innermost function that contains a hole, or that the hole continues."""
    start, end = document.to_source(hole.start_byte), document.to_source(hole.end_byte)
    lines, columns = document.source_lines, count_columns(hole.indent.encode("ascii"))
    if (own := find_own(document, hole)) is not None:
        closing = _CLOSING.match(document.source, end)
        return lines.start(lines.at(own.start)), closing.end() if closing else lines.end(lines.at(end))
    for function in reversed(outline(document).functions):
        if function.head >= start:
            continue
        is_deeper = columns > lines.columns(lines.at(function.head))
        if end <= function.end or (is_deeper and not document.source[function.end : start].strip()):
            return lines.start(lines.at(function.start)), lines.end(lines.at(max(function.end, end)))
    return None


def find_needs(document: Document, holes: tuple[Hole, ...], index: int) -> dict[str, list[str]]:
    """The `names` that hole `index` has to bind, and the `unused` ones before it, as the wire has them."""
    if holes[index].anchors or document.syntax is None:
        return {}
    first, *apart = find_trials(document, document.syntax, holes)
    return {} if apart else first.find_needs(index)


def settle(trials: Trials, document: Document, trimmed: list[DraftText]) -> list[DraftText]:
    """For each hole in order, the first candidate with the fewest errors; later holes have masks meanwhile."""
    chosen: list[DraftText | None] = [None] * len(trimmed)
    for index, draft in enumerate(trimmed):
        chosen[index] = settle_one(trials, document, chosen, index, draft)
    return [draft for draft in chosen if draft is not None]


def settle_one(
    trials: Trials, document: Document, chosen: Sequence[DraftText | None], index: int, trimmed: DraftText
) -> DraftText:
    """The first candidate for one hole with the fewest errors; the other holes have chosen drafts or masks."""
    errors = trials.count(chosen)
    best: tuple[int, DraftText] | None = None
    for candidate in _candidates(trials, document, trials.holes[index], trimmed, index):
        score = trials.count([*chosen[:index], candidate, *chosen[index + 1 :]])
        if best is None or score < best[0]:
            best = score, candidate
        if score <= errors:
            break
    assert best is not None
    return best[1]


def _candidates(trials: Trials, document: Document, hole: Hole, draft: DraftText, index: int) -> Iterator[DraftText]:
    """Ways to insert a draft, preferred ones first; all contain the anchors."""
    anchors = _firm_anchors(document, hole)
    frozen = trials.frozen_lines(draft, index)
    source = document.source[document.to_source(hole.end_byte) :]
    behind = hole.tail + source.decode("utf-8").replace("\r\n", "\n")
    seen: set[str] = set()
    spaced = [draft]
    if not mixes_indents(document.lines):
        spaced = drafts.respace(draft, hole.indent, document.indent_unit, frozen)
    if (step := _foreign_step(trials, document, hole, spaced[0], index)) is not None:
        spaced = [drafts.rescale(spaced[0], hole.indent, step, document.indent_unit, frozen)]
    sees_body = trials.sees_body(index)
    arranged = (_arrange(trials.language, hole, variant, behind, frozen, sees_body=sees_body) for variant in spaced)
    last = [draft] if sees_body or not hole.is_body else []
    if hole.kind == "line":
        last.append(drafts.begin_with(draft, hole.indent))
    for candidate in chain(*arranged, last):
        if candidate.text not in seen and drafts.find_anchors(candidate.text, anchors) is not None:
            seen.add(candidate.text)
            yield candidate
    if not seen:
        yield draft


def _foreign_step(trials: Trials, document: Document, hole: Hole, draft: DraftText, index: int) -> int | None:
    """Indent width of the draft if it differs from the document's; None with tabs."""
    if "\n" not in draft.text or "\t" in draft.text + hole.indent + document.indent_unit:
        return None
    step = trials.block_step(draft, index)
    return step if step and 2 <= step <= 8 and step != len(document.indent_unit) else None


def _arrange(
    language: Language, hole: Hole, draft: DraftText, behind: str, frozen: frozenset[int], *, sees_body: bool
) -> Iterator[DraftText]:
    plain = [draft, *drafts.overlap_cuts(draft, behind)]
    margin, columns = drafts.margin(draft, frozen), count_columns(hole.indent.encode("ascii"))
    if margin is None or margin == columns:
        yield from plain
        return
    based = drafts.rebase(draft, hole.indent, frozen)
    moved = [based, *drafts.overlap_cuts(based, behind)]
    leaving = drafts.leaving_line(draft, hole.indent, frozen) if hole.is_body else None
    if leaving is None:
        yield from chain(plain, moved)
        return
    left = drafts.cut_lines(draft, leaving)
    if language.has_indented_blocks and not sees_body:
        # In a function that does not parse (`def f(x:`) the parser reports no error for a line that leaves the body.
        yield from chain([left], moved) if _goes_on_elsewhere(language, draft, leaving) else moved
        return
    if not language.has_indented_blocks:
        inside = [cut for cut in plain if drafts.leaving_line(cut, hole.indent, frozen) is None]
        yield from chain(inside, moved, plain, [left])
    elif _goes_on_elsewhere(language, draft, leaving):
        yield from chain(plain, [left], moved)
    else:
        yield from chain(plain, moved, [left])


def _goes_on_elsewhere(language: Language, draft: DraftText, line: int) -> bool:
    """True if a line that leaves the body starts something new, rather than being the body at a wrong indent."""
    lines = [part.text for part in draft.lines()]
    header = language.scope_header
    return not lines[line - 1].strip() or bool(header and re.match(header, lines[line].encode("utf-8")))


@dataclass(frozen=True)
class Sieve:
    """Judges candidates for hole `index` of `trials` within its function alone, with other holes masked. This costs a
    hundredth of parsing a long file; a candidate that passes may still fail in the whole document.
    """

    document: Document
    trials: Trials
    index: int

    def judge(self, text: str, sight: Sight) -> tuple[int, int] | None:
        """Number of errors and of unknown names a candidate adds; None if it cannot be inserted or found."""
        if not text.strip():
            return None
        try:
            trimmed, _ = clean(self.document, self.trials.holes[self.index], text)
        except MidfillError:
            return None
        chosen: list[DraftText | None] = [None] * len(self.trials.holes)
        chosen[self.index] = settle_one(self.trials, self.document, chosen, self.index, trimmed)
        names = self.trials.find_names(chosen)[self.index]
        return self.trials.count(chosen), sum(not sight.has(name) for name in names)


def find_sieve(document: Document, holes: tuple[Hole, ...], index: int) -> Sieve | None:
    """The sieve of a hole; None outside of functions, or if the function has errors or contains another hole."""
    near = _find_near(document, document.syntax, holes, index) if document.syntax else None
    return None if near is None or near.num_errors else Sieve(document, near, near.holes.index(holes[index]))
