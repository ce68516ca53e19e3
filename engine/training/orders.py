"""Measures what settling in any order adds to a hybrid's draft from the left: one line, several at once, known tokens.

Knows checkpoints and held-out gaps; no experts. Greedy, own lengths but for the known tokens, whose number is given.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from midfill_engine.denoising.causal import Reader
from midfill_engine.denoising.denoise import denoise, drain
from midfill_engine.families.embedded import Embedded
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.models.packed import score_rows
from midfill_engine.models.transformer import KeyValues
from midfill_engine.tokens.special import MASK, SPECIAL_TOKENS
from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest, Segment, TextSegment
from training.data import spans
from training.data.pack import Pack, read_pack
from training.data.rows import draw_window
from training.evaluate import Gap, as_example, draw_gaps, likeness, open_gap

NUM_LINES: Final = 3  # hidden at once
REACH: Final = 10  # lines within which they stand
MIN_LETTERS: Final = 8
SPECIAL: Final = torch.arange(len(SPECIAL_TOKENS))
RESAMPLES: Final = 2000
WAYS: Final = {"drafts alone": "drafted-greedy", "beam": "drafted", "beam, weakest anew": "drafted-settled"}

Found = dict[str, list[tuple[float, float]]]  # by way, of every hole: whether it is right, how similar
Text = list[str]  # pieces in turn known and hidden, known ones at both ends


def measure(checkpoint: Path, pack: Path, num_gaps: int = 300, context: int = 256) -> dict[str, str]:
    """By situation and way: % exact and % similar, and their differences to the first way, with 95 % intervals."""
    runtime = load_runtime(str(checkpoint), "cpu")
    held_out = read_pack(pack, "validation")
    lines = draw_gaps(held_out, runtime.loaded.tokenizer, num_gaps, context)
    texts = list(draw_texts(runtime, held_out, num_gaps // NUM_LINES, context))
    situations = {
        "one line": fill_all(runtime, [[gap.prefix, gap.middle, gap.suffix] for gap in lines]),
        f"{NUM_LINES} lines": fill_all(runtime, texts),
        "every second token known": know_half(runtime, lines, context),
    }
    return {f"{name}: {way}": row for name, found in situations.items() for way, row in tell(found).items()}


def draw_texts(runtime: Runtime, pack: Pack, num_texts: int, context: int) -> Iterator[Text]:
    """Windows of which lines near each other are hidden, their indents not."""
    rng = np.random.default_rng(2025)
    while num_texts:
        _, text = draw_window(pack, runtime.loaded.tokenizer, context, rng)
        every = spans.line_spans(text)
        first = int(rng.integers(max(1, len(every) - REACH)))
        near = [span for span in every[first : first + REACH] if len(text[slice(*span)].strip()) >= MIN_LETTERS]
        if len(near) < NUM_LINES:
            continue
        chosen = sorted(rng.choice(len(near), NUM_LINES, replace=False).tolist())
        pieces, end = Text(), 0
        for start, stop in (near[index] for index in chosen):
            middle = text[start:stop].strip()
            begin = text.index(middle, start)
            pieces += [text[end:begin], middle]
            end = begin + len(middle)
        yield [*pieces, text[end:]]
        num_texts -= 1


def fill_all(runtime: Runtime, texts: Sequence[Text]) -> Found:
    found: Found = defaultdict(list)
    for text in texts:
        hidden = text[1::2]
        made = {way: fill(runtime, text, lengths) for way, lengths in WAYS.items()}
        sizes = [max(1, len(runtime.loaded.tokenizer.encode(draft))) for draft in made["drafts alone"]]
        made["masks as long as the drafts"] = fill(runtime, text, "fixed", sizes)
        made["masks"] = fill(runtime, text, "learned")
        if len(hidden) > 1:
            made["drafts one after another"] = one_by_one(runtime, text)
        for way, fills in made.items():
            found[way] += [(float(one == true), likeness(one, true)) for one, true in zip(fills, hidden, strict=True)]
    return found


def one_by_one(runtime: Runtime, text: Text) -> list[str]:
    """Each hole with those before it filled, as a model without masks would; those behind are nothing."""
    fills: list[str] = []
    for hole in range(1, len(text), 2):
        before = "".join(known + fill for known, fill in zip(text[:hole:2], [*fills, ""], strict=True))
        fills += fill(runtime, [before, text[hole], "".join(text[hole + 1 :: 2])], "drafted-greedy")
    return fills


def fill(runtime: Runtime, text: Text, lengths: str, sizes: Sequence[int] | None = None) -> list[str]:
    """The engine's own greedy fills of all holes in one request, each of at most `sizes` tokens."""
    segments: list[Segment] = [TextSegment(text=text[0])]
    for number, known in enumerate(text[2::2]):
        hole = HoleSpec() if sizes is None else HoleSpec(max_tokens=sizes[number])
        segments += [HoleSegment(hole=hole), TextSegment(text=known)]
    request = InfillRequest(segments=segments, quality=1.0, experts=[])
    return [hole.text for hole in drain(denoise(runtime, request, lengths=lengths)).holes]


def know_half(runtime: Runtime, lines: Sequence[Gap], context: int) -> Found:
    """The tokens of a line between known ones: from the left, what is known written for it, and by masks, surest first.

    Every line is one row: the share of its hidden tokens that is right, twice.
    """
    found: Found = defaultdict(list)
    for line in lines:
        example = as_example(runtime, line, context)
        if example is None or len(example.gaps[0]) < 2:
            continue
        targets, positions, keys = open_gap(runtime.loaded.model, example)
        known = torch.arange(len(targets)) % 2 == 1
        for way, ids in (
            ("drafts alone", write(runtime, Reader(runtime, keys, [int(positions[0, 0])]), targets, known)),
            ("masks", settle(runtime.loaded.model, targets, positions, keys, known)),
        ):
            right = float((ids == targets)[~known].float().mean())
            found[way].append((right, right))
    return found


@torch.inference_mode()
def write(runtime: Runtime, reader: Reader, ids: Tensor, known: Tensor) -> Tensor:
    """The likeliest token at every place of `ids` [L] from the left, with the `known` ones [L] given."""
    made: list[int] = []
    for place, token in enumerate(ids.tolist()):
        if not known[place]:
            (result,) = runtime.run([reader.open((0, made), torch.tensor([place]))])
            (scores,) = score_rows(runtime.loaded.model.transformer, [result.hidden], runtime.operators)
            token = int(scores[0].index_fill(-1, SPECIAL, -torch.inf).argmax())
        made.append(token)
    return torch.tensor(made)


@torch.inference_mode()
def settle(model: Embedded, ids: Tensor, positions: Tensor, keys: KeyValues, known: Tensor) -> Tensor:
    """The same by masks, the surest of them first; `positions` [2, L]."""
    made, is_open = torch.where(known, ids, MASK), ~known
    while bool(is_open.any()):
        scores = model.step(made[None], positions[None], keys)[0].index_fill(-1, SPECIAL, -torch.inf)
        sure, tokens = scores.softmax(dim=-1).max(dim=-1)
        place = int(sure.masked_fill(~is_open, -1).argmax())
        made[place], is_open[place] = tokens[place], False
    return made


def tell(found: Found) -> dict[str, str]:
    first = np.array(next(iter(found.values())))
    rows = {}
    for way, values in found.items():
        table = 100 * np.array(values)
        drawn = np.random.default_rng(0).integers(len(table), size=(RESAMPLES, len(table)))
        cells = []
        for column in range(table.shape[1]):
            difference = table[:, column] - 100 * first[:, column]
            low, high = np.percentile(difference[drawn].mean(axis=1), (2.5, 97.5))
            cells.append(f"{table[:, column].mean():.1f} ({difference.mean():+.1f}, {low:+.1f} to {high:+.1f})")
        rows[way] = " | ".join(cells)
    return rows
