"""Gaps and rows: spans are what they claim, rows hold the document, masks complement, positions match the engine's."""

import lzma
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from midfill_engine.families.embedded import LENGTH_BUCKETS, lay_out
from midfill_engine.tokens.special import DELETE, END, EOS, MASK, PAD, START
from midfill_engine.tokens.tokenizer import Tokenizer, opening_ids
from training.data import spans
from training.data.fim import MIDDLE, PREFIX, SUFFIX, draw_fim
from training.data.loader import Loader
from training.data.pack import read_pack, squeeze, unpack
from training.data.rows import (
    Example,
    GapMix,
    Noise,
    RowShape,
    choose_gaps,
    collate,
    draw_example,
    draw_window,
    make_example,
    mask_gap,
    split_at_gaps,
)

SHAPE = RowShape(context=96, gap=48, hole_span=64)
TEXT = """\
def load(path, mode="r"):
    with open(path, mode) as file:
        rows = [line.split(",") for line in file]

        total = sum(len(row) for row in rows)
    return rows, total


print(load("a.csv"))
"""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_bracketed_is_balanced(rng: np.random.Generator) -> None:
    for _ in range(100):
        span = spans.bracketed(TEXT, rng)
        if span is not None:
            inside = TEXT[slice(*span)]
            assert spans.BRACKETS[TEXT[span[0] - 1]] == TEXT[span[1]]
            assert all(inside.count(opening) == inside.count(closing) for opening, closing in spans.BRACKETS.items())


def test_lines_never_leave_their_block(rng: np.random.Generator) -> None:
    for chooser in (spans.one_line, spans.consecutive_lines):
        for _ in range(100):
            span = chooser(TEXT, rng)
            assert span is not None
            start = TEXT.rfind("\n", 0, span[0]) + 1
            lines = [line for line in TEXT[start : span[1]].split("\n") if line.strip()]
            indents = [len(line) - len(line.lstrip()) for line in lines]
            assert min(indents) == indents[0]
            assert TEXT[span[1] - 1] == "\n" or TEXT[span[1]] == "\n"


def test_body_is_the_whole_block(rng: np.random.Generator) -> None:
    found = {TEXT[slice(*span)] for span in (spans.body(TEXT, rng) for _ in range(50)) if span is not None}
    assert TEXT[TEXT.index("with") : TEXT.index("\n\n\n")] in found
    assert TEXT[TEXT.index("rows =") : TEXT.index("\n    return")] in found


def test_rest_of_line_ends_at_the_end(rng: np.random.Generator) -> None:
    for _ in range(50):
        span = spans.rest_of_line(TEXT, rng)
        assert span is not None
        assert "\n" not in TEXT[slice(*span)] and TEXT[span[1]] == "\n"


def test_choosers_without_a_place_say_so(rng: np.random.Generator) -> None:
    for chooser in (spans.one_line, spans.consecutive_lines, spans.bracketed, spans.rest_of_line, spans.body):
        assert chooser("\n\n", rng) is None
    assert spans.characters("", rng) is None


def test_mix_bounds_the_gaps(tokenizer: Tokenizer, rng: np.random.Generator) -> None:
    lengths = [
        [len(tokenizer.encode(TEXT[slice(*gap)])) for gap in choose_gaps(TEXT, tokenizer, 200, rng, mix)]
        for mix in (GapMix(body_share=0.0, few_share=1.0), GapMix(body_share=1.0))
        for _ in range(30)
    ]
    assert max(map(len, lengths[:30])) == 3
    assert all(len(row) == 1 and row[0] >= 16 for row in lengths[30:])


def test_gaps_and_texts_are_the_document(tokenizer: Tokenizer, rng: np.random.Generator) -> None:
    for _ in range(50):
        gaps = choose_gaps(TEXT, tokenizer, SHAPE.gap, rng)
        texts, middles = split_at_gaps(TEXT, gaps)
        joined = "".join(text + middle for text, middle in zip(texts, [*middles, ""], strict=True))
        assert joined == TEXT


def test_example_is_tokenised_as_at_inference(tokenizer: Tokenizer) -> None:
    start = TEXT.index("rows, total")
    example = make_example("python", TEXT, [(start, start + 11)], tokenizer, RowShape(400, 48, 64))
    assert example is not None
    assert example.texts[0] == opening_ids("python") + tokenizer.encode(TEXT[:start].rstrip(" "))
    assert example.gaps == [tokenizer.encode(" rows, total")]
    assert example.texts[1] == [*tokenizer.encode(TEXT[start + 11 :]), EOS]


def test_trimming_keeps_the_text_next_to_the_gap(tokenizer: Tokenizer) -> None:
    text = "a = 1\n" * 100 + "here\n" + "b = 2\n" * 100
    start = text.index("here")
    example = make_example(None, text, [(start, start + 4)], tokenizer, SHAPE)
    assert example is not None
    assert sum(map(len, example.texts)) == SHAPE.context
    assert tokenizer.decode(example.texts[0]).endswith("a = 1")
    assert tokenizer.decode(example.texts[1]).startswith("\nb = 2")


def test_complementary_masks_hide_each_token_once(rng: np.random.Generator) -> None:
    for length in range(1, 40):
        masks = mask_gap(length, Noise(full_share=0.0), rng)
        assert (masks.sum(axis=0) == 1).all()
        assert masks[0].any()
        assert mask_gap(length, Noise(full_share=1.0), rng)[0].all()


def test_rows_match_the_engine(pack_folder: Path, tokenizer: Tokenizer, rng: np.random.Generator) -> None:
    pack = read_pack(pack_folder, "train")
    examples = [draw_example(pack, tokenizer, SHAPE, rng) for _ in range(20)]
    batch = collate(examples, SHAPE, Noise(), rng)
    for row, example in enumerate(examples):
        holes = _hole_lengths(batch.gap_positions[row, 0, 0], batch.targets[row, 0], example.gaps)
        layout = lay_out([len(text) for text in example.texts], holes, SHAPE.hole_span)
        num_context, num_gap = len(layout.context_positions), layout.hole_positions.shape[1]
        assert (batch.context_positions[row, :num_context] == layout.context_positions.numpy()).all()
        assert (batch.gap_positions[row, 1, :, :num_gap] == layout.hole_positions.numpy()).all()
        assert (batch.edges[row, : len(holes)] == layout.edges.numpy()).all()
        assert (batch.context_ids[row, num_context:] == PAD).all()
        assert (batch.buckets[row, : len(holes)] >= 0).all() and (batch.buckets[row, len(holes) :] == -1).all()
        assert LENGTH_BUCKETS[batch.buckets[row, 0]] >= len(example.gaps[0])


def _hole_lengths(left: np.ndarray, targets: np.ndarray, gaps: list[list[int]]) -> list[int]:
    """Each gap's length with its deletes, read off the row."""
    lengths, used = [], 0
    for gap in gaps:
        end = used + len(gap)
        while end < len(targets) and targets[end] == DELETE and left[end] == left[end - 1] + 1:
            end += 1
        lengths.append(end - used)
        used = end
    return lengths


def test_loss_is_where_masks_are(pack_folder: Path, tokenizer: Tokenizer, rng: np.random.Generator) -> None:
    pack = read_pack(pack_folder, "train")
    examples = [draw_example(pack, tokenizer, SHAPE, rng) for _ in range(20)]
    batch = collate(examples, SHAPE, Noise(), rng)
    assert ((batch.weights > 0) == (batch.gap_ids == MASK)).all()
    deletes = np.where(batch.targets == DELETE, batch.weights, 0)[:, 0]
    assert deletes.any()
    assert (deletes.sum(axis=1) <= [len(example.gaps) + 1e-4 for example in examples]).all()


def test_windows_start_at_a_line(pack_folder: Path, tokenizer: Tokenizer, rng: np.random.Generator) -> None:
    pack = read_pack(pack_folder, "train")
    files = [
        tokenizer.decode(pack.tokens[start : start + length].tolist())
        for start, length in zip(pack.starts, pack.lengths, strict=True)
    ]
    for _ in range(20):
        _, text = draw_window(pack, tokenizer, 40, rng)
        assert any(file.startswith(text) or "\n" + text in file for file in files)


def test_pack_holds_out_whole_packages(pack_folder: Path) -> None:
    train, validation = read_pack(pack_folder, "train"), read_pack(pack_folder, "validation")
    assert set(validation.package_names) and not set(validation.package_names) & set(train.package_names)
    assert "boltons" not in train.package_names + validation.package_names
    assert len(set(train.languages.tolist())) == 3


def test_damaged_shard_is_refused(pack_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(pack_folder / "set-00", tmp_path / "set-00")
    shard = tmp_path / "set-00/validation-00.bin"
    shard.write_bytes(b"\0\0" + shard.read_bytes()[2:])
    with pytest.raises(ValueError, match="is damaged"):
        read_pack(tmp_path, "validation")


def test_sets_travel_and_join(pack_folder: Path, tmp_path: Path) -> None:
    for name in ("set-01", "set-00"):
        squeeze(pack_folder / name, tmp_path / "squeezed" / name)
        assert unpack(tmp_path / "squeezed" / name, tmp_path / "pack") == tmp_path / "pack" / name
    original, arrived = read_pack(pack_folder, "train"), read_pack(tmp_path / "pack", "train")
    assert np.array_equal(original.tokens, arrived.tokens) and original.sha256 == arrived.sha256
    assert original.package_names == arrived.package_names
    assert len(original.tokens) == original.starts[-1] + original.lengths[-1]
    with pytest.raises(FileExistsError, match="has a set named set-00"):
        unpack(tmp_path / "squeezed/set-00", tmp_path / "pack")


def test_set_damaged_on_the_way_does_not_join(pack_folder: Path, tmp_path: Path) -> None:
    squeeze(pack_folder / "set-00", tmp_path / "set-00")
    (tmp_path / "set-00/train-00.bin.xz").write_bytes(lzma.compress(b"\0\0"))
    with pytest.raises(ValueError, match="is damaged"):
        unpack(tmp_path / "set-00", tmp_path / "pack")
    assert list((tmp_path / "pack").iterdir()) == []
    with pytest.raises(ValueError, match="no train set"):
        read_pack(tmp_path / "pack", "train")


def test_batches_draw_from_sets_that_arrive(pack_folder: Path, tmp_path: Path) -> None:
    shape = RowShape(48, 24, 32)
    shutil.copytree(pack_folder / "set-00", tmp_path / "set-00")
    loader = Loader(tmp_path, pack_folder / "tokenizer.json", shape, rows=4, seed=3, num_workers=1)
    try:
        before = list(islice(loader.spans(0, Noise()), 2))
        again = list(islice(loader.spans(0, Noise()), 2))
        assert all(np.array_equal(a.context_ids, b.context_ids) for a, b in zip(before, again, strict=True))
        shutil.copytree(pack_folder / "set-01", tmp_path / "set-01")
        after = list(islice(loader.spans(0, Noise()), 2))
        assert not np.array_equal(before[0].context_ids, after[0].context_ids)
    finally:
        loader.close()


def test_fim_rows_hold_the_document(pack_folder: Path, tokenizer: Tokenizer, rng: np.random.Generator) -> None:
    pack = read_pack(pack_folder, "train")
    files = [
        tokenizer.decode_bytes(pack.tokens[start : start + length].tolist()).decode()
        for start, length in zip(pack.starts, pack.lengths, strict=True)
    ]
    for _ in range(50):
        row = draw_fim(pack, tokenizer, 120, rng).tolist()
        assert len(row) == 120
        ids = row[: row.index(EOS)]
        assert set(row[row.index(EOS) + 1 :]) <= {PAD}
        before, after, middle = (ids.index(special) for special in (PREFIX, SUFFIX, MIDDLE))
        parts = (ids[before + 1 : after], ids[middle + 1 :], ids[after + 1 : middle])
        document = b"".join(tokenizer.decode_bytes(part) for part in parts).decode()
        assert any(document.strip("\n") in file for file in files)


def test_buckets_cover_every_gap() -> None:
    assert torch.tensor(LENGTH_BUCKETS).diff().min() > 0


def test_a_causal_copy_tells_no_length(pack_folder: Path, tokenizer: Tokenizer, rng: np.random.Generator) -> None:
    """Each position asks for the next token, the last for END; nothing of it depends on how long its gap is."""
    pack, shape = read_pack(pack_folder, "train"), replace(SHAPE, copies=("causal", "tokens", "queries"))
    example = next(e for e in iter(lambda: draw_example(pack, tokenizer, shape, rng), None) if len(e.gaps) > 1)
    short = Example(example.texts, [example.gaps[0][:1], *example.gaps[1:]])
    whole, cut = (collate([each], shape, Noise(), rng) for each in (example, short))
    assert (whole.gap_positions[:, :, 0] == whole.gap_positions[:, :, 1]).all()
    lengths = [len(gap) for gap in example.gaps]
    ids, targets, used = whole.gap_ids[0, 0], whole.targets[0, 0], 0
    for gap in example.gaps:
        here = slice(used, used + len(gap) + 1)
        assert ids[here].tolist() == [START, *gap] and targets[here].tolist() == [*gap, END]
        used = here.stop
    assert (whole.gap_ids[0, 2, :used] == MASK).all() and (whole.targets[0, 2, :used] == targets[:used]).all()
    for name in ("gap_positions", "groups", "sees", "ranks"):
        kept, before = getattr(cut, name)[0], getattr(whole, name)[0]
        assert (kept[..., :2] == before[..., :2])[[0, 2]].all(), name
        assert (kept[[0, 2], ..., 2 : used + 1 - lengths[0]] == before[[0, 2], ..., lengths[0] + 1 : used]).all(), name
