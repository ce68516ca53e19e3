"""Tokenizes segments: context pieces around holes of anchors and masked stretches. Knows no model.

Families trained with healing (`tokenizer.heal`) get white space before a masked stretch moved into the stretch.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from midfill_engine.errors import RequestError
from midfill_engine.lengths.base import HoleNeed
from midfill_engine.tokens.tokenizer import HealedEdges, Tokenizer, heal
from midfill_engine.wire import ErrorCode, HoleSegment, HoleSpec, Segment, TextSegment

# Only long runs of white space are longer tokens: text further away is not even tokenized.
MAX_CHARACTERS_PER_TOKEN: Final = 32
USUAL_CHARACTERS_PER_TOKEN: Final = 8
MAX_DRAFT_CHARACTERS: Final = 128 * 1024  # of all holes: more than a canvas holds
# No tokenizer rule joins text across it.
LINE_START: Final = re.compile(r"\n(?=\S)")
LAST_LINE_START: Final = re.compile(r"(?s).*\n(?=\S)")

Encode = Callable[[str], list[int]]
Heal = Callable[[str, str], HealedEdges]
no_healing: Final[Heal] = HealedEdges  # leaves the text around a hole as it is


@dataclass(frozen=True)
class HolePart:
    """A part of a hole: an anchor with its `ids`, or masked (`ids` None) with the token count of its draft as a `hint`.
    `leading` is at most one character that the first token of a masked stretch begins with.
    """

    ids: tuple[int, ...] | None
    hint: int | None = None
    leading: str = ""


@dataclass(frozen=True)
class HoleOutline:
    """A hole as stretches. The answer is their text without `lead`, which belongs to the context, plus `tail`."""

    stretches: tuple[HolePart, ...]
    lead: str
    tail: str
    forbid: tuple[str, ...]
    min_tokens: int
    max_tokens: int | None

    @property
    def masked(self) -> tuple[HolePart, ...]:
        return tuple(stretch for stretch in self.stretches if stretch.ids is None)

    @property
    def num_anchored(self) -> int:
        return sum(len(stretch.ids) for stretch in self.stretches if stretch.ids is not None)

    def need(self, max_hole: int) -> HoleNeed:
        """Length bounds of the hole; `max_hole` is what the model can fill at once, anchors included."""
        room = max_hole - self.num_anchored
        has_limit = self.max_tokens is not None
        most = room
        if self.max_tokens is not None:
            most = min(room, self.max_tokens)
        hints = tuple(stretch.hint for stretch in self.masked)
        return HoleNeed(hints, self.num_anchored, min(self.min_tokens, room), most, has_limit)


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
    """Tokenizes every text; keeps the `max_context` tokens of context nearest to the holes. Raises RequestError."""
    texts, specs = split_segments(segments)
    if sum(len(spec.draft) for spec in specs) > MAX_DRAFT_CHARACTERS:
        message = f"the drafts hold more than {MAX_DRAFT_CHARACTERS} characters"
        raise RequestError(ErrorCode.TOO_LARGE, message, "send fewer holes, or shorter drafts")
    holes: list[HoleOutline] = []
    for index, spec in enumerate(specs):
        spec, healed = heal_hole(spec, texts[index], texts[index + 1], heal)
        texts[index] = healed.prefix
        texts[index + 1] = healed.suffix
        holes.append(outline_hole(spec, tokens, healed.lead, healed.tail, heal))
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
    for index, hole in enumerate(outline.holes):
        room = max_hole - hole.num_anchored
        if room < max(len(hole.masked), hole.min_tokens):
            message = f"hole {index} needs more than the {max_hole} tokens that this model fills at once"
            raise RequestError(ErrorCode.TOO_LARGE, message, "make the hole smaller, or split it")


def needs_of_texts(texts: list[str], budget: int) -> list[tuple[int, int]]:
    """Upper bounds of the tokens needed from each text's beginning and end, from character counts."""
    weights = weigh_sides(len(texts))
    least = [len(text) // MAX_CHARACTERS_PER_TOKEN for text in texts]
    shares = share_budget(budget, least, weights)
    unit = max(-(-share // weight) for share, weight in zip(shares, weights, strict=True)) + 2  # of rounding
    if sum(shares) < budget:
        unit = budget
    if len(texts) == 1:
        return [(0, unit)]
    return [(0, unit), *[(unit, unit)] * (len(texts) - 2), (unit, 0)]


def encode_ends(text: str, encode: Encode, num_first: int, num_last: int) -> list[int]:
    """Tokens of `text`; of a long text only as much of its beginning and end as can be needed."""
    if len(text) <= (num_first + num_last) * USUAL_CHARACTERS_PER_TOKEN:
        return encode(text)
    return encode_part(text, encode, num_first, take_first_lines) + encode_part(text, encode, num_last, take_last_lines)


def encode_part(text: str, encode: Encode, num_tokens: int, cut: Callable[[str, int], str]) -> list[int]:
    """Tokens of one end of `text`: at least `num_tokens`, if it has them."""
    ids: list[int] = []
    for most in (USUAL_CHARACTERS_PER_TOKEN, MAX_CHARACTERS_PER_TOKEN):
        part = cut(text, num_tokens * most)
        ids = encode(part) if part else []
        if len(ids) >= num_tokens or len(part) == len(text):
            break
    return ids


def take_last_lines(text: str, size: int) -> str:
    """The last `size` characters, starting at a line."""
    if len(text) <= size:
        return text
    part = text[len(text) - size :]
    line_start = LINE_START.search(part)
    return part[line_start.end() :] if line_start else part


def take_first_lines(text: str, size: int) -> str:
    """The first `size` characters, ending at a line."""
    if len(text) <= size:
        return text
    part = text[:size]
    line_start = LAST_LINE_START.match(part)
    return part[: line_start.end()] if line_start else part


def weigh_sides(num_texts: int) -> list[int]:
    """The number of hole edges that each text touches: a text between two holes touches two."""
    return [1, *[2] * (num_texts - 2), 1][:num_texts]


def split_segments(segments: list[Segment]) -> tuple[list[str], list[HoleSpec]]:
    """The texts before each hole and behind the last, neighboring texts joined; and the holes."""
    texts = [""]
    specs = []
    for segment in segments:
        match segment:
            case TextSegment(text=text):
                texts[-1] += text
            case HoleSegment(hole=hole):
                specs.append(hole)
                texts.append("")
    return texts, specs


def heal_hole(spec: HoleSpec, prefix: str, suffix: str, heal: Heal) -> tuple[HoleSpec, HealedEdges]:
    """The hole with its draft adjusted, and its edges after healing, which keeps anchors and adds nothing forbidden."""
    healed = heal(prefix, suffix)
    is_end_kept = bool(spec.keep) and spec.keep[-1][1] == len(spec.draft)
    if healed.tail and is_end_kept and not spec.draft.endswith(healed.tail):
        healed = heal(prefix, "")
    elif healed.tail and is_end_kept:
        end = len(spec.draft) - len(healed.tail)
        keep = [(start, min(stop, end)) for start, stop in spec.keep if start < end]
        spec = spec.model_copy(update={"draft": spec.draft[:end], "keep": keep})
    if any(text in healed.lead or text in healed.tail for text in spec.forbid):
        return spec, HealedEdges(prefix, suffix)
    return spec, healed


def outline_hole(spec: HoleSpec, tokens: Tokenizer, lead: str, tail: str, heal: Heal = heal) -> HoleOutline:
    """Splits a hole into stretches; `lead` is the text it must begin with. Raises RequestError."""
    stretches: list[HolePart] = []
    pending = lead
    for text, is_kept in split_draft(spec):
        if is_kept:
            healed = heal(pending + text, "")  # the next masked stretch may begin with the end of an anchor
            if any(unwanted in healed.lead for unwanted in spec.forbid):
                healed = HealedEdges(pending + text, "")
            stretches += anchor(healed.prefix, tokens.encode(healed.prefix), tokens)
            pending = healed.lead
        else:
            hint = None
            if text.strip():
                hint = len(tokens.encode(text))
            spaces = pending[:-1]
            stretches += anchor(spaces, encode_before_space(tokens.encode, len(spaces)), tokens)
            stretches.append(HolePart(None, hint, leading=pending[-1:]))
            pending = ""
    stretches += anchor(pending, tokens.encode(pending), tokens)
    return HoleOutline(tuple(stretches), lead, tail, tuple(spec.forbid), spec.min_tokens, spec.max_tokens)


def anchor(text: str, ids: list[int], tokens: Tokenizer) -> list[HolePart]:
    """`ids` as an anchor, none for an empty text. Raises RequestError if the tokenizer changes `text`."""
    if not text:
        return []
    if b"".join(map(tokens.token_bytes, ids)) != text.encode("utf-8", errors="replace"):
        message = "this model's tokenizer changes a text that is to be kept"
        raise RequestError(ErrorCode.BAD_REQUEST, message, "keep less of the draft, or use another model")
    return [HolePart(tuple(ids))]


def encode_before_space(encode: Encode, num_spaces: int) -> list[int]:
    """Tokens of `num_spaces` spaces in front of one more space and a word."""
    if num_spaces < 1:
        return []
    ids, ending = encode(" " * (num_spaces + 1) + "x"), encode(" x")
    return ids[: len(ids) - len(ending)]


def split_draft(spec: HoleSpec) -> Iterator[tuple[str, bool]]:
    """The draft's parts in order, and whether each is kept. An empty draft is one empty masked part, and there is one
    between kept parts that touch.
    """
    if not spec.draft:
        yield "", False
    end_before = 0
    for start, end in [*spec.keep, (len(spec.draft), len(spec.draft))]:
        if end_before < start or 0 < start < end:
            yield spec.draft[end_before:start], False
        if start < end:
            yield spec.draft[start:end], True
        end_before = end


def trim_context(pieces: list[list[int]], budget: int) -> list[list[int]]:
    """The `budget` tokens nearest to the holes: an equal share for each hole edge, and unused shares move."""
    if len(pieces) == 1:
        return [pieces[0][:budget]]
    shares = share_budget(budget, [len(piece) for piece in pieces], weigh_sides(len(pieces)))
    kept = [keep_ends(piece, -(-share // 2), share) for piece, share in zip(pieces, shares, strict=True)]
    kept[0] = keep_ends(pieces[0], 0, shares[0])
    kept[-1] = keep_ends(pieces[-1], shares[-1], shares[-1])
    return kept


def keep_ends(piece: list[int], num_first: int, num_kept: int) -> list[int]:
    """The first `num_first` and the last `num_kept - num_first` items."""
    if num_kept >= len(piece):
        return piece
    return piece[:num_first] + piece[len(piece) - (num_kept - num_first) :]


def share_budget(budget: int, wants: list[int], weights: list[int]) -> list[int]:
    """Splits `budget` in proportion to `weights`, none above its want; what is not wanted goes to the others."""
    given = [0] * len(wants)
    hungry = [index for index, want in enumerate(wants) if want]
    while budget > 0 and hungry:
        unit = max(1, budget // sum(weights[index] for index in hungry))
        for index in hungry:
            portion = min(unit * weights[index], wants[index] - given[index], budget)
            given[index] += portion
            budget -= portion
        hungry = [index for index in hungry if given[index] < wants[index]]
    return given


def is_blank(outline: HoleOutline) -> bool:
    """True if nothing of the hole's text is known except white space from healing."""
    hints = [stretch.hint for stretch in outline.masked]
    return hints == [None] and outline.stretches[-1].ids is None
