"""What `training orders` compares: windows with hidden lines, and known tokens that stay."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from midfill_engine.denoising.causal import Reader
from midfill_engine.families.embedded import Embedded
from midfill_engine.loading import checkpoint
from midfill_engine.loading.runtime import Runtime
from midfill_engine.tokens.special import MASK, SPECIAL_TOKENS
from midfill_engine.tokens.tokenizer import Tokenizer
from training import ablate
from training.data.pack import read_pack
from training.data.rows import RowShape
from training.evaluate import as_example, draw_gaps, open_gap, read_nats
from training.orders import NUM_LINES, draw_texts, settle, tell, write
from training.train import RunConfig, embedded_config


@pytest.fixture
def runtime(config: RunConfig, tokenizer: Tokenizer, tmp_path: Path) -> Runtime:
    model = Embedded(embedded_config(replace(config, objective="hybrid"), tokenizer.vocab_size))
    model.initialize(torch.Generator().manual_seed(3))
    checkpoint.save(tmp_path, model, tokenizer, "float32")
    return Runtime.of(checkpoint.load(tmp_path), "toy")


def test_windows_hide_lines_without_their_indents(runtime: Runtime, pack_folder: Path) -> None:
    texts = list(draw_texts(runtime, read_pack(pack_folder, "validation"), 5, 96))
    assert len({"".join(text) for text in texts}) > 1
    for text in texts:
        hidden = text[1::2]
        assert len(text) == 2 * NUM_LINES + 1 and all(line == line.strip() != "" for line in hidden)
        assert all(known.endswith((" ", "\n", "\t")) or not known for known in text[:-1:2]), "whole lines"


def test_the_cost_of_a_line_read_is_the_causal_copys_loss(runtime: Runtime, pack_folder: Path) -> None:
    gaps = draw_gaps(read_pack(pack_folder, "validation"), runtime.loaded.tokenizer, 6, 96)
    examples = [example for gap in gaps if (example := as_example(runtime, gap, 96))]
    losses = ablate._read_nats(runtime.loaded.model, ("causal",), examples, ablate.Toy(RowShape(96, 48, 64)))
    assert [read_nats(runtime, example) for example in examples] == pytest.approx(losses, rel=1e-4)
    assert len({round(loss) for loss in losses}) > 2


def test_known_tokens_stay_and_the_others_are_the_likeliest(runtime: Runtime, pack_folder: Path) -> None:
    gaps = draw_gaps(read_pack(pack_folder, "validation"), runtime.loaded.tokenizer, 20, 96)
    example = as_example(runtime, next(gap for gap in gaps if len(gap.middle) > 12), 96)
    assert example is not None
    targets, positions, keys = open_gap(runtime.loaded.model, example)
    reader, every = Reader(runtime, keys, [int(positions[0, 0])]), torch.ones(len(targets), dtype=torch.bool)
    assert torch.equal(write(runtime, reader, targets, every), targets)
    assert torch.equal(settle(runtime.loaded.model, targets, positions, keys, every), targets)
    place = len(targets) // 2
    known = every.clone()
    known[place] = False
    settled = settle(runtime.loaded.model, targets, positions, keys, known)
    with torch.inference_mode():
        scores = runtime.loaded.model.step(torch.where(known, targets, MASK)[None], positions[None], keys)[0, place]
    assert settled[place] == scores[len(SPECIAL_TOKENS) :].argmax() + len(SPECIAL_TOKENS)
    written, later = write(runtime, reader, targets, known), targets.clone()
    later[place + 1 :] = targets[place]
    assert torch.equal(written[known], targets[known]) and torch.equal(settled[known], targets[known])
    assert write(runtime, reader, later, known)[place] == written[place], (
        "what is read from the left sees nothing behind"
    )


def test_differences_are_to_the_first_way() -> None:
    rows = tell({"first": [(0.0, 0.5), (1.0, 0.5)], "second": [(1.0, 0.5), (1.0, 1.0)]})
    assert rows["first"].startswith("50.0 (+0.0, +0.0 to +0.0) | 50.0")
    assert rows["second"].startswith("100.0 (+50.0, +0.0 to +100.0) | 75.0 (+25.0")
