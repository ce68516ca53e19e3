"""Tokenizes a request into pieces of context and, between them, holes of anchors and masked parts. Knows no model.

For families trained with healing (`tokenizer.heal`), white space before a masked part moves into that part.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from midfill_engine.errors import RequestError
from midfill_engine.lengths.base import LengthBounds
from midfill_engine.tokens.tokenizer import HealedEdges, Tokenizer, heal
from midfill_engine.wire import ErrorCode, HoleSpec, Segment, TextSegment

# Only long runs of one character, spaces or rulers, are longer tokens. By this bound far text is not even tokenized.
MAX_CHARACTERS_PER_TOKEN: Final = 32
USUAL_CHARACTERS_PER_TOKEN: Final = 8
MAX_DRAFT_CHARACTERS: Final = 128 * 1024  # of all holes together: more than a canvas holds
# Text is cut only at a line that begins with text, because no tokenizer rule joins text across its start.
LINE_START: Final = re.compile(r"\n(?=\S)")
LAST_LINE_START: Final = re.compile(r"(?s).*\n(?=\S)")

Encode = Callable[[str], list[int]]
Heal = Callable[[str, str], HealedEdges]  # takes the texts before and behind a hole
no_healing: Final[Heal] = HealedEdges  # leaves the text around a hole as it is


@dataclass(frozen=True)
class HolePart:
    """A part of a hole: an anchor with its `ids`, or a masked part, whose `ids` are None. The `hint` of a masked part
    is the number of tokens of the draft there, None if the draft is blank there. The first token of a masked part must
    begin with `leading`, which is at most one character.
    """

    ids: tuple[int, ...] | None
    hint: int | None = None
    leading: str = ""


@dataclass(frozen=True)
class HoleOutline:
    """A hole as `stretches`: its anchors and masked parts. The user gets their text without the `lead` at its start,
    which is in the text before already, and with `tail` behind it, the end of the last anchor if it `keeps_tail`.
    """

    stretches: tuple[HolePart, ...]
    lead: str
    tail: str
    keeps_tail: bool
    forbid: tuple[str, ...]
    min_tokens: int
    max_tokens: int | None

    @property
    def masked(self) -> tuple[HolePart, ...]:
        return tuple(stretch for stretch in self.stretches if stretch.ids is None)

    @property
    def num_anchored(self) -> int:
        return sum(len(stretch.ids) for stretch in self.stretches if stretch.ids is not None)

    def length_bounds(self, max_hole: int) -> LengthBounds:
        """Length bounds of the hole; the model fills at most `max_hole` tokens at once, anchors included."""
        room = max_hole - self.num_anchored
        max_tokens = room if self.max_tokens is None else min(room, self.max_tokens)
        hints = tuple(stretch.hint for stretch in self.masked)
        min_tokens = min(self.min_tokens, room)
        return LengthBounds(hints, self.num_anchored, min_tokens, max_tokens, has_limit=self.max_tokens is not None)


@dataclass(frozen=True)
class RequestOutline:
    """`pieces[i]` is the context before hole i, the last one the context behind all holes, special ids included."""

    pieces: list[list[int]]
    holes: list[HoleOutline]


def outline_request(
    segments: list[Segment],
    tokens: Tokenizer,
    opening: list[int],
    closing: list[int],
    max_context: int,
    heal: Heal = heal,
) -> RequestOutline:
    """Tokenizes every text, and puts the special ids `opening` and `closing` around all. With these, keeps the
    `max_context` tokens of context nearest to the holes. `heal` decides on the white space at a hole's edges. Raises
    RequestError.
    """
    texts, specs = split_segments(segments)
    if sum(len(spec.draft) for spec in specs) > MAX_DRAFT_CHARACTERS:
        message = f"the drafts hold more than {MAX_DRAFT_CHARACTERS} characters"
        raise RequestError(ErrorCode.TOO_LARGE, message, "send fewer holes, or shorter drafts")
    holes: list[HoleOutline] = []
    for index, spec in enumerate(specs):
        healed_spec, edges = heal_hole(spec, texts[index], texts[index + 1], heal)
        texts[index] = edges.prefix
        texts[index + 1] = edges.suffix
        holes.append(outline_hole(healed_spec, tokens, edges, healed_spec is not spec, heal))
    budget = max_context - len(opening) - len(closing)
    pieces = []
    for text, (num_first, num_last) in zip(texts, needs_of_texts(texts, budget), strict=True):
        pieces.append(encode_ends(text, tokens.encode, num_first, num_last))
    pieces = trim_context(pieces, budget)
    pieces[0] = opening + pieces[0]
    pieces[-1] = pieces[-1] + closing
    return RequestOutline(pieces, holes)


def check_room(outline: RequestOutline, max_hole: int) -> None:
    """Raises RequestError if a hole needs more than the `max_hole` tokens that fit into one."""
    for number, hole in enumerate(outline.holes, start=1):
        room = max_hole - hole.num_anchored
        if room < max(len(hole.masked), hole.min_tokens):
            message = f"hole {number} needs more than the {max_hole} tokens that this model fills at once"
            raise RequestError(ErrorCode.TOO_LARGE, message, "make the hole smaller, or split it")


def needs_of_texts(texts: list[str], budget: int) -> list[tuple[int, int]]:
    """For each text, how many tokens of its beginning and end `trim_context` keeps at most, by character counts."""
    weights = weigh_sides(len(texts))
    min_tokens = [len(text) // MAX_CHARACTERS_PER_TOKEN for text in texts]
    shares = share_budget(budget, min_tokens, weights)
    edge_tokens = max(-(-share // weight) for share, weight in zip(shares, weights, strict=True)) + 2  # for rounding
    if sum(shares) < budget:  # by the lower bounds some is left, and one text may get all of it
        edge_tokens = budget
    return [(0, edge_tokens), *[(edge_tokens, edge_tokens)] * (len(texts) - 2), (edge_tokens, 0)]


def encode_ends(text: str, encode: Encode, num_first: int, num_last: int) -> list[int]:
    """Tokens of `text`; of a long text only those of its beginning and end, at least as many as are needed."""
    if len(text) <= (num_first + num_last) * USUAL_CHARACTERS_PER_TOKEN:
        return encode(text)
    first_ids, num_first_characters = encode_part(text, encode, num_first, take_first_lines)
    last_ids, num_last_characters = encode_part(text, encode, num_last, take_last_lines)
    if num_first_characters + num_last_characters > len(text):  # few long tokens: the ends overlap
        return encode(text)
    return first_ids + last_ids


def encode_part(text: str, encode: Encode, num_tokens: int, cut: Callable[[str, int], str]) -> tuple[list[int], int]:
    """Tokens of one end of `text`, which `cut` takes: at least `num_tokens`, if the text has so many; and how many
    characters this end has.
    """
    ids, part = list[int](), ""
    for characters_per_token in (USUAL_CHARACTERS_PER_TOKEN, MAX_CHARACTERS_PER_TOKEN):
        part = cut(text, num_tokens * characters_per_token)
        ids = encode(part) if part else []
        if len(ids) >= num_tokens or len(part) == len(text):
            break
    return ids, len(part)


def take_last_lines(text: str, size: int) -> str:
    """The last `size` characters, cut to begin at the first unindented line that begins in them, if there is one."""
    if len(text) <= size:
        return text
    part = text[len(text) - size :]
    line_start = LINE_START.search(part)
    return part[line_start.end() :] if line_start else part


def take_first_lines(text: str, size: int) -> str:
    """The first `size` characters, cut to end before the last unindented line that begins in them, if there is one."""
    if len(text) <= size:
        return text
    part = text[:size]
    line_start = LAST_LINE_START.match(part)
    return part[: line_start.end()] if line_start else part


def weigh_sides(num_texts: int) -> list[int]:
    """The number of hole edges that each of two or more texts touches: a text between two holes touches two."""
    return [1, *[2] * (num_texts - 2), 1]


def split_segments(segments: list[Segment]) -> tuple[list[str], list[HoleSpec]]:
    """Returns the texts before each hole and behind the last one, with neighboring texts joined; and the holes."""
    parts: list[list[str]] = [[]]
    specs: list[HoleSpec] = []
    for segment in segments:
        if isinstance(segment, TextSegment):
            parts[-1].append(segment.text)
        else:
            specs.append(segment.hole)
            parts.append([])
    return list(map("".join, parts)), specs


def heal_hole(spec: HoleSpec, prefix: str, suffix: str, heal: Heal) -> tuple[HoleSpec, HealedEdges]:
    """Returns the hole and its edges after healing. If the draft ends with an anchor, the anchor loses the edges' tail,
    which comes back in the answer; but if the anchor does not end with the tail, the suffix is not healed. Nothing is
    healed if that would put a forbidden string into the hole.
    """
    edges = heal(prefix, suffix)
    healed_spec = spec
    is_end_kept = bool(spec.keep) and spec.keep[-1][1] == len(spec.draft)
    if edges.tail and is_end_kept and not spec.draft.endswith(edges.tail):
        edges = heal(prefix, "")
    elif edges.tail and is_end_kept:
        draft_end = len(spec.draft) - len(edges.tail)
        keep = [(start, min(end, draft_end)) for start, end in spec.keep if start < draft_end]
        healed_spec = spec.model_copy(update={"draft": spec.draft[:draft_end], "keep": keep})
    if any(text in edges.lead or text in edges.tail for text in spec.forbid):
        return spec, HealedEdges(prefix, suffix)
    return healed_spec, edges


def outline_hole(spec: HoleSpec, tokens: Tokenizer, edges: HealedEdges, keeps_tail: bool, heal: Heal) -> HoleOutline:
    """Splits a hole with healed `edges` into anchors and masked parts. Each masked part needs a token, so those beyond
    the first `max_tokens` ones stay empty. Raises RequestError.
    """
    stretches: list[HolePart] = []
    num_masked = 0
    pending = edges.lead  # given text that is in no part yet
    for text, is_kept in split_draft(spec):
        if is_kept:
            healed = heal(pending + text, "")  # white space at the end of an anchor begins the next masked part
            if any(unwanted in healed.lead for unwanted in spec.forbid):
                healed = HealedEdges(pending + text, "")
            stretches += make_anchor(healed.prefix, tokens.encode(healed.prefix), tokens)
            pending = healed.lead
        elif spec.max_tokens is None or num_masked < spec.max_tokens:
            num_masked += 1
            hint = len(tokens.encode(text)) if text.strip() else None
            spaces = pending[:-1]
            stretches += make_anchor(spaces, encode_before_space(tokens.encode, len(spaces)), tokens)
            stretches.append(HolePart(None, hint, leading=pending[-1:]))
            pending = ""
    stretches += make_anchor(pending, tokens.encode(pending), tokens)
    lead, tail, forbid = edges.lead, edges.tail, tuple(sorted(set(spec.forbid)))
    return HoleOutline(tuple(stretches), lead, tail, keeps_tail, forbid, spec.min_tokens, spec.max_tokens)


def make_anchor(text: str, ids: list[int], tokens: Tokenizer) -> list[HolePart]:
    """A list with the anchor of `text`, empty without text. Raises RequestError if the `ids` spell another text."""
    if not text:
        return []
    if b"".join(map(tokens.token_bytes, ids)) != text.encode("utf-8", errors="replace"):
        message = "this model's tokenizer changes a text that is to be kept"
        raise RequestError(ErrorCode.BAD_REQUEST, message, "keep less of the draft, or use another model")
    return [HolePart(tuple(ids))]


def encode_before_space(encode: Encode, num_spaces: int) -> list[int]:
    """Tokens of `num_spaces` spaces that stand in front of one more space and a word."""
    if num_spaces < 1:
        return []
    ids, word_ids = encode(" " * (num_spaces + 1) + "x"), encode(" x")
    return ids[: len(ids) - len(word_ids)]


def split_draft(spec: HoleSpec) -> Iterator[tuple[str, bool]]:
    """The parts of the draft in order, each with whether it is kept. An empty draft is one empty masked part. Kept
    ranges that touch have an empty masked part between them.
    """
    if not spec.draft:
        yield "", False
    end_before = 0
    for start, end in [*spec.keep, (len(spec.draft), len(spec.draft))]:  # an empty range at the end
        if end_before < start or 0 < start < end:
            yield spec.draft[end_before:start], False
        if start < end:
            yield spec.draft[start:end], True
        end_before = end


def trim_context(pieces: list[list[int]], budget: int) -> list[list[int]]:
    """Keeps the `budget` tokens nearest to the holes: equally many at each edge, or more where others are short."""
    shares = share_budget(budget, [len(piece) for piece in pieces], weigh_sides(len(pieces)))
    kept = [keep_ends(piece, -(-share // 2), share) for piece, share in zip(pieces, shares, strict=True)]
    kept[0] = keep_ends(pieces[0], 0, shares[0])
    kept[-1] = keep_ends(pieces[-1], shares[-1], shares[-1])
    return kept


def keep_ends(piece: list[int], num_first: int, num_kept: int) -> list[int]:
    """The first `num_first` ids of a piece, and as many of the last ones as make `num_kept` together."""
    if num_kept >= len(piece):
        return piece
    return piece[:num_first] + piece[len(piece) - (num_kept - num_first) :]


def share_budget(budget: int, wants: list[int], weights: list[int]) -> list[int]:
    """Splits `budget` into shares in proportion to `weights`. No share is above its want; what one does not want goes
    to the others.
    """
    shares = [0] * len(wants)
    unspent = budget
    hungry = [index for index, want in enumerate(wants) if want]
    while unspent > 0 and hungry:
        unit = max(1, unspent // sum(weights[index] for index in hungry))
        for index in hungry:
            portion = min(unit * weights[index], wants[index] - shares[index], unspent)
            shares[index] += portion
            unspent -= portion
        hungry = [index for index in hungry if shares[index] < wants[index]]
    return shares


def is_blank(outline: HoleOutline) -> bool:
    """True if nothing of the hole's text is known, by a draft or anchors, except white space from healing."""
    hints = [stretch.hint for stretch in outline.masked]
    return hints == [None] and outline.stretches[-1].ids is None
