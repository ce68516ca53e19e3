"""Rows: spans are what they claim, rows are what the engine reads, packs hold whole packages out and travel whole."""

import json
import lzma
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from midfill_engine.causal.prompt import lay_prompt
from midfill_engine.loading.runtime import load_runtime
from training.data import spans
from training.data.corpus import is_validation
from training.data.cutter import Cutter
from training.data.loader import Batching, Loader, Source
from training.data.pack import read_pack, squeeze, unpack, write_pack
from training.data.rows import Drawn, RowShape, draw_row, lay_prompt_row, lay_tree

SPLITS = "train", "validation"
HELD = next(name for name in map("held{}".format, range(400)) if is_validation(name))
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
    for chooser in (spans.one_line, spans.consecutive_lines, spans.rest_of_line, spans.body):
        assert chooser("\n\n", rng) is None


def text_of(cutter: Cutter, ids: list[int]) -> str:
    return b"".join(cutter.pieces[each] for each in ids).decode()


def test_a_prompt_row_is_what_the_engine_reads(base: Path, cutter: Cutter, rng: np.random.Generator) -> None:
    """The ids behind which the engine drafts, then the hole's text and the lines that judge it, in one tokenization."""
    text = "".join(f"def f{number}(x):\n    y = x + {number}\n    return y\n\n\n" for number in range(30))
    runtime, aboves = load_runtime(str(base), "cpu"), 0
    for row in filter(None, (lay_prompt_row(Drawn(text), cutter, RowShape(num_tokens=4000), rng) for _ in range(60))):
        number = row.weights.index(1.0)
        given, asked = text_of(cutter, row.context[:number]), text_of(cutter, row.context[number:])
        start = next(place for place in range(len(given)) if text.startswith(given[place:]))
        after = text[len(given) - start :].removeprefix(asked[: asked.find("\n", asked.find(")"))])
        assert text.startswith(given[start:] + asked)
        prompt = lay_prompt(runtime, given[start:], "")
        assert text_of(cutter, list(prompt.ids)).encode() + prompt.pending == given[start:].encode()
        above = given[:start].strip("\n")
        assert above in after and (not above or given[:start].endswith("\n\n\n"))
        aboves += bool(above)
    assert aboves > 5


def test_a_prompt_row_shows_excerpts_of_its_file_and_of_other_files(cutter: Cutter, rng: np.random.Generator) -> None:
    text = "".join(
        f"def f{number}(x):\n    y = x + {number}\n    return parse_invoice(y)\n\n\n" for number in range(30)
    )
    far, other = "total = parse_invoice(far_away)\n", "print(parse_invoice(elsewhere))\n"
    filler = "".join(f"name_{number} = {number}\n" for number in range(200))
    drawn = Drawn(text, above=far + filler, others=("unlike = 1\n", other))
    rows = [lay_prompt_row(drawn, cutter, RowShape(num_tokens=9000), rng) for _ in range(60)]
    shown = [text_of(cutter, row.context) for row in rows if row is not None]
    found = [other.strip() in each and far in each for each in shown]
    assert any(found) and not all(found), "most rows have excerpts, some have none"
    assert not any("unlike" in each for each in shown)


def test_a_tree_holds_its_text_and_the_holes_in_it(cutter: Cutter, rng: np.random.Generator) -> None:
    for sentinels in (False, True):
        shape = RowShape("tree", 600, sentinels=sentinels)
        row = lay_tree(Drawn(TEXT * 2), cutter, shape, rng)
        assert row is not None and text_of(cutter, row.context) == TEXT * 2
        assert len(row.context) + sum(len(each.lead) + len(each.ids) for each in row.branches) <= shape.room
        for branch in row.branches:
            seen = text_of(cutter, row.context[: branch.start])
            if sentinels:
                suffix_id, hole_id, end_id, _ = cutter.sentinels
                gap = text_of(cutter, branch.lead[branch.lead.index(hole_id) + 1 :])
                assert branch.lead[0] == suffix_id and branch.ids[-1] == end_id
                assert (TEXT * 2).startswith(seen + gap + text_of(cutter, branch.ids[:-1]))
            else:
                lead, asked = text_of(cutter, branch.lead), text_of(cutter, branch.ids)
                again = lead[lead.rfind("\n\n") + 2 :]
                assert lead.startswith("\n\n") and again.split("\n")[-1] + asked in TEXT * 2


def test_pack_holds_out_whole_packages(pack_folder: Path) -> None:
    train, validation = read_pack(pack_folder, "train"), read_pack(pack_folder, "validation")
    assert set(validation.package_names) and not set(validation.package_names) & set(train.package_names)
    assert "boltons" not in train.package_names + validation.package_names
    assert len(set(train.languages.tolist())) == 3


@pytest.mark.parametrize("packages", [("mine", "mine"), ("mine", "other"), (HELD, HELD)])
def test_a_small_corpus_of_one_language_has_a_part_held_out(
    packages: tuple[str, str], cutter: Cutter, tmp_path: Path
) -> None:
    """A file, as no package is drawn; all other text is there to train with."""
    rows = [{"package": packages[n % 2], "path": f"{n}.py", "text": f"def f{n}(x):\n    return x\n"} for n in range(6)]
    with lzma.open(tmp_path / "python-00.jsonl.xz", "wt") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
    write_pack(tmp_path, cutter, tmp_path / "pack", 10_000)
    train, validation = (text_of(cutter, read_pack(tmp_path / "pack", split).tokens.tolist()) for split in SPLITS)
    assert sorted(train + validation) == sorted("".join(str(row["text"]) for row in rows))
    assert validation.count("def") == 1
    with pytest.raises(FileExistsError, match="name another folder"):
        write_pack(tmp_path, cutter, tmp_path / "pack", 10_000, num_sets=1)


def test_a_pack_that_cannot_serve_is_refused(pack_folder: Path, cutter: Cutter, rng: np.random.Generator) -> None:
    other = replace(cutter, pieces=cutter.pieces[::-1])
    with pytest.raises(ValueError, match="another tokenizer"):
        Source(pack_folder, other, RowShape(), Batching(400), seed=3).make(0)
    with pytest.raises(ValueError, match="a row of 2 tokens: raise row_tokens"):
        draw_row(read_pack(pack_folder, "train"), cutter, RowShape(num_tokens=2), rng)


def test_a_corpus_without_enough_files_is_no_pack(cutter: Cutter, tmp_path: Path) -> None:
    with lzma.open(tmp_path / "python-00.jsonl.xz", "wt") as lines:
        lines.write(json.dumps({"package": "mine", "path": "a.py", "text": "x = 1\n"}) + "\n")
    with pytest.raises(ValueError, match="too few files"):
        write_pack(tmp_path, cutter, tmp_path / "pack", 10_000)
    with pytest.raises(FileNotFoundError, match="no LANGUAGE-NN.jsonl.xz"):
        write_pack(tmp_path / "pack", cutter, tmp_path / "other", 10_000)


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


def test_steps_depend_on_their_number_and_the_sets_present(pack_folder: Path, cutter: Cutter, tmp_path: Path) -> None:
    shutil.copytree(pack_folder / "set-00", tmp_path / "set-00")
    source = Source(tmp_path, cutter, RowShape(num_tokens=200), Batching(400), seed=3)
    loader = Loader(source, num_workers=1)
    try:
        ahead, here = list(islice(loader.steps(0), 3)), [source.make(index) for index in range(3)]
        for one, other in zip(ahead, here, strict=True):
            assert all(torch.equal(a.ids, b.ids) for a, b in zip(one, other, strict=True))
        shutil.copytree(pack_folder / "set-01", tmp_path / "set-01")
        assert not torch.equal(next(loader.steps(0))[0].ids, here[0][0].ids)
    finally:
        loader.close()


def test_rows_begin_at_a_line(pack_folder: Path, cutter: Cutter, rng: np.random.Generator) -> None:
    pack = read_pack(pack_folder, "train")
    files = text_of(cutter, pack.tokens.tolist())
    for _ in range(20):
        row = draw_row(pack, cutter, RowShape("tree", 300), rng)
        text = text_of(cutter, row.context)
        assert len(row.context) <= 300 and text in files and text.endswith("\n")
