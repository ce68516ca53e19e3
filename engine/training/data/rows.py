"""Cuts rows for the trainer out of packed files: context, gaps, masks, positions. Knows no model; all arrays are numpy.

B rows, C context positions, N copies of G gap positions, K gaps a row at most.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from midfill_engine.families.embedded import LENGTH_BUCKETS
from midfill_engine.tokens.special import DELETE, END, MASK, PAD, START
from midfill_engine.tokens.tokenizer import Tokenizer, closing_ids, heal, opening_ids
from training.data import spans
from training.data.corpus import LANGUAGES
from training.data.pack import Pack

MAX_GAPS: Final = 24
MAX_DELETES: Final = 32
MIN_BETWEEN: Final = 12  # characters between two gaps

Ids = list[int]
Copy = Literal["masked", "causal", "tokens", "queries"]


@dataclass(frozen=True)
class RowShape:
    """Static sizes of a row, in tokens, and what its copies of the gaps are for.

    `masked`: some tokens are hidden and asked for where they stand. `causal`: all are asked for, each of what stands
    before it in its gap, then END. `tokens` and `queries` are the same with the asking apart from the asked: `queries`
    are masks, each of which reads the `tokens` before it.
    """

    context: int
    gap: int
    hole_span: int
    copies: tuple[Copy, ...] = ("masked", "masked")

    @property
    def computed(self) -> int:
        return self.context + len(self.copies) * self.gap


@dataclass(frozen=True)
class Example:
    """One document window: `texts` (one more than `gaps`) are context ids with the opening and closing ids in them."""

    texts: list[Ids]
    gaps: list[Ids]


@dataclass(frozen=True)
class Batch:
    """Rows of N copies of their gaps. A gap position sees the context, itself, and every position whose group is the
    one that it sees and whose rank is at most its own.
    """

    context_ids: NDArray[np.int64]  # [B, C], PAD at the end
    context_positions: NDArray[np.int64]  # [B, C]
    gap_ids: NDArray[np.int64]  # [B, N, G], PAD at the end
    gap_positions: NDArray[np.int64]  # [B, N, 2, G] from the left, from the right; from the left twice where causal
    groups: NDArray[np.int64]  # [B, N, G], -1 where none may see it
    sees: NDArray[np.int64]  # [B, N, G], -2 where it sees none
    ranks: NDArray[np.int64]  # [B, N, G]
    targets: NDArray[np.int64]  # [B, N, G]
    weights: NDArray[np.float32]  # [B, N, G], 0 where there is no loss
    edges: NDArray[np.int64]  # [B, K, 2]
    buckets: NDArray[np.int64]  # [B, K], -1 where there is no gap


@dataclass(frozen=True)
class GapMix:
    """Which gaps rows have: in `body_share` of them one body, else others, of these one to three in `few_share` of the
    rows, else as many as fit.
    """

    body_share: float = 1 / 8
    few_share: float = 1 / 8


DEFAULT_MIX: Final = GapMix()
AS_REQUESTED: Final = GapMix(few_share=1.0)
LONGEST_GAP: Final = 256  # in tokens


@dataclass(frozen=True)
class Noise:
    """How gaps are masked: `full_share` of them wholly; then `t = sigmoid(normal)` and the second copy complements."""

    full_share: float = 0.25
    delete_share: float = 0.5


def draw_window(pack: Pack, tokenizer: Tokenizer, num_tokens: int, rng: np.random.Generator) -> tuple[str, str]:
    """A language and a text of about `num_tokens` tokens from a file drawn by length, starting at a line's start."""
    token = int(rng.integers(len(pack.tokens)))
    file = int(np.searchsorted(pack.starts, token, side="right")) - 1
    length = int(pack.lengths[file])
    start = int(rng.integers(-num_tokens // 4, max(1, length - num_tokens * 3 // 4)))
    start = min(max(start, 0), max(0, length - num_tokens))
    first = int(pack.starts[file]) + start
    ids = pack.tokens[first : first + min(num_tokens, length - start)].tolist()
    text = tokenizer.decode_bytes(ids).decode("utf-8", errors="ignore")
    if start > 0:
        text = text[text.find("\n") + 1 :]
    return LANGUAGES[pack.languages[file]], text


def choose_gaps(
    text: str, tokenizer: Tokenizer, num_tokens: int, rng: np.random.Generator, mix: GapMix = DEFAULT_MIX
) -> list[spans.Span]:
    """Disjoint gaps in document order that fit `num_tokens` with room for deletes.

    Most rows are filled with gaps, since only their tokens are learned from; some have few, as requests have.
    """
    if rng.random() < mix.body_share:
        block = spans.body(text, rng)
        if block is not None and 16 <= len(tokenizer.encode(text[slice(*block)])) <= num_tokens - 8:
            return [block]
    chosen: list[spans.Span] = []
    most = int(rng.integers(1, 4)) if rng.random() < mix.few_share else MAX_GAPS
    left = num_tokens
    for _ in range(3 * MAX_GAPS):
        span = spans.choose(text, rng)
        if span is None or span[1] - span[0] > 4 * left or not text[slice(*span)].strip():
            continue
        if any(span[0] < end + MIN_BETWEEN and start < span[1] + MIN_BETWEEN for start, end in chosen):
            continue
        length = len(tokenizer.encode(text[slice(*span)]))
        if length <= min(LONGEST_GAP, left - 4):
            chosen.append(span)
            left -= length + 4
        if len(chosen) == most or left < 8:
            break
    return sorted(chosen)


def split_at_gaps(text: str, gaps: list[spans.Span]) -> tuple[list[str], list[str]]:
    """The texts between gaps and the gaps' texts, healed at every edge as at inference."""
    bounds = [0, *(bound for gap in gaps for bound in gap), len(text)]
    texts = [text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
    middles = [text[start:end] for start, end in gaps]
    for index, middle in enumerate(middles):
        healed = heal(texts[index], texts[index + 1])
        if middle.endswith(healed.tail):
            texts[index], texts[index + 1] = healed.prefix, healed.suffix
            middles[index] = healed.lead + middle.removesuffix(healed.tail)
    return texts, middles


def drop_suffix(text: str, last: spans.Span, rng: np.random.Generator) -> str:
    """The text after the last gap stays in 85 % of the rows, is cut short in 10 % and goes in 5 %."""
    draw = rng.random()
    if draw < 0.05:
        return text[: last[1]]
    return text[: int(rng.integers(last[1], len(text) + 1))] if draw < 0.15 else text


def make_example(
    language: str | None, text: str, gaps: list[spans.Span], tokenizer: Tokenizer, shape: RowShape
) -> Example | None:
    """Tokenises texts and gaps each on its own and trims the far ends to the row. None where they do not fit."""
    texts, middles = split_at_gaps(text, gaps)
    encoded = tokenizer.encode_batch([*texts, *middles])
    context, middle_ids = encoded[: len(texts)], encoded[len(texts) :]
    opening, closing = opening_ids(language), closing_ids()
    excess = sum(map(len, context)) + len(opening) + len(closing) - shape.context
    if excess > 0:
        from_first = min(len(context[0]), excess * len(context[0]) // max(1, len(context[0]) + len(context[-1])))
        from_last = excess - from_first
        if from_last > len(context[-1]):
            return None
        context[0] = context[0][from_first:]
        context[-1] = context[-1][: len(context[-1]) - from_last]
    context[0] = opening + context[0]
    context[-1] = context[-1] + closing
    if sum(map(len, middle_ids)) + len(middle_ids) > shape.gap or not all(middle_ids):  # one more each: START
        return None
    return Example(context, middle_ids)


def draw_example(
    pack: Pack, tokenizer: Tokenizer, shape: RowShape, rng: np.random.Generator, mix: GapMix = DEFAULT_MIX
) -> Example:
    """Draws windows until one has gaps that fit."""
    while True:
        language, text = draw_window(pack, tokenizer, shape.context + shape.gap * 3 // 4, rng)
        gaps = choose_gaps(text, tokenizer, shape.gap, rng, mix)
        if not gaps:
            continue
        example = make_example(language, drop_suffix(text, gaps[-1], rng), gaps, tokenizer, shape)
        if example is not None:
            return example


def mask_gap(length: int, noise: Noise, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Two masks [2, length]. Unless the first hides all, every token is hidden in exactly one of the two."""
    masks = np.ones((2, length), dtype=np.bool_)
    if rng.random() < noise.full_share:
        masks[1] = rng.random(length) < rng.uniform(0.2, 0.8)
        return masks
    share = 1 / (1 + np.exp(-rng.normal()))
    masks[0] = rng.random(length) < share
    if not masks[0].any():
        masks[0, rng.integers(length)] = True
    masks[1] = ~masks[0]
    return masks


def draw_deletes(length: int, room: int, noise: Noise, rng: np.random.Generator) -> int:
    """How many DELETE tokens stand at the end of a gap of `length` tokens."""
    if rng.random() >= noise.delete_share:
        return 0
    return int(rng.integers(0, min(max(4, length // 2), MAX_DELETES, room) + 1)) if room > 0 else 0


def collate(examples: list[Example], shape: RowShape, noise: Noise, rng: np.random.Generator) -> Batch:
    """Masks the gaps and lays out positions as `models.embedded.lay_out` does, in padded arrays."""
    rows, copies, gap, context = len(examples), len(shape.copies), shape.gap, shape.context
    batch = Batch(
        context_ids=np.full((rows, context), PAD, np.int64),
        context_positions=np.zeros((rows, context), np.int64),
        gap_ids=np.full((rows, copies, gap), PAD, np.int64),
        gap_positions=np.zeros((rows, copies, 2, gap), np.int64),
        groups=np.full((rows, copies, gap), -1, np.int64),
        sees=np.full((rows, copies, gap), -2, np.int64),
        ranks=np.zeros((rows, copies, gap), np.int64),
        targets=np.zeros((rows, copies, gap), np.int64),
        weights=np.zeros((rows, copies, gap), np.float32),
        edges=np.zeros((rows, MAX_GAPS, 2), np.int64),
        buckets=np.full((rows, MAX_GAPS), -1, np.int64),
    )
    for row, example in enumerate(examples):
        _fill_row(batch, row, example, shape, noise, rng)
    return batch


def _fill_row(
    batch: Batch, row: int, example: Example, shape: RowShape, noise: Noise, rng: np.random.Generator
) -> None:
    position = seen = 0
    used = [0] * len(shape.copies)
    room = shape.gap - sum(map(len, example.gaps))
    for index, text in enumerate(example.texts):
        batch.context_ids[row, seen : seen + len(text)] = text
        batch.context_positions[row, seen : seen + len(text)] = np.arange(position, position + len(text))
        position, seen = position + len(text), seen + len(text)
        if index == len(example.gaps):
            break
        ids = example.gaps[index]
        deletes = draw_deletes(len(ids), room, noise, rng)
        room -= deletes
        masks = np.ones((2, len(ids) + deletes), np.bool_)
        masks[:, : len(ids)] = mask_gap(len(ids), noise, rng)
        for copy, kind in enumerate(shape.copies):
            made = (
                _masked(ids, deletes, masks[shape.copies[:copy].count("masked")], copy, position, shape.hole_span)
                if kind == "masked"
                else _causal(kind, ids, len(shape.copies) + index, position)
            )
            here = slice(used[copy], used[copy] + len(made["targets"]))
            for name, values in made.items():
                getattr(batch, name)[row, copy, ..., here] = values
            used[copy] = here.stop
        position += shape.hole_span
        batch.edges[row, index] = max(seen - 1, 0), seen
        batch.buckets[row, index] = np.searchsorted(LENGTH_BUCKETS, len(ids))


Arrays = dict[str, NDArray[np.generic]]


def _masked(ids: Ids, deletes: int, mask: NDArray[np.bool_], copy: int, start: int, hole_span: int) -> Arrays:
    """A gap and its deletions, those of `mask` [L + deletes] hidden. All masked gaps of a copy see each other."""
    target = np.array(ids + [DELETE] * deletes)
    left = np.arange(start, start + len(target))
    group = np.full(len(target), copy)
    return {
        "gap_ids": np.where(mask, MASK, target),
        "gap_positions": np.stack((left, left + hole_span - len(target))),
        "groups": group,
        "sees": group,
        "ranks": np.zeros_like(group),
        "targets": target,
        "weights": mask * np.where(target == DELETE, 1 / max(deletes, 1), 1.0),
    }


def _causal(kind: Copy, ids: Ids, group: int, start: int) -> Arrays:
    """A gap read from the left: START and its tokens, each asked for the next one; or the two apart."""
    inputs = {"causal": [START, *ids], "tokens": ids, "queries": [MASK] * (len(ids) + 1)}[kind]
    ranks = np.arange(len(inputs)) - (kind == "queries")
    groups = np.full(len(inputs), group)
    left = np.arange(start, start + len(inputs)) - (kind == "causal")
    return {
        "gap_ids": np.array(inputs),
        "gap_positions": np.stack((left, left)),
        "groups": groups if kind != "queries" else np.full(len(inputs), -1),
        "sees": groups,
        "ranks": ranks,
        "targets": np.array([*ids, END]) if kind != "tokens" else np.array(ids),
        "weights": np.full(len(inputs), float(kind != "tokens"), np.float32),
    }


def draw_stream(pack: Pack, shape: RowShape, num_rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows [B, computed + 1] of consecutive tokens across files, for the causal stage."""
    length = shape.computed + 1
    starts = rng.integers(0, len(pack.tokens) - length, size=num_rows)
    return np.stack([pack.tokens[start : start + length] for start in starts]).astype(np.int64)
